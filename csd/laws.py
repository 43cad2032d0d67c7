"""The vocabulary of verification: pairs of laws (p, q) at some positions, and what a rule is.

Letters: p target, q draft, H entropy of p in nats, tv total variation between p and q, b probability to keep a draft.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from csd.knobs import Knob
from csd.space import Space

Array = np.ndarray


def entropy(p: Array) -> Array:
    """Entropy in nats of each row: [n, V] → [n]. Zero entries count as 0 ln 0 = 0."""
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(-1)


def total_variation(p: Array, q: Array) -> Array:
    """Half the L1 distance of each pair of rows: [n, V] → [n]."""
    return 0.5 * np.abs(p - q).sum(-1)


class Laws:
    """The pairs (p, q) of some positions, float64 [n, V], with what rules ask of them computed once, when first asked.

    depth [n]: how many drafts of the round precede each (default: 0, 1, …). space: the code space, for rules that pool.
    """

    def __init__(self, p: Array, q: Array, depth: Array | None = None, space: Space | None = None):
        self.p, self.q, self.space = p, q, space
        self.depth = np.arange(len(p)) if depth is None else depth

    def __len__(self) -> int:
        return len(self.p)

    def part(self, some: slice) -> Laws:
        """Some of the positions."""
        return Laws(self.p[some], self.q[some], self.depth[some], self.space)

    @cached_property
    def H(self) -> Array:
        return entropy(self.p)

    def entropy_at(self, rows: Array) -> Array:
        """H of some rows int [n], without computing it for the others."""
        return self.H[rows] if "H" in vars(self) else entropy(self.p[rows])

    @cached_property
    def tv(self) -> Array:
        return total_variation(self.p, self.q)

    @cached_property
    def rows(self) -> Array:
        return np.arange(len(self.p))

    def ratio(self, x: Array | None = None) -> Array:
        """p/q at tokens x int [n] → [n], or for every token → [n, V]. Where q is 0 the token cannot be drafted: inf."""
        if x is None:
            return np.divide(self.p, self.q, out=np.full_like(self.p, np.inf), where=self.q > 0)
        return over_q(self, self.p[self.rows, x], x)


def over_q(laws: Laws, mass: Array, x: Array) -> Array:
    """mass [n] / q(x) at drafted tokens. AssertionError if a draft has q(x) = 0: then q is not the law it came from."""
    qx = laws.q[laws.rows, x]
    if not (qx > 0).all():
        raise AssertionError("a draft token has q(x) = 0, so q is not the law it was drawn from")
    return mass / qx


def normalised(r: Array, p: Array) -> Array:
    """Rows of r [n, V] scaled to sum 1; where nothing is left (p = q up to rounding) the target's own law p stands in."""
    mass = r.sum(-1, keepdims=True)
    empty = (mass <= 0)[:, 0]
    if empty.any():
        r, mass = np.where(empty[:, None], p, r), np.where(empty[:, None], 1.0, mass)
    return r / mass


def positive_part(laws: Laws, **knobs: object) -> Array:
    """norm((p - q)+), rows [n, V]: the residual that makes the exact rule exact (Leviathan et al., 2023, §2.3).

    It stays the best residual for any rule with min(1, p/q) <= b <= 1 (CSD, Thm 3.1-3.2).
    """
    r = laws.p - laws.q
    return normalised(np.maximum(r, 0.0, out=r), laws.p)


@dataclass(frozen=True)
class Rule:
    """accept(laws, x, **knobs): acceptance probabilities at tokens x [n] → [n], or with x None at all tokens → [n, V].

    residual(laws, **knobs): law of the replacement, rows [n, V]. detail(laws, x, **knobs): named per-position numbers for
    the trace, each [n]. joint: the drafts of a round are judged together (`verify.blockwise`); accept is then the exact
    rule's and says what a single draft would meet. pools: looks at `laws.space`. generous: b >= min(1, p/q) for every
    token, so a draft the exact rule keeps needs no further look. least(laws, x, **knobs): a bound below b that is cheaper
    than b, [n].
    """

    name: str
    title: str
    lossless: bool
    formula: str
    source: str
    accept: Callable[..., Array]
    residual: Callable[..., Array] = positive_part
    detail: Callable[..., dict[str, Array]] = field(default=lambda laws, x, **knobs: {})
    knobs: tuple[Knob, ...] = ()
    joint: bool = False
    pools: bool = False
    generous: bool = False
    least: Callable[..., Array] | None = None
