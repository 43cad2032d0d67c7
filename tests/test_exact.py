"""The promise of losslessness, through the real loop: joint law of whole sequences against enumeration.

V = 3 symbols, N = 4 positions, 81 sequences, 200,000 samples with fixed seeds; a picture holds 50 of them, one after the
other, so windows run over their ends. A deliberately broken residual must fail the same test, so the test can fail.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from toy import ToyModel

from csd import METHODS, Sampling, decode
from csd.rules import RULES

SAMPLES, CHAINS = 200_000, 50
TARGET = ToyModel(0, spread=0.6, repeats=CHAINS)
DRAFT = ToyModel(1, spread=0.5, repeats=CHAINS, like=TARGET)


def broken_residual(laws, **knobs):
    """Wrong on purpose: draws the replacement from p instead of (p - q)+."""
    return laws.p


# what claims losslessness: every method that says so, and every knob that promises to leave the law alone
LOSSLESS = {
    "sd": (METHODS["sd"], {"gamma": 4}),
    "block-sd": (METHODS["block-sd"], {"gamma": 4}),
    "sjd": (METHODS["sjd"], {"window": 32}),
    "block": (METHODS["block"], {"window": 16}),
    "scd": (METHODS["scd"], {"window": 32}),
    "scd+": (METHODS["scd+"], {"window": 32}),
    "gumbel": (METHODS["sjd"], {"window": 32, "coupling": "gumbel"}),
    # narrow windows are often accepted whole, so the fills are tested and not only replaced
    "uniform fill": (METHODS["sjd"], {"window": 6}),
    "onehot fill": (METHODS["sjd"], {"window": 6, "fill": "onehot"}),
    "copy fill": (METHODS["scd"], {"window": 6, "fill": "copy"}),
    "corrected, fresh": (METHODS["sjd"], {"window": 16, "correct": 1}),
    "corrected, gumbel": (METHODS["sjd"], {"window": 32, "coupling": "gumbel", "correct": 1}),
}


def count(method, knobs: dict, samples: int) -> np.ndarray:
    """How often each of the 81 sequences came out."""
    counts = np.zeros(81, np.int64)
    for seed in range(samples // CHAINS):
        tokens = [t for e in decode(TARGET, method, "toy", Sampling(guidance=1), knobs, seed, DRAFT, detail="none")
                  if e.type == "round" for t in e.cells["token"]]  # fmt: skip
        counts += np.bincount(np.reshape(tokens, (CHAINS, 4)) @ (27, 9, 3, 1), minlength=81)
    return counts


def p_value(counts: np.ndarray) -> float:
    return stats.chisquare(counts, counts.sum() * TARGET.joint()).pvalue


def test_every_method_that_claims_losslessness_is_here():
    assert {m.name for m in METHODS.values() if m.lossless} - {"ar"} <= {m.name for m, _ in LOSSLESS.values()}


@pytest.mark.parametrize("name", LOSSLESS)
def test_joint_law_equals_the_targets(name):
    counts = count(*LOSSLESS[name], SAMPLES)
    assert counts.sum() == SAMPLES and p_value(counts) > 1e-3


def test_plain_autoregression_and_a_rule_below_the_ratio():
    """The reference itself, and COOL-SD with weights below 1: lossless by its own residual."""
    assert p_value(count(METHODS["ar"], {}, 30_000)) > 1e-3
    assert p_value(count(METHODS["cool-sd"], {"gamma": 3, "weights": (0.8, 0.9)}, 30_000)) > 1e-3


def test_a_broken_residual_is_caught():
    broken = replace(METHODS["sd"], rule=replace(RULES["exact"], residual=broken_residual))
    counts = count(broken, LOSSLESS["sd"][1], SAMPLES)
    assert counts.sum() == SAMPLES and p_value(counts) < 1e-12


def test_a_relaxed_rule_is_caught():
    """CSD is not exact and the same test sees it, with far fewer samples."""
    assert not METHODS["csd"].lossless
    assert p_value(count(METHODS["csd"], {"window": 32}, 20_000)) < 1e-12


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
