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

SHOWN_IN_LEGEND = ("exact", "relaxed", "resampled", "bonus", "first")

# Marks that are no outcomes: key → (label, meaning). Their look is in viewer.css, class `mark` and the key.
MARKS = {
    "waiting": ("drafts, not settled", "Drafts of the last round behind its last settled cell."),
    "settled": ("last round", "What the last target forward settled."),
    "none": ("not applicable", "No such number exists for this cell. It is never drawn as zero."),
}

# key → (where the number is: cells or tests, label, unit, top of the scale (None: largest value shown), scale, meaning)
LAYERS = {
    "H": ("cells", "entropy H(p)", "nats", None, "linear",
          "How undecided the target was. High: many tokens are about as good."),
    "tv": ("tests", "TV(p, q)", "", 1, "linear",
           "Total variation between target and draft law: 0 same, 1 disjoint. CSD's gate compares it with δ."),
    "b": ("tests", "accept probability b", "", 1, "linear", "Probability with which the rule keeps this draft."),
    "drift": ("cells", "drift", "", None, "linear",
              "Total variation between the law the rule emits here and p. 0 for exact rules."),
    "surprise": ("cells", "surprise −log p", "nats", None, "linear",
                 "How unlikely the settled token was under the target."),
    "rank_p": ("tests", "rank of the draft in p", "", None, "log", "0: the target's likeliest token. Logarithmic scale."),
    "age": ("cells", "age of the draft", "rounds", None, "linear",
            "Rounds in which this position had a draft before its verdict."),
}  # fmt: skip

RAMP = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")

# group → the numbers under a panel, in reading order: (key, label)
NUMBERS = {
    "headline": (("tokens_per_forward", "tokens per forward"), ("target_forwards", "target forwards"),
                 ("acceptance_rate", "acceptance rate"), ("drift", "drift, summed")),
    "counts": (("committed", "settled"), ("examined", "examined drafts"), ("accepted", "accepted"),
               ("relaxed", "of these relaxed"), ("target_rows", "target rows"), ("draft_forwards", "draft forwards")),
    "seconds": (("seconds_model", "in models"), ("seconds_draft", "draft"), ("seconds_target", "target"),
                ("seconds_verify", "verify"), ("seconds_record", "record")),
}  # fmt: skip


def numbers(group: str) -> list[tuple[str, str, str]]:
    """The numbers of a group as (key, label, meaning)."""
    return [(key, label, DEFINITIONS[key]) for key, label in NUMBERS[group]]


def for_viewer() -> dict:
    """What the browser needs, as plain JSON."""
    return {
        "outcomes": {k: {"label": a, "light": c, "dark": d, "shape": s, "meaning": m}
                     for k, (a, c, d, s, m) in OUTCOMES.items()},
        "layers": {k: {"from": f, "label": a, "unit": u, "top": t, "scale": s, "meaning": m}
                   for k, (f, a, u, t, s, m) in LAYERS.items()},
        "ramp": RAMP,
    }  # fmt: skip
