"""Splits the wall time of a round between its parts: draft, target, verify, record."""

from __future__ import annotations

from time import perf_counter


class Clock:
    """A new one per round: the time between rounds belongs to whoever consumes the events."""

    def __init__(self) -> None:
        self.seconds = {"draft": 0.0, "target": 0.0, "verify": 0.0, "record": 0.0}
        self._last = perf_counter()

    def lap(self, part: str) -> None:
        """Book the time since the last lap to `part`."""
        now = perf_counter()
        self.seconds[part] += now - self._last
        self._last = now
