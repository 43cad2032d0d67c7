"""Acceptance rules: pure functions of the target's law p, the draft's law q and the drafted token x.

    verify(x):  u < accept(p, q)(x)  →  keep x;   otherwise emit y ~ residual(p, q) and stop the round.

A rule is two functions: the probability to accept a drafted token, and the law a replacement is drawn from. Everything
else about it here (formula, knobs, source) is for people. Letters: p target, q draft, H entropy of p in nats, tv total
variation between p and q. (The CSD paper swaps p and q; all formulas here are translated.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from csd.knobs import Knob

Array = np.ndarray


def entropy(p: Array) -> Array:
    """Entropy in nats of each row: [n, V] → [n]. Zero entries count as 0 ln 0 = 0."""
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(-1)


def total_variation(p: Array, q: Array) -> Array:
    """Half the L1 distance of each pair of rows: [n, V] → [n]."""
    return 0.5 * np.abs(p - q).sum(-1)


class Laws:
    """The pairs (p, q) of some positions, float64 [n, V], with what rules ask of them computed once, when first asked."""

    def __init__(self, p: Array, q: Array):
        self.p, self.q = p, q

    def __len__(self) -> int:
        return len(self.p)

    def head(self, n: int) -> Laws:
        """The first n positions."""
        return Laws(self.p[:n], self.q[:n])

    @cached_property
    def H(self) -> Array:
        return entropy(self.p)

    @cached_property
    def tv(self) -> Array:
        return total_variation(self.p, self.q)

    def ratio(self, x: Array | None = None) -> Array:
        """p/q at tokens x int [n] → [n], or for every token → [n, V]. Where q is 0 the token cannot be drafted: inf."""
        if x is None:
            return np.divide(self.p, self.q, out=np.full_like(self.p, np.inf), where=self.q > 0)
        rows = np.arange(len(x))
        px, qx = self.p[rows, x], self.q[rows, x]
        if not (qx > 0).all():
            raise AssertionError("a draft token has q(x) = 0, so q is not the law it was drawn from")
        return px / qx


def positive_part(p: Array, q: Array) -> Array:
    """norm((p - q)+), rows [n, V]: the residual that makes the exact rule exact (Leviathan et al., 2023, §2.3).

    It stays the best residual for any rule with min(1, p/q) <= b <= 1 (CSD, Thm 3.1-3.2). Where p equals q up to
    rounding nothing is left; the target's own law p stands in.
    """
    r = np.maximum(p - q, 0.0)
    mass = r.sum(-1, keepdims=True)
    return np.where(mass > 0, r / np.where(mass > 0, mass, 1.0), p)


@dataclass(frozen=True)
class Rule:
    """accept(laws, x, **knobs): acceptance probabilities at tokens x [n] → [n], or with x None at all tokens → [n, V].

    residual(p, q): law of the replacement, rows [n, V]. detail(laws, **knobs): named per-position numbers for the
    trace, each [n].
    """

    name: str
    title: str
    lossless: bool
    formula: str
    source: str
    accept: Callable[..., Array]
    residual: Callable[[Array, Array], Array] = positive_part
    detail: Callable[..., dict[str, Array]] = field(default=lambda laws: {})
    knobs: tuple[Knob, ...] = ()


def exact(laws: Laws, x: Array | None = None) -> Array:
    """b = min(1, p(x)/q(x)). Speculative sampling: Leviathan et al., 2023, eq. 1; Chen et al., 2023, alg. 2."""
    return np.minimum(1.0, laws.ratio(x))


def csd_bonus(laws: Laws, weight: float, delta: float) -> Array:
    """eps = weight · H(p) where tv(p, q) < delta, else 0; [n]. CSD (Wang et al., 2026, arXiv 2606.27829), §3.3-3.4."""
    return weight * laws.H * (laws.tv < delta)


def csd(laws: Laws, x: Array | None = None, *, weight: float, delta: float) -> Array:
    """b = min(1, p(x)/q(x) + eps): the bonus is added to the ratio, then clipped. CSD, algorithm 1."""
    eps = csd_bonus(laws, weight, delta)
    return np.minimum(1.0, laws.ratio(x) + (eps if x is not None else eps[:, None]))


def csd_detail(laws: Laws, *, weight: float, delta: float) -> dict[str, Array]:
    """eps; whether the gate tv < delta is open; whether eps >= 1, which accepts any token."""
    eps = csd_bonus(laws, weight, delta)
    return {"eps": eps, "gate": laws.tv < delta, "saturated": eps >= 1}


WEIGHT = Knob(
    "weight",
    "entropy weight λ",
    0.5,
    0.0,
    5.0,
    "Bonus per nat of target entropy, added to p/q. 0 is the exact rule; 0.5 is the paper's value.",
)
DELTA = Knob(
    "delta",
    "gate δ",
    0.65,
    0.0,
    1.01,
    "The bonus applies only where TV(p, q) < δ; 0 is exact. From about 0.9 even uniform fillers pass and ruin the picture.",
)

RULES: dict[str, Rule] = {
    r.name: r
    for r in (
        Rule("exact", "exact", True, "b = min(1, p/q)", "Leviathan et al., 2023; Chen et al., 2023", exact),
        Rule("csd", "content-aware", False, "b = min(1, p/q + λ·H(p)·[TV(p, q) < δ])",
             "Wang et al., 2026 (CSD, arXiv 2606.27829), algorithm 1", csd, detail=csd_detail, knobs=(WEIGHT, DELTA)),
    )
}  # fmt: skip


def drift(rule: Rule, laws: Laws, **knobs: float) -> tuple[Array, Array]:
    """What a rule does to the law of each position: (total variation between emitted law and p, rejection mass R), [n].

    emitted(y) = q(y) b(y) + R · residual(y), with R = Σ q (1 - b). Zero drift for a lossless rule.
    """
    b = rule.accept(laws, **knobs)
    kept = laws.q * np.where(laws.q > 0, b, 0.0)
    rejected = np.maximum(1.0 - kept.sum(-1), 0.0)
    emitted = kept + rejected[:, None] * rule.residual(laws.p, laws.q)
    return total_variation(emitted, laws.p), rejected
