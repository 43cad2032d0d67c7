"""The methods by name: a drafter, a rule, and the knobs they bring. The loop knows none of these names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from csd.errors import InputError, choose
from csd.knobs import Knob
from csd.rules import RULES, Rule
from csd.switches import PRESET_MEANINGS, SWITCHES, preset_values

WINDOW = Knob("window", "window W", 16, 1, 256,
              "Positions per target forward: the last settled token and W − 1 drafts.", step=1, whole=True)  # fmt: skip
GAMMA = Knob("gamma", "draft length γ", 4, 1, 256,
             "Tokens the draft model proposes before the target checks them.", step=1, whole=True)  # fmt: skip
COUPLING = Knob("coupling", "coupling", "fresh", choices=("fresh", "maximal", "gumbel"),
                meaning="How a draft that was not settled becomes the next round's: fresh, drawn anew; maximal or gumbel, "
                        "tied to the old one, which keeps more of them and leaves the output law alone.")  # fmt: skip
FILL = Knob("fill", "tail fill", "uniform", choices=("uniform", "onehot", "copy"),
            meaning="What a position gets that enters the window: a uniform token with q = 1/V, the same token with all of "
                    "q on it, or a copy of the token above.")  # fmt: skip
CORRECT = Knob("correct", "correction sweeps", 0, 0, 8,
               "After each target forward a small model says how the drafts' laws change with the drafts before them, this "
               "many times; 0 is none. Costs one draft forward more than sweeps, and leaves the output law alone.",
               step=1, whole=True)  # fmt: skip
DRAFTER_KNOBS: dict[str, tuple[Knob, ...]] = {"none": (), "jacobi": (WINDOW, COUPLING, FILL, CORRECT), "model": (GAMMA,)}


ITERATIONS = Knob("iterations", "MAR steps", 256, 1, 65536,
                  "Target calls for the whole picture, on MAR's cosine schedule. Fewer calls draw more tokens from one "
                  "context, which is no longer the law of drawing them one by one.", step=1, whole=True)  # fmt: skip


@dataclass(frozen=True)
class Method:
    """A named way to decode discrete tokens: `drafter` is none, jacobi or model; `preset` overrides knobs' defaults."""

    kind: ClassVar[str] = "discrete"
    name: str
    title: str
    drafter: str
    rule: Rule
    summary: str
    source: str
    preset: tuple[tuple[str, object], ...] = ()

    @property
    def lossless(self) -> bool:
        return self.rule.lossless

    @property
    def knobs(self) -> tuple[Knob, ...]:
        own = dict(self.preset)
        knobs = DRAFTER_KNOBS[self.drafter] + self.rule.knobs
        return tuple(replace(k, default=own[k.name]) if k.name in own else k for k in knobs)

    @property
    def presets(self) -> dict[str, tuple[dict, str]]:
        """Published settings by name: (values, what they are)."""
        return PUBLISHED.get(self.name) or PUBLISHED.get(self.rule.name, {})

    def settings(self, given: dict[str, object], cells: int | None = None) -> dict[str, float]:
        """All knobs, defaults filled in, checked (against the size of the picture if given). Raises InputError."""
        out = _settings(self.name, self.knobs, given, cells)
        if self.rule.joint and out.get("coupling", "fresh") != "fresh":
            raise InputError(f"coupling is {out['coupling']!r}; allowed with block verification: fresh, because its "
                             "verdict has looked at every draft of the round")  # fmt: skip
        return out


@dataclass(frozen=True)
class LatentMethod:
    """A named way to decode continuous tokens: `drafter` is none or model; CSpD's rule is in its switches."""

    kind: ClassVar[str] = "continuous"
    name: str
    title: str
    drafter: str
    formula: str
    summary: str
    source: str
    knobs: tuple[Knob, ...]

    @property
    def presets(self) -> dict[str, tuple[dict, str]]:
        """The three sets of switches of CSpD: (values, what they are)."""
        return {k: (preset_values(k), v) for k, v in PRESET_MEANINGS.items()} if self.drafter == "model" else {}

    def settings(self, given: dict[str, object], cells: int | None = None) -> dict:
        """All knobs, defaults filled in, checked (against the size of the picture if given). Raises InputError."""
        return _settings(self.name, self.knobs, given, cells)


def _settings(method: str, knobs: tuple[Knob, ...], given: dict[str, object], cells: int | None) -> dict:
    known = {k.name: k for k in knobs}
    for name in given:
        if name not in known:
            allowed = f"allowed: {', '.join(known)}" if known else "it has none"
            raise InputError(f"method {method} has no parameter {str(name)[:40]!r}; {allowed}")
    out = {name: knob.check(given.get(name, knob.default)) for name, knob in known.items()}
    for name in ("window", "gamma", "iterations"):
        if cells and name in out and out[name] > cells:
            if name in given:
                raise InputError(f"{name} is {out[name]}; allowed: a whole number from 1 to {cells} (cells)")
            out[name] = cells
    return out


