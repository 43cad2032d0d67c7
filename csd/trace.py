"""A trace: the ordered events of one run, with a header and a footer. Every view reads a trace and nothing else.

As a file it is NDJSON, one event per line, so that it can be appended to while it grows and read up to where it stopped.
Nothing in it needs a model: a trace can be saved, loaded, validated, replayed and compared on its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from csd.errors import InputError
from csd.metrics import summary

FORMAT, VERSION = "csd-trace", 1
OUTCOMES = ("exact", "relaxed", "resampled", "bonus", "first", "prefill", "forced")
STATUSES = ("done", "stopped", "error")
MAX_BYTES = 64 * 2**20


@dataclass
class Header:
    """What was run. knobs and sampling hold every parameter with its value; entropies are in nats.

    weights: a fingerprint of the model files. forced: positions whose token the format dictates. filters: what turns
    logits into p and q, in this order. kind: discrete, or continuous, whose tokens are vectors of `width` numbers (vocab
    is 0 then). order: the order in which cells are generated; empty means reading order. preset: the set of switches a
    continuous run keeps to.
    """

    method: str
    title: str
    rule: str
    drafter: str
    lossless: bool
    formula: str
    knobs: dict
    sampling: dict
    seed: int
    model: str
    draft_model: str | None
    label: str
    grid: list
    vocab: int
    cells: int
    weights: str = ""
    forced: list = field(default_factory=list)
    filters: str = "guidance (constant), temperature, top-k, top-p"
    logits_dtype: str = "float32"
    verify_dtype: str = "float64"
    entropy_unit: str = "nat"
    streams: str = "splitmix64(seed, purpose, position, attempt)"
    kind: str = "discrete"
    width: int = 0
    order: list = field(default_factory=list)
    preset: str = ""
    format: str = FORMAT
    version: int = VERSION
    type: str = "header"


@dataclass
class Round:
    """One target forward and what it settled.

    start: first position, counted in order of generation; fed: tokens fed (continuous: positions asked of the target);
    drafted, examined, accepted, relaxed, committed: counts. The four forward and row counters run over the whole run so
    far. kv: tokens in the target's cache before and after. window, origin, age: the drafts of the round. cells: columns,
    one entry per committed token. tests: columns, one entry per examined draft. top: the likeliest tokens of p and q.
    full: whole laws, base64 float32, of the positions asked for. draw: the uniform draw behind the token the target
    supplied itself (residual, bonus or first). calibration: Z of the cells settled so far (`metrics.Calibration`), None
    where it does not apply. head_steps: calls of the diffusion heads so far, of continuous runs.
    """

    round: int
    start: int
    fed: int
    drafted: int
    examined: int
    accepted: int
    relaxed: int
    committed: int
    bonus: bool
    cells: dict
    target_forwards: int = 0
    target_rows: int = 0
    draft_forwards: int = 0
    draft_rows: int = 0
    kv: list = field(default_factory=list)
    seconds: dict = field(default_factory=dict)
    window: list = field(default_factory=list)
    origin: list = field(default_factory=list)
    age: list = field(default_factory=list)
    tests: dict = field(default_factory=dict)
    top: dict = field(default_factory=dict)
    full: dict = field(default_factory=dict)
    draw: float | None = None
    calibration: float | None = None
    head_steps: int | None = None
    type: str = "round"


@dataclass
class Picture:
    """The picture after a round: `cells` tokens settled, `data` a data URL. Not made by a decoder; optional."""

    round: int
    cells: int
    data: str
    type: str = "picture"


@dataclass
class Footer:
    """How the run ended and its totals (`metrics.summary`)."""

    status: str
    totals: dict
    message: str | None = None
    type: str = "footer"


Event = Header | Round | Picture | Footer
_KINDS = {"header": Header, "round": Round, "picture": Picture, "footer": Footer}


def settled(r: Round) -> list:
    """The tokens a round settled: ints, or vectors of continuous runs."""
    return r.cells["latent"] if "latent" in r.cells else r.cells["token"]


def footer(rounds: list[Round], cells: int, status: str, message: str | None = None) -> Footer:
    """The footer that belongs to these rounds."""
    return Footer(status, summary(rounds, cells), message)


class Trace:
    """Events collected in order. Iterate `record(events)` to keep a trace of a run while passing its events on."""

    def __init__(self, events: Iterable[Event] = ()):
        self.events: list[Event] = list(events)

    @property
    def header(self) -> Header:
        return next(e for e in self.events if isinstance(e, Header))

    @property
    def rounds(self) -> list[Round]:
        return [e for e in self.events if isinstance(e, Round)]

    @property
    def footer(self) -> Footer | None:
        return next((e for e in self.events if isinstance(e, Footer)), None)

    @property
    def tokens(self) -> list:
        """Settled tokens so far, in order of generation: ints, or vectors of continuous runs."""
        return [t for r in self.rounds for t in settled(r)]

    def record(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass events on and keep them. However the run ends (closed, failed), the trace is left with a footer."""
        try:
            for event in events:
                self.events.append(event)
                yield event
        except GeneratorExit:
            self.close("stopped")
            raise
        except Exception as error:
            self.close("error", f"{type(error).__name__}: {error}"[:300])
            raise

    def close(self, status: str, message: str | None = None) -> None:
        """Add a footer if the run has not ended."""
        if self.events and self.footer is None:
            self.events.append(footer(self.rounds, self.header.cells, status, message))

    def dumps(self) -> str:
        return "".join(dumps(e) + "\n" for e in self.events)

    def save(self, path: str | Path) -> None:
        """Write NDJSON, whole or not at all. Raises InputError when the place cannot be written."""
        path = Path(path)
        tmp = path.with_name(path.name + ".tmp")
        try:
            tmp.write_text(self.dumps(), encoding="utf-8")
            tmp.replace(path)
        except OSError as error:
            raise InputError(f"cannot write {path.name}: {error.strerror}") from None


