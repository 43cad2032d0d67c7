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
# of the correction by a small model; fitted to what the built-in target said next about 1,519 drafts
EXPONENTS = 0.9, 1.05


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

    session: Session | None = None  # the draft model's, where one is used

    def __init__(self, vocab: int, streams: Streams, sampling: Sampling):
        self.vocab, self.streams, self.sampling = vocab, streams, sampling
        self.age: dict[int, int] = {}

    @property
    def forwards(self) -> int:
        """Calls of the draft model so far."""
        return self.session.forwards if self.session else 0

    @property
    def rows(self) -> int:
        """Batch rows over those calls."""
        return self.session.rows if self.session else 0

    def propose(self, tokens: Array, start: int, room: int) -> Draft:
        """Drafts for at most `room` positions from `start` on; tokens [start] are the committed ones."""
        return Draft(np.zeros(0, np.int64), np.zeros((0, self.vocab)))

    def observe(self, p: Array, start: int, settled: Array) -> None:
        """What the target said: p [n, V] are its laws for the positions from `start` on; settled: the tokens now there."""

    def _ages(self, start: int, n: int) -> list[int]:
        ages = [self.age.get(i, 0) for i in range(start, start + n)]
        for i, a in enumerate(ages, start):
            self.age[i] = a + 1
        return ages


class Reader:
    """A model's session that can be asked about any context; its cache keeps what the context shares with the last one."""

    def __init__(self, session: Session, sampling: Sampling):
        self.session, self.sampling = session, sampling
        self.fed: list[int] = []  # what the cache holds

    def laws(self, tokens: list[int], n: int) -> Array:
        """Laws [n, V] of the last n of the positions 0 … len(tokens), each given the tokens before it; n <= len(tokens),
        or 1 before there is any. One forward."""
        most = min(len(self.fed), max(0, len(tokens) - n))  # the token before each wanted row is fed anew
        same = most
        if self.fed[:most] != tokens[:most]:
            same = next(i for i in range(most) if self.fed[i] != tokens[i])
        self.session.rollback(len(self.fed) - same)
        self.fed = list(tokens)
        return law(self.session.forward(np.array(tokens[same:], np.int64))[-n:], self.sampling)


class ModelDrafter(Drafter):
    """A small model drafts gamma tokens one after the other (Leviathan et al., 2023; Chen et al., 2023)."""

    def __init__(self, vocab: int, streams: Streams, sampling: Sampling, session: Session, gamma: int):
        super().__init__(vocab, streams, sampling)
        self.session, self.reader, self.gamma = session, Reader(session, sampling), gamma
        self.last: dict[int, int] = {}

    def propose(self, tokens: Array, start: int, room: int) -> Draft:
        k = min(self.gamma, room)
        known, xs, qs = tokens[:start].tolist(), [], []
        for i in range(start, start + k):
            q = self.reader.laws(known + xs, 1)
            xs.append(int(draw(q, self.streams.uniform("draft", slice(i, i + 1)))[0]))
            qs.append(q[0])
        before = [self.last.get(i) for i in range(start, start + k)]
        self.last = dict(enumerate(xs, start))
        changed = [None if b is None else b != x for b, x in zip(before, xs, strict=True)]
        return Draft(np.array(xs, np.int64), np.array(qs).reshape(k, self.vocab), True, ["model"] * k,
                     self._ages(start, k), changed)  # fmt: skip


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

    correct > 0: the target's laws were stated for drafts that have changed since; a small model d, asked once about the
    old context and once per sweep about the new one, says how. Each draft is coupled to
    q ~ p^a · d(new)^b / d(old)^a and its neighbours see the change in the next sweep. q looks only to the left, so the
    draft is still a sample of it and the output law stays the target's, whatever d says.
    """

    def __init__(self, vocab: int, streams: Streams, sampling: Sampling, window: int, columns: int = 1,
                 coupling: str = "fresh", fill: str = "uniform", correct: int = 0,
                 session: Session | None = None):  # fmt: skip
        super().__init__(vocab, streams, sampling)
        self.size, self.columns, self.coupling, self.fill, self.correct = window - 1, columns, coupling, fill, correct
        self.session, self.reader = session, Reader(session, sampling) if session else None
        self.known: list[int] = []  # the settled tokens before the window
        self.x, self.q = np.zeros(0, np.int64), np.zeros((0, vocab))
        self.proposed = Draft(self.x, self.q)
        self.before: dict[int, int] = {}
        self.started = False

    def propose(self, tokens: Array, start: int, room: int) -> Draft:
        k = min(self.size, room)
        self.known = tokens[:start].tolist()
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
            held = known[-self.columns :].tolist()
            for _ in at:
                held.append(held[-self.columns] if len(held) >= self.columns else held[-1] if held else int(x[0]))
            x = np.array(held[len(held) - len(at) :], np.int64)
        q = np.zeros((len(at), self.vocab))
        q[np.arange(len(at)), x] = 1.0
        return x, q

    def observe(self, p: Array, start: int, settled: Array) -> None:
        """Give every unsettled position of the window its next draft, from the law the target has just stated for it."""
        n = len(settled)
        p, at = p[n:], np.arange(start + n, start + len(p))
        self.x = self._couple(self.proposed.tokens[n:][: len(p)], self.proposed.q[n:][: len(p)], p, at)
        self.q = p
        if self.correct and len(p):
            self._correct(at, settled.tolist())

    def _couple(self, x: Array, q: Array, p: Array, at: Array) -> Array:
        """Drafts from laws p [n, V] for positions `at`, tied to the drafts x [m] from q [m, V] that the first m had."""
        if not len(p):
            return np.zeros(0, np.int64)
        if self.coupling == "gumbel":
            with np.errstate(divide="ignore"):
                scores = np.log(p) + np.array([self.streams.gumbel(i, self.vocab) for i in at])
            return scores.argmax(-1)
        new = draw(p, self.streams.uniform("draft", at))
        if self.coupling == "fresh" or not len(x):
            return new
        m, rows = len(x), np.arange(len(x))
        keep = self.streams.uniform("couple", at[:m]) * q[rows, x] < p[rows, x]
        residual = np.maximum(p[:m] - q, 0.0)
        other = draw(residual, self.streams.uniform("draft", at[:m]))
        left = residual.sum(-1) > 0  # where p = q up to rounding, the fresh draw stands
        new[:m] = np.where(keep, x, np.where(left, other, new[:m]))
        return new

    def _correct(self, at: Array, settled: list[int]) -> None:
        """Sweeps of correction by the small model's laws d, which are floored so that no ratio is infinite."""
        n, first = len(at), int(at[0])
        a, b = EXPONENTS
        log_d = lambda tokens: np.log(self.reader.laws(tokens[: first + n - 1], n) + 1e-12)  # noqa: E731
        with np.errstate(divide="ignore"):
            stated = a * (np.log(self.q) - log_d(self.known + self.proposed.tokens.tolist()))
        for _ in range(self.correct):
            scores = stated + b * log_d(self.known + settled + self.x.tolist())
            q = np.exp(scores - scores.max(-1, keepdims=True))
            q /= q.sum(-1, keepdims=True)
            self.x, self.q = self._couple(self.x, self.q, q, at), q
