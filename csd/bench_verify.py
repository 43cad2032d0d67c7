"""What verification costs: `judge` against the loop a paper's pseudocode suggests, position by position, as in public code.

The loops here are the yardstick, nothing decodes with them. They read p and q of one position at a time, compute what
their rule is defined by over the whole vocabulary, and stop at the first rejection; grouping sorts the vocabulary at every
position, as GSD's published code does. They are written twice, in torch, as public code is, and in numpy, to show how much
is due to the library.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from csd.laws import Laws
from csd.rules import RULES
from csd.space import Space
from csd.verify import judge

Array = np.ndarray
KNOBS = {
    "exact": {},
    "csd": {"weight": 0.5, "delta": 0.65},
    "gsd": {"group": 10, "cluster": "dynamic", "gap": 0.15, "reach": 0.5},
}


@dataclass(frozen=True)
class Case:
    """One round of `rule`, whose last draft is thrown away and no other. p, q float64 [n, V], x int64 [n], u [n]."""

    rule: str
    p: Array
    q: Array
    x: Array
    u: Array
    space: Space

    @property
    def laws(self) -> Laws:
        """Nothing computed yet."""
        return Laws(self.p, self.q, space=self.space)


def case(rule: str, positions: int = 16, vocab: int = 16_384, seed: int = 0) -> Case:
    """A round as real models make them: p of some 2 nats below uniform, q near it (tv about 0.2), far from it at the end.

    The draws are uniform among those that keep a draft, or, at the last position, throw it away.
    """
    rng = np.random.default_rng(seed)
    z = 2.0 * rng.standard_normal((positions, vocab))
    near = z + 0.5 * rng.standard_normal(z.shape)
    near[-1] = 2.0 * rng.standard_normal(vocab)
    p, q = (np.exp(m) / np.exp(m).sum(-1, keepdims=True) for m in (z, near))
    codes = rng.standard_normal((vocab, 8)).astype(np.float32)
    space = Space(codes / np.linalg.norm(codes, axis=-1, keepdims=True))
    while True:
        x = np.array([rng.choice(vocab, p=row) for row in q])
        b = RULES[rule].accept(Laws(p, q, space=space), x, **KNOBS[rule])
        if b[-1] < 0.9:
            break
    u = b * rng.random(positions)
    u[-1] = b[-1] + (1 - b[-1]) * rng.random()
    return Case(rule, p, q, x, u, space)


def ours(c: Case) -> tuple[int, Array]:
    """(drafts kept, law of the replacement [V]) as the decoding loop gets them."""
    judged = judge(RULES[c.rule], c.laws, c.x, c.u, KNOBS[c.rule])
    return judged.accepted, judged.weights


def loop(c: Case, m, p, q, codes) -> tuple[int, Array]:
    """The same, position by position. m: torch or numpy; p, q [n, V] and the unit codes [V, d] in its arrays."""
    knobs = KNOBS[c.rule]
    for i, x in enumerate(c.x.tolist()):
        px, qx = p[i, x], q[i, x]
        if c.rule == "gsd":
            order = m.argsort(p[i])
            rank = int(m.where(order == x)[0][0])
            C = order[max(0, rank - knobs["group"] // 2) : rank + (knobs["group"] - 1) // 2 + 1]
            C = C[(abs(p[i][C] - px) < knobs["gap"]) & (((codes[C] - codes[x]) ** 2).sum(-1) < knobs["reach"])]
            px, qx = p[i][C].sum(), q[i][C].sum()
        b = px / qx
        if c.rule == "csd":
            H = -(p[i] * m.log(p[i])).sum()
            tv = 0.5 * abs(p[i] - q[i]).sum()
            b = b + knobs["weight"] * H if tv < knobs["delta"] else b
        if c.u[i] >= min(1.0, float(b)):
            left = m.where(p[i] > q[i], p[i] - q[i], 0.0)
            return i, left / left.sum()
    return len(c.x), None


def measure(positions: int = 16, vocab: int = 16_384, repeats: int = 30) -> Iterator[dict]:
    """One row per rule: median milliseconds of a round, ours and the loops', interleaved, and the ratios. One thread."""
    import torch

    for rule in KNOBS:
        c = case(rule, positions, vocab)
        arrays = c.p, c.q, c.space.vectors
        tensors = [torch.from_numpy(a) for a in arrays]
        ways = {"judge": partial(ours, c), "loop_torch": partial(loop, c, torch, *tensors),
                "loop_numpy": partial(loop, c, np, *arrays)}  # fmt: skip
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats):
            for name, way in ways.items():
                begin = time.perf_counter()
                way()
                seconds[name].append(time.perf_counter() - begin)
        ms = {name: 1e3 * statistics.median(s) for name, s in seconds.items()}
        yield {"rule": rule, "positions": positions, "vocab": vocab, **ms,
               "torch_ratio": ms["loop_torch"] / ms["judge"], "numpy_ratio": ms["loop_numpy"] / ms["judge"]}  # fmt: skip
