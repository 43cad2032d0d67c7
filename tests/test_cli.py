"""The command line as a person meets it: in a subprocess, with exit codes."""

import json
import subprocess
import sys

import pytest

from csd.cli import main

KEYS = {"cells", "target_forwards", "draft_forwards", "examined", "accepted", "relaxed", "committed", "tokens_per_forward",
        "seconds", "seconds_model", "drift"}  # fmt: skip


def csd(*args, cwd=None):
    return subprocess.run([sys.executable, "-m", "csd", *map(str, args)], capture_output=True, text=True, cwd=cwd)


def test_methods():
    out = csd("methods")
    assert out.returncode == 0
    for name in ("ar", "sd", "sjd", "csd", "csd-sd", "delta", "garden"):
        assert name in out.stdout
    assert json.loads(csd("methods", "--json").stdout)["methods"]["csd"]["parameters"]["delta"] == [0.0, 1.01, 0.65]


@pytest.mark.parametrize("preset,calls", [("exact", None), ("code", 38 + 55)])
def test_continuous_presets(preset, calls, tmp_path):
    """Few diffusion steps keep this short; the counts do not depend on them."""
    trace = tmp_path / "a.trace"
    args = ["generate", "--model", "garden-mar", "--label", "lemon", "--method", "cspd", "--preset", preset, "--seed", 0,
            "--set", "steps=3", "--set", "gamma=4", "--threads", 1]  # fmt: skip
    out = csd(*args, "--json", "--trace", trace, "--out", tmp_path / "a.png")
    assert out.returncode == 0, out.stderr
    row = json.loads(out.stdout.splitlines()[-1])
    assert row.keys() >= KEYS | {"head_steps", "fallbacks", "trials", "mean_distance", "preset"}
    assert row["preset"] == preset and row["committed"] == 256 == row["cells"] and row["status"] == "done"
    assert row["prefill"] + row["examined"] <= 256 and row["accepted"] <= row["examined"]
    assert row["head_steps"] == 3 * (row["target_forwards"] + row["draft_forwards"])
    if calls:  # the public code's cost model: target calls are fixed, whatever is accepted
        assert row["target_forwards"] == row["target_rows"] == calls and row["draft_forwards"] == 218
    info = json.loads(csd("info", trace, "--json").stdout)
    assert info["target_forwards"] == row["target_forwards"] and info["width"] == 8 and info["preset"] == preset


def test_bench_measures_resumes_and_reports(tmp_path):
    args = ["bench", "sjd", "amplify:factor=2", "--pictures", 2, "--labels", "lemon", "--threads", 1, "--out", tmp_path]
    first = json.loads(csd(*args, "--json").stdout.splitlines()[-1])
    assert [row["name"] for row in first["table"]] == ["ar", "ar again", "sjd", "amplify:factor=2"]
    ar, again, sjd, amplified = first["table"]
    assert ar["target_forwards"] == 256 > sjd["target_forwards"] > amplified["target_forwards"]
    assert ar["frechet"] is None and again["frechet"] > 0 and 0 <= sjd["class_accuracy"] <= 1
    size = (tmp_path / "rows-0.ndjson").stat().st_size
    assert json.loads(csd(*args, "--json").stdout.splitlines()[-1]) == first  # nothing is measured twice
    assert (tmp_path / "rows-0.ndjson").stat().st_size == size
    report = subprocess.run([sys.executable, "-m", "viz.report", tmp_path / "table.json", tmp_path / "a.html"], check=False)
    page = (tmp_path / "a.html").read_text()
    assert report.returncode == 0 and "amplify:factor=2" in page and "drawn twice" in page
    subprocess.run([sys.executable, "-m", "viz.report", tmp_path / "table.json", tmp_path / "a.md"], check=True)
    lines = (tmp_path / "a.md").read_text().splitlines()
    assert len({line.count("|") for line in lines[:6]}) == 1 and lines[3].startswith("| `ar again` | 2 | 256 |")
    assert lines[-1].startswith("Model garden, guidance 1.5; ") and "1 thread(s)" in lines[-1]
    assert "one kind of tokens" in csd("bench", "sjd", "cspd").stderr
    assert "name at least one method" in csd("bench").stderr


def test_bench_of_verification_needs_no_model():
    out = csd("bench", "--verify")
    assert out.returncode == 0 and out.stdout.splitlines()[0] == (
        "one round of 16 positions, V = 16384, one thread, medians in ms"
    )
    table = json.loads(csd("bench", "--verify", "--json").stdout)["table"]
    assert [row["rule"] for row in table] == ["exact", "csd", "gsd"]
    assert all(row["torch_ratio"] == pytest.approx(row["loop_torch"] / row["judge"]) for row in table)
    assert "takes no methods" in csd("bench", "ar", "--verify").stderr


def test_whatif_on_the_recorded_run():
    args = ["whatif", "assets/recorded/garden-lemon-sjd.trace", "--json"]
    same = json.loads(csd(*args, "--rule", "exact").stdout)
    assert same["first_difference"] is None and same["kept"] == same["was_kept"] and same["exact_up_to"] == same["examined"]
    relaxed = json.loads(csd(*args, "--rule", "csd", "--set", "delta=0.65").stdout)
    assert relaxed["newly_kept"] > 0 == relaxed["newly_rejected"] and relaxed["exact_up_to"] < relaxed["examined"]
    pools = csd(*args, "--rule", "lantern")
    assert pools.returncode == 2 and "record the run with keep_full" in pools.stderr


