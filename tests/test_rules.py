"""The rules against closed forms, against independent implementations, and at their edges."""

import numpy as np
import pytest
import torch

from csd.rules import RULES, Laws, drift, entropy, positive_part, total_variation
from csd.sampling import draw

rng = np.random.default_rng(0)


def random_laws(n=200, vocab=12, spread=1.5):
    z = spread * rng.standard_normal((2, n, vocab))
    p, q = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    return Laws(p, q)


def tokens(laws):
    return draw(laws.q, rng.random(len(laws)))


def knobs(rule, **given):
    return {k.name: given.get(k.name, k.default) for k in rule.knobs}


def emitted(rule, laws, **kw):
    """Law of the output of one test, assembled token by token: an independent spelling of `drift`'s vectorised form."""
    out = np.zeros_like(laws.p)
    for i in range(len(laws)):
        one = Laws(laws.p[i : i + 1], laws.q[i : i + 1])
        for x in range(laws.p.shape[1]):
            b = rule.accept(one, np.array([x]), **kw)[0]
            out[i, x] += laws.q[i, x] * b
            out[i] += laws.q[i, x] * (1 - b) * rule.residual(laws.p[i], laws.q[i])
    return out


def test_exact_rule_emits_p():
    laws = random_laws()
    assert np.allclose(emitted(RULES["exact"], laws), laws.p, atol=1e-12)
    assert drift(RULES["exact"], laws)[0].max() < 1e-12


def test_expected_acceptance_is_overlap():
    laws = random_laws()
    mean = (laws.q * RULES["exact"].accept(laws)).sum(-1)
    assert np.allclose(mean, 1 - laws.tv, atol=1e-12)


@pytest.mark.parametrize("delta", [0.2, 0.35, 0.65, 1.01])
def test_csd_drift_is_acceptance_gained(delta):
    """Nothing is free (CSD, Thm 3.1): drift == E_q[b] - (1 - tv)."""
    laws, rule = random_laws(), RULES["csd"]
    kw = knobs(rule, delta=delta)
    gained = (laws.q * rule.accept(laws, **kw)).sum(-1) - (1 - laws.tv)
    found, rejected = drift(rule, laws, **kw)
    assert np.allclose(found, gained, atol=1e-9)
    assert np.allclose(found, total_variation(emitted(rule, laws, **kw), laws.p), atol=1e-9)
    assert np.allclose(rejected, 1 - (laws.q * rule.accept(laws, **kw)).sum(-1), atol=1e-12)
    assert found.max() < delta


def test_csd_gate_saturation_and_zero():
    laws, rule = random_laws(), RULES["csd"]
    x = tokens(laws)
    exact = RULES["exact"].accept(laws, x)
    for off in ({"weight": 0.0, "delta": 0.65}, {"weight": 0.5, "delta": 0.0}):
        assert np.array_equal(rule.accept(laws, x, **off), exact)
    b = rule.accept(laws, x, weight=0.5, delta=0.35)
    assert np.array_equal(b[laws.tv >= 0.35], exact[laws.tv >= 0.35])
    saturated = (laws.tv < 0.35) & (0.5 * laws.H >= 1)
    assert saturated.any() and (b[saturated] == 1).all()
    detail = rule.detail(laws, weight=0.5, delta=0.35)
    assert np.array_equal(detail["gate"], laws.tv < 0.35)
    assert np.array_equal(detail["saturated"], saturated)


def test_more_relaxation_never_accepts_less():
    laws, rule = random_laws(), RULES["csd"]
    x, before = tokens(laws), np.zeros(len(laws))
    for weight, delta in [(0, 0), (0.3, 0.35), (0.5, 0.35), (0.5, 0.65), (1.0, 0.65), (1.0, 1.01)]:
        b = rule.accept(laws, x, weight=weight, delta=delta)
        assert (b >= before).all()
        before = b


