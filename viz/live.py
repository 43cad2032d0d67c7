"""From trace events to the viewer's text: one JSON line per event, tagged with its panel.

The viewer's value is one growing string, because appending to a string is the cheapest update the page framework has.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import is_dataclass

from csd.trace import Event

# Columns of tests that the live maps and cards read; the rest stays in the trace.
TESTS = ("pos", "x", "origin", "age", "p", "q", "u", "b", "b_exact", "kept", "H", "tv", "eps", "gate", "saturated", "drift",
         "rank_p", "rank_q", "w", "p_group", "q_group", "group_size", "lent", "lenders", "distance", "apart", "log_s",
         "log_ratio", "log_ratio_tempered", "trials", "fallback", "mean_p", "sigma_p", "mean_q", "sigma_q")  # fmt: skip
VECTORS = ("apart", "x", "mean_p", "sigma_p", "mean_q", "sigma_q")
SENT = ("type", "round", "start", "fed", "drafted", "examined", "accepted", "relaxed", "committed", "bonus", "window",
        "cells", "target_forwards", "target_rows", "draft_forwards", "head_steps", "calibration",
        "seconds")  # fmt: skip


def stream_header(label: str, seed: int, titles: Sequence[str], recorded: bool = False) -> str:
    """The first line of a run. recorded: the whole run follows at once, so the viewer may play it from the start."""
    run = {"id": uuid.uuid4().hex, "label": label, "seed": seed, "panels": list(titles), "recorded": recorded}
    return _json({"type": "run"} | run)


def notes(texts: dict[int, str]) -> str:
    """What finished runs say about themselves (`viz.words`), a line each: panel → text."""
    return "".join(_json({"type": "note", "panel": i, "text": text}) for i, text in texts.items())


def line(panel: int, event: Event | dict) -> str:
    """One event as one line."""
    raw = dict(vars(event) if is_dataclass(event) else event)
    if raw["type"] == "footer":
        raw = {**raw.pop("totals", {}), **raw}
    elif raw["type"] == "round":
        tests = {k: raw["tests"][k] for k in TESTS if k in raw.get("tests", {})}
        raw = {k: raw[k] for k in SENT if k in raw} | {"tests": tests}
        if "latent" in raw["cells"]:  # four digits are enough to look at
            raw["cells"] = raw["cells"] | {"latent": _short(raw["cells"]["latent"])}
            raw["tests"] |= {k: _short(tests[k]) for k in VECTORS if k in tests}
        raw["seconds"] = {k: round(v, 6) for k, v in raw["seconds"].items()}
    return _json({"panel": panel} | raw)


def _short(rows: list) -> list:
    return [[float(f"{v:.4g}") for v in row] for row in rows]


def _json(raw: dict) -> str:
    return json.dumps(raw, separators=(",", ":"), allow_nan=False) + "\n"
