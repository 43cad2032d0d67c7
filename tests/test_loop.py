"""The loop's accounts and promises, on toys and on the built-in models."""

import inspect
from functools import cache

import numpy as np
import pytest
from toy import ToyModel

from csd import METHODS, InputError, Sampling, Trace, decode, method
from csd.trace import first_difference, first_problem, loads


def run(target, name, seed=0, draft=None, sampling=None, label=None, **knobs):
    return Trace(decode(target, method(name), label or target.labels[0], sampling or Sampling(), knobs, seed, draft))


@pytest.fixture(scope="module")
def drawn(garden):
    """Runs of the built-in pair, each made once: drawn(method, seed, label, knob=…)."""

    @cache
    def one(name, seed=0, label="lemon", **knobs):
        return run(garden[0], name, seed, garden[1], label=label, **knobs)

    return one


class Counting:
    """Wraps a model and counts the calls of its sessions from outside."""

    def __init__(self, model):
        self._model, self.calls = model, 0

    def __getattr__(self, name):
        return getattr(self._model, name)

    def open(self, label, guidance):
        session = self._model.open(label, guidance)
        inner = session.forward

        def forward(tokens):
            self.calls += 1
            return inner(tokens)

        session.forward = forward
        return session


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_accounts_on_a_toy(name, seed):
    target, draft = Counting(ToyModel(0, 5, 40)), Counting(ToyModel(1, 5, 40))
    trace = run(target, name, seed, draft)
    t = trace.footer.totals
    assert first_problem(trace) is None
    assert t["committed"] == t["cells"] == 40 == sum(r.committed for r in trace.rounds)
    assert t["target_forwards"] == target.calls == len(trace.rounds)
    assert t["draft_forwards"] == draft.calls
    assert t["accepted"] + t["resampled"] + t["bonus"] + t["first"] == 40
    assert t["examined"] == t["accepted"] + t["resampled"]
    if METHODS[name].lossless:
        assert t["relaxed"] == 0 and t["drift"] < 1e-9


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_every_window_size_finishes(name, size):
    key = {"jacobi": "window", "model": "gamma"}.get(METHODS[name].drafter)
    trace = run(ToyModel(0, 5, 40), name, 1, ToyModel(1, 5, 40), **({key: size} if key else {}))
    assert len(trace.tokens) == 40 and trace.footer.status == "done"


@pytest.mark.parametrize("name", ["sjd", "sd", "scd+"])
def test_counted_forwards_equal_a_wrappers_count(garden, name):
    """With guidance every forward has two rows."""
    target, draft = (Counting(m) for m in garden)
    t = run(target, name, 0, draft, label="lemon").footer.totals
    assert (t["target_forwards"], t["draft_forwards"]) == (target.calls, draft.calls)
    assert (t["target_rows"], t["draft_rows"]) == (2 * target.calls, 2 * draft.calls)


# every relaxed rule, and what switches its relaxation off
NOTHING = [("csd", {"weight": 0}), ("csd", {"delta": 0}), ("gsd", {"group": 1}), ("lantern", {"neighbours": 0}),
           ("lantern++", {"multiple": 1}), ("cool", {"weights": "1"}), ("amplify", {"factor": 1}),
           ("addition", {"bonus": 0})]  # fmt: skip


@pytest.mark.parametrize("name,off", NOTHING)
def test_every_rule_without_relaxation_draws_what_sjd_draws(drawn, name, off):
    exact = drawn("sjd", 3)
    assert drawn(name, 3, **off).tokens == exact.tokens
    relaxed = drawn(name, 3)
    assert relaxed.tokens != exact.tokens and relaxed.footer.totals["relaxed"] > 0  # so the equality says something


def test_every_relaxed_rule_is_here():
    assert {m.rule.name for m in METHODS.values() if not m.lossless} == {name for name, _ in NOTHING}


