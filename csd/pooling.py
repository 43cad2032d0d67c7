"""Rules that pool probability over tokens that can stand for each other: GSD, LANTERN, LANTERN++.

None is lossless. The CSD and GSD papers keep the residual norm((p - q)+) for all of them and so does this file. LANTERN's
public code draws from another one (q' = 0 on the k + 1 nearest codes, which is one too many and does not depend on how many
were pooled); it is not offered.
"""

from __future__ import annotations

import numpy as np

from csd.knobs import Knob
from csd.laws import Laws, Rule, over_q

Array = np.ndarray
CHUNK = 64  # neighbours added at a time: most tokens have reached their bound by then

GROUP = Knob("group", "group G", 10, 1, 1000,
             "Tokens per group, the draft included. 1 is exact. The GSD paper runs 3 to 50, its code 14.", step=1,
             whole=True)  # fmt: skip
CLUSTER = Knob("cluster", "clusters", "dynamic", choices=("dynamic", "fixed"),
               meaning="dynamic, as published: the tokens next to the draft in the order of p; such groups overlap and can "
                       "reject what the exact rule accepts. fixed: a partition of the code space, for which the paper's "
                       "proof holds.")  # fmt: skip
GAP = Knob("gap", "probability gap θp", 0.15, 0.0, 1.0,
           "Dynamic groups leave out tokens whose p differs from the draft's by this much.", step=0.01)  # fmt: skip
REACH = Knob("reach", "embedding gap θd", 0.5, 0.0, 100.0,
             "Dynamic groups leave out codes whose squared distance from the draft's is this large. (The public code "
             "measures language-model embeddings; here it is the tokeniser's unit code vectors, 0 to 4.)")  # fmt: skip
NEIGHBOURS = Knob("neighbours", "neighbours k", 1000, 0, 100_000,
                  "Nearest codes that may lend the draft their probability. 0 is exact.", step=1, whole=True)  # fmt: skip
BUDGET = Knob("budget", "mass δ", 0.1, 0.0, 1.0,
              "Neighbours lend at most this much probability. 0 is exact; 0.1 is the code's value, 0.4 the paper's most. "
              "It bounds the change of p per candidate, not the drift.", step=0.01)  # fmt: skip
FEW = Knob("neighbours", "neighbours k", 10, 0, 100_000, NEIGHBOURS.meaning, step=1, whole=True)
MULTIPLE = Knob("multiple", "multiple λ", 5.0, 1.0, 1000.0,
                "Neighbours raise p(x) to at most λ p(x). 1 is exact; the paper runs 5 to 20 with k 5 to 10.")  # fmt: skip


def gsd(laws: Laws, x: Array | None = None, *, group: int, cluster: str, gap: float, reach: float) -> Array:
    """b = min(1, p(C)/q(C)), C the group of x. GSD (So et al., 2025, arXiv 2508.07747); its code's G consecutive ranks."""
    pc, qc = _fixed(laws, group) if cluster == "fixed" else _ranked(laws, x, group, gap, reach)[:2]
    if cluster == "fixed" and x is not None:
        pc, qc = pc[laws.rows, x], qc[laws.rows, x]
    if x is not None:
        over_q(laws, pc, x)  # the same complaint as everywhere when q(x) = 0
    return np.minimum(1.0, np.divide(pc, qc, out=np.full_like(pc, np.inf), where=qc > 0))


def gsd_detail(laws: Laws, x: Array, *, group: int, cluster: str, gap: float, reach: float) -> dict[str, Array]:
    """p(C) and q(C), and the number of tokens in C."""
    if cluster == "dynamic":
        pc, qc, size = _ranked(laws, x, group, gap, reach)
        return {"p_group": pc, "q_group": qc, "group_size": size}
    pc, qc = _fixed(laws, group)
    label = laws.space.groups(group)
    return {"p_group": pc[laws.rows, x], "q_group": qc[laws.rows, x], "group_size": np.bincount(label)[label[x]]}


