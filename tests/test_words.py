"""The sentences under a run: their numbers are the trace's."""

import re
from dataclasses import asdict, replace

from toy import ToyModel
from toy_latent import ToyLatents

from csd import LATENT_METHODS, METHODS, Trace, decode, decode_latents
from csd.switches import PRESETS, CSpD
from viz.words import notes, plain_seconds, warning

TARGET, DRAFT = ToyLatents(0, 0.1, 4, 40), ToyLatents(0.5, 0.1, 4, 40)


def speculative(**changes):
    settings = replace(CSpD(steps=3, prefill=0.1), **changes)
    return Trace(decode_latents(TARGET, LATENT_METHODS["cspd"], "toy", asdict(settings), 0, DRAFT))


def plain(iterations):
    return Trace(decode_latents(TARGET, LATENT_METHODS["mar"], "toy", {"iterations": iterations, "steps": 3}, 0))


def test_the_exact_run_says_why_it_is_slower():
    run, beside = speculative(), plain(40)
    t = run.footer.totals
    text = notes([run, beside])[0]
    assert text.startswith("Slower than plain MAR") and "measured beside it" in text
    assert f"{t['accepted']} of {t['examined']} drafts were kept" in text and f"{t['median_distance']:.0f} σ apart" in text
    assert f"4 draft calls and a target call with {t['target_rows'] / t['target_forwards']:.1f} rows" in text
    assert "at the speed of this run's pre-fill" in notes([run])[0]
    assert notes([speculative(prefill=0.0)]) == {}  # nothing to compare with: nothing is said


def test_seconds_of_plain_mar_come_from_the_pre_fill_or_from_beside():
    run, beside = speculative(), plain(40)
    alone = [sum(r.seconds.values()) for r in run.rounds[:4]]
    assert plain_seconds(run, [])[0] == 40 * sum(alone) / 4
    assert plain_seconds(run, [beside])[0] == beside.footer.totals["seconds"] - beside.footer.totals["seconds_record"]


def test_block_verdicts_say_that_their_cost_is_fixed_and_the_baseline_that_it_is_fair():
    run = speculative(**{k: v for k, v in asdict(PRESETS["code"]).items() if k not in ("steps", "gamma")})
    fair = plain(run.footer.totals["target_forwards"])
    both = notes([run, fair])
    assert re.search(r"6 for the pre-fill and one per block of 4, 15 in all. It does not depend", both[0])
    assert both[1].startswith(
        "The fair baseline: the target alone with as many calls as the speculative run beside it (15)"
    )
    assert notes([plain(7)]) == {} and "One token per target call" in notes([plain(40)])[0]


def test_unfinished_runs_say_nothing():
    stopped = Trace(decode_latents(TARGET, LATENT_METHODS["cspd"], "toy", {"steps": 3}, 0, DRAFT, stop=lambda: True))
    early = Trace(decode(ToyModel(0, 6, 30), METHODS["csd"], "toy", stop=lambda: True))
    assert notes([early, stopped]) == {}


def test_a_discrete_run_reads_its_calibration_score():
    toy = ToyModel(0, 6, 30)
    trace = Trace(decode(toy, METHODS["sjd"], "toy", seed=3))
    z = trace.footer.totals["calibration"]
    assert abs(z) < 2 and notes([trace])[0].startswith(
        f"Z = {z:.1f}: as likely under the target as its own samples".replace("-", "−")
    )
    trace.footer.totals["calibration"] = 2.5
    assert "less likely under the target" in notes([trace])[0] and "5 of 100 exact pictures" in notes([trace])[0]
    trace.footer.totals["calibration"] = -2.5
    assert "too smooth" in notes([trace])[0]
    trace.header.lossless = False
    assert "5 of 100 exact" not in notes([trace])[0]


def test_kept_fillers_are_counted_and_warned_of():
    """A wide-open gate lets uniform fillers in; a closed one does not."""
    toy = ToyModel(0, 12, 60)
    wide = Trace(decode(toy, METHODS["csd"], "toy", knobs={"delta": 1.01, "weight": 5, "window": 8}, seed=1))
    fillers = sum(o == "fill" and c == "relaxed" for r in wide.rounds
                  for o, c in zip(r.tests.get("origin", []), r.cells["outcome"], strict=False))  # fmt: skip
    assert fillers > 3 and f"{fillers} of 60 cells hold tail fillers" in notes([wide])[0]
    assert "fillers" not in notes([Trace(decode(toy, METHODS["csd"], "toy", knobs={"delta": 0}, seed=1))])[0]
    knobs = {"fill": "uniform", "weight": 0.5, "delta": 0.9}
    assert "tail fillers" in warning("csd", knobs) and not warning("csd", knobs | {"delta": 0.65})
    assert not warning("csd", knobs | {"fill": "copy"}) and not warning("csd", knobs | {"weight": 0})
    assert not warning("exact", {"fill": "uniform"})
