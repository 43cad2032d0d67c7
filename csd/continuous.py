"""The loop for continuous tokens: CSpD on masked autoregressive models with a diffusion head; exact, published, as coded.

Wang et al., 2024 (Continuous Speculative Decoding, arXiv 2411.11925). A token is the end of a diffusion chain
x_T → … → x_0. Given the noise of all transitions but the last, draft and target each have a Gaussian for x_0. Judging x_0
by those two Gaussians alone is exact (the noise is then common knowledge, and the target's marginal follows by averaging);
the paper also multiplies the ratio by S, a product of variance ratios along the chains, and the public code by its inverse
and with a temperature of 42 inside. All of that are switches here. Densities are handled as logarithms throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from csd import record_latent
from csd.clock import Clock
from csd.errors import InputError, number
from csd.methods import LatentMethod
from csd.switches import CSpD, preset_of
from csd.trace import Footer, Header, Round, footer

Array = np.ndarray


@dataclass
class Paths:
    """The transitions of m chains, from x_T's to the one that ends in x_0: means and sigmas, float64 [m, steps, width].

    `mean` and `sigma` [m, width] are those of the last; `log_sigma` [m] sums ln sigma over all others and all numbers.
    """

    means: Array
    sigmas: Array

    @property
    def mean(self) -> Array:
        return self.means[:, -1]

    @property
    def sigma(self) -> Array:
        return self.sigmas[:, -1]

    @property
    def log_sigma(self) -> Array:
        return np.log(self.sigmas[:, :-1]).sum((1, 2))

    def take(self, i: int) -> Paths:
        """The i-th chain."""
        return Paths(self.means[i : i + 1], self.sigmas[i : i + 1])


class LatentSession(Protocol):
    """One picture under one condition, of one model. Counts what it runs."""

    forwards: int
    rows: int
    head_steps: int  # calls of the head, whatever their batch

    def contexts(self, latents: Array, known: Array, wanted: list[tuple[int, int]]) -> object:
        """One forward. latents float64 [cells, width]; known bool [rows, cells] says what each row may see; wanted are
        (row, position) pairs. Returns one context per pair, for `denoise`. A guidance weight that grows with the picture
        counts the cells wanted from a row as known: that is what the picture will hold after this step."""
        ...

    def denoise(self, contexts: object, start: Array, noise: Array) -> Paths:
        """Run the head. start [m, width] is x_T, noise [m, steps - 1, width] drives all transitions but the last."""
        ...


class LatentModel(Protocol):
    """A model that draws pictures as continuous tokens in any order."""

    name: str
    grid: tuple[int, int]
    width: int
    labels: list[str]

    def open(self, label: str, guidance: float, steps: int, schedule: str = "constant") -> LatentSession: ...

    def decode(self, latents: Array) -> Array: ...


def log_gauss(x: Array, mean: Array, sigma: Array, temperature: float = 1.0) -> Array:
    """Log density of independent Gaussians up to the common constant, [m, width] → [m]; distances over `temperature`."""
    return -(np.log(sigma) + 0.5 * ((x - mean) / sigma / temperature) ** 2).sum(-1)


def log_factor(kind: str, p: Paths, q: Paths) -> Array:
    """ln of the trajectory factor: S = ∏ sigma_q / sigma_p (paper, eq. for r(x_0)), its inverse, or 1; [m]."""
    sign = {"off": 0.0, "paper": 1.0, "code": -1.0}[kind]
    return sign * (q.log_sigma - p.log_sigma)


def residual(p: Paths, q: Paths, log_s: float, rng: np.random.Generator, trials: int) -> tuple[Array, int, bool]:
    """One draw from norm((S p − q)+) by rejection from p: (token [width], trials used, whether it fell back to p).

    A proposal c ~ p is kept with probability max(0, 1 − q(c) / (S p(c))); the unknown normaliser cancels. The published
    code leaves zeros when it runs out of trials; here the target's own draw stands in, and is counted.
    """
    for n in range(1, trials + 1):
        c = p.mean[0] + p.sigma[0] * rng.standard_normal(p.mean.shape[1])
        log_ratio = log_gauss(c, q.mean, q.sigma)[0] - log_gauss(c, p.mean, p.sigma)[0] - log_s
        if rng.random() < -np.expm1(min(0.0, log_ratio)):
            return c, n, False
    return p.mean[0] + p.sigma[0] * rng.standard_normal(p.mean.shape[1]), trials, True


@dataclass
class Decision:
    """What happened to one cell. Fields that do not apply to an outcome are None."""

    pos: int
    outcome: str
    token: Array
    distance: float | None = None  # Euclidean distance of the two means in units of the target's sigma
    log_s: float | None = None
    log_ratio: float | None = None  # at temperature 1, factor included
    log_ratio_tempered: float | None = None
    u: float | None = None
    trials: int | None = None
    fallback: bool | None = None
    draft: Array | None = None  # the draft that was judged
    p: Paths | None = None
    q: Paths | None = None


@dataclass
class LatentRound:
    """One target forward (or, for plain MAR, one step) and the cells it settled, in order of generation. The counters of
    forwards, rows and head steps run over the whole picture so far."""

    round: int
    start: int
    cells: list[Decision]
    drafted: int
    examined: int
    accepted: int
    asked: int  # positions the target gave a context for
    target_forwards: int
    target_rows: int
    draft_forwards: int
    draft_rows: int
    head_steps: int
    seconds: dict = field(default_factory=dict)


class Noise:
    """Noise keyed by (seed, position, who): start and transitions of a chain, its last transition, order, verdicts."""

    def __init__(self, seed: int, width: int, steps: int, temperature: float):
        self.seed, self.width, self.steps, self.temperature = seed, width, steps, temperature

    def rng(self, purpose: int, pos: int = 0, attempt: int = 0) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, purpose], counter=[0, 0, attempt, pos]))

    def order(self, cells: int) -> Array:
        """Order of generation: a random permutation."""
        return self.rng(1).permutation(cells)

    def chain(self, positions: list[int], who: int) -> tuple[Array, Array, Array]:
        """(x_T [m, width], transitions [m, steps - 1, width], last [m, width]); who 0 is common to draft and target."""
        z = np.stack([self.rng(2 + who, pos).standard_normal((self.steps + 1, self.width)) for pos in positions])
        return z[:, 0], self.temperature * z[:, 1:-1], z[:, -1]


class _Run:
    """State of one picture: what is settled, in which order, and the two sessions."""

    def __init__(self, target: LatentModel, draft: LatentModel | None, label: str, s: CSpD, seed: int):
        self.s, self.cells = s, target.grid[0] * target.grid[1]
        self.target = target.open(label, s.guidance, s.steps, s.schedule)
        self.draft = draft.open(label, s.guidance, s.steps, s.schedule) if draft else None
        self.noise = Noise(number("seed", seed, 0, 2**63 - 1, whole=True), target.width, s.steps, s.temperature)
        self.order = self.noise.order(self.cells)
        self.z, self.known = np.zeros((self.cells, target.width)), np.zeros(self.cells, bool)
        self.done = self.rounds = self.asked = 0
        self.clock = Clock()

    def alone(self, n: int, outcome: str) -> list[Decision]:
        """The target draws the next n cells from one context, without drafts."""
        at = self.order[self.done : self.done + n].tolist()
        paths, last = self.paths(self.target, self.known[None], [(0, p) for p in at], 0)
        tokens = self.ends(paths, last)
        return [Decision(p, outcome, t) for p, t in zip(at, tokens, strict=True)]

    def paths(self, session: LatentSession, known: Array, wanted: list[tuple[int, int]], who: int) -> tuple[Paths, Array]:
        """One forward and its chains: the last transitions and the noise that ends them."""
        start, noise, last = self.noise.chain([p for _, p in wanted], who)
        self.clock.lap("verify")
        paths = session.denoise(session.contexts(self.z, known, wanted), start, noise)
        self.clock.lap("draft" if session is self.draft else "target")
        if session is self.target:
            self.asked = len(wanted)
        if not (np.isfinite(paths.means).all() and np.isfinite(paths.sigmas).all()):
            raise FloatingPointError("the model returned numbers that are not finite")
        return Paths(paths.means, self.s.temperature * paths.sigmas), last  # the temperature scales every spread

    def ends(self, paths: Paths, last: Array) -> Array:
        return paths.mean + (paths.sigma * last if self.s.last_noise else 0.0)

    def settle(self, decisions: list[Decision], drafted: int = 0, examined: int = 0, accepted: int = 0) -> LatentRound:
        for d in decisions:
            self.z[d.pos], self.known[d.pos] = d.token, True
        self.done += len(decisions)
        self.rounds += 1
        self.clock.lap("verify")
        t, q = self.target, self.draft
        return LatentRound(
            self.rounds - 1, self.done - len(decisions), decisions, drafted, examined, accepted, self.asked,
            t.forwards, t.rows, q.forwards if q else 0, q.rows if q else 0,
            t.head_steps + (q.head_steps if q else 0), self.clock.seconds,
        )  # fmt: skip


def decode_latents(
    target: LatentModel,
    method: LatentMethod,
    label: str,
    knobs: dict[str, object] | None = None,
    seed: int = 0,
    draft: LatentModel | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[Header | Round | Footer]:
    """Draw one picture of continuous tokens, yielding the header, a round per target forward, and the footer.

    The twin of `decode.decode` for models whose tokens are vectors. knobs: values for `method.knobs`; plain MAR takes
    `iterations`, CSpD the switches. stop: asked before every round; True ends the run with status "stopped".

    Raises InputError for anything a person could have typed wrong, before any model runs; FloatingPointError when a model
    returns numbers that are not finite.
    """
    cells = target.grid[0] * target.grid[1]
    values = method.settings(knobs or {}, cells)
    s = CSpD(**{k: v for k, v in values.items() if k != "iterations"})
    if method.drafter == "model" and (draft is None or (draft.grid, draft.width) != (target.grid, target.width)):
        raise InputError(f"method {method.name} needs a draft model that shares the token grid of {target.name}")
    drafted = method.drafter == "model"
    steps = speculate(target, draft, label, s, seed) if drafted else plain(target, label, s, seed, values["iterations"])
    order = Noise(number("seed", seed, 0, 2**63 - 1, whole=True), target.width, s.steps, 1.0).order(cells)
    sampling = {k: values.pop(k) for k in ("guidance", "schedule", "temperature")}
    yield Header(
        method=method.name, title=method.title, rule="gaussian" if drafted else "exact", drafter=method.drafter,
        lossless=s.lossless if drafted else values["iterations"] == cells, formula=s.formula if drafted else "",
        knobs=values, sampling=sampling, seed=seed, model=target.name, draft_model=draft.name if drafted else None,
        label=label, grid=list(target.grid), vocab=0, cells=cells, kind="continuous", width=target.width,
        order=order.tolist(), preset=preset_of(s) if drafted else "",
        weights=getattr(target, "weights", ""), logits_dtype=getattr(target, "dtype_name", "float64"),
        filters="guidance of the predicted noise, temperature", streams="philox(seed, purpose, position, attempt)",
    )  # fmt: skip
    rounds: list[Round] = []
    while not (stop and stop()):
        r = next(steps, None)
        if r is None:
            break
        rounds.append(record_latent.round_event(r))
        yield rounds[-1]
    done = sum(r.committed for r in rounds) == cells
    yield footer(rounds, cells, "done" if done else "stopped")


def plain(
    target: LatentModel, label: str, settings: CSpD, seed: int, iterations: int | None = None
) -> Iterator[LatentRound]:
    """MAR without drafts, in `iterations` steps (default: one cell per step), on MAR's cosine schedule."""
    run = _Run(target, None, label, settings, seed)
    iterations = number("iterations", iterations or run.cells, 1, run.cells, whole=True)
    for i in range(iterations):
        run.clock = Clock()
        left = int(np.floor(run.cells * np.cos(np.pi / 2 * (i + 1) / iterations)))
        left = min(max(left, 1), run.cells - run.done - 1) if i < iterations - 1 else 0
        yield run.settle(run.alone(run.cells - run.done - left, "first"))
        if run.done == run.cells:
            return


