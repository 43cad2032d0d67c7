"""The rules against closed forms, against independent implementations, and at their edges."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from csd.rules import RULES, Laws, drift, entropy, positive_part, total_variation
from csd.sampling import draw
from csd.space import Space
from csd.verify import judge

rng = np.random.default_rng(0)


def random_laws(n=200, vocab=12, spread=1.5):
    """p and q share their shape in part, as laws of one picture do; codes are unit vectors, as the tokeniser's are."""
    common = rng.standard_normal((n, vocab))
    z = spread * (common + rng.standard_normal((2, n, vocab))) / np.sqrt(2)
    p, q = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    codes = rng.standard_normal((vocab, 4))
    return Laws(p, q, space=Space(codes / np.linalg.norm(codes, axis=1, keepdims=True)))


def tokens(laws):
    return draw(laws.q, rng.random(len(laws)))


def knobs(rule, **given):
    return {k.name: given.get(k.name, k.default) for k in rule.knobs}


def emitted(rule, laws, **kw):
    """Law of the output of one test, assembled token by token: an independent spelling of `drift`'s vectorised form."""
    out = np.zeros_like(laws.p)
    for i in range(len(laws)):
        one = laws.part(slice(i, i + 1))
        for x in range(laws.p.shape[1]):
            b = rule.accept(one, np.array([x]), **kw)[0]
            out[i, x] += laws.q[i, x] * b
            out[i] += laws.q[i, x] * (1 - b) * rule.residual(one, **kw)[0]
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
    detail = rule.detail(laws, x, weight=0.5, delta=0.35)
    assert np.array_equal(detail["gate"], laws.tv < 0.35)
    assert np.array_equal(detail["saturated"], saturated)


NOTHING = [("csd", {"weight": 0.0}), ("csd", {"delta": 0.0}), ("amplify", {"factor": 1.0}), ("addition", {"bonus": 0.0}),
           ("gsd", {"group": 1}), ("gsd", {"group": 1, "cluster": "fixed"}), ("lantern", {"neighbours": 0}),
           ("lantern", {"budget": 0.0}), ("lantern++", {"neighbours": 0}), ("lantern++", {"multiple": 1.0}),
           ("cool", {"weights": (1.0,)}), ("block", {})]  # fmt: skip


@pytest.mark.parametrize("name,given", NOTHING)
def test_no_relaxation_is_bit_equal_to_exact(name, given):
    laws, rule = random_laws(), RULES[name]
    x, kw = tokens(laws), knobs(rule, **given)
    assert np.array_equal(rule.accept(laws, x, **kw), RULES["exact"].accept(laws, x))
    assert np.array_equal(rule.accept(laws, **kw), RULES["exact"].accept(laws))
    assert np.allclose(rule.residual(laws, **kw), positive_part(laws), atol=1e-12)


VARIED = [("csd", {}), ("amplify", {"factor": 2.0}), ("addition", {"bonus": 0.3}), ("gsd", {"group": 5}),
          ("gsd", {"group": 4}), ("gsd", {"group": 5, "reach": 4.1, "gap": 1.0}), ("gsd", {"group": 3, "cluster": "fixed"}),
          ("lantern", {}), ("lantern", {"neighbours": 3, "budget": 0.4}), ("lantern++", {}),
          ("cool", {}), ("block", {})]  # fmt: skip


@pytest.mark.parametrize("name,given", VARIED)
def test_a_rule_says_the_same_of_one_token_and_of_all(name, given):
    laws, rule = random_laws(), RULES[name]
    x, kw = tokens(laws), knobs(rule, **given)
    everywhere = rule.accept(laws, **kw)
    assert everywhere.shape == laws.p.shape and (everywhere >= 0).all() and (everywhere <= 1).all()
    assert np.allclose(rule.accept(laws, x, **kw), everywhere[laws.rows, x], atol=1e-12)
    assert all(len(v) == len(x) for v in rule.detail(laws, x, **kw).values())


