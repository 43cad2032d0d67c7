"""The page in a real browser: what a visitor sees while a picture grows, when it is stopped, and when input is wrong."""

import re
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from browser import inked, set_slider, state, until

from csd.trace import load as load_trace

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.xdist_group("page")  # one app and one browser, on one worker


def test_a_recorded_run_plays_when_the_page_opens(page):
    assert re.search(r"Recorded run, lemon, seed \d+", page.inner_text(".csd-viewer .status"))
    seen = until(page, lambda status, cells: len(cells) >= 2 and min(cells[:2]) == 256)
    assert len(seen) > 5  # it plays, it does not jump
    assert inked(page, ".panel[data-panel='0'] .picture") > 0.95
    assert inked(page, ".panel[data-panel='1'] .layer-map") > 0.95


def test_generate_settles_round_by_round_then_stop_keeps_the_part(page):
    set_slider(page, "pace, rounds per second", 6)
    page.evaluate("""() => { const v = document.querySelector('.csd-viewer'); globalThis.seen = [];
        new MutationObserver(() => { if (v.dataset.status === 'live') seen.push(Number(v.dataset.cells0)); })
            .observe(v, { attributes: true, attributeFilter: ['data-cells0'] }); }""")
    page.click("#generate")
    until(page, lambda status, cells: status == "live" and cells[0] > 40)
    counts = page.evaluate("seen")  # every state that was shown, not only those a poll happened to meet
    assert counts == sorted(counts) and len(set(counts)) >= 8
    page.click("#stop")
    until(page, lambda status, cells: status == "stopped", 20)
    _, cells = state(page)
    assert 40 < cells[0] < 256
    assert f"stopped at cell {cells[0]} of 256" in page.inner_text(".csd-viewer .status")
    assert "partial picture, stopped" in page.inner_text(".panel[data-panel='0'] .caption >> nth=0")
    share = inked(page, ".panel[data-panel='0'] .picture")
    assert cells[0] / 256 - 0.05 < share < min(1, (cells[0] + 20) / 256 + 0.15)
    time.sleep(1)
    assert state(page)[1] == cells  # nothing runs on


def test_damaged_weights_end_the_start_with_one_line(tmp_path):
    for part in ("csd", "viz", "assets"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "app.py", tmp_path)
    weights = tmp_path / "assets" / "garden.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "error: weights garden.safetensors are damaged; fetch the repository again, with its assets\n"


def test_four_panels_finish_and_the_numbers_are_the_runs(page):
    page.get_by_label("Continuous speculative decoding", exact=True).uncheck()
    for title in ("Plain autoregression", "Speculative decoding, draft model"):
        page.get_by_label(title, exact=True).check()
    set_slider(page, "pace, rounds per second", 0)
    page.click("#generate")
    until(page, lambda status, cells: status == "live")
    until(page, lambda status, cells: status == "done" and cells == [256] * 4, 90)
    forwards = [int(page.inner_text(f".panel[data-panel='{i}'] [data-number=target_forwards]")) for i in range(4)]
    assert forwards[0] == 256 and forwards[3] < forwards[2] < 256 and forwards[1] < 256
    assert page.inner_text(".panel[data-panel='0'] [data-number=acceptance_rate]") == "n/a"
    assert page.inner_text(".panel[data-panel='1'] [data-number=draft_forwards]") != "0"
    page.wait_for_selector("#component-0, .js-plotly-plot", timeout=20_000)


WATCH = """() => { const v = document.querySelector('.csd-viewer'); globalThis.marks = [];
    new MutationObserver(() => marks.push([performance.now(), v.dataset.status, v.dataset.cells2]))
        .observe(v, { attributes: true }); }"""


def test_three_panels_stream_at_once_and_never_stand_still(page):
    """Vanilla, relaxed and continuous: all on screen before any has ended, and no two seconds without a visible change."""
    page.evaluate(WATCH)
    page.click("#generate")
    seen = until(page, lambda status, cells: status == "done" and cells == [256] * 3, 120)
    assert any(status == "live" and all(0 < c < 256 for c in cells) for status, cells in seen)
    marks = [m for m in page.evaluate("marks") if m[1] == "live"]
    assert len({m[2] for m in marks}) > 20  # the continuous panel grows in steps
    assert max(b[0] - a[0] for a, b in pairwise(marks)) < 2000
    third = ".panel[data-panel='2']"
    page.wait_for_function(
        "s => document.querySelector(s).textContent.includes('fixed before the run')", arg=f"{third} .note"
    )
    assert page.inner_text(f"{third} [data-number=target_forwards]") == "93"  # 38 pre-fill, 55 blocks
    assert page.inner_text(f"{third} [data-number=head_steps]") == str(25 * (93 + 218))
    assert inked(page, f"{third} .picture") > 0.95


