"""Laws, draws and streams."""

import numpy as np
import pytest
from scipy import stats

from csd.errors import InputError
from csd.rules import entropy
from csd.sampling import PURPOSES, Sampling, Streams, draw, law


def test_law_is_softmax_then_filters():
    z = np.array([[2.0, 1.0, 0.0, -1.0]])
    e = np.exp(z[0])
    assert np.allclose(law(z, Sampling()), e / e.sum())
    assert np.allclose(law(z, Sampling(temperature=2)), np.exp(z / 2) / np.exp(z / 2).sum())
    assert np.allclose(law(z, Sampling(top_k=2)), [[e[0] / (e[0] + e[1]), e[1] / (e[0] + e[1]), 0, 0]])
    first_two = (e[0] + e[1]) / e.sum()
    assert (law(z, Sampling(top_p=first_two - 0.01)) > 0).sum() == 2  # the token that crosses the line stays
    assert (law(z, Sampling(top_p=e[0] / e.sum() - 0.01)) > 0).sum() == 1
    assert entropy(law(z, Sampling(temperature=0.5)))[0] < entropy(law(z, Sampling()))[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_law_refuses_logits_that_are_not_finite(bad):
    with pytest.raises(FloatingPointError, match="not finite"):
        law(np.array([[0.0, bad]]), Sampling())


def test_minus_infinity_is_probability_zero():
    assert law(np.array([[0.0, -np.inf]]), Sampling()).tolist() == [[1.0, 0.0]]


def test_draw_follows_the_law():
    p = np.array([0.1, 0.0, 0.45, 0.25, 0.2])
    x = draw(np.tile(p, (100_000, 1)), np.random.default_rng(1).random(100_000))
    counts = np.bincount(x, minlength=5)
    assert counts[1] == 0
    keep = p > 0
    assert stats.chisquare(counts[keep], 100_000 * p[keep]).pvalue > 1e-3


def test_draw_at_the_ends():
    p = np.array([[0.0, 0.5, 0.5, 0.0]] * 2)
    assert draw(p, np.array([0.0, 1 - 2**-53])).tolist() == [1, 2]


def test_streams_are_keyed_by_place_not_by_order():
    a, b = Streams(5, 10), Streams(5, 10)
    first = a.uniform("verify", slice(0, 10))
    later = b.uniform("verify", slice(7, 8))
    assert later[0] == first[7]
    assert b.uniform("verify", slice(7, 8))[0] != later[0]  # next attempt, another draw
    assert Streams(6, 10).uniform("verify", slice(0, 10))[0] != first[0]
    assert a.peek("draft", slice(0, 10)).tolist() == a.uniform("draft", slice(0, 10)).tolist()


def test_streams_are_uniform_and_independent():
    """Across seeds, purposes, positions and attempts: uniform marginals, no correlation between neighbours."""
    values = np.array([[[s.uniform(p, slice(0, 8)) for _ in range(3)] for p in PURPOSES]
                       for s in (Streams(seed, 8) for seed in range(4000))])  # fmt: skip
    assert stats.kstest(values.ravel(), "uniform").pvalue > 1e-3
    flat = values.reshape(4000, -1)
    c = np.corrcoef(flat.T) - np.eye(flat.shape[1])
    assert np.abs(c).max() < 5.5 / np.sqrt(4000)


@pytest.mark.parametrize(
    "bad",
    [
        {"guidance": "nan"},
        {"guidance": -1},
        {"temperature": 0},
        {"top_k": 1.5},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.1},
        {"temperature": None},
        {"guidance": True},
    ],
)
def test_bad_sampling_says_what_is_allowed(bad):
    with pytest.raises(InputError, match=rf"{next(iter(bad))} is .*; allowed: .* to "):
        Sampling(**bad)
