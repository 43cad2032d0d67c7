"""What the colours, shapes and layers mean: one place, used by the viewer, its legend and the README.

Colours are from the Okabe-Ito set, chosen to stay apart with any colour vision; shape repeats what colour says.
"""

from __future__ import annotations

from csd.metrics import DEFINITIONS

OUTCOMES = {
    "exact": ("accepted", "#0072B2", "dot", "The draft was kept, as the exact rule would have done with the same draw."),
    "relaxed": ("accepted, relaxed", "#E69F00", "triangle", "Kept only thanks to relaxation: the exact rule, with the "
                "same draw, would have rejected it."),
    "resampled": ("rejected, resampled", "#D55E00", "cross", "The draft was rejected; the token was drawn from the "
                  "residual law instead."),
    "bonus": ("free", "#009E73", "plus", "All drafts of the round were kept; the target's last law gave a token for free."),
    "first": ("target alone", "#8A8A8A", "bar", "The target drew this token with no draft to check."),
    "prefill": ("target alone, pre-fill", "#5A5A5A", "bar", "Drawn by the target before speculation began."),
    "forced": ("forced", "#5A5A5A", "square", "The format leaves no choice here; not counted anywhere."),
}  # fmt: skip

SHOWN_IN_LEGEND = ("exact", "relaxed", "resampled", "bonus", "first")

# key → (where the number is: cells or tests, label, unit, meaning)
LAYERS = {
    "H": ("cells", "entropy H(p)", "nats", "How undecided the target was. High: many tokens are about as good."),
    "tv": ("tests", "TV(p, q)", "", "Total variation between target and draft law: 0 same, 1 disjoint. CSD's gate compares "
           "it with δ."),
    "b": ("tests", "accept probability b", "", "Probability with which the rule keeps this draft."),
    "drift": ("cells", "drift", "", "Total variation between the law the rule emits here and p. 0 for exact rules."),
    "surprise": ("cells", "surprise −log p", "nats", "How unlikely the settled token was under the target."),
    "rank_p": ("tests", "rank of the draft in p", "", "0: the target's likeliest token."),
    "age": ("cells", "age of the draft", "rounds", "Rounds in which this position had a draft before its verdict."),
}  # fmt: skip

NUMBERS = (
    ("target_forwards", "target forwards"), ("tokens_per_forward", "tokens per forward"), ("committed", "settled cells"),
    ("acceptance_rate", "acceptance rate"), ("examined", "examined drafts"), ("accepted", "accepted"),
    ("relaxed", "of these relaxed"), ("drift", "drift, summed"), ("draft_forwards", "draft forwards"),
    ("target_rows", "target rows"), ("seconds_model", "seconds in models"), ("seconds_target", "target"),
    ("seconds_draft", "draft"), ("seconds_verify", "verify"), ("seconds_record", "record"),
)  # fmt: skip


def for_viewer() -> dict:
    """Everything the browser needs, as plain JSON."""
    return {
        "outcomes": {k: {"label": a, "colour": c, "shape": s, "meaning": m} for k, (a, c, s, m) in OUTCOMES.items()},
        "layers": {k: {"from": f, "label": a, "unit": u, "meaning": m} for k, (f, a, u, m) in LAYERS.items()},
        "numbers": [{"key": k, "label": a, "meaning": DEFINITIONS[k]} for k, a in NUMBERS],
    }