def test_a_continuous_cell_explains_itself_and_its_map_can_be_ordered(page):
    until(page, lambda status, cells: len(cells) == 3 and min(cells) == 256)
    third = ".panel[data-panel='2']"
    page.select_option(".layer-latent", "distance")
    page.get_by_text("The cells as a table").click()
    page.locator(f"{third} .picture").press("ArrowRight")
    page.wait_for_function("document.querySelectorAll('.csd-viewer tbody tr').length === 256")
    assert "distance, σ" in page.inner_text(".csd-viewer thead")
    outcome = page.locator(".csd-viewer tbody tr td:nth-child(3)")
    row = next(i for i in range(256) if outcome.nth(i).inner_text() == "rejected, resampled")
    at = [int(page.inner_text(f".csd-viewer tbody tr:nth-child({row + 1}) td:nth-child({k})")) for k in (1, 2)]
    box = page.locator(f"{third} .picture").bounding_box()
    page.mouse.click(box["x"] + (at[1] + 0.5) * box["width"] / 16, box["y"] + (at[0] + 0.5) * box["height"] / 16)
    page.mouse.move(5, 5)
    page.wait_for_function("s => /ln N.x; μp/.test(document.querySelector(s).textContent)", arg=f"{third} .card")
    card = page.inner_text(f"{third} .card")
    assert (
        f"row {at[0]}, column {at[1]}: rejected, resampled" in card
        and "distances over 42" in card
        and "residual law" in card
    )
    colours = """s => { const c = document.querySelector(s);
        return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].join() }"""
    page.select_option(".layer-latent", "order")
    page.wait_for_function(
        "s => document.querySelector(s).textContent === 'order of generation'", arg=f"{third} .layer-name"
    )
    before = page.evaluate(colours, f"{third} .layer-map")
    page.get_by_label("in order of generation").check()
    page.wait_for_timeout(300)
    assert page.evaluate(colours, f"{third} .layer-map") != before


def test_a_preset_sets_its_switches_and_a_switch_makes_it_your_own(page):
    chosen = "() => [...document.querySelectorAll('#body input[type=radio]:checked')].map(e => e.value)"
    page.locator("#preset").get_by_label("exact", exact=True).check()
    page.wait_for_function(f"({chosen})().slice(0, 3).join() === 'exact,sequential,off'")
    assert page.get_by_label("number input for inner temperature").input_value() == "1"
    page.get_by_label("noise in the last transition").uncheck()
    page.wait_for_function(f"({chosen})()[0] === 'own'")
    page.get_by_label("noise in the last transition").check()
    page.wait_for_function(f"({chosen})()[0] === 'exact'")


def test_other_rules_are_a_list_away(page):
    for title in ("Speculative Jacobi decoding", "Content-aware speculative decoding", "Continuous speculative decoding"):
        page.get_by_label(title, exact=True).uncheck()
    page.get_by_label("More methods").click()
    for title in ("Grouped, Jacobi drafts", "Speculative coupled decoding"):
        page.get_by_role("option", name=title).click()
    page.keyboard.press("Escape")
    page.get_by_text("Other rules", exact=True).click()
    page.get_by_label("weights w").fill("2, oops")
    named = page.get_by_role("radiogroup", name="grouped, preset").or_(page.locator("fieldset", has_text="grouped, preset"))
    named.first.get_by_label("code", exact=True).check()
    page.wait_for_function("document.querySelector('[aria-label=\"number input for group G\"]').value === '14'")
    page.get_by_label("number input for group G").fill("1")
    page.get_by_label("number input for group G").press("Enter")
    set_slider(page, "pace, rounds per second", 0)
    page.click("#generate")
    until(page, lambda status, cells: status == "done" and cells == [256] * 2, 60)
    relaxed = [page.inner_text(f".panel[data-panel='{i}'] [data-number=relaxed]") for i in range(2)]
    assert relaxed == ["0", "0"]  # groups of one token relax nothing, coupled drafts neither
    page.get_by_label("More methods").click()
    page.get_by_role("option", name="Annealed, Jacobi drafts").click()
    page.keyboard.press("Escape")
    page.click("#generate")
    page.wait_for_selector("text=weights is 'oops'; allowed: a number from 0 to 100")


def test_a_fair_baseline_needs_the_run_it_is_fair_to(page):
    for title in ("Content-aware speculative decoding", "Continuous speculative decoding"):
        page.get_by_label(title, exact=True).uncheck()
    page.get_by_label("Plain MAR", exact=True).check()
    page.click("#generate")
    page.wait_for_selector("text=choose that method too, or 1 to 256 steps")


