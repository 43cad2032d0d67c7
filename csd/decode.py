"""The one loop: draft, one target forward, judge left to right, commit, roll back. Yields a trace, event by event.

Leviathan et al., 2023, algorithm 1, with the drafter and the rule as arguments. Plain autoregression is the case of no
drafts, speculative Jacobi decoding the case where the drafter is the target's own previous round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from weakref import WeakKeyDictionary

import numpy as np

from csd import record
from csd.clock import Clock
from csd.drafters import Draft, Drafter, JacobiDrafter, ModelDrafter
from csd.errors import InputError
from csd.methods import Method
from csd.metrics import Calibration
from csd.models.base import Session, TokenModel
from csd.rules import Laws, exact
from csd.sampling import Sampling, Streams, draw, law
from csd.space import Space
from csd.trace import Footer, Header, Round, footer
from csd.verify import judge

Array = np.ndarray


def decode(
    target: TokenModel,
    method: Method,
    label: str,
    sampling: Sampling | None = None,
    knobs: dict[str, object] | None = None,
    seed: int = 0,
    draft: TokenModel | None = None,
    detail: str = "compact",
    keep_full: Collection[int] = (),
    stop: Callable[[], bool] | None = None,
) -> Iterator[Header | Round | Footer]:
    """Draw one picture, yielding the header, a round per target forward, and the footer.

    target: the model whose law counts. draft: the draft model, for methods that use one. knobs: values for
    `method.knobs`. detail: "compact" records every examined position (algorithm notes in `record.py`), "none" only what
    was committed. keep_full: positions whose whole p and q are stored. stop: asked before every round; True ends the run
    with status "stopped".

    Raises InputError for anything a person could have typed wrong, before any model runs; FloatingPointError when a
    model returns logits that are not finite.
    """
    cells = target.grid[0] * target.grid[1]
    sampling = sampling or Sampling()
    settings = method.settings(knobs or {}, cells)
    if detail not in ("compact", "none"):
        raise InputError(f"unknown detail {detail!r}; allowed: compact, none")
    streams = Streams(seed, cells)
    drafter = _drafter(target, method, label, sampling, settings, streams, draft)
    session = target.open(label, sampling.guidance)
    rule_knobs = {k.name: settings[k.name] for k in method.rule.knobs}
    keep = set(keep_full)
    space = _space(target)

    yield Header(
        method=method.name, title=method.title, rule=method.rule.name, drafter=method.drafter,
        lossless=method.lossless, formula=method.rule.formula, knobs=settings, sampling=sampling.to_dict(), seed=seed,
        model=target.name, draft_model=draft.name if drafter.session else None, label=label,
        grid=list(target.grid), vocab=target.vocab, cells=cells,
        logits_dtype=getattr(target, "dtype_name", "float32"), weights=getattr(target, "weights", ""),
    )  # fmt: skip

    tokens = np.zeros(cells, np.int64)
    start = number = 0
    rounds: list[Round] = []
    calibration = Calibration()
    while start < cells and not (stop and stop()):
        clock = Clock()
        held = session.length
        d = drafter.propose(tokens[:start], start, cells - start)
        clock.lap("draft")

        p, fed = _target_laws(session, tokens, start, d, cells, sampling, clock)
        verdict = _judge(method, rule_knobs, p, d, start, streams, space)
        n = verdict.accepted
        tokens[start : start + n] = d.tokens[:n]
        if start + n < cells:  # at the end of the picture an accepted window leaves no cell for a bonus
            tokens[start + n] = verdict.extra
            n += 1
        session.rollback(max(0, session.length - (start + n - 1)))
        clock.lap("verify")
        drafter.observe(p, start, tokens[start : start + n])
        clock.lap("draft")

        event = record.round_event(number, start, fed, d, p, verdict, tokens[start : start + n], method.rule, rule_knobs,
                                   detail, keep)  # fmt: skip
        event.kv = [held, session.length]
        event.target_forwards, event.target_rows = session.forwards, session.rows
        event.draft_forwards, event.draft_rows = drafter.forwards, drafter.rows
        event.calibration = calibration.add(event)
        start, number = start + n, number + 1
        clock.lap("record")
        event.seconds = clock.seconds
        rounds.append(event)
        yield event
    yield footer(rounds, cells, "done" if start == cells else "stopped")


_spaces: WeakKeyDictionary = WeakKeyDictionary()


def _space(target: TokenModel) -> Space:
    """The target's code space, kept as long as the target is: its tables are worth computing once."""
    if target not in _spaces:
        _spaces[target] = Space(target.embeddings())
    return _spaces[target]


def _drafter(target, method, label, sampling, settings, streams, draft) -> Drafter:
    if method.drafter == "none":
        return Drafter(target.vocab, streams, sampling)
    session = None
    if method.drafter == "model" or settings["correct"]:
        session = _session(target, draft, method.name, label, sampling)
    if method.drafter == "model":
        return ModelDrafter(target.vocab, streams, sampling, session, settings["gamma"])
    how = {k: settings[k] for k in ("window", "coupling", "fill", "correct")}
    return JacobiDrafter(target.vocab, streams, sampling, columns=target.grid[1], session=session, **how)


def _session(target: TokenModel, draft: TokenModel | None, name: str, label: str, sampling: Sampling) -> Session:
    if draft is None:
        raise InputError(f"method {name} needs a draft model with these settings, and {target.name} has none")
    if (draft.vocab, tuple(draft.grid)) != (target.vocab, tuple(target.grid)):
        raise InputError(f"draft model {draft.name} and target {target.name} do not share a token grid and vocabulary")
    return draft.open(label, sampling.guidance)


def _target_laws(session, tokens: Array, start: int, d: Draft, cells: int, sampling, clock) -> tuple[Array, int]:
    """One target forward: feed the last settled token and the drafts; returns p [rows, V] from `start` on, tokens fed.

    The draft of the very last cell is not fed: nothing comes after it. Before the first token the condition, fed by the
    session itself, plays the part of the last settled token.
    """
    fed = np.concatenate([tokens[max(0, start - 1) : start], d.tokens[: cells - 1 - start]])
    logits = session.forward(fed)
    clock.lap("target")
    return law(logits, sampling), len(fed)


def _judge(
    method: Method, knobs: dict, p: Array, d: Draft, start: int, streams: Streams, space: Space | None
) -> record.Verdict:
    """Judge the drafts and draw the token that ends the round.

    All tests are computed at once, but a draw is used up only by a position that is really examined.
    """
    k = len(d.tokens) if d.testable else 0
    laws = Laws(p[:k], d.q[:k], space=space)
    u = streams.peek("verify", slice(start, start + k))
    judged = judge(method.rule, laws, d.tokens[:k], u, knobs)
    accepted = judged.accepted
    if judged.used:
        streams.use("verify", slice(start, start + judged.used))

    extra, source, draw_u = -1, "", None
    if start + accepted < len(streams):
        if accepted < k:
            source, weights = "resampled", judged.weights
        else:
            source, weights = ("bonus" if k else "first"), p[accepted]
        v = streams.uniform("target", slice(start + accepted, start + accepted + 1))
        extra, draw_u = int(draw(weights[None], v)[0]), float(v[0])
    seen = slice(0, min(k, accepted + 1))
    law_seen = laws.part(seen)
    return record.Verdict(law_seen, None if judged.b is None else judged.b[seen], exact(law_seen, d.tokens[seen]), u[seen],
                          accepted, extra, source, draw_u, method.rule.lossless)  # fmt: skip
