"""MAR behind the protocol of continuous decoding: numpy at the boundary, forwards and head steps counted here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from csd.continuous import Paths
from csd.models.base import find_label
from csd.models.mar import MAR, Diffusion
from csd.models.vq import VQModel, pixels

Array = np.ndarray
CHUNK = 32  # steps of a chain whose modulations are computed together: less overhead, bounded memory


class MARSession:
    """A `LatentSession`. Guidance acts on the predicted noise only; the variance is the labelled row's, as in MAR. Its
    weight is constant or grows linearly with the share of cells known after the step, from 1 to `guidance`. A guided
    forward runs every row twice, once without the label."""

    def __init__(self, model: MAR, class_id: int, guidance: float, steps: int, schedule: str = "constant"):
        self._model, self._diffusion = model, Diffusion(steps, model.cfg.clip)
        self._guidance, self._linear = guidance, schedule == "linear"
        self._labels = [class_id] if guidance == 1 else [class_id, -1]
        self.forwards = self.rows = self.head_steps = 0

    @torch.inference_mode()
    def contexts(self, latents: Array, known: Array, wanted: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        weight = self._model.z_proj.weight
        rows, times = len(known), len(self._labels)
        z = torch.as_tensor(latents, dtype=weight.dtype, device=weight.device).expand(times * rows, -1, -1)
        mask = torch.as_tensor(known, device=weight.device).repeat(times, 1)
        labels = torch.tensor(self._labels, device=weight.device).repeat_interleave(rows)
        out = self._model.contexts(labels, z, mask).unflatten(0, (times, rows))
        self.forwards += 1
        self.rows += times * rows
        row, pos = torch.tensor(wanted, device=weight.device).T
        return out[:, row, pos], self._weights(known, row.cpu())

    def _weights(self, known: Array, row: Tensor) -> Tensor:
        """Guidance weight of each wanted position, float64 [m, 1]."""
        if not self._linear:
            return torch.full((len(row), 1), self._guidance, dtype=torch.float64)
        held = torch.as_tensor(known).sum(1) + torch.bincount(row, minlength=len(known))
        return 1 + (self._guidance - 1) * (held.double() / known.shape[1])[row, None]

    @torch.inference_mode()
    def denoise(self, contexts: tuple[Tensor, Tensor], start: Array, noise: Array) -> Paths:
        rows, weights = contexts
        head, x, eps = self._model.diffloss.net, torch.as_tensor(start), torch.as_tensor(noise)
        steps, given = self._diffusion.steps, head.cond_embed(rows.flatten(0, 1))
        means, sigmas = [], []
        for first in range(steps, 0, -CHUNK):
            last = max(0, first - CHUNK)
            times = head.time_embed(self._diffusion.times[last:first].to(rows.device))
            plan = head.modulations(times[:, None] + given)
            for i in reversed(range(last, first)):
                out = head.denoise(x.to(given).repeat(len(rows), 1), [layer[i - last] for layer in plan])
                mean, sigma = self._diffusion.transition(self._guided(out.double().cpu(), weights), x, i)
                self.head_steps += 1
                means.append(mean)
                sigmas.append(sigma)
                if i:
                    x = mean + sigma * eps[:, steps - 1 - i]
        return Paths(torch.stack(means, 1).numpy(), torch.stack(sigmas, 1).numpy())

    def _guided(self, out: Tensor, weights: Tensor) -> Tensor:
        if len(self._labels) == 1:
            return out
        cond, null = out.chunk(2)
        eps, free = cond.chunk(2, -1)[0], null.chunk(2, -1)[0]
        return torch.cat([free + weights * (eps - free), cond.chunk(2, -1)[1]], -1)


class MARModel:
    """A `LatentModel`: a MAR transformer, the tokeniser whose latents it draws, and names for its classes."""

    def __init__(self, name: str, model: MAR, tokenizer: VQModel, labels: dict[str, int], weights: str = ""):
        self.name, self.labels, self._class, self.weights = name, list(labels), labels, weights
        self.model, self.tokenizer = model.eval(), tokenizer.eval()
        self.grid, self.width = (model.cfg.grid,) * 2, model.cfg.width

    def open(self, label: str, guidance: float, steps: int, schedule: str = "constant") -> MARSession:
        return MARSession(self.model, self._class[find_label(label, self.labels)], guidance, steps, schedule)

    @property
    def dtype_name(self) -> str:
        return str(self.model.z_proj.weight.dtype).removeprefix("torch.")

    def probe(self) -> Callable[[], None]:
        """A typical step, for timing: five half-known rows and the start of their chains."""
        session, cells = self.open(self.labels[0], 1.0, 4), self.grid[0] * self.grid[1]
        known = np.tile(np.arange(cells) % 2 == 0, (5, 1))
        z, start, noise = np.zeros((cells, self.width)), np.zeros((5, self.width)), np.zeros((5, 3, self.width))

        def step() -> None:
            session.denoise(session.contexts(z, known, [(i, 1) for i in range(5)]), start, noise)

        return step

    @torch.inference_mode()
    def decode(self, latents: Array) -> Array:
        """Latents float [cells, width], unit variance → picture uint8 [height, width, 3]."""
        z = torch.as_tensor(latents, dtype=torch.float32).T.reshape(1, self.width, *self.grid) / self.width**0.5
        return pixels(self.tokenizer.decode_latent(z)[0])