def test_a_cell_explains_itself_by_mouse_and_keyboard(page):
    until(page, lambda status, cells: len(cells) >= 2 and min(cells[:2]) == 256)
    box = page.locator(".panel[data-panel='0'] .picture").bounding_box()
    cell = box["width"] / 16
    page.mouse.click(box["x"] + 5.5 * cell, box["y"] + 9.5 * cell)
    page.mouse.move(5, 5)
    card = ".panel[data-panel='1'] .card"  # selection is shared by all panels
    starts = "s => document.querySelector(s[0]).textContent.startsWith(s[1])"
    page.wait_for_function(starts, arg=[card, "row 9, column 5"])
    page.locator(".panel[data-panel='0'] .picture").press("ArrowRight")
    page.wait_for_function(starts, arg=[card, "row 9, column 6"])
    assert re.search(r"(p/q|drew this token)", page.inner_text(card))
    page.get_by_text("The cells as a table").click()
    page.wait_for_function("document.querySelectorAll('.csd-viewer tbody tr').length === 256")


def test_wrong_input_is_one_line_and_loses_nothing(page, tmp_path):
    until(page, lambda status, cells: len(cells) >= 2 and min(cells[:2]) == 256)
    for title in ("Speculative Jacobi decoding", "Content-aware speculative decoding", "Continuous speculative decoding"):
        page.get_by_label(title, exact=True).uncheck()
    page.click("#generate")
    page.wait_for_selector("text=0 methods chosen; allowed: 1 to 4")
    bad = tmp_path / "bad.trace"
    bad.write_text('{"type": "header", "label": "<img src=x onerror=alert(1)> ${alert(1)}"}\n')
    page.set_input_files("input[type=file]", str(bad))
    page.wait_for_selector("text=bad.trace is not a valid trace: line 1 is not an event")
    text = page.inner_text("body")
    assert "Traceback" not in text and str(tmp_path) not in text
    assert state(page) == ("done", [256, 256, 256])  # the recorded run is still there


def test_hostile_text_in_a_trace_is_only_text(page, tmp_path):
    text = (ROOT / "assets" / "recorded" / "garden-lemon-sjd.trace").read_text()
    evil = "<img src=x onerror=globalThis.hit=1> ${globalThis.hit=2} {{value}}"
    path = tmp_path / "evil.trace"
    path.write_text(text.replace('"label":"lemon"', f'"label":"{evil}"'))
    page.set_input_files("input[type=file]", str(path))
    page.wait_for_function("document.querySelector('.csd-viewer .status').textContent.includes('onerror')")
    assert page.evaluate("globalThis.hit") is None


@pytest.mark.parametrize("theme,width", [("dark", 1360), ("light", 390), ("dark", 390)])
def test_no_sideways_scrolling_and_the_map_is_drawn(browser, address, theme, width):
    p = browser.new_page(viewport={"width": width, "height": 844}, reduced_motion="reduce")
    p.goto(f"{address}/?__theme={theme}")
    p.wait_for_selector(".csd-viewer .panel:not([hidden])", timeout=60_000)
    until(p, lambda status, cells: cells == [256] * 3, 5)  # reduced motion: no playing, straight to the end
    assert p.evaluate("document.documentElement.scrollWidth") <= width
    for i in range(3):
        assert inked(p, f".panel[data-panel='{i}'] .picture") > 0.95
    p.close()


def test_the_clock_in_seconds_is_the_measured_time(page):
    """At any time every panel shows the rounds that had ended by then: drafting, target and verifying, as recorded."""
    page.select_option(".csd-viewer .unit", "seconds")
    page.eval_on_selector(".csd-viewer .time", "t => { t.value = 0.4 * t.max; t.dispatchEvent(new Event('input')); }")
    now = float(page.input_value(".csd-viewer .time"))
    expected = []
    for name in ("sjd", "csd", "cspd"):
        passed, cells = 0.0, 0
        for r in load_trace(ROOT / "assets" / "recorded" / f"garden-lemon-{name}.trace").rounds:
            passed += sum(round(r.seconds[k], 6) for k in ("draft", "target", "verify"))
            cells += r.committed if passed <= now + 1e-9 else 0
        expected.append(cells)
    assert len(set(expected)) > 1 and min(expected) > 0
    until(page, lambda status, cells: cells == expected, 10)
    page.click(".csd-viewer .back")
    assert float(page.input_value(".csd-viewer .time")) < now
    page.select_option(".csd-viewer .unit", "rounds")
    assert re.match(r"round \d+ of \d+", page.inner_text(".csd-viewer .clock"))
