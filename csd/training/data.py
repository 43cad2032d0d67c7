"""The training pictures: garden64 in memory, with film grain.

Grain makes smooth regions interchangeable, as in real photographs: several tokens are equally good there, so the model's
entropy is high where the eye is indifferent, and content-aware relaxation has something to be aware of.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

FLOWERS = 5  # the first five classes of garden64 are flowers, the rest fruit
HELD_OUT = 0.1  # share of each class's rows, the last in file order, kept for validation


def load(folder: str | Path) -> tuple[Tensor, Tensor, list[str]]:
    """All fruit pictures: uint8 [N, 64, 64, 3], class index int64 [N], class names.

    Raises FileNotFoundError when the folder does not hold images.zip, labels.tsv and classes.json.
    """
    folder = Path(folder)
    missing = [n for n in ("images.zip", "labels.tsv", "classes.json") if not (folder / n).is_file()]
    if missing:
        raise FileNotFoundError(f"the data folder lacks {', '.join(missing)}")
    names = json.loads((folder / "classes.json").read_text())
    rows = [line.split("\t") for line in (folder / "labels.tsv").read_text().splitlines()[1:]]
    rows = [(r[0], int(r[1])) for r in rows if int(r[1]) >= FLOWERS]
    with zipfile.ZipFile(folder / "images.zip") as z:
        inside = {Path(n).name: n for n in z.namelist()}
        pictures = np.stack([np.asarray(Image.open(io.BytesIO(z.read(inside[f]))).convert("RGB")) for f, _ in rows])
    labels = torch.tensor([label - FLOWERS for _, label in rows])
    return torch.from_numpy(pictures), labels, names[FLOWERS:]


def split(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Row numbers for training and for validation: each class's last rows are held out.

    The fruit rows do not name their source photographs; file order follows the turning fruit, so the last rows are the
    views farthest from the training views that this data offers.
    """
    train, held = [], []
    for c in labels.unique():
        rows = (labels == c).nonzero().flatten()
        cut = len(rows) - max(1, round(len(rows) * HELD_OUT))
        train.append(rows[:cut])
        held.append(rows[cut:])
    return torch.cat(train), torch.cat(held)


def add_grain(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Film grain on uint8 [B, H, W, 3] → float32 [B, 3, H, W] in [-1, 1].

    Gaussian noise common to the three channels at three scales (sigma 3 at 1 px, 3.5 in 2×2 and 4 in 4×4 blocks, out of
    255), and half as much for each channel on its own.
    """
    x = pictures.permute(0, 3, 1, 2).float()
    b, _, h, w = x.shape
    for sigma, block in ((3.0, 1), (3.5, 2), (4.0, 4)):
        size = (h // block, w // block)
        noise = torch.randn(b, 1, *size, generator=generator) + 0.5 * torch.randn(b, 3, *size, generator=generator)
        x = x + sigma * (F.interpolate(noise, scale_factor=block) if block > 1 else noise)
    return x.clamp(0, 255) / 127.5 - 1


def held_out_pictures(pictures: Tensor, rows: Tensor) -> Tensor:
    """Validation pictures with grain that is the same every time, [N, 3, 64, 64]."""
    return add_grain(pictures[rows], torch.Generator().manual_seed(64))
