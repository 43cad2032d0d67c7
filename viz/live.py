"""From trace events to the viewer's text: one JSON line per event, tagged with its panel.

The viewer's value is one growing string, because appending to a string is the cheapest update the page framework has.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict

from csd.trace import Event, Footer

# Columns of tests that the live maps and cards read; the rest stays in the trace.
TESTS = ("pos", "x", "origin", "age", "p", "q", "u", "b", "b_exact", "kept", "H", "tv", "eps", "gate", "saturated", "drift",
         "rank_p", "rank_q")  # fmt: skip
SENT = ("type", "round", "start", "fed", "drafted", "examined", "accepted", "relaxed", "committed", "bonus", "cells",
        "target_forwards", "target_rows", "draft_forwards", "seconds")  # fmt: skip


def stream_header(label: str, seed: int, titles: list[str], recorded: bool = False) -> str:
    """The first line of a run."""
    run = {"type": "run", "id": uuid.uuid4().hex, "label": label, "seed": seed, "panels": titles, "recorded": recorded}
    return json.dumps(run) + "\n"


def line(panel: int, event: Event) -> str:
    """One event as one line."""
    raw = asdict(event)
    if isinstance(event, Footer):
        raw = {**raw.pop("totals"), **raw}
    elif raw["type"] == "round":
        tests = {k: raw["tests"][k] for k in TESTS if k in raw["tests"]}
        raw = {k: raw[k] for k in SENT} | {"tests": tests}
        raw["seconds"] = {k: round(v, 6) for k, v in raw["seconds"].items()}
    return json.dumps({"panel": panel} | raw, separators=(",", ":"), allow_nan=False) + "\n"
