"""Judging stored drafts again: the same rule says the same, another says what its own run says, up to the first flip."""

import numpy as np
import pytest
from toy import ToyModel

from csd import METHODS, InputError, Sampling, Trace, decode
from csd.space import Space
from csd.whatif import rejudge, sweep

TARGET, DRAFT = ToyModel(0, 8, 60), ToyModel(1, 8, 60)
SPACE = Space(np.eye(8))


def run(name, seed=0, keep=(), **knobs):
    return Trace(decode(TARGET, METHODS[name], "toy", Sampling(guidance=1), knobs, seed, DRAFT, keep_full=keep))


@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("ar", "block", "block-sd")])
def test_the_same_rule_says_the_same(name):
    trace = run(name, keep=range(60))
    own = {k.name: trace.header.knobs[k.name] for k in METHODS[name].rule.knobs}
    again = rejudge(trace, METHODS[name].rule.name, own, SPACE)
    assert len(again.b) == trace.footer.totals["examined"] > 20
    assert not again.flipped.any()
    assert again.summary()["kept"] == trace.footer.totals["accepted"]


OTHERS = [("sjd", "csd", {"delta": 0.65, "weight": 0.2}), ("csd", "exact", {}), ("sd", "amplify", {"factor": 1.5}),
          ("sd", "cool", {"weights": "1.2,0.8"})]  # fmt: skip


@pytest.mark.parametrize("name,rule,knobs", OTHERS)
def test_up_to_the_horizon_it_is_the_other_rules_own_run(name, rule, knobs):
    """The stored run and a real run of the other rule, decision by decision, with the same draws."""
    drafter = METHODS[name].drafter
    twin = next(m for m in METHODS.values() if m.rule.name == rule and m.drafter == drafter and not m.preset)
    reached = []
    for seed in range(6):
        again, real = rejudge(run(name, seed), rule, knobs), run(twin.name, seed, **knobs)
        kept = [k for r in real.rounds for k in r.tests.get("kept", [])]
        n = len(again.b) if again.horizon is None else again.horizon
        assert again.kept[:n].tolist() == kept[:n]
        assert np.allclose(again.b[:n], [b for r in real.rounds for b in r.tests.get("b", [])][:n], atol=1e-5)
        if again.horizon is not None and again.flipped[n]:  # the flip itself is the other rule's verdict too
            assert again.kept[n] == kept[n] != again.was_kept[n]
        reached.append(n)
    assert max(reached) > 0


def test_sweep_is_what_real_laws_say():
    trace = run("sjd", keep=range(60))
    rows = sweep(trace, "csd", "delta", [0, 0.3, 0.65, 1.01])
    assert [r["delta"] for r in rows] == [0, 0.3, 0.65, 1.01]
    tests = [r.tests for r in trace.rounds if r.tests]
    assert rows[0]["drift"] < 1e-6
    assert rows[0]["acceptance"] == pytest.approx(np.concatenate([t["beta"] for t in tests]).mean(), abs=1e-5)
    acceptance, drift = ([r[k] for r in rows] for k in ("acceptance", "drift"))
    assert acceptance == sorted(acceptance) and drift == sorted(drift) and drift[-1] > 0.01
    gained = [a - acceptance[0] for a in acceptance]
    assert np.allclose(gained, drift, atol=1e-5)  # nothing is free: acceptance gained is drift


BAD = [("csd", {"gamma": 1}, "unknown parameter of rule csd 'gamma'; allowed: weight, delta"),
       ("block", {}, "judges a round's drafts together"), ("magic", {}, "unknown rule 'magic'; allowed: exact"),
       ("gsd", {}, "record the run with keep_full"), ("csd", {"delta": 2}, "delta is '2'; allowed")]  # fmt: skip


@pytest.mark.parametrize("rule,knobs,words", BAD)
def test_what_cannot_be_judged_again_says_why(rule, knobs, words):
    with pytest.raises(InputError) as error:
        rejudge(run("sjd"), rule, knobs, SPACE)
    assert words in str(error.value)


def test_runs_without_verdicts_say_so():
    with pytest.raises(InputError, match="holds no judged drafts"):
        rejudge(run("ar"), "csd")
