"""python -m viz.report TABLE.json OUT: a page (.html) or a table (.md) from what `python -m csd bench` measured.

The page holds its own copy of plotly.js, so that it opens without a network.
"""

from __future__ import annotations

import argparse
import json
import sys
from html import escape
from pathlib import Path

from viz import charts

COLUMNS = {
    "name": "method", "pictures": "pictures", "target_forwards": "target forwards", "draft_forwards": "draft forwards",
    "tokens_per_forward": "tokens per forward", "rounds_of_one": "rounds of one token",
    "acceptance_rate": "acceptance rate", "drift": "drift", "drift_at_high_H": "of it at high H",
    "calibration": "calibration Z", "seconds": "seconds (median)", "frechet": "Fréchet distance", "frechet_se": "±",
    "class_accuracy": "class accuracy", "diversity": "diversity",
}  # fmt: skip
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1d1e21 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } td, th { padding: .25rem .7rem; text-align: right;
border-bottom: 1px solid #dedbd4; font-weight: 400 } th { color: #5a5e66 } td:first-child { text-align: left }
.scroll { overflow-x: auto }"""


def page(measured: dict) -> str:
    """The HTML of a bench's table: a chart of speed against quality, and every number."""
    head = "".join(f"<th>{escape(title)}</th>" for title in COLUMNS.values())
    rows = "".join("<tr>" + "".join(f"<td>{escape(_show(row.get(key)))}</td>" for key in COLUMNS) + "</tr>"
                   for row in measured["table"])  # fmt: skip
    chart = charts.speed_and_quality(measured["table"]).to_html(full_html=False, include_plotlyjs="inline")
    title = f"Speculative decoding on {escape(measured['model'])}"
    where = escape(_where(measured))
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
            f"<h1>{title}</h1><p>{where}</p>"
            f'{chart}<div class="scroll"><table><tr>{head}</tr>{rows}</table></div></html>')  # fmt: skip


def markdown(measured: dict) -> str:
    """The same table as text, with what it was measured on."""
    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
    lines += [[f"`{row['name']}`", *(_show(row.get(key)) for key in list(COLUMNS)[1:])] for row in measured["table"]]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + f"\n{_where(measured)}\n"


def _where(measured: dict) -> str:
    return (f"Model {measured['model']}, guidance {measured['guidance']:g}; {measured['date']}, {measured['machine']}, "
            f"{measured['threads']} thread(s). Counts are means, seconds medians; ± is the standard error of the Fréchet "
            "distance.")  # fmt: skip


def _show(value: object) -> str:
    return "n/a" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m viz.report", description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args(argv)
    render = markdown if args.out.suffix == ".md" else page
    try:
        args.out.write_text(render(json.loads(args.table.read_text(encoding="utf-8"))), encoding="utf-8")
    except (OSError, ValueError, KeyError, TypeError):
        print(f"error: {args.table.name} is no table of a bench, or {args.out.name} cannot be written", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
