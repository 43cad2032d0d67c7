"""The one exception for bad input: a single line that says what was wrong and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable


class InputError(ValueError):
    """Something a person typed, chose or loaded cannot be used. The message is one line, fit for the page."""


def choose(kind: str, value: object, allowed: Iterable[str]) -> str:
    """`value` if it is one of `allowed`, else an InputError that lists them."""
    allowed = list(allowed)
    if value in allowed:
        return value  # type: ignore[return-value]
    raise InputError(f"unknown {kind} {_short(value)}; allowed: {', '.join(allowed)}")


def number(name: str, value: object, low: float, high: float, *, whole: bool = False, open_low: bool = False) -> float:
    """`value` as a float (int when `whole`) inside [low, high] (low excluded when `open_low`), else an InputError."""
    kind = "a whole number" if whole else "a number"
    allowed = f"{kind} {'above' if open_low else 'from'} {low:g} {'up ' if open_low else ''}to {high:g}"
    try:
        if isinstance(value, bool):
            raise TypeError
        v = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} is {_short(value)}; allowed: {allowed}") from None
    bad = not math.isfinite(v) or v < low or v > high or (open_low and v <= low) or (whole and v != int(v))
    if bad:
        raise InputError(f"{name} is {_short(value)}; allowed: {allowed}")
    return int(v) if whole else v


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return repr(text if len(text) <= 40 else text[:37] + "...")
