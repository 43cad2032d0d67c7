"""Traces as files: round trip, replay without a model, and everything a damaged one can be."""

import json
import subprocess
import sys

import pytest
from toy import ToyModel

from csd import METHODS, InputError, Trace, decode
from csd.trace import first_difference, load, loads


@pytest.fixture()
def trace():
    return Trace(decode(ToyModel(0, 6, 30), METHODS["csd"], "toy", seed=2, keep_full=[4]))


def test_round_trip(trace, tmp_path):
    path = tmp_path / "a.trace"
    trace.save(path)
    back = load(path)
    assert first_difference(trace, back) is None
    assert back.tokens == trace.tokens and back.footer.totals == trace.footer.totals


def test_totals_follow_from_rounds(trace):
    from csd.metrics import DEFINITIONS, summary

    assert summary(trace.rounds, 30) == trace.footer.totals
    assert set(trace.footer.totals) <= set(DEFINITIONS)


def test_a_growing_file_is_valid(trace):
    lines = trace.dumps().splitlines()
    for n in (1, 2, len(lines) - 1):
        part = loads("\n".join(lines[:n]))
        assert part.footer is None and len(part.rounds) == n - 1


def test_reading_needs_no_torch(trace, tmp_path):
    path = tmp_path / "a.trace"
    trace.save(path)
    code = ("import sys; from csd.trace import load; t = load(sys.argv[1]);"
            "assert 'torch' not in sys.modules and 'gradio' not in sys.modules; print(len(t.tokens))")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.stdout.strip() == "30", done.stderr


def test_difference_finds_the_first_cell(trace):
    other = Trace(decode(ToyModel(0, 6, 30), METHODS["csd"], "toy", seed=3))
    assert "event 0.seed" in first_difference(trace, other)
    again = loads(trace.dumps())
    again.rounds[3].cells["token"][0] += 1
    assert first_difference(trace, again).startswith("event 4.cells.token[0]")


def corrupt(trace, change):
    rows = [json.loads(line) for line in trace.dumps().splitlines()]
    change(rows)
    return "\n".join(json.dumps(r) for r in rows)


DAMAGE = {
    "no header": lambda rows: rows.pop(0),
    "two headers": lambda rows: rows.insert(1, rows[0]),
    "other version": lambda rows: rows[0].update(version=99),
    "other format": lambda rows: rows[0].update(format="x"),
    "grid": lambda rows: rows[0].update(grid=[3, 3]),
    "grid type": lambda rows: rows[0].update(grid="ab"),
    "missing field": lambda rows: rows[1].pop("start"),
    "missing round": lambda rows: rows.pop(2),
    "token range": lambda rows: rows[1]["cells"].update(token=[6]),
    "token type": lambda rows: rows[1]["cells"].update(token=["<b>"]),
    "outcome": lambda rows: rows[1]["cells"].update(outcome=["fine"]),
    "column length": lambda rows: rows[1]["cells"].update(H=[1.0, 2.0]),
    "tests length": lambda rows: rows[2]["tests"].update(p=[]),
    "counts": lambda rows: rows[2].update(accepted=99),
    "cells type": lambda rows: rows[1].update(cells=5),
    "nan": lambda rows: rows[1]["cells"].update(H=[float("nan")]),
    "calibration": lambda rows: rows[2].update(calibration="high"),
    "footer counts": lambda rows: rows[-1]["totals"].update(committed=3),
    "footer status": lambda rows: rows[-1].update(status="great"),
    "event after footer": lambda rows: rows.append(rows.pop(-2)),
    "unknown event": lambda rows: rows.append({"type": "surprise"}),
    "not an object": lambda rows: rows.append([1, 2]),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found(trace, kind):
    with pytest.raises(InputError) as error:
        loads(corrupt(trace, DAMAGE[kind]))
    message = str(error.value)
    assert message.startswith("trace is not a valid trace: ") and "\n" not in message and len(message) < 200


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe\x00", b"hello", b"{}", b"[" * 100_000, b'{"type": "header"}', b"null"])
def test_other_files_are_refused(raw, tmp_path):
    path = tmp_path / "b.trace"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"b\.trace"):
        load(path)
    with pytest.raises(InputError, match=r"cannot read trace none\.trace"):
        load(tmp_path / "none.trace")