def speculate(target: LatentModel, draft: LatentModel, label: str, settings: CSpD, seed: int) -> Iterator[LatentRound]:
    """CSpD: pre-fill, then rounds of gamma drafts and one target forward; yields a LatentRound per target forward."""
    run = _Run(target, draft, label, settings, seed)
    while run.done < round(settings.prefill * run.cells):
        run.clock = Clock()
        yield run.settle(run.alone(1, "prefill"))
    while run.done < run.cells:
        run.clock = Clock()
        at = run.order[run.done : run.done + settings.gamma].tolist()
        drafted, q = _draft(run, at)
        yield (_judge_block if settings.verification == "block" else _judge_sequence)(run, at, drafted, q)


def fixed_calls(s: CSpD, cells: int) -> int | None:
    """Target calls of a run that takes block verdicts: known beforehand, whatever is accepted. None when sequential."""
    alone = round(s.prefill * cells)
    return alone - (alone - cells) // s.gamma if s.verification == "block" else None


def _draft(run: _Run, at: list[int]) -> tuple[Array, list[Paths]]:
    """Draft the cells one after the other, each seeing the drafts before it. They are put into z, but not marked known."""
    known, out, q = run.known.copy(), [], []
    who = 0 if run.s.shared_noise else 1
    for p in at:
        paths, last = run.paths(run.draft, known[None], [(0, p)], who)
        run.z[p] = run.ends(paths, last)[0]
        known[p] = True
        out.append(run.z[p].copy())
        q.append(paths)
    return np.array(out), q


