"""What every training job shares: a time budget, checkpoints, resuming, a log.

A job is paced by the clock, not by a step count: `progress` in [0, 1] drives the learning rate, survives a restart, and
lets the same command fill ten minutes or ten hours. A checkpoint every two minutes bounds what an interruption costs.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from csd.models.vq import pixels

CHECKPOINT_EVERY_S = 120.0


def device_and_amp() -> tuple[torch.device, torch.autocast]:
    """The device to train on and bf16 autocast for it (off on processors that only emulate bf16: slower than float32)."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    fast = device.type != "cpu" or torch.cpu._is_amx_tile_supported()
    return device, torch.autocast(device.type, torch.bfloat16, enabled=fast)


class Run:
    """Pacing, checkpointing and logging of one job. `state` maps names to things with state_dict/load_state_dict."""

    def __init__(self, name: str, folder: Path, minutes: float, state: dict, resume: bool):
        self.name, self.folder, self.budget = name, Path(folder), minutes * 60
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path, self.state = self.folder / f"{name}.ckpt", state
        self.step, self.spent, self.seen = 0, 0.0, 0
        if resume and self.path.is_file():
            saved = torch.load(self.path, weights_only=True, map_location="cpu")
            for key, thing in state.items():
                thing.load_state_dict(saved[key])
            self.step, self.spent, self.seen = saved["step"], saved["spent"], saved["seen"]
        self._tick = self._saved = time.monotonic()
        self._bar = tqdm(total=round(self.budget), initial=round(self.spent), unit="s", desc=name, mininterval=5)

    @property
    def progress(self) -> float:
        return min(1.0, self.spent / self.budget)

    def running(self) -> bool:
        """Advance the clock; False when the budget is spent. Saves a checkpoint when one is due."""
        now = time.monotonic()
        self.spent += now - self._tick
        self._tick = now
        self._bar.n = round(min(self.spent, self.budget))
        if now - self._saved > CHECKPOINT_EVERY_S:
            self.save()
        return self.spent < self.budget

    def save(self) -> None:
        """Write the checkpoint beside the old one and swap, so that a crash while writing loses nothing."""
        out = {key: thing.state_dict() for key, thing in self.state.items()}
        tmp = self.path.with_suffix(".tmp")
        torch.save(out | {"step": self.step, "spent": self.spent, "seen": self.seen}, tmp)
        tmp.replace(self.path)
        self._saved = time.monotonic()

    def log(self, **values: float) -> None:
        row = {"step": self.step, "minutes": round(self.spent / 60, 2), "seen": self.seen}
        row |= {k: round(float(v), 4) for k, v in values.items()}
        with (self.folder / f"{self.name}.log.ndjson").open("a") as f:
            f.write(json.dumps(row) + "\n")
        self._bar.set_postfix({k: v for k, v in row.items() if k != "minutes"})

    def close(self) -> None:
        self.save()
        self._bar.close()


class Average:
    """Exponential moving average of a module's parameters (what is shipped)."""

    def __init__(self, module: nn.Module, decay: float):
        self.module, self.decay = module, decay
        self.shadow = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        d = min(self.decay, (1 + step) / (10 + step))
        for k, v in self.module.state_dict().items():
            if v.dtype.is_floating_point:
                self.shadow[k].lerp_(v, 1 - d)
            else:
                self.shadow[k].copy_(v)

    def state_dict(self) -> dict[str, Tensor]:
        return self.shadow

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        for k, v in saved.items():
            self.shadow[k].copy_(v)


def muon_and_adam(model: nn.Module, hidden: list[nn.Parameter], lr_muon: float, lr_adam: float) -> list:
    """Muon (Jordan et al., 2024; torch's own) for the hidden matrices, AdamW for every other parameter."""
    if not hasattr(torch.optim, "Muon"):
        raise RuntimeError("training needs torch 2.9 or newer (torch.optim.Muon)")
    ids = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in ids]
    muon = torch.optim.Muon(hidden, lr_muon, momentum=0.95, weight_decay=0.01, adjust_lr_fn="original")
    return [muon, torch.optim.AdamW(rest, lr_adam, betas=(0.9, 0.95), weight_decay=0.01)]


def descend(loss: Tensor, model: nn.Module, opts: list, rates: tuple[float, ...]) -> None:
    """One step of every optimiser at its rate, gradients clipped to norm 1."""
    for opt, rate in zip(opts, rates, strict=True):
        opt.zero_grad(set_to_none=True)
        for group in opt.param_groups:
            group["lr"] = rate
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for opt in opts:
        opt.step()


def cosine(progress: float, warm: float = 0.02, floor: float = 0.02) -> float:
    """Learning-rate factor: linear warm-up, then half a cosine down to `floor`."""
    if progress < warm:
        return max(progress / warm, 0.02)
    t = (progress - warm) / (1 - warm)
    return floor + (1 - floor) * 0.5 * (1 + float(np.cos(np.pi * t)))


def sheet(pictures: Tensor, columns: int, scale: int = 2) -> Image.Image:
    """Contact sheet of float [N, 3, H, W] in [-1, 1]."""
    n, _, h, w = pictures.shape
    rows = -(-n // columns)
    page = np.full((rows * h, columns * w, 3), 255, np.uint8)
    for i, tile in enumerate(pixels(pictures)):
        r, c = divmod(i, columns)
        page[r * h : (r + 1) * h, c * w : (c + 1) * w] = tile
    image = Image.fromarray(page)
    return image.resize((image.width * scale, image.height * scale), Image.NEAREST)


def write_weights(path: Path, tensors: dict[str, Tensor], metadata: dict) -> None:
    """Safetensors with a JSON description in the header; half precision is left to the reader."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    save_file(plain, path, metadata={"description": json.dumps(metadata)})