def _fixed(laws: Laws, group: int) -> tuple[Array, Array]:
    """Mass of every token's group under p and q, [n, V] each."""
    label = laws.space.groups(group)
    base = laws.rows[:, None] * (label.max() + 1) + label
    return tuple(np.bincount(base.ravel(), m.ravel())[base] for m in (laws.p, laws.q))


def _ranked(laws: Laws, x: Array | None, group: int, gap: float, reach: float) -> tuple[Array, Array, Array]:
    """(p(C), q(C), |C|) where C is x and the G // 2 tokens before and (G - 1) // 2 after it in the order of p, less those
    too far in p or in code space. Equal probabilities are ordered by token number. At tokens x [n], or all → [n, V]."""
    low, high = group // 2, (group - 1) // 2
    if x is None:
        return _ranked_everywhere(laws, low, high, gap, reach)
    rows, x = laws.rows[:, None], x[:, None]
    y = _beside(laws.p, x[:, 0], low, high)
    p, q = laws.p[rows, y], laws.q[rows, y]
    close = (y != x) & (np.abs(p - laws.p[rows, x]) < gap)  # places beyond the ends of the order hold x itself
    close &= laws.space.squared_distance(y, x) < reach
    own = laws.p[rows, x][:, 0], laws.q[rows, x][:, 0], 1
    return tuple(one + np.where(close, more, 0).sum(-1) for one, more in zip(own, (p, q, close), strict=True))


def _beside(p: Array, t: Array, low: int, high: int) -> Array:
    """The `low` tokens before t [n] and the `high` after it in the order of (p, token number), [n, low + high] in that
    order; t itself stands in for those beyond the ends.

    Sorting the vocabulary would cost many times more, so a few sorted samples of each row say which band around p(t) holds
    enough tokens, and only those in it are put in order.
    """
    step = max(1, p.shape[1] // 256)
    marks = np.pad(np.sort(p[:, ::step], -1), ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))
    out = np.repeat(t[:, None], low + high, -1)
    for i, mark in enumerate(marks):
        pt, wide = p[i, t[i]], 2 + max(low, high) // step
        while True:
            lo = mark[max(0, np.searchsorted(mark, pt) - wide)]
            hi = mark[min(len(mark) - 1, np.searchsorted(mark, pt, "right") - 1 + wide)]
            near = np.flatnonzero((p[i] >= lo) & (p[i] <= hi))
            order = near[np.argsort(p[i, near], kind="stable")]
            at = int(np.flatnonzero(order == t[i])[0])
            if (at >= low or lo == -np.inf) and (len(order) - at > high or hi == np.inf):
                break
            wide *= 4
        before, after = order[max(0, at - low) : at], order[at + 1 : at + 1 + high]
        out[i, low - len(before) : low], out[i, low : low + len(after)] = before, after
    return out


def _ranked_everywhere(laws: Laws, low: int, high: int, gap: float, reach: float) -> tuple[Array, Array, Array]:
    order = np.argsort(laws.p, -1, kind="stable")
    p, q = (np.take_along_axis(m, order, -1) for m in (laws.p, laws.q))
    sums = [p.copy(), q.copy(), np.ones_like(p)]
    for step in [*range(-low, 0), *range(1, high + 1)]:
        here, there = (slice(-step, None), slice(None, step)) if step < 0 else (slice(None, -step), slice(step, None))
        close = np.abs(p[:, here] - p[:, there]) < gap
        close &= laws.space.squared_distance(order[:, here], order[:, there]) < reach
        for total, part in zip(sums, (p, q, np.ones_like(p)), strict=True):
            total[:, here] += np.where(close, part[:, there], 0.0)
    back = np.argsort(order, -1)
    return tuple(np.take_along_axis(total, back, -1) for total in sums)


def lantern(laws: Laws, x: Array | None = None, *, neighbours: int, budget: float) -> Array:
    """b = min(1, (p(x) + m)/q(x)), m the mass of the most nearest codes with m <= budget.

    LANTERN (Jang et al., 2025, arXiv 2410.03355): only the numerator is pooled.
    """
    return _lend(laws, x, neighbours, lambda px: np.full_like(px, budget))