def _judge_sequence(run: _Run, at: list[int], drafted: Array, q: list[Paths]) -> LatentRound:
    """Row i of the one target forward sees the settled cells and the first i drafts, so it is the context draft i needs."""
    bonus = run.order[run.done + len(at) : run.done + len(at) + 1].tolist()
    known = np.repeat(run.known[None], len(at) + len(bonus), 0)
    for i, p in enumerate(at):
        known[i + 1 :, p] = True
    paths, last = run.paths(run.target, known, list(enumerate(at + bonus)), 0)
    out: list[Decision] = []
    for i, p in enumerate(at):
        d = _decide(run, p, drafted[i], paths.take(i), q[i])
        out.append(d)
        if d.outcome == "resampled":
            return run.settle(out, len(at), i + 1, i)
    if bonus:
        out.append(Decision(bonus[0], "bonus", run.ends(paths.take(len(at)), last[-1:])[0]))
    return run.settle(out, len(at), len(at), len(at))


def _judge_block(run: _Run, at: list[int], drafted: Array, q: list[Paths]) -> LatentRound:
    """The public code's way: one context in which the whole block is masked, a verdict per token, no new drafts."""
    paths, _ = run.paths(run.target, run.known[None], [(0, p) for p in at], 0)
    out = [_decide(run, p, drafted[i], paths.take(i), q[i]) for i, p in enumerate(at)]
    return run.settle(out, len(at), len(at), sum(d.outcome != "resampled" for d in out))


def _decide(run: _Run, pos: int, x: Array, p: Paths, q: Paths) -> Decision:
    """Accept x with probability min(1, S N_p(x) / N_q(x)); else draw from the residual."""
    s, rng = run.s, run.noise.rng(9, pos, run.rounds)
    log_s = float(log_factor(s.factor, p, q)[0])
    raw, tempered = (float((log_gauss(x, p.mean, p.sigma, t) - log_gauss(x, q.mean, q.sigma, t))[0] + log_s)
                     for t in (1.0, s.inner_temperature))  # fmt: skip
    u = float(rng.random())
    distance = float(np.linalg.norm((p.mean - q.mean) / p.sigma))
    d = Decision(pos, "exact", x, distance, log_s, raw, tempered, u, draft=x, p=p, q=q)
    if np.log(u) < tempered:  # relaxed: the exact rule (no factor, no temperature) would have said no to the same u
        return d if np.log(u) < raw - log_s else replace(d, outcome="relaxed")
    token, trials, fallback = residual(p, q, log_s, rng, s.trials)
    return replace(d, outcome="resampled", token=token, trials=trials, fallback=fallback)