def test_plain_mar_takes_the_steps_it_is_given():
    out = csd("generate", "--method", "mar", "--set", "iterations=20", "--set", "steps=3", "--threads", 1, "--json")
    row = json.loads(out.stdout.splitlines()[-1])
    assert row["model"] == "garden-mar" and row["target_forwards"] == row["rounds"] == 20 and row["committed"] == 256


def test_generate_and_info(tmp_path):
    picture, trace = tmp_path / "a.png", tmp_path / "a.trace"
    args = ["generate", "--label", "lemon", "--method", "csd", "--seed", 0, "--set", "delta=0.65", "--threads", 1, "--json"]
    out = csd(*args, "--out", picture, "--trace", trace)
    assert out.returncode == 0, out.stderr
    row = json.loads(out.stdout.splitlines()[-1])
    assert row.keys() >= KEYS and row["committed"] == row["cells"] == 256
    assert picture.read_bytes()[:4] == b"\x89PNG"
    again = json.loads(csd(*args).stdout.splitlines()[-1])
    assert {k: v for k, v in again.items() if "seconds" not in k} == {k: v for k, v in row.items() if "seconds" not in k}
    info = csd("info", trace, "--json")
    assert info.returncode == 0
    assert json.loads(info.stdout)["target_forwards"] == row["target_forwards"]
    assert "counted where the model is called" in csd("info", trace).stdout


BAD = [
    (["generate", "--label", "durian"], "unknown label 'durian'; allowed:"),
    (["generate", "--method", "magic"], "unknown method 'magic'; allowed: ar, sd, sjd, csd, csd-sd"),
    (["generate", "--model", "big"], "unknown model 'big'; allowed: garden"),
    (["generate", "--set", "delta=1.5"], "delta is '1.5'; allowed: a number from 0 to 1.01"),
    (["generate", "--set", "weight=-0.1"], "weight is '-0.1'; allowed: a number from 0 to 5"),
    (["generate", "--set", "delta=nan"], "delta is 'nan'; allowed"),
    (["generate", "--set", "window=0"], "window is '0'; allowed: a whole number from 1"),
    (["generate", "--set", "window=257"], "window is '257'; allowed: a whole number from 1 to 256"),
    (
        ["generate", "--set", "lambda=1"],
        "unknown parameter 'lambda' for csd; allowed: window, coupling, fill, correct, weight, delta, guidance",
    ),
    (["generate", "--set", "delta"], "--set takes NAME=VALUE"),
    (["generate", "--set", "temperature=0"], "temperature is '0'; allowed: a number above 0"),
    (["generate", "--seed", "x"], "seed is 'x'; allowed: a whole number"),
    (["generate", "--dtype", "int4"], "unknown dtype 'int4'; allowed: float32, bfloat16"),
    (["generate", "--keep-full", "999"], "--keep-full takes 'all' or cell numbers from 0 to 255"),
    (["generate", "--out", "no/such/folder/a.png"], "there is no folder to write a.png into"),
    (["generate", "--method", "cspd", "--preset", "best"], "unknown preset 'best'; allowed: exact, paper, code"),
    (["generate", "--preset", "exact"], "method csd has no presets; those that have: sjd"),
    (["generate", "--method", "cspd", "--model", "garden"], "model garden has no continuous tokens"),
    (["generate", "--method", "csd", "--model", "garden-mar"], "model garden-mar has no discrete tokens"),
    (
        ["generate", "--method", "cspd", "--set", "inner_temperature=43"],
        "inner_temperature is '43'; allowed: a number from 1",
    ),
    (["generate", "--method", "cspd", "--set", "last_noise=maybe"], "last_noise is 'maybe'; allowed: true, false"),
    (["generate", "--method", "cspd", "--set", "top_k=3"], "unknown parameter 'top_k' for cspd; allowed: verification"),
    (
        ["generate", "--method", "mar", "--set", "iterations=257"],
        "iterations is 257; allowed: a whole number from 1 to 256",
    ),
    (["generate", "--method", "cspd", "--keep-full", "1"], "--keep-full is for discrete tokens"),
    (["info", "missing.trace"], "cannot read trace missing.trace"),
]


@pytest.mark.parametrize("args,message", BAD, ids=lambda v: " ".join(v)[:40] if isinstance(v, list) else "")
def test_bad_input_is_one_line_and_exit_code_2(args, message, capsys):
    assert main(args) == 2  # in this process: sixteen interpreters would take a minute
    assert_one_line(capsys.readouterr().err, message)


def test_bad_input_in_a_process_of_its_own():
    args, message = BAD[0]
    out = csd(*args)
    assert out.returncode == 2
    assert_one_line(out.stderr, message)


def assert_one_line(text, message):
    assert text.startswith("error: ") and message in text and text.count("\n") == 1 and "Traceback" not in text


def test_corrupt_trace(tmp_path):
    path = tmp_path / "broken.trace"
    path.write_text('{"type": "header"}\n')
    out = csd("info", path)
    assert (
        out.returncode == 2
        and "broken.trace is not a valid trace: line 1" in out.stderr
        and str(tmp_path) not in out.stderr
    )