# Published settings other than the defaults, which are the papers': rule or method → preset → (values, what they are).
PUBLISHED: dict[str, dict[str, tuple[dict, str]]] = {
    "sjd": {"code": ({"fill": "onehot"}, "as in the public code of SJD: a filler carries all of q")},
    "scd": {"paper": ({"window": 64}, "the widest window of the SCD paper")},
    "gsd": {"code": ({"group": 14, "cluster": "dynamic", "gap": 0.15, "reach": 0.5}, "as in the public code of GSD"),
            "fast": ({"group": 50, "cluster": "dynamic", "gap": 0.15, "reach": 0.5}, "the GSD paper's fastest")},
    "lantern": {"paper": ({"neighbours": 1000, "budget": 0.4}, "the most the LANTERN paper runs; its code: 0.1")},
    "lantern++": {"wide": ({"neighbours": 5, "multiple": 20.0}, "the boldest script of the public code")},
    "cool": {"fast": ({"weights": (5.19, 2.58, 1.28, 0.64, 0.32)}, "a mean weight of 2, the COOL-SD paper's fastest")},
    "amplify": {"janus": ({"factor": 4.0}, "the CSD paper's baseline on Janus-Pro 7B")},
    "addition": {"janus": ({"bonus": 0.4}, "the CSD paper's baseline on Janus-Pro 7B")},
}  # fmt: skip


def preset(m: Method | LatentMethod, name: str) -> dict:
    """The knob values of one of the method's presets. Raises InputError that lists them."""
    if not m.presets:
        raise InputError(f"method {m.name} has no presets; those that have: "
                         + ", ".join(n for n, other in ALL_METHODS.items() if other.presets))  # fmt: skip
    return dict(m.presets[choose("preset", name, m.presets)][0])


def _methods() -> dict[str, Method]:
    """Every rule on both kinds of drafts: `name` on the target's own (Jacobi), `name-sd` on a draft model's."""
    exact, csd = RULES["exact"], RULES["csd"]
    out = [
        Method("ar", "Plain autoregression", "none", exact,
               "One target forward per token; the reference for everything else.", "-"),
        Method("sd", "Speculative decoding, draft model", "model", exact,
               "A small model drafts, the target verifies; the output law is exactly the target's.", exact.source),
        Method("sjd", "Speculative Jacobi decoding", "jacobi", exact,
               "The target drafts for itself from its previous guesses; exact, no second model.",
               "Teng et al., 2025 (2410.01699)"),
        Method("csd", "Content-aware speculative decoding", "jacobi", csd,
               "SJD with a bonus where the target is undecided and draft and target nearly agree; not exact.", csd.source),
        Method("csd-sd", "Content-aware, draft model", "model", csd,
               "The content-aware rule on the drafts of a small model; not exact.", f"{csd.source}, rule only"),
        Method("scd", "Speculative coupled decoding", "jacobi", exact,
               "SJD whose unsettled drafts are kept where old and new law agree; exact.", "So et al., 2025 (2510.24211)",
               preset=(("coupling", "maximal"),)),
        Method("scd+", "Coupled decoding, corrected drafts", "jacobi", exact,
               "Coupled drafts that a small model corrects after every target forward; exact, fewest forwards here.",
               "coupling: So et al., 2025 (2510.24211); the correction is this project's own",
               preset=(("coupling", "maximal"), ("window", 64), ("correct", 2))),
    ]  # fmt: skip
    for rule in RULES.values():
        if rule.name not in ("exact", "csd"):
            says = "exact" if rule.lossless else "not exact"
            kind = rule.title[0].upper() + rule.title[1:]
            out += [Method(rule.name, f"{kind}, Jacobi drafts", "jacobi", rule,
                           f"{rule.formula}, on the target's previous guesses; {says}.", rule.source),
                    Method(f"{rule.name}-sd", f"{kind}, draft model", "model", rule,
                           f"{rule.formula}, on the drafts of a small model; {says}.", rule.source)]  # fmt: skip
    return {m.name: m for m in out}


METHODS: dict[str, Method] = _methods()

PLAIN = ("last_noise", "steps", "guidance", "schedule", "temperature")
LATENT_METHODS: dict[str, LatentMethod] = {
    m.name: m
    for m in (
        LatentMethod("mar", "Plain MAR", "none", "",
                     "The target alone, in any number of steps; with as many as a speculative run, its fair baseline.",
                     "Li et al., 2024 (2406.11838)", (ITERATIONS, *(SWITCHES[k] for k in PLAIN))),
        LatentMethod("cspd", "Continuous speculative decoding", "model", "b = min(1, S · N(x; μp, σp) / N(x; μq, σq))",
                     "A small MAR drafts vectors, the target judges them by the last step of their diffusion chains.",
                     "Wang et al., 2024 (2411.11925)", tuple(SWITCHES.values())),
    )
}  # fmt: skip
ALL_METHODS: dict[str, Method | LatentMethod] = {**METHODS, **LATENT_METHODS}


def method(name: str) -> Method | LatentMethod:
    """The method of that name. Raises InputError that lists the names."""
    return ALL_METHODS[choose("method", name, ALL_METHODS)]
