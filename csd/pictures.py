"""Partial pictures: what a viewer shows while tokens arrive. Made outside the decoder, put into the stream as events."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator
from time import monotonic

import numpy as np
from PIL import Image

from csd.trace import Event, Footer, Header, Picture, Round, Trace, settled

Array = np.ndarray


def image(model, trace: Trace) -> Image.Image:
    """The picture of a trace's settled tokens."""
    return paint(model, trace.header, trace.tokens)


def paint(model, header: Header, tokens: list, drafts: list = ()) -> Image.Image:
    """Decode tokens settled in the header's order; the drafts that wait behind them colour the next cells.

    A decoder needs a full grid; what stands on unsettled cells only colours the rims of settled ones and is not shown.
    """
    if header.kind == "continuous":
        return Image.fromarray(model.decode(_nearest(header, tokens)))
    known = (list(tokens) + list(drafts))[: header.cells] or [0]
    columns = header.grid[1]
    while len(known) < header.cells:  # repeat the last settled row
        known.append(known[len(known) - columns] if len(known) >= columns else known[-1])
    return Image.fromarray(model.decode(np.array(known)))


def _nearest(header: Header, tokens: list) -> Array:
    """Latents [cells, width] with every unsettled cell filled by its nearest settled one."""
    if not tokens:
        return np.zeros((header.cells, header.width))
    places = np.stack(np.unravel_index(np.arange(header.cells), header.grid), 1)
    held = np.array((header.order or range(header.cells))[: len(tokens)])
    far = ((places[:, None] - places[held][None]) ** 2).sum(-1)
    return np.array(tokens)[far.argmin(1)]


def data_url(picture: Image.Image) -> str:
    """WebP at high quality: about 2 KB for 64×64."""
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=92)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def with_pictures(events: Iterable[Event], model, every_cells: int = 16,
                  every_seconds: float = 0.0) -> Iterator[Event]:  # fmt: skip
    """Pass events on, with a Picture after every so many cells and at least so many seconds, and at the end."""
    tokens: list = []
    shown, due, last, header = 0, 0.0, None, None
    for event in events:
        if isinstance(event, Header):
            header = event
        if isinstance(event, Footer) and last is not None and shown < len(tokens):
            yield Picture(last.round, len(tokens), data_url(paint(model, header, tokens)))
        yield event
        if isinstance(event, Round):
            last = event
            tokens += settled(event)
            if len(tokens) - shown >= every_cells and monotonic() >= due:
                drafts = event.window[event.committed :]
                yield Picture(event.round, len(tokens), data_url(paint(model, header, tokens, drafts)))
                shown, due = len(tokens), monotonic() + every_seconds
