"""Trains the target and the draft transformer on the frozen tokeniser's codes.

Codes are made on the fly, with fresh grain for every picture, so no two epochs show the model the same tokens. Hidden
matrices are updated by Muon (Jordan et al., 2024; torch's own), the rest by AdamW; one label in ten is replaced by the null
class for guidance (Ho and Salimans, 2022); what is shipped is a moving average of the weights.

In a last job the draft learns the laws of the target in place of the tokens (`csd.training.distil`).
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from csd.models.llamagen import Cache, LlamaGen, LlamaGenConfig
from csd.models.vq import VQModel
from csd.training import data, distil
from csd.training.run import Average, Run, descend, device_and_amp, muon_and_adam, sheet, write_weights

SIZES = {
    "target": {"dim": 256, "layers": 8, "heads": 4, "ffn": 704},
    "draft": {"dim": 128, "layers": 2, "heads": 2, "ffn": 256},
}
BATCH, DROP_LABEL, LR_MUON, LR_ADAM = 24, 0.1, 0.01, 2e-3
GENTLE = 0.3  # of the learning rates, for a draft that is already trained


def config(size: str, classes: int, vocab: int) -> LlamaGenConfig:
    return LlamaGenConfig(**SIZES[size], vocab=vocab, classes=classes, grid=16)


def hidden_matrices(model: LlamaGen) -> list[nn.Parameter]:
    return [p for p in model.layers.parameters() if p.dim() == 2]


def schedule(progress: float, step: int) -> float:
    """Warm-up over 60 steps, constant for 35 % of the time, then linear to 2 %."""
    return min(1.0, (step + 1) / 60) * min(1.0, max(0.02, (1 - progress) / 0.65))


@torch.no_grad()
def held_out_loss(model: LlamaGen, labels: Tensor, codes: Tensor) -> float:
    """Mean nats per token with the true label."""
    total = [
        F.cross_entropy(model(y, c)[:, :-1].float().transpose(1, 2), c, reduction="sum")
        for y, c in zip(labels.split(64), codes.split(64), strict=True)
    ]
    return float(sum(total) / codes.numel())


@torch.no_grad()
def sample(model: LlamaGen, labels: Tensor, guidance: float, generator: torch.Generator) -> Tensor:
    """Plain sampling in a batch, for the training log: labels [B] → codes [B, grid²]."""
    b, device = len(labels), labels.device
    cache = Cache(model.cfg, 2 * b, torch.float32, device)
    both = torch.cat([labels, torch.full_like(labels, model.cfg.classes)])
    codes = torch.zeros(b, 0, dtype=torch.long, device=device)
    for _ in range(model.cfg.grid**2):
        fed = codes[:, -1:] if codes.shape[1] else codes
        cond, null = model.extend(both, fed.repeat(2, 1), cache)[:, -1].float().chunk(2)
        p = (null + guidance * (cond - null)).softmax(-1).cpu()
        codes = torch.cat([codes, torch.multinomial(p, 1, generator=generator).to(device)], 1)
    return codes


def load(path: Path, size: str, classes: int, vocab: int) -> LlamaGen:
    """A trained transformer."""
    model = LlamaGen(config(size, classes, vocab))
    model.load_state_dict(load_file(path))
    return model


def train(folder: Path, out: Path, minutes: float, resume: bool, weights: Path, size: str, tokenizer: VQModel,
          teacher: Path | None = None) -> None:  # fmt: skip
    """With the weights of a target as `teacher`: go on from `weights` and learn the laws of the teacher."""
    device, amp = device_and_amp()
    pictures, labels, names = data.load(folder)
    rows, held = data.split(labels)
    tokenizer = tokenizer.to(device).eval()
    check = held[:: max(1, len(held) // 512)]
    with torch.no_grad():
        parts = data.held_out_pictures(pictures, check).split(64)
        check_codes = torch.cat([tokenizer.encode(part.to(device)).flatten(1) for part in parts])
    torch.manual_seed(1)
    sizes = len(names), tokenizer.cfg.vocab
    if teacher is None:
        model = LlamaGen(config(size, *sizes))
        model.init_weights()
    else:
        model, wise = load(weights, size, *sizes), load(teacher, "target", *sizes).to(device).eval()
    model = model.to(device)
    opts = muon_and_adam(model, hidden_matrices(model), LR_MUON, LR_ADAM)
    average = Average(model, 0.999)
    parts = {"model": model, "average": average, "opt0": opts[0], "opt1": opts[1]}
    run = Run(size if teacher is None else f"{size}-distil", out, minutes, parts, resume)
    rng = torch.Generator().manual_seed(1 + run.step)
    while run.running():
        pick = rows[torch.randint(len(rows), (BATCH,), generator=rng)]
        x = data.add_grain(pictures[pick], rng)
        flip = torch.rand(BATCH, generator=rng) < 0.5
        x = torch.where(flip[:, None, None, None], x.flip(3), x).to(device, memory_format=torch.channels_last)
        with torch.no_grad(), amp:
            codes = tokenizer.encode(x).flatten(1)
        null = torch.rand(BATCH, generator=rng) < DROP_LABEL
        y = torch.where(null, torch.tensor(len(names)), labels[pick]).to(device)
        with amp:
            if teacher is None:
                told = {"loss": F.cross_entropy(model(y, codes[:, :-1]).float().flatten(0, 1), codes.flatten())}
                loss = told["loss"]
            else:
                told = distil.loss(model, wise, y, codes, rng)
                loss = told["kl"] + told["tv"]
        factor = schedule(run.progress, run.step) * (1.0 if teacher is None else GENTLE)
        descend(loss, model, opts, (LR_MUON * factor, LR_ADAM * factor))
        average.update(run.step)
        run.step, run.seen = run.step + 1, run.seen + BATCH
        if run.step % 100 == 0:
            run.log(**{name: value.detach() for name, value in told.items()})
    run.close()
    finish(model, average, run, labels[check].to(device), check_codes, names, tokenizer, weights)


def finish(model, average, run, labels, codes, names, tokenizer, weights) -> None:
    """Held-out loss and a contact sheet with the averaged weights, then write them."""
    model.load_state_dict(average.shadow)
    loss = held_out_loss(model, labels, codes)
    run.log(held_out=loss)
    some = torch.arange(0, len(names), 2, device=codes.device)
    drawn = sample(model, some, 1.5, torch.Generator().manual_seed(0))
    with torch.no_grad():
        sheet(tokenizer.decode(drawn.reshape(-1, 16, 16)), 8).save(run.folder / f"{run.name}.png")
    description = {"held_out_nats": round(loss, 4), "pictures_seen": run.seen, "minutes": round(run.spent / 60, 1)}
    write_weights(weights, model.state_dict(), description)