@pytest.mark.parametrize("name,given", VARIED)
def test_drift_is_that_of_the_emitted_law(name, given):
    """Against a law assembled token by token; where b is nowhere below the exact rule's, drift is acceptance gained."""
    laws, rule = random_laws(40), RULES[name]
    kw = knobs(rule, **given)
    found, _ = drift(rule, laws, **kw)
    assert np.allclose(found, total_variation(emitted(rule, laws, **kw), laws.p), atol=1e-9)
    b = rule.accept(laws, **kw)
    if (b >= RULES["exact"].accept(laws)).all():
        assert np.allclose(found, (laws.q * b).sum(-1) - (1 - laws.tv), atol=1e-9)
    else:
        assert name in ("gsd", "cool")


def test_drift_by_simulation():
    """A rule whose b can lie below the exact one, run many times: the emitted law is the one drift is computed from."""
    laws, n = random_laws(1, 6), 200_000
    for name, given in [("gsd", {"group": 3, "gap": 1.0, "reach": 4.1}), ("cool", {"weights": (1.6,)})]:
        rule = RULES[name]
        kw = knobs(rule, **given)
        x = draw(np.repeat(laws.q, n, 0), rng.random(n))
        kept = rng.random(n) < rule.accept(laws, **kw)[0, x]
        other = draw(np.repeat(rule.residual(laws, **kw), n, 0), rng.random(n))
        law = np.bincount(np.where(kept, x, other), minlength=6) / n
        assert abs(total_variation(law, laws.p[0]) - drift(rule, laws, **kw)[0][0]) < 0.006


def test_cool_below_one_is_lossless():
    laws = random_laws(60)
    kw = {"weights": (0.9, 0.5, 0.2)}
    assert np.allclose(emitted(RULES["cool"], laws, **kw), laws.p, atol=1e-12)
    wrong = emitted(replace(RULES["cool"], residual=RULES["exact"].residual), laws, **kw)
    assert total_variation(wrong, laws.p).max() > 0.01  # with (p - q)+ it is biased


