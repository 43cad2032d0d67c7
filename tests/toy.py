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
        rows = []
        if not self.prompted:
            self.prompted = True
            rows.append(self.model.logits[0, 0])
        for t in np.asarray(tokens).tolist():
            self.tokens.append(t)
            at = min(len(self.tokens), self.model.cells - 1)
            rows.append(self.model.logits[at, t])
        return np.array(rows)

    def rollback(self, n):
        if n:
            del self.tokens[-n:]


class ToyModel:
    """Position-dependent first-order Markov chain: logits[i, previous] is the law of token i."""

    def __init__(self, seed: int, vocab: int = 3, cells: int = 4, spread: float = 1.0, name: str = "toy"):
        rng = np.random.default_rng(seed)
        self.name, self.vocab, self.cells, self.grid = name, vocab, cells, (1, cells)
        self.labels = ["toy"]
        self.logits = spread * rng.standard_normal((cells, vocab, vocab))

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
        for seq in itertools.product(range(self.vocab), repeat=self.cells):
            out.append(np.prod([p[i, seq[i - 1] if i else 0, t] for i, t in enumerate(seq)]))
        return np.array(out)
