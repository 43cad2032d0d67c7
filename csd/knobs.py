"""A parameter a person may turn: what it is called, what it allows, what it does. Methods list theirs, views draw them."""

from __future__ import annotations

from dataclasses import dataclass

from csd.errors import InputError, choose, number


@dataclass(frozen=True)
class Knob:
    """A number in [low, high], one of `choices`, a switch (its default is a bool), or a list of numbers (a tuple)."""

    name: str
    title: str
    default: float | str | bool | tuple
    low: float = 0.0
    high: float = 0.0
    meaning: str = ""
    step: float = 0.05
    whole: bool = False
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> list:
        """What `check` lets through: [low, high] or the list of choices."""
        if self.choices:
            return list(self.choices)
        return [False, True] if isinstance(self.default, bool) else [self.low, self.high]

    def check(self, value: object) -> float | str | bool | tuple:
        """The value, if it is allowed; else an InputError naming what is. Switches also take the words true and false,
        lists also a text with commas."""
        if self.choices:
            return choose(self.name, value, self.choices)
        if isinstance(self.default, bool):
            if str(value).lower() not in ("true", "false"):
                raise InputError(f"{self.name} is {str(value)[:40]!r}; allowed: true, false")
            return str(value).lower() == "true"
        if isinstance(self.default, tuple):
            parts = value.split(",") if isinstance(value, str) else value
            if not isinstance(parts, list | tuple) or not 0 < len(parts) <= 256:
                raise InputError(f"{self.name} is {str(value)[:40]!r}; allowed: 1 to 256 numbers, separated by commas")
            return tuple(number(self.name, part, self.low, self.high) for part in parts)
        return number(self.name, value, self.low, self.high, whole=self.whole)

    def describe(self) -> str:
        """Range and default in words, for a terminal."""
        if self.choices or isinstance(self.default, bool):
            names = self.choices or ("true", "false")
            return f"{', '.join(names)}; default {str(self.default).lower()}"
        if isinstance(self.default, tuple):
            return f"numbers {self.low:g} to {self.high:g}, default {', '.join(f'{v:g}' for v in self.default)}"
        return f"{self.low:g} to {self.high:g}, default {self.default:g}"