def test_gsd_group_by_group():
    """The dynamic group, found with a full sort and a loop, as in the public code."""
    laws, rule = random_laws(60), RULES["gsd"]
    x = tokens(laws)
    for group, gap, reach in [(5, 0.15, 0.5), (14, 1.0, 4.1), (6, 0.05, 1.5), (40, 1.0, 4.1)]:
        detail = rule.detail(laws, x, group=group, cluster="dynamic", gap=gap, reach=reach)
        for i, token in enumerate(x):
            order = np.argsort(laws.p[i], kind="stable").tolist()
            at = order.index(token)
            members = [y for y in order[max(0, at - group // 2) : at + (group - 1) // 2 + 1]
                       if y == token or (abs(laws.p[i, y] - laws.p[i, token]) < gap
                                         and laws.space.squared_distance(y, token) < reach)]  # fmt: skip
            assert detail["group_size"][i] == len(members)
            assert detail["p_group"][i] == pytest.approx(laws.p[i, members].sum())
            assert detail["q_group"][i] == pytest.approx(laws.q[i, members].sum())


def test_gsd_fixed_groups_never_accept_less_and_dynamic_ones_can():
    laws, rule = random_laws(2000), RULES["gsd"]
    rate = {c: (laws.q * rule.accept(laws, **knobs(rule, group=3, cluster=c, gap=1.0, reach=4.1))).sum(-1)
            for c in ("fixed", "dynamic")}  # fmt: skip
    assert (rate["fixed"] >= 1 - laws.tv - 1e-12).all()
    assert (rate["dynamic"] < 1 - laws.tv - 1e-6).any()


def test_lantern_by_hand():
    """p = (.4, .3, .2, .1), codes on a line: token 3's neighbours in order are 2, 1, 0."""
    space = Space(np.arange(4)[:, None])
    laws = Laws(np.array([[0.4, 0.3, 0.2, 0.1]]), np.array([[0.1, 0.1, 0.1, 0.7]]), space=space)
    x = np.array([3])
    for budget, mass in [(0.1, 0.0), (0.2, 0.2), (0.45, 0.2), (0.5, 0.5), (1.0, 0.9)]:
        assert RULES["lantern"].accept(laws, x, neighbours=3, budget=budget)[0] == pytest.approx(min(1, (0.1 + mass) / 0.7))
    assert RULES["lantern"].accept(laws, x, neighbours=1, budget=1.0)[0] == pytest.approx(0.3 / 0.7)
    assert RULES["lantern++"].accept(laws, x, neighbours=3, multiple=3.01)[0] == pytest.approx(0.3 / 0.7)
    assert RULES["lantern++"].accept(laws, x, neighbours=3, multiple=2.9)[0] == pytest.approx(0.1 / 0.7)


def test_block_verification_keeps_more_in_the_papers_example():
    """p = (1/3, 2/3), q = (2/3, 1/3), two drafts: 11/9 kept on average against 10/9 (Sun et al., 2024, §3)."""
    p, q = np.array([[1 / 3, 2 / 3]] * 2), np.array([[2 / 3, 1 / 3]] * 2)
    laws, n = Laws(p, q), 40_000
    x, u = draw(np.tile(q, (n, 1)), rng.random(2 * n)).reshape(n, 2), rng.random((n, 2))
    for name, expected in (("block", 11 / 9), ("exact", 10 / 9)):
        kept = np.mean([judge(RULES[name], laws, a, b, {}).accepted for a, b in zip(x, u, strict=True)])
        assert abs(kept - expected) < 0.02


def test_a_space_of_codes():
    codes = rng.standard_normal((40, 3))
    space = Space(codes)
    far = ((codes[:, None] - codes[None]) ** 2).sum(-1)
    np.fill_diagonal(far, np.inf)
    assert np.array_equal(space.table(7), np.argsort(far, -1, kind="stable")[:, :7])
    assert space.table(1000).shape == (40, 39) and space.table(0).shape == (40, 0)
    sizes = np.bincount(space.groups(6))
    assert sizes.max() <= 6 and sizes.sum() == 40 and len(sizes) <= 8
    assert np.array_equal(np.sort(np.bincount(space.groups(1))), np.ones(40))


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
    assert np.allclose(positive_part(laws), [[0, 1]])


def test_edges():
    same = Laws(np.array([[0.3, 0.7]]), np.array([[0.3, 0.7]]))
    assert RULES["exact"].accept(same, np.array([1]))[0] == 1
    assert np.allclose(positive_part(same), same.p)  # nothing left of p - q: p itself, no NaN
    hot = Laws(np.array([[0.0, 1.0, 0.0]]), np.full((1, 3), 1 / 3))
    assert entropy(hot.p)[0] == 0
    assert RULES["exact"].accept(hot, np.array([0]))[0] == 0  # p(x) = 0 is never accepted by the exact rule
    assert RULES["exact"].accept(hot, np.array([1]))[0] == 1
    assert np.allclose(positive_part(hot), hot.p)
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
    last = np.concatenate([positive_part(Laws(p[:k], q)), p[k:]])
    np.add.at(ours, (accepted, draw(last[accepted], v)), 1)
    gap = np.abs(ours - theirs).sum() / (2 * n)
    assert gap < 0.02, f"laws of (accepted, next token) differ by {gap:.3f} in total variation"


def test_against_flashspec():
    """An independent package: same residual law; same acceptance rate with its own draws."""
    rejection = pytest.importorskip("flashspec.sampling.rejection", reason="flashspec needs Python 3.11")
    laws = random_laws(50, 8)
    p, q = torch.tensor(laws.p), torch.tensor(laws.q)
    theirs = rejection.residual_distribution(p, q).numpy()
    assert np.allclose(theirs, positive_part(laws), atol=1e-9)
