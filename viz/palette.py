"""What the colours, shapes, layers and numbers mean: one place, used by the viewer and its legend.

Colours are from the Okabe-Ito set, chosen to stay apart with any colour vision; each has a lighter twin for dark pages, and
shape repeats what colour says. Layers share one ramp (cividis), which keeps its order without colour as well.
"""

from __future__ import annotations

from csd.metrics import DEFINITIONS

# key → (label, colour on light pages, colour on dark pages, shape, meaning)
OUTCOMES = {
    "exact": ("accepted", "#0072B2", "#56B4E9", "dot",
              "The draft was kept, as the exact rule would have done with the same draw."),
    "relaxed": ("accepted, relaxed", "#E69F00", "#F5BD3D", "triangle",
                "Kept only thanks to relaxation: the exact rule, with the same draw, would have rejected it."),
    "resampled": ("rejected, resampled", "#D55E00", "#FF8042", "cross",
                  "The draft was rejected; the token was drawn from the residual law instead."),
    "bonus": ("free", "#009E73", "#35C99D", "plus",
              "All drafts of the round were kept; the target's last law gave a token for free."),
    "first": ("target alone", "#767676", "#B0B0B0", "bar", "The target drew this token with no draft to check."),
    "prefill": ("target alone, pre-fill", "#5A5A5A", "#8C8C8C", "bar", "Drawn by the target before speculation began."),
    "forced": ("forced", "#5A5A5A", "#8C8C8C", "square", "The format leaves no choice here; not counted anywhere."),
}  # fmt: skip

SHOWN_IN_LEGEND = ("exact", "relaxed", "resampled", "bonus", "first", "prefill")

# Marks that are no outcomes: key → (label, meaning). Their look is in base.css, class `mark` and the key.
MARKS = {
    "waiting": ("drafts, not settled", "Drafts of the last round behind its last settled cell."),
    "settled": ("last round", "What the last target forward settled."),
    "fallback": (
        "fallback",
        "Continuous runs: no proposal for the residual law was kept, so the target's own draw stands in.",
    ),
    "none": ("not applicable", "No such number exists for this cell. It is never drawn as zero."),
}

BOTH, DISCRETE, CONTINUOUS = ("discrete", "continuous"), ("discrete",), ("continuous",)

# key → (kinds of run it exists for, where the number is: cells or tests, label, unit, top of the scale (None: largest value
# shown), scale, meaning). A signed scale is logarithmic on both sides of 0.
LAYERS = {
    "H": (DISCRETE, "cells", "entropy H(p)", "nats", None, "linear",
          "How undecided the target was. High: many tokens are about as good."),
    "tv": (DISCRETE, "tests", "TV(p, q)", "", 1, "linear",
           "Total variation between target and draft law: 0 same, 1 disjoint. CSD's gate compares it with δ."),
    "distance": (CONTINUOUS, "tests", "distance of means", "σ", None, "log",
                 "How far apart target and draft expect the token, in sigmas of the target's last transition. Log scale."),
    "log_ratio": (CONTINUOUS, "tests", "ln ratio, raw", "nats", None, "signed",
                  "Logarithm of the density ratio of the draft, factor S included, before the inner temperature."),
    "log_ratio_tempered": (CONTINUOUS, "tests", "ln ratio, tempered", "nats", None, "signed",
                           "What the draw is compared with: b = min(1, exp of it)."),
    "log_s": (CONTINUOUS, "tests", "ln S", "nats", None, "signed",
              "Logarithm of the trajectory factor: how differently draft and target spread their noise along the chain."),
    "trials": (CONTINUOUS, "tests", "residual trials", "", None, "log",
               "Proposals for a rejected token's replacement. Logarithmic scale."),
    "fallback": (CONTINUOUS, "tests", "fallback", "", 1, "linear",
                 "1 where no proposal was kept and the target's own draw stands in."),
    "order": (CONTINUOUS, "cells", "order of generation", "", None, "linear", "0: generated first."),
    "b": (BOTH, "tests", "accept probability b", "", 1, "linear", "Probability with which the rule keeps this draft."),
    "drift": (DISCRETE, "cells", "drift", "", None, "linear",
              "Total variation between the law the rule emits here and p. 0 for exact rules."),
    "surprise": (DISCRETE, "cells", "surprise −log p", "nats", None, "linear",
                 "How unlikely the settled token was under the target."),
    "rank_p": (DISCRETE, "tests", "rank of the draft in p", "", None, "log",
               "0: the target's likeliest token. Logarithmic scale."),
    "age": (DISCRETE, "cells", "age of the draft", "rounds", None, "linear",
            "Rounds in which this position had a draft before its verdict."),
}  # fmt: skip

RAMP = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")

# for quantities with a sign: blue below 0, pale at 0, orange above; both ends differ in lightness from the middle alone
SIGNED = ("#08306b", "#2b6ca3", "#7fb3d5", "#f3efe6", "#f5b26b", "#c9621a", "#6b2d04")

# group → the numbers under a panel, in reading order: (key, label)
NUMBERS = {
    "headline": (("tokens_per_forward", "tokens per forward"), ("target_forwards", "target forwards"),
                 ("acceptance_rate", "acceptance rate"), ("drift", "drift, summed"),
                 ("calibration", "calibration Z"), ("mean_distance", "mean distance, σ")),
    "counts": (("committed", "settled"), ("examined", "examined drafts"), ("accepted", "accepted"),
               ("relaxed", "of these relaxed"), ("target_rows", "target rows"), ("draft_forwards", "draft forwards")),
    "latent": (("head_steps", "head steps"), ("trials", "residual trials"), ("fallbacks", "fallbacks")),
    "seconds": (("seconds_model", "in models"), ("seconds_draft", "draft"), ("seconds_target", "target"),
                ("seconds_verify", "verify"), ("seconds_record", "record")),
}  # fmt: skip


# numbers that exist for one kind of run only
ONLY = {"drift": "discrete", "calibration": "discrete", "mean_distance": "continuous"}


def numbers(group: str) -> list[tuple[str, str, str]]:
    """The numbers of a group as (key, label, meaning)."""
    return [(key, label, DEFINITIONS[key]) for key, label in NUMBERS[group]]


def for_viewer() -> dict:
    """What the browser needs, as plain JSON."""
    return {
        "outcomes": {k: {"label": a, "light": c, "dark": d, "shape": s, "meaning": m}
                     for k, (a, c, d, s, m) in OUTCOMES.items()},
        "layers": {k: {"from": f, "label": a, "unit": u, "top": t, "scale": s, "meaning": m}
                   for k, (_, f, a, u, t, s, m) in LAYERS.items()},
        "ramp": RAMP, "signed": SIGNED,
    }  # fmt: skip
