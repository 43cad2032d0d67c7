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

    Teng et al., 2025 (arXiv 2410.01699), with the uniform tail of the CSD code: a position that enters the window gets
    a uniform token, q = 1/V. In the first round there is no law to test against: the tokens only fill the window.
    `window` counts the positions fed per forward, so at most window - 1 drafts are judged.
    """

    def __init__(self, vocab: int, streams: Streams, sampling: Sampling, window: int):
        super().__init__(vocab, streams, sampling)
        self.size = window - 1
        self.x, self.q, self.at = np.zeros(0, np.int64), np.zeros((0, vocab)), 0
        self.before: dict[int, int] = {}
        self.started = False

    def propose(self, tokens: Array, start: int, room: int) -> Draft:
        k = min(self.size, room)
        have = min(len(self.x), k)
        fill = np.arange(start + have, start + k)
        new = np.minimum((self.streams.uniform("fill", fill) * self.vocab).astype(np.int64), self.vocab - 1)
        x = np.concatenate([self.x[:have], new])
        q = np.concatenate([self.q[:have], np.full((k - have, self.vocab), 1.0 / self.vocab)])
        origin = ["previous"] * have + ["fill"] * (k - have)
        changed = [None if i not in self.before else self.before[i] != t for i, t in enumerate(x.tolist(), start)]
        self.before = dict(enumerate(x.tolist(), start))
        testable, self.started = self.started, True
        return Draft(x, q, testable, origin, self._ages(start, k), changed)

    def observe(self, p: Array, start: int, committed: int) -> None:
        """Draw every unsettled position of the window anew from the law the target has just given it."""
        rest = p[committed:]
        at = np.arange(start + committed, start + len(p))
        self.x = draw(rest, self.streams.uniform("draft", at)) if len(rest) else np.zeros(0, np.int64)
        self.q = rest