def test_csd_formula_by_hand():
    """p = (.5, .5), q = (.8, .2): H = ln 2, tv = .3; drafted token 0 has ratio .625."""
    laws = Laws(np.array([[0.5, 0.5]]), np.array([[0.8, 0.2]]))
    assert RULES["exact"].accept(laws, np.array([0]))[0] == pytest.approx(0.625)
    assert RULES["csd"].accept(laws, np.array([0]), weight=0.5, delta=0.35)[0] == pytest.approx(0.625 + 0.5 * np.log(2))
    assert RULES["csd"].accept(laws, np.array([0]), weight=0.5, delta=0.3)[0] == pytest.approx(0.625)
    assert np.allclose(positive_part(laws.p, laws.q), [[0, 1]])


def test_edges():
    same = Laws(np.array([[0.3, 0.7]]), np.array([[0.3, 0.7]]))
    assert RULES["exact"].accept(same, np.array([1]))[0] == 1
    assert np.allclose(positive_part(same.p, same.q), same.p)  # nothing left of p - q: p itself, no NaN
    hot = Laws(np.array([[0.0, 1.0, 0.0]]), np.full((1, 3), 1 / 3))
    assert entropy(hot.p)[0] == 0
    assert RULES["exact"].accept(hot, np.array([0]))[0] == 0  # p(x) = 0 is never accepted by the exact rule
    assert RULES["exact"].accept(hot, np.array([1]))[0] == 1
    assert np.allclose(positive_part(hot.p, hot.q), hot.p)
    with pytest.raises(AssertionError, match="not the law"):
        RULES["exact"].accept(Laws(hot.q, hot.p), np.array([0]))


def test_against_transformers():
    """transformers' private `_speculative_sampling` on the same laws: accepted counts and first emitted token agree."""
    utils = pytest.importorskip("transformers.generation.utils")
    reference = getattr(utils, "_speculative_sampling", None)
    assert reference is not None, "transformers moved _speculative_sampling; point this test at its new place"
    torch.manual_seed(0)
    vocab, k, n = 6, 3, 20000
    q_logits, p_logits = torch.randn(1, k, vocab), torch.randn(1, k + 1, vocab)
    q = q_logits.softmax(-1)[0].double().numpy()
    p = p_logits.softmax(-1)[0].double().numpy()
    drafts = np.stack([draw(np.repeat(q[i : i + 1], n, 0), rng.random(n)) for i in range(k)], 1)
    theirs = np.zeros((k + 1, vocab))
    for x in drafts:
        ids = torch.tensor(np.concatenate([[0], x]))[None]
        tokens_out, matches = reference(ids, q_logits, k, p_logits)
        theirs[int(matches), int(tokens_out[0, int(matches)])] += 1
    ours = np.zeros((k + 1, vocab))
    u, v = rng.random((n, k)), rng.random(n)
    laws = Laws(np.tile(p[:k], (n, 1)), np.tile(q, (n, 1)))
    kept = (u < RULES["exact"].accept(laws, drafts.reshape(-1)).reshape(n, k)).cumprod(1)
    accepted = kept.sum(1)
    last = np.concatenate([positive_part(p[:k], q), p[k:]])
    np.add.at(ours, (accepted, draw(last[accepted], v)), 1)
    gap = np.abs(ours - theirs).sum() / (2 * n)
    assert gap < 0.02, f"laws of (accepted, next token) differ by {gap:.3f} in total variation"


def test_against_flashspec():
    """An independent package: same residual law; same acceptance rate with its own draws."""
    rejection = pytest.importorskip("flashspec.sampling.rejection", reason="flashspec needs Python 3.11")
    laws = random_laws(50, 8)
    p, q = torch.tensor(laws.p), torch.tensor(laws.q)
    theirs = rejection.residual_distribution(p, q).numpy()
    assert np.allclose(theirs, positive_part(laws.p, laws.q), atol=1e-9)
