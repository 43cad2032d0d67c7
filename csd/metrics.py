"""Every number shown anywhere, defined once: how it is computed from rounds, and the sentence that explains it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

DEFINITIONS = {
    "cells": "Tokens of the picture.",
    "committed": "Tokens that entered the picture: accepted drafts and tokens of the target itself.",
    "rounds": "One target forward and what it settles.",
    "target_forwards": "Calls of the target, counted where the model is called.",
    "target_rows": "Batch rows over those calls. A guided forward runs two rows: one with the label, one without.",
    "draft_forwards": "Calls of the draft model, counted the same way. Jacobi methods have none.",
    "draft_rows": "Batch rows over the draft model's calls.",
    "examined": "Drafts that got a verdict. Drafts after a round's first rejection are not examined.",
    "accepted": "Examined drafts that the rule kept.",
    "relaxed": "Accepted drafts that the exact rule, with the same draw u, would have rejected.",
    "resampled": "Rejected drafts, each replaced by a draw from the residual law.",
    "bonus": "Free tokens of the target after a round in which every draft was accepted.",
    "first": "Tokens the target drew alone, with no draft to check.",
    "prefill": "Tokens of a continuous run that the target drew alone before speculation began.",
    "head_steps": "Calls of the diffusion heads, draft and target together, whatever their batch. Continuous runs only.",
    "fallbacks": "Rejected drafts whose replacement ran out of trials, so that the target's own draw stands in.",
    "trials": "Proposals made to replace rejected drafts.",
    "mean_distance": "Mean distance of draft and target means in the last transition, in sigmas of the target.",
    "median_distance": "Median of that distance.",
    "acceptance_rate": "accepted / examined.",
    "tokens_per_forward": "committed / target forwards.",
    "rounds_of_one": "Share of rounds that settled a single token; the mean above hides them.",
    "drift": "Sum over cells of the total variation between the law the rule emits there and the target's law p. "
             "0 for exact rules. Empty when distances were not recorded.",
    "drift_at_high_H": "Share of the drift that lies in the half of the cells with the largest H(p).",
    "mean_H": "Mean entropy of p over the committed cells, in nats.",
    "calibration": "Z = Σ(−log p(token) − H) / √Σ Var over the settled cells: an exact sampler lands between −2 and 2 "
                   "in 95 of 100 pictures. Above: the picture is less likely under the target than its own samples are; "
                   "below: more likely, which looks too smooth.",
    "seconds": "Measured time of the run: draft + target + verify + record.",
    "seconds_model": "Time inside the models: draft + target.",
    "seconds_draft": "Time to make drafts.",
    "seconds_target": "Time in target forwards.",
    "seconds_verify": "Time to turn logits into laws, judge, and draw.",
    "seconds_record": "Time to compute and store what the maps show. No decoder needs it.",
}  # fmt: skip

PARTS = ("draft", "target", "verify", "record")


def summary(rounds: Sequence, cells: int) -> dict:
    """All totals of a run from its rounds (trace.Round). Quantities that do not apply or were not recorded are None."""
    total = {k: sum(getattr(r, k) for r in rounds) for k in ("examined", "accepted", "relaxed", "committed")}
    last = rounds[-1] if rounds else None
    counted = {k: getattr(last, k) if last else 0
               for k in ("target_forwards", "target_rows", "draft_forwards", "draft_rows")}  # fmt: skip
    outcomes = [o for r in rounds for o in r.cells["outcome"]]
    continuous = bool(last) and last.head_steps is not None
    distances = [v for r in rounds for v in r.tests.get("distance", ())]
    seconds = {p: sum(r.seconds.get(p, 0.0) for r in rounds) for p in PARTS}
    return {
        "cells": cells, "rounds": len(rounds), **total, **counted,
        **{k: outcomes.count(k) for k in ("resampled", "bonus", "first", "prefill")},
        "head_steps": last.head_steps if last else None,
        "fallbacks": _total(rounds, "fallback") if continuous else None,
        "trials": _total(rounds, "trials") if continuous else None,
        "mean_distance": sum(distances) / len(distances) if distances else None,
        "median_distance": median(distances) if distances else None,
        "acceptance_rate": total["accepted"] / total["examined"] if total["examined"] else None,
        "tokens_per_forward": total["committed"] / counted["target_forwards"] if counted["target_forwards"] else None,
        "rounds_of_one": sum(r.committed == 1 for r in rounds) / len(rounds) if rounds else None,
        "drift": _sum(rounds, "drift"), "drift_at_high_H": _at_high_H(rounds),
        "mean_H": _mean(rounds, "H"), "calibration": calibration(rounds),
        "seconds": sum(seconds.values()), "seconds_model": seconds["draft"] + seconds["target"],
        **{f"seconds_{p}": s for p, s in seconds.items()},
    }  # fmt: skip


class Calibration:
    """Running Z of the committed tokens: is the picture as likely under its own model as the model's samples are?

    Given what came before, −log p(x) of a sample x ~ p has mean H and variance Var = Σ p (log p)² − H², so
    Z = Σ(−log p(x) − H) / √Σ Var is about N(0, 1) for any exact sampler, by the central limit theorem for martingales.
    """

    def __init__(self) -> None:
        self.surprise: float | None = 0.0
        self.var = 0.0

    def add(self, r) -> float | None:
        """Z after one more round; None when not recorded, when a token had p = 0 (−log p is infinite) or nothing varies."""
        if self.surprise is None or "logp" not in r.cells or None in r.cells["logp"]:
            self.surprise = None
            return None
        self.surprise -= sum(r.cells["logp"]) + sum(r.cells["H"])
        self.var += sum(r.cells["var"])
        return self.surprise / math.sqrt(self.var) if self.var > 0 else None


def calibration(rounds: Sequence) -> float | None:
    """Z of all rounds' committed tokens."""
    running, z = Calibration(), None
    for r in rounds:
        z = running.add(r)
    return z


def _at_high_H(rounds: Sequence) -> float | None:
    """Share of the drift in the half of the cells with the largest H; None without drift."""
    H, drift = _column(rounds, "H"), _column(rounds, "drift")
    if H is None or drift is None or sum(drift) < 1e-6:
        return None
    ranked = sorted(zip(H, drift, strict=True), key=lambda pair: -pair[0])
    return sum(d for _, d in ranked[: len(ranked) // 2]) / sum(drift)


def _total(rounds: Sequence, key: str) -> int:
    """Sum of a column of tests; entries that do not apply are None."""
    return sum(int(v or 0) for r in rounds for v in r.tests.get(key, ()))


def _column(rounds: Sequence, key: str) -> list | None:
    if not rounds or any(key not in r.cells for r in rounds):
        return None
    return [v for r in rounds for v in r.cells[key]]


def _sum(rounds: Sequence, key: str) -> float | None:
    values = _column(rounds, key)
    return None if values is None else sum(values)


def _mean(rounds: Sequence, key: str) -> float | None:
    values = _column(rounds, key)
    return sum(values) / len(values) if values else None
