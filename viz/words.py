"""What a finished run says about itself in plain sentences. Every number in them is read from traces."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from csd.trace import Trace


def notes(traces: Sequence[Trace]) -> dict[int, str]:
    """Panel → its note, for runs that are done."""
    out = {}
    for i, t in enumerate(traces):
        if not t.footer or t.footer.status != "done":
            continue
        if t.header.kind == "discrete":
            out[i] = " ".join(filter(None, (_calibration(t), _fillers(t))))
        else:
            others = [o for j, o in enumerate(traces) if j != i and _same_model(o, t)]
            out[i] = _speculative(t, others) if t.header.drafter == "model" else _plain(t, others)
    return {i: text for i, text in out.items() if text}


def _same_model(a: Trace, b: Trace) -> bool:
    return a.header.model == b.header.model and a.header.label == b.header.label and bool(a.footer)


def warning(rule: str, knobs: dict) -> str:
    """What to know before a run: from about δ = 0.8 tail fillers pass CSD's gate where the vocabulary is small."""
    if rule != "csd" or knobs.get("fill") != "uniform" or not knobs["weight"] or knobs["delta"] < 0.8:
        return ""
    return ("At this gate δ even tail fillers, drawn uniformly before the target has looked, can be kept where it is "
            "undecided; textures suffer. A lower δ or another tail fill avoids it.")  # fmt: skip


def _calibration(t: Trace) -> str:
    z = t.footer.totals["calibration"]
    if z is None:
        return ""
    if abs(z) <= 2:
        return f"Z = {_signed(z)}: as likely under the target as its own samples, 95 of 100 of which lie between −2 and 2."
    side = "less likely" if z > 0 else "more likely, which looks too smooth,"
    rare = " It happens to 5 of 100 exact pictures too." if t.header.lossless else ""
    return f"Z = {_signed(z)}: {side} under the target than 95 of 100 of its own samples.{rare}"


def _signed(z: float) -> str:
    return f"{z:.1f}".replace("-", "−")


def _fillers(t: Trace) -> str:
    """Tail fillers a relaxed rule has let into the picture: nothing in them comes from the picture so far."""
    kept = [x for r in t.rounds for x in zip(r.tests.get("origin", ()), r.cells["outcome"], strict=False)]
    fillers = sum(origin == "fill" and outcome == "relaxed" for origin, outcome in kept)
    if not fillers:
        return ""
    return (f"{fillers} of {t.header.cells} cells hold tail fillers, drawn uniformly before the target had looked, that "
            "only relaxation kept; a lower gate or another tail fill avoids it.")  # fmt: skip


def _seconds(t: Trace) -> float:
    """Decoding time: what the maps cost to record is left out."""
    return t.footer.totals["seconds"] - t.footer.totals["seconds_record"]


def _plain(t: Trace, others: Sequence[Trace]) -> str:
    steps = t.header.knobs["iterations"]
    if steps == t.header.cells:
        return "One token per target call: the law every exact method must meet."
    twin = next((o for o in others if o.footer.totals["target_forwards"] == steps and o.header.drafter == "model"), None)
    if twin is None:
        return ""
    return (f"The fair baseline: the target alone with as many calls as the speculative run beside it ({steps}), "
            f"{_seconds(t):.1f} s against {_seconds(twin):.1f} s.")  # fmt: skip


def _speculative(t: Trace, others: Sequence[Trace]) -> str:
    text = _block(t) if t.header.knobs["verification"] == "block" else _against_plain(t, others)
    fallbacks = t.footer.totals["fallbacks"]
    if fallbacks:
        text += f" {fallbacks} replacements ran out of trials; there the target's own draw stands in."
    return text


def _block(t: Trace) -> str:
    n, k = t.footer.totals, t.header.knobs
    return (f"The number of target calls was fixed before the run: {n['prefill']} for the pre-fill and one per block of "
            f"{k['gamma']}, {n['target_forwards']} in all. It does not depend on how many drafts were kept "
            f"({n['accepted']} of {n['examined']}), because a rejected token is overwritten and what was drafted from it "
            f"stays. Compare with plain MAR in {n['target_forwards']} steps.")  # fmt: skip


def plain_seconds(t: Trace, others: Sequence[Trace]) -> tuple[float, str] | None:
    """(seconds plain MAR takes for one token per call, how that is known): measured beside, or from the run's pre-fill."""
    beside = next((o for o in others if o.header.drafter == "none" and o.header.knobs["iterations"] == o.header.cells
                   and o.footer.status == "done"), None)  # fmt: skip
    if beside:
        return _seconds(beside), "measured beside it"
    alone = [r for r in t.rounds if set(r.cells["outcome"]) == {"prefill"}]
    if not alone:
        return None
    return t.header.cells * fmean(sum(r.seconds.values()) for r in alone), "at the speed of this run's pre-fill"


def _against_plain(t: Trace, others: Sequence[Trace]) -> str:
    known, n = plain_seconds(t, others), t.footer.totals
    if known is None or not n["examined"]:
        return ""
    plain, source = known
    took = _seconds(t)
    apart, sigma = _spread(t)
    slower = took > plain
    why = (f"{n['accepted']} of {n['examined']} drafts were kept. Target and draft expect a token {apart:.0f} σ apart "
           f"(median; σ is {sigma:.4f} in the last transition; two Gaussians 2.3 σ apart share a quarter)")  # fmt: skip
    cost = (f"a round costs {t.header.knobs['gamma']} draft calls and a target call with "
            f"{n['target_rows'] / n['target_forwards']:.1f} rows")  # fmt: skip
    word = "Slower" if slower else "Faster"
    return f"{word} than plain MAR: {took:.1f} s against {plain:.1f} s ({source}). {why}, and {cost}."


def _spread(t: Trace) -> tuple[float, float]:
    """(median distance of means in sigmas, median sigma of the target's last transition)."""
    sigmas = [v for r in t.rounds for row in r.tests.get("sigma_p", ()) for v in row]
    return t.footer.totals["median_distance"], median(sigmas)