def lantern_pp(laws: Laws, x: Array | None = None, *, neighbours: int, multiple: float) -> Array:
    """As `lantern`, with m <= (multiple - 1) p(x). LANTERN++ (Park et al., 2025, arXiv 2502.06352)."""
    return _lend(laws, x, neighbours, lambda px: (multiple - 1) * px)


def _lend(laws: Laws, x: Array | None, k: int, bound) -> Array:
    if x is not None:
        px = laws.p[laws.rows, x]
        near = laws.space.nearest(x, k)
        return np.minimum(1.0, over_q(laws, px + _pooled(laws.p, laws.rows, near, bound(px))[0], x))
    table, out = laws.space.table(k), np.empty_like(laws.p)
    for i, p in enumerate(laws.p):
        m = _pooled(p[None], np.zeros(len(p), np.int64), table, bound(p), laws.q[i] - p)[0]
        out[i] = np.divide(p + m, laws.q[i], out=np.full_like(p, np.inf), where=laws.q[i] > 0)
    return np.minimum(1.0, out)


def _pooled(p: Array, row: Array, near: Array, most: Array, enough: Array | None = None) -> tuple[Array, Array]:
    """(mass, count) of the longest run of neighbours whose summed p stays within `most`; p [·, V]; row, near per token.

    With `enough`, a token whose mass has reached it is not followed further: its b is 1 already.
    """
    mass, count = np.zeros(len(near)), np.zeros(len(near), np.int64)
    open_ = np.arange(len(near)) if enough is None else np.flatnonzero(enough > 0)
    for start in range(0, near.shape[1], CHUNK):
        part = p[row[open_, None], near[open_, start : start + CHUNK]]
        run = mass[open_, None] + part.cumsum(-1)
        fits = (run <= most[open_, None]).sum(-1)  # sums grow, so those that fit come first
        some = fits > 0
        mass[open_[some]] = run[some, fits[some] - 1]
        count[open_] += fits
        going = fits == part.shape[1]
        open_ = open_[going if enough is None else going & (mass[open_] < enough[open_])]
        if not len(open_):
            break
    return mass, count


def _lantern_detail(laws: Laws, x: Array, *, neighbours: int, budget: float) -> dict[str, Array]:
    return _lent(laws, x, neighbours, np.full(len(laws), budget))


def _lantern_pp_detail(laws: Laws, x: Array, *, neighbours: int, multiple: float) -> dict[str, Array]:
    return _lent(laws, x, neighbours, (multiple - 1) * laws.p[laws.rows, x])


def _lent(laws: Laws, x: Array, k: int, most: Array) -> dict[str, Array]:
    """How many neighbours lent how much."""
    mass, count = _pooled(laws.p, laws.rows, laws.space.nearest(x, k), most)
    return {"lent": mass, "lenders": count}


RULES = (
    Rule("gsd", "grouped", False, "b = min(1, p(C)/q(C)), C the draft's group",
         "So et al., 2025 (GSD, arXiv 2508.07747)", gsd, detail=gsd_detail, knobs=(GROUP, CLUSTER, GAP, REACH), pools=True),
    Rule("lantern", "neighbours lend", False, "b = min(1, (p + m)/q), m ≤ δ from the nearest codes",
         "Jang et al., 2025 (LANTERN, arXiv 2410.03355)", lantern, detail=_lantern_detail, knobs=(NEIGHBOURS, BUDGET),
         pools=True, generous=True),
    Rule("lantern++", "neighbours lend in proportion", False, "b = min(1, (p + m)/q), m ≤ (λ − 1) p from the nearest codes",
         "Park et al., 2025 (LANTERN++, arXiv 2502.06352)", lantern_pp, detail=_lantern_pp_detail, knobs=(FEW, MULTIPLE),
         pools=True, generous=True),
)  # fmt: skip
