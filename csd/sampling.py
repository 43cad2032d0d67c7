"""From logits to laws to tokens: temperature, top-k, top-p, and random draws that belong to a place.

p and q are defined *after* everything in this file except the draws. A draw is keyed by (seed, purpose, position,
attempt), never taken from a running generator: two runs with one seed meet the same randomness at the same cell, so where
they part, the rule parted them; and a run can be resumed or re-judged without replaying what came before.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from csd.errors import number

Array = np.ndarray


@dataclass(frozen=True)
class Sampling:
    """How a model's logits become a law. Applied in this order: guidance, temperature, top-k, top-p.

    guidance: classifier-free guidance weight g, logits = u + g (c - u); 1 switches the null row off.
    temperature: divides the logits. top_k: keep the k likeliest tokens, 0 keeps all. top_p: keep the smallest set of
    likeliest tokens whose mass reaches top_p. Raises InputError for values outside the ranges.
    """

    guidance: float = 1.5
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "guidance", number("guidance", self.guidance, 0, 20))
        put(self, "temperature", number("temperature", self.temperature, 0, 10, open_low=True))
        put(self, "top_k", number("top_k", self.top_k, 0, 10**6, whole=True))
        put(self, "top_p", number("top_p", self.top_p, 0, 1, open_low=True))

    def to_dict(self) -> dict:
        return asdict(self)


def law(logits: Array, s: Sampling) -> Array:
    """Guided logits [n, V] → probabilities float64 [n, V]. Filtered tokens get exactly 0.

    Raises FloatingPointError when the logits hold NaN or +inf, which would otherwise spread silently.
    """
    z = np.asarray(logits, np.float64)
    top = z.max(-1, keepdims=True)
    if not np.isfinite(top).all():
        raise FloatingPointError("the model returned logits that are not finite (NaN or infinity)")
    z = (z - top) / s.temperature
    vocab = z.shape[-1]
    if 0 < s.top_k < vocab:
        kth = np.partition(z, vocab - s.top_k, -1)[:, vocab - s.top_k, None]
        z = np.where(z >= kth, z, -np.inf)
    p = np.exp(z)
    p /= p.sum(-1, keepdims=True)
    if s.top_p < 1:
        order = np.argsort(-p, -1, kind="stable")
        ranked = np.take_along_axis(p, order, -1)
        ranked[ranked.cumsum(-1) - ranked >= s.top_p] = 0  # the token that crosses the line stays
        np.put_along_axis(p, order, ranked, -1)
        p /= p.sum(-1, keepdims=True)
    return p


def draw(p: Array, u: Array) -> Array:
    """Inverse-CDF samples: weights [n, V] (need not sum to 1), u [n] in [0, 1) → tokens int64 [n].

    Inverse CDF because it is monotone in u: nearly equal laws give nearly always the same token for the same u.
    """
    c = np.cumsum(p, -1)
    x = (c <= u[:, None] * c[:, -1:]).sum(-1)
    if len(x) and x.max() == p.shape[-1]:  # u * total can round up to the total; step back to the last token with mass
        x = np.minimum(x, p.shape[-1] - 1 - np.argmax(p[:, ::-1] > 0, -1))
    return x


PURPOSES = ("draft", "verify", "target", "fill", "noise", "couple", "gumbel")


class Streams:
    """Uniform draws keyed by (seed, purpose, position, attempt).

    Purposes: draft (drawing draft tokens), verify (the u of an acceptance test), target (tokens the target supplies
    itself: residual, bonus, first), fill (drafts from no model), noise (continuous models), couple (whether a draft is
    kept for the next round), gumbel (noise that stays with a position, `gumbel`). Each call for a purpose and a
    position uses the next attempt there, so repeated tests of one position are independent (exactness needs that).
    The key is hashed with the splitmix64 finaliser (Steele, Lea and Flood, 2014).
    """

    def __init__(self, seed: int, positions: int):
        self.seed = number("seed", seed, 0, 2**63 - 1, whole=True)
        purposes = np.arange(1, len(PURPOSES) + 1, dtype=np.uint64)[:, None]
        key = _mix(_mix(np.array([self.seed], np.uint64)) + purposes, np.arange(positions, dtype=np.uint64))
        self._key = dict(zip(PURPOSES, key, strict=True))
        self._attempt = dict(zip(PURPOSES, np.zeros_like(key), strict=True))
        self._next = dict(zip(PURPOSES, _unit(_mix(key)), strict=True))  # the draw of the attempt that is due

    def __len__(self) -> int:
        return len(self._next["draft"])

    def peek(self, purpose: str, positions: Array | slice) -> Array:
        """The next draw of `purpose` at each of the (distinct) positions, float64 in [0, 1), without using it up."""
        return self._next[purpose][positions].copy()

    def use(self, purpose: str, positions: Array | slice) -> None:
        """Move on to the next attempt at these positions."""
        attempt = self._attempt[purpose][positions] + _ONE
        self._attempt[purpose][positions] = attempt
        self._next[purpose][positions] = _unit(_mix(self._key[purpose][positions], attempt))

    def gumbel(self, position: int, vocab: int) -> Array:
        """Standard Gumbel noise of a position, one number per token, float64 [V]; the same at every call."""
        u = _unit(_mix(self._key["gumbel"][position : position + 1], np.arange(vocab, dtype=np.uint64)))
        u += 2.0**-54  # never 0
        return -np.log(-np.log(u))

    def uniform(self, purpose: str, positions: Array | slice) -> Array:
        """`peek`, then `use`."""
        u = self.peek(purpose, positions)
        self.use(purpose, positions)
        return u


_ONE, _STEP = np.uint64(1), np.uint64(0x9E3779B97F4A7C15)
_S30, _S27, _S31, _S11 = (np.uint64(n) for n in (30, 27, 31, 11))
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mix(key: Array, n: Array | int = 0) -> Array:
    """Splitmix64: the n-th output of the generator whose state starts at `key` (arithmetic modulo 2^64)."""
    z = key + (_ONE + np.asarray(n, np.uint64)) * _STEP
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


def _unit(h: Array) -> Array:
    """The upper 53 bits of h, uint64, as float64 in [0, 1)."""
    return (h >> _S11) * 2.0**-53