def dumps(event: Event) -> str:
    """One event as one line of JSON."""
    return json.dumps(vars(event), separators=(",", ":"), allow_nan=False)


def load(path: str | Path) -> Trace:
    """Read and validate a trace file. Raises InputError, one line, for anything that is not a valid trace."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path.name} is larger than {MAX_BYTES // 2**20} MB; that is no trace of ours")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read trace {path.name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path.name} is not a trace: not UTF-8 text") from None
    return loads(text, path.name)


def loads(text: str, name: str = "trace") -> Trace:
    """Parse NDJSON text and validate it; see `load`."""
    events = []
    for i, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line, parse_constant=_no_constant)
            kind = _KINDS[raw["type"]]
            events.append(kind(**{k: raw[k] for k in raw if k in {f.name for f in fields(kind)}}))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{name} is not a valid trace: line {i} is not an event") from None
    trace = Trace(events)
    problem = first_problem(trace)
    if problem:
        raise InputError(f"{name} is not a valid trace: {problem}")
    return trace


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def first_problem(trace: Trace) -> str | None:
    """What is wrong with a trace, in a few words, or None. A run that is still going (no footer) can be valid."""
    try:
        return _header_problem(trace) or _rounds_problem(trace) or _footer_problem(trace)
    except (TypeError, KeyError, ValueError, AttributeError, StopIteration, IndexError):
        return "a field has the wrong type or is missing"


def _header_problem(trace: Trace) -> str | None:
    events = trace.events
    if not events or not isinstance(events[0], Header):
        return "the first event is not a header"
    if sum(isinstance(e, Header) for e in events) > 1:
        return "more than one header"
    h = trace.header
    if (h.format, h.version) != (FORMAT, VERSION):
        return f"format {str(h.format)[:20]} version {str(h.version)[:8]}; this program reads {FORMAT} version {VERSION}"
    if len(h.grid) != 2 or h.cells != h.grid[0] * h.grid[1] or not 0 < h.cells <= 2**16:
        return "grid and cells do not fit together"
    size = {"discrete": h.vocab, "continuous": h.width}.get(h.kind)
    if size is None or not 0 < size <= 2**20:
        return "vocab (discrete) or width (continuous) is missing"
    if h.order and sorted(h.order) != list(range(h.cells)):
        return "order is not a permutation of the cells"
    return None


def _rounds_problem(trace: Trace) -> str | None:
    h, at = trace.header, 0
    order = h.order or list(range(h.cells))
    for i, r in enumerate(trace.rounds):
        where = f"round {i}"
        if r.round != i or r.start != at:
            return f"{where} does not continue the one before"
        n = r.committed
        if n < 1 or at + n > h.cells:
            return f"{where} commits {n} tokens at position {at} of {h.cells}"
        if r.cells["pos"] != order[at : at + n]:
            return f"{where} has other cells than it commits"
        for key, column in r.cells.items():
            if len(column) != n:
                return f"{where}, column {key[:20]} has {len(column)} entries for {n} cells"
        if h.kind == "continuous":
            if not all(len(z) == h.width and all(type(v) is float for v in z) for z in r.cells["latent"]):
                return f"{where} has a token that is not {h.width} numbers"
        elif not all(isinstance(t, int) and 0 <= t < h.vocab for t in r.cells["token"]):
            return f"{where} has a token outside 0 to {h.vocab - 1}"
        if not set(r.cells["outcome"]) <= set(OUTCOMES):
            return f"{where} has an unknown outcome"
        if not 0 <= r.relaxed <= r.accepted <= r.examined <= max(r.drafted, 0):
            return f"{where}: relaxed ≤ accepted ≤ examined ≤ drafted does not hold"
        if any(len(column) != r.examined for column in r.tests.values()):
            return f"{where} has tests of other length than examined drafts"
        if not _finite(r.cells) or not _finite(r.tests) or not _finite(r.seconds):
            return f"{where} holds a number that is not finite"
        if r.calibration is not None and not (type(r.calibration) is float and math.isfinite(r.calibration)):
            return f"{where} has a calibration score that is no number"
        at += n
    return None


def _footer_problem(trace: Trace) -> str | None:
    f = trace.footer
    if f is None:
        return None
    if trace.events[-1] is not f or f.status not in STATUSES:
        return "the footer is not last or has an unknown status"
    committed = sum(r.committed for r in trace.rounds)
    if f.totals["committed"] != committed:
        return f"the footer counts {f.totals['committed']} tokens, the rounds {committed}"
    if f.status == "done" and committed != trace.header.cells:
        return f"marked done with {committed} of {trace.header.cells} cells"
    return None


def _finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(_finite(v) for v in value.values())
    if isinstance(value, list):
        return all(_finite(v) for v in value)
    return not isinstance(value, float) or math.isfinite(value)


def first_difference(a: Trace, b: Trace, tolerance: float = 0.0) -> str | None:
    """Where two traces part, ignoring times; None when they agree. Numbers may differ by `tolerance`, relatively."""
    for i, (x, y) in enumerate(zip(a.events, b.events, strict=False)):
        left, right = asdict(x), asdict(y)
        for d in (left, right):
            d.pop("seconds", None)
            for k in [k for k in d.get("totals", {}) if k.startswith("seconds")]:
                d["totals"].pop(k)
        where = _differs(left, right, tolerance, f"event {i}")
        if where:
            return where
    return None if len(a.events) == len(b.events) else f"{len(a.events)} events against {len(b.events)}"


def _differs(a: object, b: object, tolerance: float, where: str) -> str | None:
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return next(filter(None, (_differs(a[k], b[k], tolerance, f"{where}.{k}") for k in a)), None)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return next(filter(None, (_differs(x, y, tolerance, f"{where}[{i}]") for i, (x, y) in pairs)), None)
    if isinstance(a, float) and isinstance(b, float):
        return None if math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) else f"{where}: {a} against {b}"
    return None if a == b else f"{where}: {str(a)[:40]} against {str(b)[:40]}"
