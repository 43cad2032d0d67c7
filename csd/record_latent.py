"""What is written down about a round of continuous tokens: the settled vectors, and for every examined draft the numbers of
its decision. The twin of `record.py`; densities are logarithms, in nats.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from csd.trace import Round

if TYPE_CHECKING:
    from csd.continuous import Decision, LatentRound

Array = np.ndarray


def round_event(r: LatentRound) -> Round:
    """The event of one round; the time it takes is booked as `record`."""
    start = perf_counter()
    outcomes = [d.outcome for d in r.cells]
    event = Round(
        round=r.round, start=r.start, fed=r.asked, drafted=r.drafted, examined=r.examined, accepted=r.accepted,
        relaxed=outcomes.count("relaxed"), committed=len(r.cells), bonus="bonus" in outcomes,
        cells={"pos": [d.pos for d in r.cells], "outcome": outcomes, "latent": [digits(d.token) for d in r.cells]},
        target_forwards=r.target_forwards, target_rows=r.target_rows, draft_forwards=r.draft_forwards,
        draft_rows=r.draft_rows, head_steps=r.head_steps,
    )  # fmt: skip
    examined = [d for d in r.cells if d.p is not None]
    if examined:
        event.tests = {key: [value(d) for d in examined] for key, value in TESTS.items()}
    event.seconds = r.seconds | {"record": perf_counter() - start}
    return event


def digits(x: Array) -> list[float]:
    """Six significant digits of each number: enough for a view, and for decoding the picture again."""
    return [float(f"{v:.6g}") for v in x.tolist()]


def apart(d: Decision, points: int = 5) -> list[float]:
    """Euclidean distance of the two means at a few transitions, first to last, in units of the latents."""
    far = np.linalg.norm(d.p.means[0] - d.q.means[0], axis=1)
    return digits(far[np.unique(np.linspace(0, len(far) - 1, points).round().astype(int))])


def exact_probability(d: Decision) -> float:
    """What the exact rule says to this draft: no factor, no temperature."""
    return float(np.exp(min(0.0, d.log_ratio - d.log_s)))


# column → its value for one examined draft. b and b_exact are probabilities; u is stored whole, the verdict hangs on it.
TESTS = {
    "pos": lambda d: d.pos,
    "x": lambda d: digits(d.draft),
    "mean_p": lambda d: digits(d.p.mean[0]),
    "sigma_p": lambda d: digits(d.p.sigma[0]),
    "mean_q": lambda d: digits(d.q.mean[0]),
    "sigma_q": lambda d: digits(d.q.sigma[0]),
    "distance": lambda d: d.distance,
    "apart": apart,
    "log_s": lambda d: d.log_s,
    "log_ratio": lambda d: d.log_ratio,
    "log_ratio_tempered": lambda d: d.log_ratio_tempered,
    "u": lambda d: d.u,
    "b": lambda d: float(np.exp(min(0.0, d.log_ratio_tempered))),
    "b_exact": exact_probability,
    "kept": lambda d: d.outcome != "resampled",
    "trials": lambda d: d.trials,
    "fallback": lambda d: d.fallback,
}