def test_coupled_drafts_survive_rounds(drawn):
    """Fewer drafts change from round to round, and fewer forwards are needed; the picture keeps the target's law."""
    changed, forwards = {}, {}
    for how in ("fresh", "maximal", "gumbel"):
        traces = [drawn("sjd", s, coupling=how) if how != "fresh" else drawn("sjd", s) for s in (3, 4)]
        marks = [c for t in traces for r in t.rounds for c in r.tests.get("changed", []) if c is not None]
        changed[how], forwards[how] = np.mean(marks), sum(t.footer.totals["target_forwards"] for t in traces)
    for how in ("maximal", "gumbel"):
        assert changed[how] < 0.7 * changed["fresh"] and forwards[how] < 0.92 * forwards["fresh"]


@pytest.mark.parametrize("fill", ["onehot", "copy"])
def test_a_fill_is_what_it_says(fill):
    """On a grid of one row a copy is the token before; both put all of q on the draft."""
    seen = 0
    trace = run(ToyModel(0, 5, 40, spread=0.1), "sjd", 2, fill=fill, window=3)
    for r in trace.rounds:
        for i, origin in enumerate(r.tests.get("origin", [])):
            if origin in ("fill", "copy"):
                seen += 1
                before = r.window[i - 1] if i else trace.tokens[r.start - 1]
                assert r.tests["q"][i] == 1 and (fill == "onehot" or r.tests["x"][i] == before)
    assert seen


def test_block_verification_refuses_coupled_drafts():
    with pytest.raises(InputError, match="coupling is 'maximal'; allowed with block verification: fresh"):
        run(ToyModel(0, 5, 40), "block", 0, coupling="maximal")


def test_order_of_forwards(drawn):
    """Fewer target forwards: SD < AR, CSD < SJD < AR, corrected < coupled < SJD (sums over seeds; pictures may tie)."""
    n = {m: sum(drawn(m, s).footer.totals["target_forwards"] for s in (3, 4)) for m in ("sd", "sjd", "csd", "scd", "scd+")}
    assert n["sd"] < 2 * 256
    assert n["csd"] < n["sjd"] < 2 * 256
    assert n["scd+"] < n["scd"] < n["sjd"]


def test_correction_bends_the_draft_laws(drawn):
    """Drafts come from corrected laws: nearer to the target's next law than the stated ones, and still laws."""

    def tv(correct):
        return np.mean([v for r in drawn("scd", 3, window=64, correct=correct).rounds for v in r.tests.get("tv", [])])

    assert tv(2) < 0.85 * tv(0)


def test_same_seed_same_picture_other_seed_other_picture(garden, drawn):
    target, draft = garden
    a, b = drawn("csd", 3), run(target, "csd", 3, draft, label="lemon")
    assert first_difference(a, b) is None
    assert run(target, "csd", 3, draft, label=" LEMON ").tokens == a.tokens
    assert drawn("csd", 4).tokens != a.tokens
    assert np.array_equal(target.decode(np.array(a.tokens)), target.decode(np.array(b.tokens)))


def test_sampling_settings_change_p(garden):
    settings = {"plain": {}, "cold": {"temperature": 0.5}, "top-k": {"top_k": 20}, "top-p": {"top_p": 0.5}}
    H = {k: run(garden[0], "csd", 0, sampling=Sampling(**v)).footer.totals["mean_H"] for k, v in settings.items()}
    assert H["cold"] < H["plain"] and H["top-p"] < H["plain"] and H["top-k"] < min(H["plain"], np.log(20))


def test_stop_half_way_leaves_a_valid_trace():
    calls = iter([False] * 5 + [True] * 100)
    target = ToyModel(0, 5, 60)
    trace = Trace(decode(target, METHODS["sjd"], "toy", seed=0, stop=lambda: next(calls)))
    assert trace.footer.status == "stopped" and len(trace.rounds) == 5
    assert first_problem(loads(trace.dumps())) is None


def test_closing_or_failing_leaves_a_valid_trace():
    trace = Trace()
    events = trace.record(decode(ToyModel(0, 5, 60), METHODS["sjd"], "toy"))
    for _ in range(4):
        next(events)
    events.close()
    assert trace.footer.status == "stopped" and len(trace.rounds) == 3
    assert first_problem(loads(trace.dumps())) is None

    broken = ToyModel(0, 5, 60)
    broken.logits[20:] = np.nan
    trace = Trace()
    with pytest.raises(FloatingPointError, match="not finite"):
        list(trace.record(decode(broken, METHODS["ar"], "toy")))
    assert trace.footer.status == "error" and len(trace.rounds) == 20
    assert first_problem(loads(trace.dumps())) is None


