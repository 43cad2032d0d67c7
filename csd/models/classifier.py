"""A small classifier of the built-in models' training classes. Pictures are measured with it (`csd.quality`)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Classifier(nn.Module):
    """Four strided convolution stages and a linear layer; `features` are what a feature distance may use."""

    def __init__(self, classes: int, width: int = 32):
        super().__init__()
        layers, c = [], 3
        for i in range(4):
            w = width * 2 ** min(i, 2)
            layers += [nn.Conv2d(c, w, 3, stride=2, padding=1), nn.GroupNorm(8, w), nn.SiLU()]
            layers += [nn.Conv2d(w, w, 3, padding=1), nn.GroupNorm(8, w), nn.SiLU()]
            c = w
        self.body, self.head = nn.Sequential(*layers), nn.Linear(c, classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(self.features(x), 0.2, self.training))
