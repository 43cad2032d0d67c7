"""The viewer as a component: a static template, its style and its script, fed one growing string.

No user text ever enters the template (templates are evaluated); the script writes text with textContent only.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import gradio as gr

from viz import palette

HERE = Path(__file__).parent / "viewer"
PANELS = 4


def _legend() -> str:
    items = []
    for key in palette.SHOWN_IN_LEGEND:
        label, _, _, meaning = palette.OUTCOMES[key]
        items.append(
            f'<li><canvas class="glyph" data-outcome="{key}" width="36" height="36" aria-hidden="true"></canvas>'
            f"<span><b>{html.escape(label)}</b> {html.escape(meaning)}</span></li>"
        )
    return "".join(items)


def _layers() -> str:
    return "".join(f'<option value="{k}">{html.escape(v[1])}</option>' for k, v in palette.LAYERS.items())


def _definitions() -> str:
    rows = [(n["label"], n["meaning"]) for n in palette.for_viewer()["numbers"]]
    rows += [(v[1], v[3]) for v in palette.LAYERS.values()]
    return "".join(f"<dt>{html.escape(a)}</dt><dd>{html.escape(b)}</dd>" for a, b in rows)


def template() -> str:
    """The static HTML: everything the script fills in exists from the start."""
    page = (HERE / "template.html").read_text(encoding="utf-8")
    panel = (HERE / "panel.html").read_text(encoding="utf-8")
    numbers = "".join(
        f'<div title="{html.escape(n["meaning"])}"><dt>{html.escape(n["label"])}</dt>'
        f'<dd data-number="{n["key"]}">n/a</dd></div>'
        for n in palette.for_viewer()["numbers"]
    )
    panels = "".join(panel.replace("@index", str(i)).replace("@numbers", numbers) for i in range(PANELS))
    for mark, text in (
        ("@panels", panels),
        ("@legend", _legend()),
        ("@layers", _layers()),
        ("@definitions", _definitions()),
    ):
        page = page.replace(mark, text)
    return page


def viewer(value: str = "", **kw: Any) -> gr.HTML:
    """The viewer. value: lines made by `viz.live`. Fires `cell` with panel, row, col and pos when a cell is clicked."""
    return gr.HTML(
        value,
        html_template=template(),
        css_template=(HERE / "viewer.css").read_text(encoding="utf-8"),
        js_on_load=(HERE / "viewer.js").read_text(encoding="utf-8"),
        apply_default_css=False,
        palette=palette.for_viewer(),
        elem_id="viewer",
        **kw,
    )
