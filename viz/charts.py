"""Plotly figures for what does not stream. One call, one figure; each reads traces and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import plotly.graph_objects as go

from csd.trace import Trace

# Okabe-Ito: distinguishable with any colour vision; the dash makes the lines tell apart without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
DASHES = ("solid", "dash", "dot", "dashdot")


def progress(traces: Sequence[Trace]) -> go.Figure:
    """Settled tokens against target forwards, a line per run, with one token per forward as the reference."""
    figure = go.Figure()
    cells = max((t.header.cells for t in traces), default=1)
    figure.add_scatter(x=[0, cells], y=[0, cells], mode="lines", name="one token per forward",
                       line={"color": "#999999", "width": 1, "dash": "dot"}, hoverinfo="skip")  # fmt: skip
    for i, t in enumerate(traces):
        rounds = t.rounds
        figure.add_scatter(
            x=[0] + [r.target_forwards for r in rounds],
            y=[0, *accumulate(r.committed for r in rounds)],
            mode="lines",
            name=t.header.title,
            line={"color": COLOURS[i % 4], "dash": DASHES[i % 4], "width": 2},
            hovertemplate="%{y} tokens after %{x} forwards<extra>%{fullData.name}</extra>",
        )
    return _plain(figure, "target forwards", "settled tokens")


def accepted_lengths(traces: Sequence[Trace]) -> go.Figure:
    """How many rounds settled how many tokens: means hide that many rounds settle one and a few settle a row."""
    figure = go.Figure()
    for i, t in enumerate(traces):
        counts: dict[int, int] = {}
        for r in t.rounds:
            counts[r.committed] = counts.get(r.committed, 0) + 1
        sizes = sorted(counts)
        figure.add_bar(x=sizes, y=[counts[s] for s in sizes], name=t.header.title, marker_color=COLOURS[i % 4],
                       hovertemplate="%{y} rounds settled %{x} tokens<extra>%{fullData.name}</extra>")  # fmt: skip
    return _plain(figure, "tokens settled by a round", "rounds")


def calibration(traces: Sequence[Trace]) -> go.Figure:
    """Running calibration score Z of the discrete runs, with the band in which an exact sampler stays 95 times in 100."""
    figure = go.Figure()
    shown = [t for t in traces if t.header.kind == "discrete"]
    cells = max((t.header.cells for t in shown), default=256)
    figure.add_scatter(x=[0, cells, cells, 0], y=[-2, -2, 2, 2], fill="toself", mode="lines", line={"width": 0},
                       fillcolor="rgba(128,128,128,.15)", name="exact samplers", hoverinfo="skip")  # fmt: skip
    for i, t in enumerate(traces):
        if t.header.kind == "discrete":
            points = [(n, r.calibration) for n, r in zip(accumulate(r.committed for r in t.rounds), t.rounds, strict=True)]
            figure.add_scatter(
                x=[n for n, _ in points], y=[z for _, z in points], mode="lines", name=t.header.title,
                line={"color": COLOURS[i % 4], "dash": DASHES[i % 4], "width": 2},
                hovertemplate="Z = %{y:.2f} after %{x} tokens<extra>%{fullData.name}</extra>",
            )  # fmt: skip
    figure = _plain(figure, "settled tokens", "calibration Z")
    return figure.update_yaxes(rangemode="normal", zeroline=True, zerolinecolor="rgba(128,128,128,.5)")


def speed_and_quality(table: Sequence[dict]) -> go.Figure:
    """Distance from the target's own pictures against tokens per forward, a point per method of a bench's table.

    The dotted line is the distance between two sets of the target's own pictures: below it nothing can be told apart.
    """
    figure = go.Figure()
    shown = [row for row in table if row.get("frechet") is not None]
    for i, row in enumerate(r for r in shown if not r["name"].endswith(" again")):
        figure.add_scatter(
            x=[row["tokens_per_forward"]], y=[row["frechet"]], name=row["name"], mode="markers",
            marker={"size": 11, "color": COLOURS[i % 4], "symbol": SYMBOLS[i // 4 % len(SYMBOLS)]},
            error_x={"array": [row["tokens_per_forward_se"]]}, error_y={"array": [row["frechet_se"]]},
            hovertemplate="%{x:.2f} tokens per forward, distance %{y:.3g}<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    for row in (r for r in shown if r["name"].endswith(" again")):
        figure.add_hline(y=row["frechet"], line={"dash": "dot", "color": "#999999"},
                         annotation_text="the target's own pictures, drawn twice")  # fmt: skip
    return _plain(figure, "tokens per target forward", "Fréchet distance from the target's pictures")


def _plain(figure: go.Figure, x: str, y: str) -> go.Figure:
    """A quiet look that works on light and dark pages: no background, thin grid."""
    axis = {"gridcolor": "rgba(128,128,128,.25)", "zeroline": False, "rangemode": "tozero"}
    figure.update_layout(
        template="none", height=360, margin={"l": 56, "r": 12, "t": 44, "b": 116}, hovermode="closest",
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": "#808080", "size": 13},
        legend={"orientation": "h", "y": -0.36, "x": 0, "yanchor": "top"},
        xaxis={"title": x, **axis}, yaxis={"title": y, **axis},
    )  # fmt: skip
    return figure
