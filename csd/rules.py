"""Acceptance rules: pure functions of the target's law p, the draft's law q and the drafted token x.

    verify(x):  u < accept(p, q)(x)  →  keep x;   otherwise emit y ~ residual(p, q) and stop the round.

A rule is two functions: the probability to accept a drafted token, and the law a replacement is drawn from. Everything
else about it here (formula, knobs, source) is for people. (The CSD paper swaps p and q; all formulas here are translated.)
Rules that look at neighbouring codes are in `pooling.py`; block verification, which judges a round's drafts together, is in
`verify.py`.
"""

from __future__ import annotations

import numpy as np

from csd import pooling
from csd.knobs import Knob
from csd.laws import Laws, Rule, entropy, normalised, positive_part, total_variation

__all__ = ["RULES", "Laws", "Rule", "drift", "entropy", "positive_part", "total_variation"]

Array = np.ndarray


def exact(laws: Laws, x: Array | None = None) -> Array:
    """b = min(1, p(x)/q(x)). Speculative sampling: Leviathan et al., 2023, eq. 1; Chen et al., 2023, alg. 2."""
    return np.minimum(1.0, laws.ratio(x))


def amplify(laws: Laws, x: Array | None = None, *, factor: float) -> Array:
    """b = min(1, k p(x)/q(x)): Leviathan et al.'s lenience with k = 1/l (2023, §A.5); Amplify in the CSD paper's tables."""
    return np.minimum(1.0, factor * laws.ratio(x))


def addition(laws: Laws, x: Array | None = None, *, bonus: float) -> Array:
    """b = min(1, p(x)/q(x) + e), a constant bonus: Yin et al., 2024 (arXiv 2411.00841); Addition in the CSD paper."""
    return np.minimum(1.0, laws.ratio(x) + bonus)


def csd_bonus(laws: Laws, weight: float, delta: float) -> Array:
    """eps = weight · H(p) where tv(p, q) < delta, else 0; [n]. CSD (Wang et al., 2026, arXiv 2606.27829), §3.3-3.4."""
    eps, open_ = np.zeros(len(laws.tv)), np.flatnonzero(laws.tv < delta)
    eps[open_] = weight * laws.entropy_at(open_)
    return eps


def csd_least(laws: Laws, x: Array, *, weight: float, delta: float) -> Array:
    """`csd` with the collision entropy -ln Σp² for H: never more (Rényi, 1961), and without a logarithm per token."""
    collision = np.maximum(-np.log(np.einsum("ij,ij->i", laws.p, laws.p)), 0.0)
    return np.minimum(1.0, laws.ratio(x) + weight * collision * (laws.tv < delta) * (1 - 1e-9))  # less rounding


def csd(laws: Laws, x: Array | None = None, *, weight: float, delta: float) -> Array:
    """b = min(1, p(x)/q(x) + eps): the bonus is added to the ratio, then clipped. CSD, algorithm 1."""
    eps = csd_bonus(laws, weight, delta)
    return np.minimum(1.0, laws.ratio(x) + (eps if x is not None else eps[:, None]))


def csd_detail(laws: Laws, x: Array, *, weight: float, delta: float) -> dict[str, Array]:
    """eps; whether the gate tv < delta is open; whether eps >= 1, which accepts any token."""
    eps = csd_bonus(laws, weight, delta)
    return {"eps": eps, "gate": laws.tv < delta, "saturated": eps >= 1}


def annealed(weights: tuple, depth: Array) -> Array:
    """COOL-SD's weight of each draft, by how many drafts precede it in the round; the last one holds from there on."""
    return np.asarray(weights, np.float64)[np.minimum(depth, len(weights) - 1)]


def cool(laws: Laws, x: Array | None = None, *, weights: tuple) -> Array:
    """b = min(1, w_i p(x)/q(x)), w_i by depth in the draft chain. COOL-SD (Li et al., 2026, arXiv 2601.09212)."""
    w = annealed(weights, laws.depth)
    return np.minimum(1.0, laws.ratio(x) * (w if x is not None else w[:, None]))


