"""What can be set about continuous speculative decoding, and the three presets: exact, as published, as coded.

Wang et al., 2024 (Continuous Speculative Decoding, arXiv 2411.11925). The paper's algorithm and its public code differ in
four places, and neither is exact; every difference is a switch here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from csd.knobs import Knob

SWITCHES: dict[str, Knob] = {
    k.name: k
    for k in (
        Knob("verification", "verification", "sequential", choices=("sequential", "block"),
             meaning="sequential: each draft is judged under the context that really precedes it; the first rejection ends "
                     "the round and the rest is drafted again. block, as in the public code: one context in which the "
                     "whole block is masked, a verdict per token, nothing drafted again; target calls are fixed."),
        Knob("factor", "trajectory factor S", "off", choices=("off", "paper", "code"),
             meaning="off: judge by the last transition alone, which is exact, because the noise before it is common "
                     "knowledge. paper: times the product of σq/σp along the chain. code: the inverse, as in public code."),
        Knob("inner_temperature", "inner temperature", 1.0, 1, 42,
             "Divides distances in the accept test only. 1 is the rule; the public code has 42, the paper does not name "
             "it.", step=1),
        Knob("last_noise", "noise in the last transition", True,
             meaning="On: the token is drawn from its last Gaussian, as exactness needs. Off: its mean, as MAR samples."),
        Knob("shared_noise", "shared noise (trajectory alignment)", True,
             meaning="Draft and target chains start from the same noise and use the same noise at each step."),
        Knob("prefill", "pre-fill share", 0.05, 0, 1,
             "Share of the picture the target draws alone first. The paper recommends 0.05.", step=0.01),
        Knob("gamma", "draft length γ, continuous", 4, 1, 256,
             "Tokens drafted before the target checks them. The paper uses 4 to 32.", step=1, whole=True),
        Knob("trials", "residual trials", 100, 1, 10_000,
             "Proposals for a rejected token's replacement before the target's own draw stands in, which is counted as a "
             "fallback. (The public code leaves zeros.)", step=1, whole=True),
        Knob("steps", "diffusion steps", 25, 2, 1000, "Transitions of a token's chain, of the 1000 trained.",
             step=1, whole=True),
        Knob("guidance", "guidance, continuous", 1.0, 1, 20,
             "Pull of the predicted noise towards the label; 1 is none.", step=0.25),
        Knob("schedule", "guidance schedule", "constant", choices=("constant", "linear"),
             meaning="constant, or growing linearly with the share of the picture that is known, as in MAR. With block "
                     "verification linear gives draft and target different weights."),
        Knob("temperature", "noise temperature", 1.0, 0.01, 10, "Multiplies the noise of every transition."),
    )
}  # fmt: skip


@dataclass(frozen=True)
class CSpD:
    """The switches' values, meanings in `SWITCHES`. Raises InputError for values outside their ranges.

    Numbers have no unit except steps, gamma, trials (counts) and prefill (a share of the cells).
    """

    verification: str = "sequential"
    factor: str = "off"
    inner_temperature: float = 1.0
    last_noise: bool = True
    shared_noise: bool = True
    prefill: float = 0.05
    gamma: int = 4
    trials: int = 100
    steps: int = 25
    guidance: float = 1.0
    schedule: str = "constant"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, SWITCHES[f.name].check(getattr(self, f.name)))

    @property
    def lossless(self) -> bool:
        """Whether the law of the picture is the target's, whatever the draft model does."""
        return self.exactness == ("sequential", "off", 1.0, True)

    @property
    def exactness(self) -> tuple:
        return self.verification, self.factor, self.inner_temperature, self.last_noise

    @property
    def formula(self) -> str:
        """The accept test in the letters of the trace."""
        s = {"off": "", "paper": "S · ", "code": "1/S · "}[self.factor]
        heat = "" if self.inner_temperature == 1 else f", distances over {self.inner_temperature:g}"
        return f"b = min(1, {s}N(x; μp, σp) / N(x; μq, σq){heat})"


# What each preset fixes; everything else (draft length, steps, guidance, …) stays as chosen.
_PRESETS = {
    "exact": {"verification": "sequential", "factor": "off", "inner_temperature": 1.0, "last_noise": True, "prefill": 0.05},
    "paper": {
        "verification": "sequential",
        "factor": "paper",
        "inner_temperature": 1.0,
        "last_noise": True,
        "prefill": 0.05,
    },
    "code": {"verification": "block", "factor": "code", "inner_temperature": 42.0, "last_noise": False, "prefill": 0.15},
}
PRESETS: dict[str, CSpD] = {name: CSpD(**values) for name, values in _PRESETS.items()}
PRESET_MEANINGS = {
    "exact": "the target's law, whatever the draft does; the price is that almost nothing is accepted",
    "paper": "the published criterion with its trajectory factor; not exact",
    "code": "the public implementation: block verdicts, inverted factor, inner temperature 42, mean as token; not exact, "
            "and its number of target calls does not depend on acceptance",
}  # fmt: skip


def preset_values(name: str) -> dict:
    """The switches that preset fixes. Raises InputError that lists the presets."""
    from csd.errors import choose

    return dict(_PRESETS[choose("preset", name, _PRESETS)])


def preset_of(settings: CSpD) -> str:
    """The preset these settings keep to, or "own"."""
    have = asdict(settings)
    return next((n for n, fixed in _PRESETS.items() if all(have[k] == v for k, v in fixed.items())), "own")
