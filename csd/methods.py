"""The methods by name: a drafter, a rule, and the knobs they bring. The loop knows none of these names."""

from __future__ import annotations

from dataclasses import dataclass

from csd.errors import InputError, choose
from csd.rules import RULES, Knob, Rule

WINDOW = Knob("window", "window W", 16, 1, 256,
              "Positions per target forward: the last settled token and W − 1 drafts.", step=1, whole=True)  # fmt: skip
GAMMA = Knob("gamma", "draft length γ", 4, 1, 256,
             "Tokens the draft model proposes before the target checks them.", step=1, whole=True)  # fmt: skip
DRAFTER_KNOBS: dict[str, tuple[Knob, ...]] = {"none": (), "jacobi": (WINDOW,), "model": (GAMMA,)}


@dataclass(frozen=True)
class Method:
    """A named way to decode: `drafter` is none, jacobi or model."""

    name: str
    title: str
    drafter: str
    rule: Rule
    summary: str
    source: str

    @property
    def lossless(self) -> bool:
        return self.rule.lossless

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return DRAFTER_KNOBS[self.drafter] + self.rule.knobs

    def settings(self, given: dict[str, object], cells: int | None = None) -> dict[str, float]:
        """All knobs, defaults filled in, checked (against the size of the picture if given). Raises InputError."""
        known = {k.name: k for k in self.knobs}
        for name in given:
            if name not in known:
                allowed = f"allowed: {', '.join(known)}" if known else "it has none"
                raise InputError(f"method {self.name} has no parameter {str(name)[:40]!r}; {allowed}")
        out = {name: knob.check(given.get(name, knob.default)) for name, knob in known.items()}
        for name in ("window", "gamma"):
            if cells and name in out and out[name] > cells:
                if name in given:
                    raise InputError(f"{name} is {out[name]}; allowed: a whole number from 1 to {cells} (cells)")
                out[name] = cells
        return out


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("ar", "Plain autoregression", "none", RULES["exact"],
               "One target forward per token; the reference for everything else.", "-"),
        Method("sd", "Speculative decoding, draft model", "model", RULES["exact"],
               "A small model drafts, the target verifies; the output law is exactly the target's.",
               "Leviathan et al., 2023 (2211.17192); Chen et al., 2023 (2302.01318)"),
        Method("sjd", "Speculative Jacobi decoding", "jacobi", RULES["exact"],
               "The target drafts for itself from its previous guesses; exact, no second model.",
               "Teng et al., 2025 (2410.01699)"),
        Method("csd", "Content-aware speculative decoding", "jacobi", RULES["csd"],
               "SJD with a bonus where the target is undecided and draft and target nearly agree; not exact.",
               "Wang et al., 2026 (2606.27829)"),
        Method("csd-sd", "Content-aware, draft model", "model", RULES["csd"],
               "The content-aware rule on the drafts of a small model; not exact.",
               "Wang et al., 2026 (2606.27829), rule only"),
    )
}  # fmt: skip


def method(name: str) -> Method:
    """The method of that name. Raises InputError that lists the names."""
    return METHODS[choose("method", name, METHODS)]
