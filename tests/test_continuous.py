"""Continuous speculative decoding: what is exact is exact through the real loop, what is not fails the same test."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats
from toy_latent import ToyLatents

from csd.continuous import Paths, decode_latents, log_gauss, plain, residual, speculate
from csd.errors import InputError
from csd.methods import LATENT_METHODS
from csd.pictures import image
from csd.switches import PRESETS, CSpD
from csd.trace import Trace, first_difference, first_problem, loads

SAMPLES, CHUNKS = 100_000, 8
BASE = CSpD(steps=3, prefill=0.0, gamma=2)
VARIANTS = {
    "plain": None,
    "exact": BASE,
    "own noise": replace(BASE, shared_noise=False),
    "paper": replace(BASE, factor="paper"),
    "code": replace(BASE, factor="code"),
}


def models(width):
    return ToyLatents(0.0, 0.5, width, 2), ToyLatents(0.25, 0.65, width, 2)


def pictures(job):
    name, width, first, last = job
    target, draft = models(width)
    out = np.zeros((last - first, 2, width))
    for seed in range(first, last):
        rounds = (plain(target, "toy", BASE, seed + 10**9) if VARIANTS[name] is None
                  else speculate(target, draft, "toy", VARIANTS[name], seed))  # fmt: skip
        for r in rounds:
            for d in r.cells:
                out[seed - first, d.pos] = d.token
    return out


def sample(name, width, samples=SAMPLES):
    step = samples // CHUNKS
    with ProcessPoolExecutor(2) as pool:
        return np.concatenate(list(pool.map(pictures, [(name, width, i * step, (i + 1) * step) for i in range(CHUNKS)])))


def projections(x):
    """Marginals of both cells and directions that mix them: the joint law must agree, not only each cell's."""
    flat = x.reshape(len(x), -1)
    return [*flat.T, flat.sum(1), flat[:, 0] - flat[:, -1], flat[:, 0] * flat[:, -1]]


@pytest.fixture(scope="module", params=[1, 2])
def reference(request):
    return request.param, sample("plain", request.param)


def distance(name, reference, samples=SAMPLES):
    """Smallest Kolmogorov-Smirnov p-value over all projections."""
    width, truth = reference
    drawn = sample(name, width, samples)
    return min(stats.ks_2samp(a, b).pvalue for a, b in zip(projections(drawn), projections(truth), strict=True))


@pytest.mark.parametrize("name", ["exact", "own noise"])
def test_exact_preset_is_exact(name, reference):
    assert distance(name, reference) > 1e-4


