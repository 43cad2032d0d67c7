"""The calibration score: what it promises about exact samplers, and that it sees others."""

import numpy as np
import pytest
from toy import ToyModel

from csd import METHODS, Sampling, Trace, decode
from csd.metrics import Calibration, calibration

TARGET, DRAFT = ToyModel(0, 8, 80), ToyModel(1, 8, 80)


def scores(name, seeds=200, **knobs):
    runs = (Trace(decode(TARGET, METHODS[name], "toy", Sampling(guidance=1), knobs, s, DRAFT)) for s in range(seeds))
    return np.array([t.footer.totals["calibration"] for t in runs])


@pytest.mark.parametrize("name", ["ar", "sd", "scd"])
def test_about_standard_normal_for_exact_samplers(name):
    z = scores(name)
    assert abs(z.mean()) < 4 / 200**0.5 and abs(z.std() - 1) < 0.2
    assert np.mean(np.abs(z) > 2) < 0.12


def test_relaxation_shifts_it():
    assert scores("csd", 30, delta=1.01, weight=1).mean() > 2


def test_the_running_score_ends_at_the_total_and_starts_with_the_first_token():
    trace = Trace(decode(TARGET, METHODS["sjd"], "toy", seed=1))
    assert trace.rounds[-1].calibration == trace.footer.totals["calibration"] == calibration(trace.rounds)
    first = trace.rounds[0]
    c = first.cells
    assert first.calibration == pytest.approx((-c["logp"][0] - c["H"][0]) / c["var"][0] ** 0.5)
    for n in (3, 9):
        assert trace.rounds[n - 1].calibration == calibration(trace.rounds[:n])


def test_nothing_is_made_up():
    """Not recorded, or a token the target finds impossible: no score from there on."""
    bare = Trace(decode(TARGET, METHODS["sjd"], "toy", seed=1, detail="none"))
    assert bare.footer.totals["calibration"] is None and bare.rounds[-1].calibration is None
    trace = Trace(decode(TARGET, METHODS["sjd"], "toy", seed=1))
    trace.rounds[2].cells["logp"][0] = None
    running = Calibration()
    seen = [running.add(r) for r in trace.rounds]
    assert seen[1] is not None and seen[2:] == [None] * len(seen[2:])
    assert calibration([]) is None