def test_records_agree_with_themselves():
    trace = run(ToyModel(0, 12, 60), "csd", 3, delta=0.8)
    for r in trace.rounds:
        t = r.tests
        for i in range(r.examined):
            assert t["kept"][i] == (t["u"][i] < t["b"][i])
            assert t["b"][i] == t["b_csd"][i] >= t["b_exact"][i]
            bonus = t["eps"][i]
            assert t["b"][i] == pytest.approx(min(1, t["p"][i] / t["q"][i] + bonus), rel=1e-4)
            assert bool(bonus) == (t["gate"][i] and t["H"][i] > 0)
            assert t["R"][i] + t["drift"][i] == pytest.approx(t["tv"][i], abs=1e-5)
        outcome = r.cells["outcome"]
        assert outcome.count("relaxed") == r.relaxed
        for i in range(r.accepted):
            assert (outcome[i] == "exact") == (t["u"][i] < t["b_exact"][i])


def test_full_laws_on_request():
    from csd.record import unpack

    trace = Trace(decode(ToyModel(0, 6, 20), METHODS["sjd"], "toy", seed=1, keep_full=[0, 7]))
    kept = {k: v for r in trace.rounds for k, v in r.full.items()}
    assert set(kept) == {"0", "7"}
    assert unpack(kept["7"]["p"]).sum() == pytest.approx(1, abs=1e-5)


def test_bad_requests_name_what_is_allowed():
    toy = ToyModel(0, 5, 40)
    cases = [
        (lambda: method("nope"), "unknown method 'nope'; allowed: ar, sd, sjd, csd, csd-sd"),
        (lambda: run(toy, "csd", weight=-1), "weight is '-1'; allowed: a number from 0 to 5"),
        (lambda: run(toy, "csd", delta=float("nan")), "delta is 'nan'; allowed: a number from 0 to 1.01"),
        (lambda: run(toy, "csd", delta=2), "delta is '2'; allowed"),
        (lambda: run(toy, "sjd", window=0), "window is '0'; allowed: a whole number from 1"),
        (lambda: run(toy, "sjd", window=41), "window is 41; allowed: a whole number from 1 to 40"),
        (lambda: run(toy, "sjd", window=2.5), "window is '2.5'; allowed: a whole number"),
        (lambda: run(toy, "sjd", delta=0.5), "method sjd has no parameter 'delta'; allowed: window"),
        (lambda: run(toy, "sd"), "method sd needs a draft model"),
        (lambda: run(toy, "scd+"), "method scd+ needs a draft model with these settings"),
        (lambda: run(toy, "sjd", correct=1), "method sjd needs a draft model with these settings"),
        (lambda: run(toy, "sjd", correct=9), "correct is '9'; allowed: a whole number from 0 to 8"),
        (lambda: run(toy, "sd", 0, ToyModel(1, 6, 40)), "do not share a token grid and vocabulary"),
        (lambda: run(toy, "ar", seed=-1), "seed is '-1'; allowed: a whole number"),
    ]
    for call, message in cases:
        with pytest.raises(InputError) as error:
            call()
        assert message in str(error.value) and "\n" not in str(error.value)


def test_unknown_label_and_model(garden):
    from csd import load

    with pytest.raises(InputError, match=r"unknown label 'durian'; allowed: .*lemon"):
        run(garden[0], "ar", label="durian")
    with pytest.raises(InputError, match="unknown model 'gpt'; allowed: garden"):
        load("gpt")


def test_the_core_is_clean():
    """csd/ imports neither gradio nor plotly and, but for the command line and training, prints nothing."""
    from pathlib import Path

    import csd

    for path in Path(inspect.getfile(csd)).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import gradio" not in text and "import plotly" not in text, path
        if path.name != "cli.py" and "training" not in path.parts:
            assert "print(" not in text, path