@pytest.mark.parametrize("name", ["paper", "code"])
def test_the_trajectory_factor_is_not(name, reference):
    """Far fewer samples are enough to see it."""
    assert distance(name, reference, SAMPLES // 5) < 1e-8


def test_noiseless_last_transition_accepts_almost_nothing():
    """Without noise at the end the draft is the point mu_q; the exact rule for point masses would accept with
    probability 0. Small sigmas, as in MAR, show it."""
    target, draft = ToyLatents(0.0, 0.006, 8, 4), ToyLatents(0.25, 0.006, 8, 4)
    runs = [list(speculate(target, draft, "toy", replace(BASE, last_noise=False), s)) for s in range(50)]
    assert sum(r.accepted for rs in runs for r in rs) <= 0.02 * sum(r.examined for rs in runs for r in rs)


def chain(mean, sigma):
    """A chain of one transition."""
    return Paths(mean[:, None], sigma[:, None])


def test_acceptance_of_equal_gaussians_is_closed_form():
    rng = np.random.default_rng(0)
    for d in (0.5, 1.0, 2.0, 4.0):
        step, n = np.full(4, d / 2), 40_000  # four numbers, Euclidean distance d in sigmas
        p, q = (chain(m[None], np.ones((1, 4))) for m in (np.zeros(4), step))
        x = step + rng.standard_normal((n, 4))
        ratio = np.array(log_gauss(x, p.mean, p.sigma) - log_gauss(x, q.mean, q.sigma))
        rate = (np.log(rng.random(n)) < ratio).mean()
        exact = 2 * stats.norm.cdf(-d / 2)
        assert abs(rate - exact) < 5 * np.sqrt(exact * (1 - exact) / n)


def test_residual_has_the_right_law_and_one_trial_per_draft():
    rng = np.random.default_rng(1)
    p, q = (
        chain(np.zeros((1, 1)), np.full((1, 1), 1.0)),
        chain(np.full((1, 1), 0.8), np.full((1, 1), 1.3)),
    )
    draws = [residual(p, q, 0.0, rng, 10_000) for _ in range(20_000)]
    grid = np.linspace(-8, 8, 20_001)
    density = np.maximum(stats.norm.pdf(grid) - stats.norm.pdf(grid, 0.8, 1.3), 0)
    cdf = density.cumsum() / density.sum()
    assert stats.kstest([d[0][0] for d in draws], lambda v: np.interp(v, grid, cdf)).pvalue > 1e-3
    tv = density.sum() * (grid[1] - grid[0])
    assert np.mean([d[1] for d in draws]) * tv == pytest.approx(1, rel=0.05)  # tv · (1 / tv) proposals per draft
    assert not any(d[2] for d in draws)


def test_fallback_is_a_draw_from_the_target_and_is_counted():
    rng = np.random.default_rng(2)
    p = chain(np.full((1, 3), 5.0), np.full((1, 3), 0.1))
    token, trials, fallback = residual(p, p, 0.0, rng, 7)  # p = q: nothing is left to draw from
    assert fallback and trials == 7 and np.abs(token - 5).max() < 1


def run(target, draft, settings, seed, **kw):
    """A trace of CSpD with these settings."""
    return Trace(decode_latents(target, LATENT_METHODS["cspd"], "toy", asdict(settings), seed, draft, **kw))


@pytest.mark.parametrize("preset", PRESETS)
def test_accounts(preset):
    target, draft = ToyLatents(0, 0.5, 4, 30), ToyLatents(0.1, 0.6, 4, 30)
    settings = replace(PRESETS[preset], steps=4, gamma=5)
    trace = run(target, draft, settings, 3)
    t, rounds = trace.footer.totals, trace.rounds
    assert t["committed"] == 30 and sorted(p for r in rounds for p in r.cells["pos"]) == list(range(30))
    assert t["target_forwards"] == len(rounds)
    first = round(settings.prefill * 30)
    assert [o for r in rounds for o in r.cells["outcome"]][:first] == ["prefill"] * first and t["prefill"] == first
    if preset == "code":  # the number of target calls does not depend on acceptance
        assert t["target_forwards"] == first + -(-(30 - first) // 5)
    assert trace.header.preset == preset and trace.header.lossless == (preset == "exact")
    assert first_difference(trace, run(target, draft, settings, 3)) is None
    assert first_difference(trace, loads(trace.dumps())) is None  # as a file and back


def test_numbers_in_a_trace_are_those_of_the_decision():
    """Everything a view shows of a decision can be computed again from the stored means, sigmas and draft."""
    target, draft = ToyLatents(0, 0.5, 4, 60), ToyLatents(0.6, 0.6, 4, 60)
    settings = replace(PRESETS["paper"], steps=4, gamma=5, inner_temperature=2)
    verdicts = set()
    for r in run(target, draft, settings, 5).rounds:
        for row in zip(*(r.tests.get(k, []) for k in r.tests), strict=True):
            t = dict(zip(r.tests, row, strict=True))
            x, mp, sp, mq, sq = (np.array([t[k]]) for k in ("x", "mean_p", "sigma_p", "mean_q", "sigma_q"))
            raw, tempered = ((log_gauss(x, mp, sp, c) - log_gauss(x, mq, sq, c))[0] + t["log_s"] for c in (1, 2))
            assert t["log_ratio"] == pytest.approx(raw, abs=1e-4)
            assert t["log_ratio_tempered"] == pytest.approx(tempered, abs=1e-4)
            assert t["apart"][-1] == pytest.approx(np.linalg.norm(mp - mq), rel=1e-4) and len(t["apart"]) == 4
            assert t["distance"] == pytest.approx(np.linalg.norm((mp - mq) / sp), rel=1e-4)
            assert t["b"] == pytest.approx(np.exp(min(0, tempered)), rel=1e-3)
            assert t["kept"] == (t["u"] < t["b"]) and (t["trials"] is None) == t["kept"] == (t["fallback"] is None)
            outcome = r.cells["outcome"][r.cells["pos"].index(t["pos"])]
            assert outcome == ("resampled" if not t["kept"] else "exact" if t["u"] < t["b_exact"] else "relaxed")
            verdicts.add(outcome)
    assert verdicts == {"exact", "relaxed", "resampled"}


def test_a_damaged_continuous_trace_is_refused():
    trace = run(ToyLatents(0, 0.5, 4, 12), ToyLatents(0.1, 0.6, 4, 12), CSpD(steps=3), 0)
    for damage, words in [(lambda t: t.rounds[2].cells["latent"][0].pop(), "a token that is not 4 numbers"),
                          (lambda t: t.header.order.reverse(), "other cells than it commits"),
                          (lambda t: t.header.order.pop(), "not a permutation"),
                          (lambda t: setattr(t.header, "width", 0), "width (continuous) is missing"),
                          (lambda t: t.rounds[1].cells["latent"].clear(), "column latent has 0 entries")]:  # fmt: skip
        copy = loads(trace.dumps())
        damage(copy)
        assert words in first_problem(copy)


def test_stop_and_broken_models():
    target, draft = ToyLatents(0, 0.5, 4, 30), ToyLatents(0.1, 0.6, 4, 30)
    calls = iter([False] * 6 + [True])
    stopped = run(target, draft, CSpD(steps=3), 0, stop=lambda: next(calls))
    assert stopped.footer.status == "stopped" and len(stopped.rounds) == 6 and first_problem(stopped) is None
    target.mean = lambda x, contexts: x * np.nan
    broken = Trace()
    with pytest.raises(FloatingPointError, match="not finite"):
        list(broken.record(decode_latents(target, LATENT_METHODS["cspd"], "toy", {"steps": 3}, 0, draft)))
    assert broken.footer.status == "error"
    with pytest.raises(InputError, match="needs a draft model that shares the token grid"):
        run(target, None, CSpD(steps=3), 0)


def test_noise_temperature_keeps_the_exact_preset_exact():
    """Its scale belongs to the last Gaussian as well; judged by the untempered sigma the same run is not exact."""
    settings, n = replace(BASE, temperature=0.6), 20_000
    target, draft = models(1)
    ends = {"plain": [], "exact": []}
    for seed in range(n):
        for r in plain(target, "toy", settings, seed + 10**9):
            ends["plain"] += [d.token[0] for d in r.cells if d.pos == 1]
        for r in speculate(target, draft, "toy", settings, seed):
            ends["exact"] += [d.token[0] for d in r.cells if d.pos == 1]
    assert len(ends["exact"]) == n and stats.ks_2samp(ends["plain"], ends["exact"]).pvalue > 1e-3


@pytest.mark.parametrize("iterations,calls", [(None, 30), (30, 30), (8, 8), (1, 1)])
def test_plain_takes_any_number_of_steps(iterations, calls):
    rounds = list(plain(ToyLatents(0, 0.5, 4, 30), "toy", CSpD(steps=4), 3, iterations))
    assert len(rounds) == rounds[-1].target_forwards == calls
    assert sum(len(r.cells) for r in rounds) == 30


def test_bad_settings_name_what_is_allowed():
    for bad, words in [({"factor": "x"}, "unknown factor 'x'; allowed: off, paper, code"),
                       ({"gamma": 0}, "gamma is '0'; allowed: a whole number from 1"),
                       ({"verification": ""}, "allowed: sequential, block"),
                       ({"inner_temperature": 0.5}, "inner_temperature is '0.5'; allowed: a number from 1"),
                       ({"last_noise": 1}, "last_noise is '1'; allowed: true, false")]:  # fmt: skip
        with pytest.raises(InputError) as error:
            CSpD(**bad)
        assert words in str(error.value)


@pytest.fixture(scope="module")
def tiny_mar():
    import torch

    from csd.models.latent import MARModel
    from csd.models.mar import MAR, MARConfig
    from csd.models.vq import VQConfig, VQModel

    torch.manual_seed(0)  # float64: the first transition divides by sqrt(alpha), which magnifies rounding
    vq = VQModel(VQConfig(32, 8, 8, (1, 2), (1, 2), 1, 16))
    pair = []
    for dim in (32, 16):
        net = MAR(MARConfig(dim, 1, 1, 4, 1, dim, width=8, grid=4, classes=5, buffer=4))
        for p in net.parameters():
            torch.nn.init.normal_(p, std=0.15)
        pair.append(MARModel(f"tiny-{dim}", net.double(), vq, {"toy": 0, "other": 3}))
    return pair


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_mar_through_the_loop(tiny_mar, guidance):
    """Every preset on a real MAR: counts, a picture, and drafts of the target itself are all accepted."""
    target, draft = tiny_mar
    for preset in PRESETS.values():
        trace = run(target, draft, replace(preset, steps=5, gamma=4, guidance=guidance, schedule="linear"), 1)
        t = trace.footer.totals
        assert t["committed"] == 16 and t["target_forwards"] == len(trace.rounds)
        assert t["target_rows"] % (1 if guidance == 1 else 2) == 0 and t["head_steps"] % 5 == 0
        assert image(target, trace).size == (8, 8)
    same = run(target, target, CSpD(steps=5, gamma=4, guidance=guidance), 1)
    assert same.footer.totals["acceptance_rate"] == 1


def test_linear_guidance_is_mars(tiny_mar):
    """The weight after a step that makes k of n cells known is 1 + (guidance - 1) k / n, row by row."""
    target, known = tiny_mar[0], np.zeros((2, 16), bool)
    known[1, :5] = True
    session = target.open("toy", 5.0, 4, "linear")
    _, weights = session.contexts(np.zeros((16, 8)), known, [(0, 0), (1, 6), (1, 7)])
    assert weights[:, 0].tolist() == [1 + 4 * 1 / 16, 1 + 4 * 7 / 16, 1 + 4 * 7 / 16]
    assert target.open("toy", 5.0, 4).contexts(np.zeros((16, 8)), known, [(0, 0)])[1].item() == 5


def test_batched_contexts_are_the_contexts_of_single_rows(tiny_mar):
    """Teacher forcing in one forward: row i of the batch equals a forward that knows the first i drafts."""
    target, rng = tiny_mar[0], np.random.default_rng(0)
    z, order = rng.standard_normal((16, 8)), rng.permutation(16)
    known = np.array([[pos in order[: 3 + i] for pos in range(16)] for i in range(4)])
    wanted = [(i, int(order[3 + i])) for i in range(4)]
    session = target.open("toy", 2.0, 5)
    together = session.contexts(z, known, wanted)[0].numpy()
    for i in range(4):
        alone = session.contexts(z, known[i : i + 1], [(0, wanted[i][1])])[0].numpy()
        assert np.abs(together[:, i] - alone[:, 0]).max() < 1e-5
    assert (session.forwards, session.rows) == (5, 2 * 4 + 4 * 2)


@pytest.fixture(scope="module")
def garden_mar():
    import torch

    from csd import load

    torch.set_num_threads(1)
    return load("garden-mar")


def test_the_built_in_draft_costs_a_sixth_at_most(garden_mar):
    from csd.training.evaluate_mar import macs

    target, draft = (m.model for m in garden_mar)
    assert all(6 * macs(draft, known) <= macs(target, known) for known in (0, 128, 255))
    assert 6 * sum(p.numel() for p in draft.parameters()) <= sum(p.numel() for p in target.parameters())


def test_shared_noise_brings_draft_and_target_together(garden_mar):
    """Trajectory alignment on the built-in pair: 128 tokens drawn by both from one half-known picture."""
    target, draft = garden_mar
    z = np.zeros((256, 8))
    for r in plain(target, "lemon", CSpD(steps=10), 0, 8):
        for d in r.cells:
            z[d.pos] = d.token
    known, rng = np.arange(256) % 2 == 0, np.random.default_rng(0)
    wanted = [(0, p) for p in range(1, 256, 2)]
    sessions = [m.open("lemon", 1.0, 10) for m in (target, draft)]
    contexts = [s.contexts(z, known[None], wanted) for s in sessions]

    def noise():
        return rng.standard_normal((128, 8)), rng.standard_normal((128, 9, 8))

    common = noise()
    p, q = (s.denoise(c, *common).mean for s, c in zip(sessions, contexts, strict=True))
    own = sessions[1].denoise(contexts[1], *noise()).mean
    shared, apart = (np.linalg.norm(p - other, axis=1).mean() for other in (q, own))
    assert shared < 0.75 * apart


def test_the_modulations_of_a_chain_are_those_of_its_steps(tiny_mar):
    """The head's conditions are computed for many steps at once; the chain is the one of single calls."""
    import torch

    model = tiny_mar[0]
    session = model.open("toy", 1.0, 40)  # more steps than one chunk holds
    known, rng = np.zeros((1, 16), bool), np.random.default_rng(0)
    contexts = session.contexts(np.zeros((16, 8)), known, [(0, 3), (0, 5)])
    start, noise = rng.standard_normal((2, 8)), rng.standard_normal((2, 39, 8))
    got = session.denoise(contexts, start, noise)
    diffusion, x = session._diffusion, torch.as_tensor(start)
    with torch.inference_mode():
        for i in reversed(range(40)):
            out = model.model.diffloss.net(x, diffusion.times[i].expand(2), contexts[0][0])
            mean, sigma = diffusion.transition(out, x, i)
            x = mean + sigma * torch.as_tensor(noise)[:, 39 - i] if i else x
    assert np.abs(got.mean - mean.numpy()).max() < 1e-6 * np.abs(got.mean).max()
    assert np.abs(got.sigma - sigma.numpy()).max() < 1e-9
