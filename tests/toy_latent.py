"""A continuous toy: a few cells whose diffusion heads are small enough to sample a hundred thousand pictures."""

from __future__ import annotations

import numpy as np

from csd.continuous import Paths


class ToyLatentSession:
    def __init__(self, model, steps):
        self.model, self.steps = model, steps
        self.forwards = self.rows = self.head_steps = 0

    def contexts(self, latents, known, wanted):
        self.forwards += 1
        self.rows += len(known)
        return np.stack([self.model.context(latents, known[row], pos) for row, pos in wanted])

    def denoise(self, contexts, start, noise):
        x, m, means, sigmas = start, self.model, [], []
        for t in range(self.steps - 1, 0, -1):
            means.append(m.mean(x, contexts))
            sigmas.append(m.sigma(t, x))
            x = means[-1] + sigmas[-1] * noise[:, self.steps - 1 - t]
            self.head_steps += 1
        self.head_steps += 1
        means, sigmas = [*means, m.mean(x, contexts)], [*sigmas, m.sigma(0, x)]
        return Paths(np.stack(means, 1), np.stack(sigmas, 1))


class ToyLatents:
    """x_{t-1} = 0.6 x_t + 0.5 sin(x_t) + context + sigma_t · noise; the context is a bounded mix of the known tokens."""

    def __init__(self, shift=0.0, sigma=0.5, width=1, cells=3, name="toy-latent"):
        self.name, self.width, self.cells, self.grid, self.labels = name, width, cells, (1, cells), ["toy"]
        self.shift, self.s = shift, sigma

    def context(self, latents, known, pos):
        return np.tanh((latents * known[:, None]).sum(0)) * 0.8 + 0.3 * np.sin(1 + pos) + self.shift

    def mean(self, x, contexts):
        return 0.6 * x + 0.5 * np.sin(x) + contexts

    def sigma(self, t, x):
        return np.full_like(x, self.s) * (1 + 0.2 * np.tanh(x) * (t > 0))

    def open(self, label, guidance, steps, schedule="constant"):
        return ToyLatentSession(self, steps)

    def decode(self, latents):
        return np.zeros((4, 4, 3), np.uint8)
