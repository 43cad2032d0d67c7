"""Trains the small classifier of garden64 that measures generated pictures."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from csd.models.classifier import Classifier
from csd.training import data
from csd.training.run import Run, cosine, device_and_amp

BATCH, LR = 64, 2e-3


def train(folder: Path, out: Path, minutes: float, resume: bool) -> None:
    """Train on the training rows with grain, flips and small shifts; the checkpoint in `out` is what evaluation reads."""
    device, amp = device_and_amp()
    pictures, labels, names = data.load(folder)
    rows, held = data.split(labels)
    torch.manual_seed(2)
    model = Classifier(len(names)).to(device)
    opt = torch.optim.AdamW(model.parameters(), LR, weight_decay=0.05)
    run = Run("classifier", out, minutes, {"model": model, "opt": opt}, resume)
    rng = torch.Generator().manual_seed(2 + run.step)
    while run.running():
        pick = rows[torch.randint(len(rows), (BATCH,), generator=rng)]
        x = data.add_grain(pictures[pick], rng)
        dx, dy = torch.randint(-3, 4, (2,), generator=rng).tolist()
        x = x.roll((dy, dx), (2, 3))
        x = (x.flip(3) if run.step % 2 else x).to(device)
        for group in opt.param_groups:
            group["lr"] = LR * cosine(run.progress)
        with amp:
            loss = F.cross_entropy(model(x).float(), labels[pick].to(device), label_smoothing=0.05)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        run.step, run.seen = run.step + 1, run.seen + BATCH
        if run.step % 200 == 0:
            run.log(loss=loss)
    run.close()
    model.eval()
    run.log(held_out_accuracy=float(accuracy(model, data.held_out_pictures(pictures, held).to(device), labels[held])))


@torch.no_grad()
def accuracy(model: Classifier, x: Tensor, labels: Tensor) -> float:
    """Share of pictures [N, 3, 64, 64] whose likeliest class is their label."""
    return float((predict(model, x).cpu() == labels.cpu()).float().mean())


@torch.no_grad()
def predict(model: Classifier, x: Tensor) -> Tensor:
    return torch.cat([model(part).argmax(-1) for part in x.split(128)])


def load(path: Path, classes: int) -> Classifier:
    model = Classifier(classes)
    model.load_state_dict(torch.load(path, weights_only=True)["model"])
    return model.eval()
