"""Models small enough to enumerate: a Markov source over a few symbols, with the protocol of real models."""

from __future__ import annotations

import itertools

import numpy as np


class ToySession:
    def __init__(self, model: ToyModel):
        self.model, self.tokens, self.prompted = model, [], False
        self.forwards = self.rows = 0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def forward(self, tokens):
        self.forwards += 1
        self.rows += 1
        tokens = np.asarray(tokens, np.int64)
        at = np.arange(len(self.tokens) + 1, len(self.tokens) + 1 + len(tokens))
        self.tokens += tokens.tolist()
        rows = self.model.logits[at % self.model.length, tokens]
        if self.prompted:
            return rows
        self.prompted = True
        return np.concatenate([self.model.logits[0, :1], rows])

    def rollback(self, n):
        if n:
            del self.tokens[-n:]


class ToyModel:
    """Position-dependent first-order Markov chain: logits[i, previous] is the law of token i.

    repeats: the chain starts anew that many times, independent of what came before, so one picture holds as many samples.
    like: another toy whose logits are moved `spread` towards noise, instead of noise alone.
    """

    def __init__(self, seed: int, vocab: int = 3, length: int = 4, spread: float = 1.0, name: str = "toy",
                 repeats: int = 1, like: ToyModel | None = None):  # fmt: skip
        rng = np.random.default_rng(seed)
        self.name, self.vocab, self.length, self.grid = name, vocab, length, (repeats, length)
        self.labels = ["toy"]
        self.logits = spread * rng.standard_normal((length, vocab, vocab)) + (like.logits if like else 0.0)
        self.logits[0] = self.logits[0, 0]  # the first token of a chain follows nothing

    def open(self, label, guidance):
        return ToySession(self)

    def decode(self, tokens):
        return np.zeros((4, 4, 3), np.uint8)

    def embeddings(self):
        return np.eye(self.vocab, dtype=np.float32)

    def joint(self) -> np.ndarray:
        """Probability of every sequence, in lexicographic order, [vocab ** cells]."""
        p = np.exp(self.logits - self.logits.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        out = []
        for seq in itertools.product(range(self.vocab), repeat=self.length):
            out.append(np.prod([p[i, seq[i - 1] if i else 0, t] for i, t in enumerate(seq)]))
        return np.array(out)
