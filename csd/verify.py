"""How the drafts of a round are judged: one after the other, or as a block. Pure functions of laws, drafts and draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from csd.laws import Laws, Rule, normalised

Array = np.ndarray


@dataclass
class Judged:
    """accepted: drafts kept; used: draws used up; weights: law of the token that replaces draft number `accepted`, [V], or
    None when all were kept; b [k]: probabilities the draws were compared with, where they are not the rule's own."""

    accepted: int
    used: int
    weights: Array | None
    b: Array | None = None


def judge(rule: Rule, laws: Laws, x: Array, u: Array, knobs: dict) -> Judged:
    """Verdicts on drafts x [k] with draws u [k] in [0, 1)."""
    if not len(x):
        return Judged(0, 0, None)
    return (blockwise if rule.joint else left_to_right)(rule, laws, x, u, knobs)


def left_to_right(rule: Rule, laws: Laws, x: Array, u: Array, knobs: dict) -> Judged:
    """The first draft with u >= b ends the round. Leviathan et al., 2023, algorithm 1.

    A window is mostly kept, and b of a whole law is what costs. So a generous rule is asked only about drafts the exact
    rule would not keep, one by one, those only if a cheap bound does not settle them, and none after the first rejection.
    """
    k, accepted = len(x), len(x)
    if not rule.generous:
        thrown = np.flatnonzero(u >= rule.accept(laws, x, **knobs))
        accepted = int(thrown[0]) if len(thrown) else k
    for i in np.flatnonzero(u >= laws.ratio(x)) if rule.generous else ():
        one = slice(i, i + 1)
        law = laws.part(one)
        if rule.least is not None and u[i] < rule.least(law, x[one], **knobs)[0]:
            continue
        if u[i] >= rule.accept(law, x[one], **knobs)[0]:
            accepted = int(i)
            break
    weights = rule.residual(laws.part(slice(accepted, accepted + 1)), **knobs)[0] if accepted < k else None
    return Judged(accepted, min(k, accepted + 1), weights)


def blockwise(rule: Rule, laws: Laws, x: Array, u: Array, knobs: dict) -> Judged:
    """Block verification (Sun et al., 2024, arXiv 2403.10444, algorithm 2): lossless, and never keeps fewer on average.

    P_i = min(1, P_{i-1} p_i/q_i); h_i = S_i / (S_i + 1 - P_i) with S_i = Σ (P_i p_{i+1} - q_{i+1})+ and h_k = P_k. The last
    i with u_i < h_i is where the block ends; the next token comes from norm((P_i p_{i+1} - q_{i+1})+).
    """
    k = len(x)
    P = np.ones(k + 1)
    for i, r in enumerate(laws.ratio(x)):
        P[i + 1] = min(1.0, P[i] * r)
    left = np.maximum(P[:k, None] * laws.p - laws.q, 0.0)  # row i: what may follow i kept drafts
    S = left[1:].sum(-1)
    h = np.append(np.divide(S, S + 1 - P[1:k], out=np.ones(max(0, k - 1)), where=S + 1 - P[1:k] > 0), P[k:])[:k]
    passed = np.flatnonzero(u < h)
    accepted = int(passed[-1]) + 1 if len(passed) else 0
    weights = normalised(left[accepted : accepted + 1], laws.p[accepted : accepted + 1])[0] if accepted < k else None
    return Judged(accepted, k, weights, h)
