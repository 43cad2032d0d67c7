"""What another rule would have said to a stored run: the same drafts, laws and draws, judged again. No model is needed.

Exact up to the first verdict that differs. From there on the other rule would have seen other tokens, so what follows says
how it judges these drafts, not what it would have drawn; counts of forwards must come from real runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from csd import rules
from csd.errors import InputError, choose
from csd.laws import Laws, Rule
from csd.record import unpack
from csd.space import Space
from csd.trace import Round, Trace

Array = np.ndarray


@dataclass
class Rejudged:
    """One entry per examined draft, in the order of the run. horizon: how many of them are exactly what the other rule's
    own run would have met; None if all are."""

    round: Array
    pos: Array
    b: Array
    b_exact: Array
    u: Array
    was_kept: Array
    kept: Array
    horizon: int | None

    @property
    def flipped(self) -> Array:
        return self.kept != self.was_kept

    def summary(self) -> dict:
        """Counts over the examined drafts of the stored run. drift: Σ (b − b of the exact rule) over these drafts, which
        were drawn from q, estimates the summed drift E_q[b] − (1 − tv) without bias; for rules with b ≥ min(1, p/q)."""
        n, first = len(self.b), self.horizon
        return {"examined": n, "kept": int(self.kept.sum()), "was_kept": int(self.was_kept.sum()),
                "newly_kept": int((self.kept & ~self.was_kept).sum()),
                "newly_rejected": int((~self.kept & self.was_kept).sum()),
                "mean_b": float(self.b.mean()) if n else None,
                "drift": float((self.b - self.b_exact).sum()) if (self.b >= self.b_exact).all() else None,
                "exact_up_to": n if first is None else first,
                "first_difference": None if first is None or first >= n
                else {"round": int(self.round[first]), "pos": int(self.pos[first])}}  # fmt: skip


class Stored:
    """Stands for `Laws` where only numbers of the drafted tokens were kept: enough for rules of p/q, H, tv and depth."""

    def __init__(self, tests: dict):
        column = lambda key: np.array(tests[key], np.float64)  # noqa: E731
        self._ratio = column("p") / column("q")
        self.H, self.tv, self.depth = column("H"), column("tv"), np.arange(len(tests["pos"]))

    def ratio(self, x: Array) -> Array:
        return self._ratio

    def entropy_at(self, rows: Array) -> Array:
        return self.H[rows]


def rejudge(trace: Trace, rule: str, knobs: dict | None = None, space: Space | None = None) -> Rejudged:
    """Judge every examined draft of a discrete trace by another rule or other knobs.

    Rules that pool need whole laws (`keep_full`) at every examined position and the code space. Raises InputError when the
    trace or the rule does not allow it.
    """
    other, values = _rule(rule, knobs)
    columns: dict[str, list] = {k: [] for k in ("round", "pos", "b", "b_exact", "u", "was_kept")}
    for r in _judged_rounds(trace):
        laws = _whole(r, space) if other.pools else Stored(r.tests)
        x = np.array(r.tests["x"])
        columns["b"] += other.accept(laws, x, **values).tolist()
        columns["b_exact"] += rules.exact(laws, x).tolist()
        columns["round"] += [r.round] * len(r.tests["pos"])
        columns["pos"] += r.tests["pos"]
        columns["u"] += r.tests["u"]
        columns["was_kept"] += r.tests["kept"]
    c = {k: np.array(v) for k, v in columns.items()}
    kept = c["u"] < c["b"]
    recorded = rules.RULES[choose("rule", trace.header.rule, rules.RULES)]
    parts = kept != c["was_kept"].astype(bool)
    if _replaces_otherwise(other, values, recorded, trace.header.knobs):  # the same rejection, but another replacement
        parts = parts | ~kept
    first = np.flatnonzero(parts)
    return Rejudged(c["round"], c["pos"], c["b"], c["b_exact"], c["u"], c["was_kept"].astype(bool), kept,
                    int(first[0]) if len(first) else None)  # fmt: skip


def _replaces_otherwise(other: Rule, values: dict, recorded: Rule, knobs: dict) -> bool:
    """Whether a rejected draft's replacement comes from another law than in the stored run."""
    if recorded.joint or other.residual is not recorded.residual:
        return True
    return other.residual is not rules.positive_part and any(str(knobs.get(k)) != str(v) for k, v in values.items())


def sweep(trace: Trace, rule: str, knob: str, values: Sequence[float], knobs: dict | None = None,
          space: Space | None = None) -> list[dict]:  # fmt: skip
    """Expected acceptance and mean drift over the examined positions, a row per value of one knob; from whole p and q.

    The stored run must have kept them (`keep_full` with all cells). Raises InputError otherwise.
    """
    rounds = list(_judged_rounds(trace))
    laws = [_whole(r, space) for r in rounds]
    out = []
    for value in values:
        other, given = _rule(rule, {**(knobs or {}), knob: value})
        b = [(part.q * np.where(part.q > 0, other.accept(part, **given), 0.0)).sum(-1) for part in laws]
        spent = [rules.drift(other, part, **given)[0] for part in laws]
        out.append({knob: given[knob], "acceptance": float(np.concatenate(b).mean()),
                    "drift": float(np.concatenate(spent).mean())})  # fmt: skip
    return out


def _rule(name: str, knobs: dict | None) -> tuple[Rule, dict]:
    other = rules.RULES[choose("rule", name, rules.RULES)]
    if other.joint:
        raise InputError(f"rule {name} judges a round's drafts together; stored drafts can be judged again one by one only")
    known = {k.name: k for k in other.knobs}
    for key in knobs or {}:
        choose(f"parameter of rule {name}", key, known)
    return other, {key: knob.check((knobs or {}).get(key, knob.default)) for key, knob in known.items()}


def _judged_rounds(trace: Trace) -> Iterator[Round]:
    if trace.header.kind != "discrete":
        raise InputError("only runs of discrete tokens can be judged again; a continuous one has no rule of this kind")
    found = [r for r in trace.rounds if r.tests.get("pos")]
    if not found:
        raise InputError("this trace holds no judged drafts: plain autoregression, or recorded without detail")
    yield from found


def _whole(r: Round, space: Space | None) -> Laws:
    """Whole p and q of a round's examined positions."""
    kept = [r.full.get(str(pos), {}) for pos in r.tests["pos"]]
    if not all("p" in f and "q" in f for f in kept):
        raise InputError("this needs whole p and q at every examined position: record the run with keep_full (all cells)")
    p, q = (np.array([unpack(f[k]) for f in kept], np.float64) for k in ("p", "q"))
    return Laws(p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True), space=space)