def cool_detail(laws: Laws, x: Array, *, weights: tuple) -> dict[str, Array]:
    """The weight of each draft's depth."""
    return {"w": annealed(weights, laws.depth)}


def left_over(laws: Laws, *, weights: tuple) -> Array:
    """norm((p - q b)+): the best residual for any b (COOL-SD, Prop. 1); with w < 1 it makes the rule exactly lossless."""
    return normalised(np.maximum(laws.p - laws.q * np.where(laws.q > 0, cool(laws, weights=weights), 0.0), 0.0), laws.p)


FACTOR = Knob("factor", "factor k", 1.3, 1.0, 100.0,
              "Multiplies p/q. 1 is exact. The CSD paper runs 1.3 on Lumina-mGPT and 4 on Janus-Pro 7B.")  # fmt: skip
BONUS = Knob("bonus", "bonus e", 0.1, 0.0, 1.0,
             "Added to p/q everywhere. 0 is exact. The CSD paper: 0.1 on Lumina-mGPT, 0.4 on Janus-Pro 7B.")  # fmt: skip
WEIGHT = Knob("weight", "entropy weight λ", 0.5, 0.0, 5.0,
              "Bonus per nat of target entropy, added to p/q. 0 is the exact rule; 0.5 is the paper's value.")  # fmt: skip
DELTA = Knob("delta", "gate δ", 0.65, 0.0, 1.01,
             "The bonus applies only where TV(p, q) < δ; 0 is exact. From about 0.9 even uniform fillers pass and ruin the "
             "picture.")  # fmt: skip
# exp(-0.7 i), scaled to a mean of 1.1 over five drafts: the schedule whose normalisation the paper's notes leave open
WEIGHTS = Knob("weights", "weights w", (2.86, 1.42, 0.7, 0.35, 0.17), 0.0, 100.0,
               "Multiplies p/q by depth in the round: first draft, second, …; the last holds for all later ones. 1 is "
               "exact; below 1 the rule is stricter than exact, and still lossless there.")  # fmt: skip


def drift(rule: Rule, laws: Laws, **knobs: object) -> tuple[Array, Array]:
    """What a rule does to the law of each position: (total variation between emitted law and p, rejection mass R), [n].

    emitted(y) = q(y) b(y) + R · residual(y), with R = Σ q (1 - b). Zero drift for a lossless rule.
    """
    b = rule.accept(laws, **knobs)
    kept = laws.q * np.where(laws.q > 0, b, 0.0)
    rejected = np.maximum(1.0 - kept.sum(-1), 0.0)
    emitted = kept + rejected[:, None] * rule.residual(laws, **knobs)
    return total_variation(emitted, laws.p), rejected


RULES: dict[str, Rule] = {
    r.name: r
    for r in (
        Rule("exact", "exact", True, "b = min(1, p/q)", "Leviathan et al., 2023; Chen et al., 2023", exact, generous=True),
        Rule("block", "block verification", True, "b_i = S_i / (S_i + 1 − P_i), P_i = min(1, P_{i−1} p/q)",
             "Sun et al., 2024 (arXiv 2403.10444)", exact, joint=True),
        Rule("csd", "content-aware", False, "b = min(1, p/q + λ·H(p)·[TV(p, q) < δ])",
             "Wang et al., 2026 (CSD, arXiv 2606.27829), algorithm 1", csd, detail=csd_detail, knobs=(WEIGHT, DELTA),
             generous=True, least=csd_least),
        Rule("amplify", "amplified", False, "b = min(1, k·p/q)", "Leviathan et al., 2023, lenience k = 1/l", amplify,
             knobs=(FACTOR,), generous=True),
        Rule("addition", "additive", False, "b = min(1, p/q + e)", "Yin et al., 2024 (arXiv 2411.00841)", addition,
             knobs=(BONUS,), generous=True),
        Rule("cool", "annealed", False, "b = min(1, w_i·p/q), residual norm((p − q·b)₊)",
             "Li et al., 2026 (COOL-SD, arXiv 2601.09212)", cool, left_over, cool_detail, knobs=(WEIGHTS,)),
        *pooling.RULES,
    )
}  # fmt: skip
