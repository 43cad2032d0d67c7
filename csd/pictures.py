"""Pictures of a growing grid of tokens, as data URLs that fit into a trace."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator
from time import monotonic

import numpy as np
from PIL import Image

from csd.models.base import TokenModel
from csd.trace import Event, Footer, Header, Picture, Round


def image(model: TokenModel, settled: list[int], drafts: list[int] = ()) -> Image.Image:
    """Decode the settled tokens. The rest of the grid takes the current drafts, then repeats the last settled row.

    A decoder needs a full grid; what stands on unsettled cells only colours the rims of settled ones and is not shown.
    """
    cells = model.grid[0] * model.grid[1]
    known = (list(settled) + list(drafts))[:cells] or [0]
    columns = model.grid[1]
    while len(known) < cells:
        known.append(known[len(known) - columns] if len(known) >= columns else known[-1])
    return Image.fromarray(model.decode(np.array(known)))


def data_url(picture: Image.Image) -> str:
    """WebP at high quality: about 2 KB for 64×64."""
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=92)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def with_pictures(events: Iterable[Event], model: TokenModel, every_cells: int = 16,
                  every_seconds: float = 0.0) -> Iterator[Event]:  # fmt: skip
    """Pass events on, with a Picture after every so many cells and at least so many seconds, and at the end."""
    settled: list[int] = []
    shown, due, last = 0, 0.0, None
    for event in events:
        if isinstance(event, Header):
            yield event
            continue
        if isinstance(event, Footer) and last is not None and shown < len(settled):
            yield Picture(last.round, len(settled), data_url(image(model, settled)))
        yield event
        if isinstance(event, Round):
            last = event
            settled += event.cells["token"]
            if len(settled) - shown >= every_cells and monotonic() >= due:
                drafts = event.window[event.committed :]
                yield Picture(event.round, len(settled), data_url(image(model, settled, drafts)))
                shown, due = len(settled), monotonic() + every_seconds
