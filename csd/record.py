"""What is written down about a round: every number a view may show, from full p and q, before they are thrown away.

Per committed cell: token, outcome, entropy of p, variance of log p (for the calibration score), log p of the token, drift,
age of its draft. Per examined draft: the decision with all its numbers, and what the other rules would have said to the
same draw. Whole distributions are kept only where asked; the TOP likeliest tokens always.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np

from csd import rules
from csd.drafters import Draft
from csd.rules import Laws, Rule
from csd.trace import Round

Array = np.ndarray
TOP = 8


@dataclass
class Verdict:
    """The examined positions of a round (accepted drafts and the first rejected one) and the token that ended it.

    laws, b, b_exact, u have one row per examined position; b is None where it is the rule's own. extra is the target's own
    token (-1 at the end of a picture whose last draft was accepted), source where it comes from: resampled, bonus or first.
    """

    laws: Laws
    b: Array | None
    b_exact: Array
    u: Array
    accepted: int
    extra: int
    source: str
    draw: float | None  # the uniform draw behind `extra`
    lossless: bool = True  # whether the rule relaxes nothing

    @property
    def outcomes(self) -> list[str]:
        """One per committed token."""
        relaxed = (self.u >= self.b_exact) & (not self.lossless)
        kept = np.where(relaxed, "relaxed", "exact")[: self.accepted].tolist()
        return kept + ([self.source] if self.source else [])


def round_event(number: int, start: int, fed: int, d: Draft, p: Array, v: Verdict, committed: Array, rule: Rule,
                knobs: dict, detail: str, keep: set[int]) -> Round:  # fmt: skip
    """The event of one round. p [rows, V]: the target's laws from `start` on; committed: the tokens that entered."""
    n, examined, outcomes = len(committed), len(v.u), v.outcomes
    at = list(range(start, start + n))
    cells: dict = {"pos": at, "token": committed.tolist(), "outcome": outcomes}
    event = Round(
        round=number, start=start, fed=fed, drafted=len(d.tokens), examined=examined, accepted=v.accepted,
        relaxed=outcomes.count("relaxed"), committed=n, bonus=v.source == "bonus", cells=cells,
    )  # fmt: skip
    if detail == "none":
        return event
    event.draw = v.draw
    event.window, event.origin, event.age = d.tokens.tolist(), list(d.origin), list(d.age)
    own = p[:n]
    logp = np.log(np.where(own > 0, own, 1.0))
    H = -(own * logp).sum(-1)
    with np.errstate(divide="ignore"):
        log_token = np.log(own[np.arange(n), committed])  # -inf where relaxation let a token of probability 0 in
    drift, rejected = rules.drift(rule, v.laws, **knobs)
    pad = max(0, n - examined)  # the bonus or first token obeys p: no drift
    cells |= {
        "H": _round(H), "var": _round((own * logp**2).sum(-1) - H**2), "logp": _round(log_token),
        "drift": _round(np.concatenate([drift, np.zeros(pad)])[:n]),
        "age": [int(a) for a in d.age[: v.accepted]] + [None] * (n - v.accepted) if d.testable else [None] * n,
    }  # fmt: skip
    if examined:
        event.tests = _tests(start, d, v, rule, knobs, drift, rejected)
    event.top = {"pos": at, "p": _top(own)}
    if examined:
        event.top["q_pos"], event.top["q"] = list(range(start, start + examined)), _top(v.laws.q)
    if keep & set(at):
        event.full = {str(i): _full(p, v.laws, i - start, examined) for i in at if i in keep}
    return event


def _tests(start: int, d: Draft, v: Verdict, rule: Rule, knobs: dict, drift: Array, rejected: Array) -> dict:
    """Columns of numbers, one entry per examined draft; b_<rule> for every rule, the others at their defaults."""
    laws, n = v.laws, len(v.u)
    x, rows = d.tokens[:n], np.arange(n)
    p, q = laws.p, laws.q
    px, qx = p[rows, x], q[rows, x]
    b = rule.accept(laws, x, **knobs) if v.b is None else v.b
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(px) - np.log(qx)
        kl = np.where(p > 0, p * (np.log(np.where(p > 0, p, 1)) - np.log(q)), 0.0).sum(-1)
    out = {
        "pos": list(range(start, start + n)), "x": x.tolist(), "origin": d.origin[:n], "age": d.age[:n],
        "changed": d.changed[:n], "p": _round(px), "q": _round(qx), "log_ratio": _round(log_ratio),
        "rank_p": (p > px[:, None]).sum(-1).tolist(), "rank_q": (q > qx[:, None]).sum(-1).tolist(),
        "H": _round(laws.H), "Hq": _round(rules.entropy(q)), "max_p": _round(p.max(-1)), "tv": _round(laws.tv),
        "tv_uniform": _round(rules.total_variation(p, np.full_like(p, 1 / p.shape[-1]))), "kl": _round(kl),
        "collision": _round((p * q).sum(-1)), "beta": _round(1 - laws.tv),
        "u": v.u.tolist(), "b": b.tolist(), "kept": [i < v.accepted for i in range(n)],
        "R": _round(rejected), "drift": _round(drift),
    }  # fmt: skip
    known = {"exact": v.b_exact, rule.name: b}
    for name, other in rules.RULES.items():
        if name not in known and (other.joint or (other.pools and laws.space is None)):
            continue
        b = known[name] if name in known else other.accept(laws, x, **{k.name: k.default for k in other.knobs})
        out[f"b_{name}"] = b.tolist()
    for key, values in rule.detail(laws, x, **knobs).items():
        out[key] = values.tolist() if values.dtype == bool else _round(values)
    return out


def _top(p: Array) -> list[list]:
    """Per row the TOP likeliest tokens, as [[ids], [probabilities]]."""
    k = min(TOP, p.shape[-1])
    ids = np.argpartition(-p, k - 1, -1)[:, :k]
    ids = np.take_along_axis(ids, np.argsort(-np.take_along_axis(p, ids, -1), -1, kind="stable"), -1)
    probs = np.take_along_axis(p, ids, -1)
    return [[i.tolist(), _round(w)] for i, w in zip(ids, probs, strict=True)]


def _full(p: Array, laws: Laws, i: int, examined: int) -> dict[str, str]:
    """Whole laws of one position as base64 float32."""
    out = {"p": _pack(p[i])}
    if i < examined:
        out["q"] = _pack(laws.q[i])
    return out


def _pack(x: Array) -> str:
    return base64.b64encode(np.asarray(x, "<f4").tobytes()).decode()


def unpack(text: str) -> Array:
    """Inverse of the packing of whole laws: base64 → float32 [V]."""
    return np.frombuffer(base64.b64decode(text), "<f4")


def _round(x: Array) -> list:
    """Six significant digits are enough for a view; u and b are stored whole because verdicts hang on them."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in x.tolist()]
