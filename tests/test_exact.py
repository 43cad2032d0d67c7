"""The promise of losslessness, through the real loop: joint law of whole sequences against enumeration.

V = 3 symbols, N = 4 positions, 81 sequences, 200,000 samples with fixed seeds. A deliberately broken residual must fail
the same test, so the test can fail.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from toy import ToyModel

from csd import METHODS, Sampling, decode
from csd.rules import RULES, Rule

SAMPLES, CHUNKS = 200_000, 8


def broken_residual(laws, **knobs):
    """Wrong on purpose: draws the replacement from p instead of (p - q)+."""
    return laws.p


VARIANTS = {
    "ar": (METHODS["ar"], {}),
    "sd": (METHODS["sd"], {"gamma": 2}),
    "sjd": (METHODS["sjd"], {"window": 3}),
    "block-sd": (replace(METHODS["sd"], rule=RULES["block"]), {"gamma": 3}),
    "block": (replace(METHODS["sjd"], rule=RULES["block"]), {"window": 4}),
    "scd": (METHODS["scd"], {"window": 4}),
    "gumbel": (METHODS["sjd"], {"window": 4, "coupling": "gumbel"}),
    # with two positions per forward a fully accepted window makes a fill that is tested; wider ones never do in four cells
    "uniform fill": (METHODS["sjd"], {"window": 2}),
    "onehot fill": (METHODS["sjd"], {"window": 2, "fill": "onehot"}),
    "copy fill": (METHODS["scd"], {"window": 2, "fill": "copy"}),
    "cool below 1": (replace(METHODS["sd"], rule=RULES["cool"]), {"gamma": 2, "weights": (0.6, 0.9)}),
    "broken": (replace(METHODS["sd"], rule=replace(RULES["exact"], residual=broken_residual)), {"gamma": 2}),
}


def count(job: tuple[str, int, int]) -> np.ndarray:
    name, first, last = job
    method, knobs = VARIANTS[name]
    target, draft = ToyModel(0), ToyModel(1)
    place, counts = 3 ** np.arange(3, -1, -1), np.zeros(81, np.int64)
    for seed in range(first, last):
        tokens = [t for e in decode(target, method, "toy", Sampling(guidance=1), knobs, seed, draft, detail="none")
                  if e.type == "round" for t in e.cells["token"]]  # fmt: skip
        counts[place @ tokens] += 1
    return counts


def sample(name: str, samples: int) -> np.ndarray:
    step = samples // CHUNKS
    jobs = [(name, i * step, (i + 1) * step) for i in range(CHUNKS)]
    with ProcessPoolExecutor(2) as pool:
        return sum(pool.map(count, jobs))


LOSSLESS = [
    "ar",
    "sd",
    "sjd",
    "block-sd",
    "block",
    "scd",
    "gumbel",
    "uniform fill",
    "onehot fill",
    "copy fill",
    "cool below 1",
]


@pytest.mark.parametrize("name", LOSSLESS)
def test_joint_law_equals_the_targets(name):
    samples = SAMPLES if name in ("ar", "sd", "sjd") else SAMPLES // 4  # the loop is the same: saves minutes
    counts = sample(name, samples)
    assert counts.sum() == samples
    assert stats.chisquare(counts, samples * ToyModel(0).joint()).pvalue > 1e-3


def test_a_broken_residual_is_caught():
    counts = sample("broken", SAMPLES)
    assert stats.chisquare(counts, SAMPLES * ToyModel(0).joint()).pvalue < 1e-12


def test_relaxed_rule_is_caught():
    """CSD is not exact and the same test sees it, with far fewer samples."""
    VARIANTS["csd"] = (METHODS["csd"], {"window": 3})
    assert isinstance(METHODS["csd"].rule, Rule) and not METHODS["csd"].lossless
    counts = count(("csd", 0, 5000))
    assert stats.chisquare(counts, 5000 * ToyModel(0).joint()).pvalue < 1e-12


@pytest.mark.parametrize("name", ["sd", "sjd"])
@pytest.mark.parametrize("vocab,spread", [(2, 1.0), (3, 50.0)])
def test_two_symbols_and_one_hot_laws(name, vocab, spread):
    """V = 2, and laws so peaked that most entries are 0 after rounding: no NaN, no false token."""
    target, draft = ToyModel(3, vocab, 4, spread), ToyModel(4, vocab, 4, spread / 10)
    counts = np.zeros(vocab**4)
    for seed in range(4000):
        events = decode(target, METHODS[name], "toy", Sampling(guidance=1), None, seed, draft, detail="none")
        tokens = [t for e in events if e.type == "round" for t in e.cells["token"]]
        counts[vocab ** np.arange(3, -1, -1) @ tokens] += 1
    p = target.joint()
    assert counts[p < 1e-12].sum() == 0
    likely = p * 4000 > 5
    got, expected = np.append(counts[likely], counts[~likely].sum()), np.append(p[likely], p[~likely].sum()) * 4000
    keep = expected > 1e-6
    assert np.abs(got - expected).max() < 5 * np.sqrt(expected.max()) + 5
    if keep.sum() > 1 and spread < 10:
        assert stats.chisquare(got[keep], expected[keep] * got[keep].sum() / expected[keep].sum()).pvalue > 1e-3


def test_same_law_for_draft_and_target_accepts_everything():
    target = ToyModel(0)
    for seed in range(200):
        end = list(decode(target, METHODS["sd"], "toy", Sampling(guidance=1), {"gamma": 3}, seed, ToyModel(0)))[-1]
        assert end.totals["accepted"] == end.totals["examined"] and end.totals["resampled"] == 0
