"""How good pictures are, measured in the features of a small classifier: Fréchet distance, class accuracy, diversity.

The Fréchet distance is that of Heusel et al., 2017 (arXiv 1706.08500) with a classifier trained on the same pictures in
place of Inception. It falls with the number of pictures, so only sets of one size may be compared, and only against the
distance between two sets of the target's own samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from csd.errors import InputError

Array = np.ndarray


class Judge:
    """The packed classifier of the built-in models' training classes."""

    def __init__(self, folder: Path | None = None):
        from csd.models.builtin import ASSETS, load_judge

        self._net, self.names = load_judge(folder or ASSETS)

    def look(self, pictures: Sequence[Array]) -> tuple[Array, list[str]]:
        """Pictures uint8 [H, W, 3] → (features float64 [N, d], the class each is taken for)."""
        import torch

        x = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 127.5 - 1
        with torch.inference_mode():
            features = self._net.features(x)
            best = self._net.head(features).argmax(-1)
        return features.double().numpy(), [self.names[i] for i in best.tolist()]


def frechet(a: Array, b: Array) -> float:
    """Squared Fréchet distance of two Gaussians fitted to features [N, d] and [M, d]; needs two rows each."""
    if len(a) < 2 or len(b) < 2:
        raise InputError("a Fréchet distance needs at least two pictures on each side")
    ca, cb = np.cov(a.T), np.cov(b.T)
    values, vectors = np.linalg.eigh(ca)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ cb @ root), 0)).sum()
    return float(((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(ca) + np.trace(cb) - 2 * cross)


def spread(features: Array, labels: Sequence[str]) -> float | None:
    """Diversity: mean distance of two pictures of one label; None when no label has two."""
    labels, pairs = np.array(labels), []
    for name in np.unique(labels):
        own = features[labels == name]
        far = np.linalg.norm(own[:, None] - own[None], axis=-1)
        pairs += far[np.triu_indices(len(own), 1)].tolist()
    return float(np.mean(pairs)) if pairs else None


def with_error(measure, sets: Sequence[Array], draws: int = 100, seed: int = 0) -> tuple[float, float]:
    """(measure of the sets, its standard error by resampling the rows of every set)."""
    rng = np.random.default_rng(seed)
    again = [measure(*(s[rng.integers(len(s), size=len(s))] for s in sets)) for _ in range(draws)]
    return measure(*sets), float(np.std(again))
