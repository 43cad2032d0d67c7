"""Methods against each other on one model, in one run: forwards, seconds, acceptance, drift, calibration, picture quality.

Runs are interleaved (all methods of a seed, then the next seed), so a machine that slows down slows all of them. Rows are
appended to a file as they are measured and found again by the next call; several processes (RANK, WORLD_SIZE, as set by
`accelerate launch` or `torchrun`) share the work and write a file each. Counts are means with standard errors, seconds
medians.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from csd import quality
from csd.continuous import decode_latents
from csd.decode import decode
from csd.errors import InputError
from csd.methods import Method, method, preset
from csd.pictures import image
from csd.sampling import Sampling
from csd.trace import Trace

COUNTS = (
    "target_forwards",
    "target_rows",
    "draft_forwards",
    "tokens_per_forward",
    "rounds_of_one",
    "acceptance_rate",
    "drift",
    "drift_at_high_H",
    "calibration",
)
SECONDS = ("seconds", "seconds_draft", "seconds_target", "seconds_verify", "seconds_record")


@dataclass(frozen=True)
class Variant:
    """A method with its knobs, as a person writes it: `csd:delta=0.35,window=32`, `gsd:preset=code`, `ar`."""

    text: str
    method: object = field(compare=False)
    knobs: dict = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Raises InputError for unknown methods, parameters and values."""
        name, _, rest = text.partition(":")
        m, knobs = method(name.strip()), {}
        for part in filter(None, (p.strip() for p in rest.split(","))):
            key, equals, value = part.partition("=")
            if not equals:
                raise InputError(f"{text[:40]!r} is no method with parameters; write for example csd:delta=0.35,window=32")
            if key == "preset":
                knobs = preset(m, value) | knobs
            else:
                knobs[key] = value.replace("/", ",")  # lists are written 1.2/0.8, since commas part the parameters
        m.settings(knobs)
        return cls(text.strip(), m, knobs)


def run(variant: Variant, pair: tuple, label: str, seed: int, sampling: Sampling) -> Trace:
    """One picture."""
    target, draft = pair
    if isinstance(variant.method, Method):
        return Trace(decode(target, variant.method, label, sampling, variant.knobs, seed, draft))
    return Trace(decode_latents(target, variant.method, label, variant.knobs, seed, draft))


def jobs(variants: Sequence[Variant], labels: Sequence[str], pictures: int, again: str | None) -> Iterator[tuple]:
    """(variant, name of the row, label, seed), seeds outermost. `again` is drawn a second time from other seeds: the floor
    under every distance."""
    for i in range(pictures):
        label = labels[i % len(labels)]
        for v in variants:
            yield v, v.text, label, i
            if v.text == again:
                yield v, f"{v.text} again", label, i + pictures


def measure(todo: Sequence[tuple], pair: tuple, sampling: Sampling, folder: Path,
            judge: quality.Judge | None) -> Iterator[dict]:  # fmt: skip
    """Run the jobs of this process that no file in `folder` holds yet; yields every row as it is added."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    folder.mkdir(parents=True, exist_ok=True)
    done = {(r["name"], r["label"], r["seed"]) for r in rows(folder)}
    mine = [job for job in list(todo)[rank::world] if job[1:] not in done]
    path = folder / f"rows-{rank}.ndjson"
    whole = not path.is_file() or path.read_bytes()[-1:] in (b"", b"\n")
    with path.open("a", encoding="utf-8") as out:
        out.write("" if whole else "\n")  # an interruption may have cut the last line
        for variant, name, label, seed in mine:
            trace = run(variant, pair, label, seed, sampling)
            row = {"name": name, "label": label, "seed": seed, "knobs": trace.header.knobs, **trace.footer.totals}
            if judge:
                features, seen = judge.look([np.asarray(image(pair[0], trace))])
                row |= {"features": [float(f"{v:.5g}") for v in features[0]], "taken_for": seen[0]}
            out.write(json.dumps(row) + "\n")
            out.flush()
            yield row


def machine() -> str:
    """What this ran on: processor and number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):  # not Linux, or a kind of processor that says less
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def rows(folder: Path) -> list[dict]:
    """All rows measured so far, of every process. A line cut off by an interruption is left out."""
    out = []
    for path in sorted(folder.glob("rows-*.ndjson")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                out.append(json.loads(line))
            except ValueError:
                continue
    return out


def table(found: Sequence[dict], names: Sequence[str], reference: str) -> list[dict]:
    """One entry per name: means, standard errors (`…_se`), medians of seconds, and quality against the reference's rows."""
    base = [r for r in found if r["name"] == reference]
    out = []
    for name in names:
        own = [r for r in found if r["name"] == name]
        if not own:
            continue
        entry: dict = {"name": name, "pictures": len(own)}
        for key in COUNTS:
            values = [r[key] for r in own]
            known = all(v is not None for v in values)
            entry[key] = statistics.fmean(values) if known else None
            entry[f"{key}_se"] = statistics.stdev(values) / len(own) ** 0.5 if known and len(own) > 1 else None
        entry |= {key: statistics.median(r[key] for r in own) for key in SECONDS}
        if "features" in own[0]:
            entry |= _quality(own, base if name != reference else [])
        out.append(entry)
    return out


def _quality(own: Sequence[dict], base: Sequence[dict]) -> dict:
    features = np.array([r["features"] for r in own])
    diversity = quality.spread(features, [r["label"] for r in own])
    out = {"class_accuracy": statistics.fmean(r["taken_for"] == r["label"] for r in own), "diversity": diversity,
           "frechet": None, "frechet_se": None}  # fmt: skip
    if len(base) > 1 and len(own) > 1:
        sets = [features, np.array([r["features"] for r in base])]
        out["frechet"], out["frechet_se"] = quality.with_error(quality.frechet, sets)
    return out
