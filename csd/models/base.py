"""The protocol between decoding and models. Everything at this boundary is numpy: the loop needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from csd.errors import choose

Array = np.ndarray


def find_label(label: str, labels: Iterable[str]) -> str:
    """The label as its model spells it, whatever the case and blanks around it. Raises InputError that lists them."""
    by_lower = {name.lower(): name for name in labels}
    return by_lower.get(str(label).strip().lower()) or choose("label", label, by_lower.values())


class Session(Protocol):
    """One generation of one model under one condition. It owns the cache and counts what it runs."""

    length: int  # image tokens held in the cache
    forwards: int  # calls of the model so far, counted where the model is called
    rows: int  # batch rows over all calls: a guided forward runs two

    def forward(self, tokens: Array) -> Array:
        """Feed tokens int64 [n] after those held; returns guided logits float32, one row per fed position [n, V].

        Row i is the law of the token after the i-th fed one. The condition itself is fed by the first call, which
        therefore returns one row more: its first row is the law of token 0.
        """
        ...

    def rollback(self, n: int) -> None:
        """Forget the last n tokens."""
        ...


class TokenModel(Protocol):
    """A model that draws pictures as a grid of discrete tokens in raster order."""

    name: str
    grid: tuple[int, int]  # rows, columns
    vocab: int
    labels: Sequence[str]  # what it can draw

    def open(self, label: str, guidance: float) -> Session:
        """A fresh session for one label. Raises InputError for an unknown label."""
        ...

    def decode(self, tokens: Array) -> Array:
        """Tokens int64 [cells] → picture uint8 [height, width, 3]."""
        ...

    def embeddings(self) -> Array:
        """Code vectors float32 [V, d], for rules that look at neighbours."""
        ...
