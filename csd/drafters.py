"""Where drafts come from: nowhere (plain autoregression), a small model, or the target's own last guesses (Jacobi).

A drafter proposes tokens for the next positions together with q, the law each of them was really drawn from; exactness
needs nothing else from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from csd.models.base import Session
from csd.sampling import Sampling, Streams, draw, law

Array = np.ndarray


@dataclass
class Draft:
    """Proposals for the positions from `start` on: tokens int64 [k] and their laws q float64 [k, V].

    testable is False when the tokens only fill the window and must not be judged (Jacobi's first round). origin says
    where each token comes from; age counts the earlier rounds in which its position had a draft; changed is whether the
    token differs from that position's draft of the round before (None where there was none).
    """

    tokens: Array
    q: Array
    testable: bool = True
    origin: list[str] = field(default_factory=list)
    age: list[int] = field(default_factory=list)
    changed: list[bool | None] = field(default_factory=list)


class Drafter:
    """Plain autoregression: never proposes anything. The base of the others."""

    forwards = rows = 0

    def __init__(self, vocab: int, streams: Streams, sampling: Sampling):
        self.vocab, self.streams, self.sampling = vocab, streams, sampling
        self.age: dict[int, int] = {}

    def propose(self, tokens: Array, start: int, room: int) -> Draft:
        """Drafts for at most `room` positions from `start` on; tokens [start] are the committed ones."""
        return Draft(np.zeros(0, np.int64), np.zeros((0, self.vocab)))

    def observe(self, p: Array, start: int, committed: int) -> None:
        """What the target said: p [n, V] are its laws for the positions from `start` on, `committed` of them settled."""

    def _ages(self, start: int, n: int) -> list[int]:
        ages = [self.age.get(i, 0) for i in range(start, start + n)]
        for i, a in enumerate(ages, start):
            self.age[i] = a + 1
        return ages


class ModelDrafter(Drafter):
    """A small model drafts gamma tokens one after the other (Leviathan et al., 2023; Chen et al., 2023)."""

    def __init__(self, vocab: int, streams: Streams, sampling: Sampling, session: Session, gamma: int):
        super().__init__(vocab, streams, sampling)
        self.session, self.gamma = session, gamma
        self.fed: list[int] = []  # what the draft model's cache holds
        self.last: dict[int, int] = {}

    @property
    def forwards(self) -> int:
        return self.session.forwards

    @property
    def rows(self) -> int:
        return self.session.rows

    def propose(self, tokens: Array, start: int, room: int) -> Draft:
        k = min(self.gamma, room)
        todo = self._catch_up(tokens[:start].tolist())
        xs, qs = [], []
        for i in range(start, start + k):
            q = law(self.session.forward(np.array(todo, np.int64))[-1:], self.sampling)
            self.fed += todo
            x = int(draw(q, self.streams.uniform("draft", slice(i, i + 1)))[0])
            xs.append(x)
            qs.append(q[0])
            todo = [x]
        before = [self.last.get(i) for i in range(start, start + k)]
        self.last = dict(enumerate(xs, start))
        changed = [None if b is None else b != x for b, x in zip(before, xs, strict=True)]
        return Draft(np.array(xs, np.int64), np.array(qs).reshape(k, self.vocab), True, ["model"] * k,
                     self._ages(start, k), changed)  # fmt: skip

    def _catch_up(self, committed: list[int]) -> list[int]:
        """Roll the cache back to its common prefix with the committed tokens; returns the tokens still to feed.

        The last committed token is always fed anew when the cache holds it, since its row is what is needed next.
        """
        same = 0
        while same < min(len(self.fed), len(committed) - 1) and self.fed[same] == committed[same]:
            same += 1
        self.session.rollback(len(self.fed) - same)
        self.fed = self.fed[:same]
        return committed[same:]


class JacobiDrafter(Drafter):
    """The target drafts for itself: each position carries a sample of the target's last law for it (SJD).

    Teng et al., 2025 (arXiv 2410.01699). In the first round there is no law to test against: the tokens only fill the
    window, which counts the positions fed per forward, so at most window - 1 drafts are judged.

    coupling says how a position that was not settled gets its next draft, always with q := the target's new law p.
    fresh: drawn anew (SJD). maximal: the old draft is kept with probability min(1, p/q), else replaced from norm((p - q)+);
    gumbel: argmax(log p + g) with noise g that stays with the position. Both keep more drafts from round to round, and
    leave the output law alone (SCD, So et al., 2025, arXiv 2510.24211): given what is known before the test, the draft is
    still a sample of q. That needs a verdict that looked at no later draft, which block verification does.

    fill says what a position that enters the window gets. uniform: a uniform token, q = 1/V, as in the CSD code. onehot:
    the same token with all of q on it, as in the SJD code. copy: the token above it, or before it, with all of q on it.
    """

    def __init__(self, vocab: int, streams: Streams, sampling: Sampling, window: int, columns: int = 1,
                 coupling: str = "fresh", fill: str = "uniform"):  # fmt: skip
        super().__init__(vocab, streams, sampling)
        self.size, self.columns, self.coupling, self.fill = window - 1, columns, coupling, fill
        self.x, self.q = np.zeros(0, np.int64), np.zeros((0, vocab))
        self.proposed = Draft(self.x, self.q)
        self.before: dict[int, int] = {}
        self.started = False

    def propose(self, tokens: Array, start: int, room: int) -> Draft:
        k = min(self.size, room)
        have = min(len(self.x), k)
        new, q_new = self._fill(np.concatenate([tokens[:start], self.x[:have]]), start + have, start + k)
        x, q = np.concatenate([self.x[:have], new]), np.concatenate([self.q[:have], q_new])
        origin = ["previous"] * have + ["copy" if self.fill == "copy" else "fill"] * (k - have)
        changed = [None if i not in self.before else self.before[i] != t for i, t in enumerate(x.tolist(), start)]
        self.before = dict(enumerate(x.tolist(), start))
        testable, self.started = self.started, True
        self.proposed = Draft(x, q, testable, origin, self._ages(start, k), changed)
        return self.proposed

    def _fill(self, known: Array, first: int, last: int) -> tuple[Array, Array]:
        """Tokens and laws of the positions from first to last - 1, which no law has been seen for yet."""
        at = np.arange(first, last)
        x = np.minimum((self.streams.uniform("fill", at) * self.vocab).astype(np.int64), self.vocab - 1)
        if self.fill == "uniform":
            return x, np.full((len(at), self.vocab), 1.0 / self.vocab)
        if self.fill == "copy":
            held = known.tolist()
            for i in range(first, last):
                above, before = i - self.columns, i - 1
                held.append(held[above] if above >= 0 else held[before] if before >= 0 else int(x[0]))
            x = np.array(held[first:], np.int64)
        q = np.zeros((len(at), self.vocab))
        q[np.arange(len(at)), x] = 1.0
        return x, q

    def observe(self, p: Array, start: int, committed: int) -> None:
        """Give every unsettled position of the window its next draft, from the law the target has just stated for it."""
        rest, at = p[committed:], np.arange(start + committed, start + len(p))
        if self.coupling == "gumbel" and len(rest):
            with np.errstate(divide="ignore"):
                scores = np.log(rest) + np.array([self.streams.gumbel(i, self.vocab) for i in at])
            self.x = scores.argmax(-1)
        else:
            self.x = draw(rest, self.streams.uniform("draft", at)) if len(rest) else np.zeros(0, np.int64)
            if self.coupling == "maximal":
                self._keep(rest, at, committed)
        self.q = rest

    def _keep(self, p: Array, at: Array, committed: int) -> None:
        """Maximal coupling of each new draft with the position's old one, where it has one."""
        old = self.proposed.tokens[committed:][: len(p)]
        n, rows = len(old), np.arange(len(old))
        q = self.proposed.q[committed:][:n]
        keep = self.streams.uniform("couple", at[:n]) * q[rows, old] < p[rows, old]
        residual = np.maximum(p[:n] - q, 0.0)
        other = draw(residual, self.streams.uniform("draft", at[:n])) if n else old
        left = residual.sum(-1) > 0  # where p = q up to rounding, the fresh draw stands
        self.x[:n] = np.where(keep, old, np.where(left, other, self.x[:n]))
