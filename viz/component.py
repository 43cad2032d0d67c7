"""The viewer as a component: a static template, its style and its script, fed one growing string.

Gradio evaluates templates, so no user text may enter one: everything filled in here is fixed text of this repository, and
the script writes what comes with the data with textContent only.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from viz import palette

HERE = Path(__file__).parent / "viewer"
PANELS = 4
SCRIPTS = ("state", "draw", "words", "frame", "hands")  # joined in this order; a feature goes before hands
STYLES = ("base",)


def viewer(value: str = "", **kw: Any) -> gr.HTML:
    """The viewer. value: lines made by `viz.live`. Fires `cell` with panel, row, col and pos when a cell is chosen."""
    return gr.HTML(
        value,
        html_template=template(),
        css_template="\n".join(_read(f"{name}.css") for name in STYLES),
        js_on_load="\n".join(_read(f"{name}.js") for name in SCRIPTS),
        apply_default_css=False,
        palette=palette.for_viewer(),
        **{"elem_id": "viewer", **kw},
    )


def template() -> str:
    """The static HTML: every element the script fills exists from the start."""
    panel = _read("panel.html")
    for group in palette.NUMBERS:
        panel = panel.replace(f"@{group}", _numbers(group))
    page = _read("template.html")
    for mark, text in {
        "@panels": "".join(panel.replace("@index", str(i)) for i in range(PANELS)),
        "@key": _key(),
        "@legend": _legend(),
        "@discrete": _layers("discrete"),
        "@continuous": _layers("continuous"),
        "@definitions": _definitions(),
    }.items():
        page = page.replace(mark, text)
    return page


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _numbers(group: str) -> str:
    return "".join(
        f'<div title="{escape(meaning)}" data-only="{palette.ONLY.get(key, "")}">'
        f'<dt>{escape(label)}</dt><dd data-number="{key}">n/a</dd></div>'
        for key, label, meaning in palette.numbers(group)
    )


def _signs() -> list[tuple[str, str, str, str]]:
    """Everything the maps draw, as (outcome or "", its sign, label, meaning)."""
    glyph = '<canvas class="glyph" data-outcome="{}" width="40" height="40" aria-hidden="true"></canvas>'
    outcomes = ((key, *palette.OUTCOMES[key]) for key in palette.SHOWN_IN_LEGEND)
    marks = [("", f'<i class="mark {key}"></i>', *words) for key, words in palette.MARKS.items()]
    return [(key, glyph.format(key), label, meaning) for key, label, *_, meaning in outcomes] + marks


def _layers(kind: str) -> str:
    """The quantities a run of this kind has, as options."""
    own = ((key, layer[2]) for key, layer in palette.LAYERS.items() if kind in layer[0])
    return "".join(f'<option value="{key}">{escape(label)}</option>' for key, label in own)


def _key() -> str:
    """The signs on one line above the maps; an outcome is a button that singles out its cells."""
    out = ""
    for key, sign, label, meaning in _signs():
        tag, extra = ("button", f' type="button" data-outcome="{key}" aria-pressed="false"') if key else ("span", "")
        out += f'<{tag}{extra} title="{escape(meaning)}">{sign}{escape(label)}</{tag}>'
    return out


def _legend() -> str:
    """The signs with their meanings, below the maps."""
    return "".join(f"<li>{sign}<b>{escape(label)}</b> {escape(meaning)}</li>" for _, sign, label, meaning in _signs())


def _definitions() -> str:
    rows = [
        ("seconds, " * (group == "seconds") + label, meaning)
        for group in palette.NUMBERS
        for _, label, meaning in palette.numbers(group)
    ]
    rows += [(layer[2], layer[-1]) for layer in palette.LAYERS.values()]
    return "".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in rows)
