"""Teaches a trained draft the laws of the trained target: what a draft is worth is how far the two overlap.

Two things are learned on the training pictures. As a draft model it should say what the target says (forward KL, as in
DistillSpec, Zhou et al., 2023, arXiv 2310.08461). As the corrector of Jacobi drafts (`csd.drafters.JacobiDrafter`) it
should say how the target's law moves when some tokens of the context change; there the loss is the rejection
probability itself, the total variation between the corrected law and the target's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from csd.drafters import EXPONENTS
from csd.models.llamagen import LlamaGen

MOST_CHANGED = 0.5  # of the tokens of the old context


def loss(draft: LlamaGen, target: LlamaGen, labels: Tensor, codes: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
    """labels [B], codes [B, N] → {"kl": nats per token, "tv": of the corrected laws, "tv_old": uncorrected, for the log}.

    The old context of a picture is the picture with some tokens replaced by draws from the target's laws, as Jacobi's
    drafts are; p is the target's law given the picture, p_old given the old context.
    """
    with torch.no_grad():
        p = target(labels, codes[:, :-1]).float().softmax(-1)
        drawn = torch.multinomial(p.flatten(0, 1), 1).view_as(codes)
        share = MOST_CHANGED * torch.rand(len(codes), 1, generator=rng)
        changed = torch.rand(codes.shape, generator=rng) < share
        old = torch.where(changed.to(codes.device), drawn, codes)
        log_p_old = target(labels, old[:, :-1]).float().log_softmax(-1)
    both = draft(labels.repeat(2), torch.cat([codes, old])[:, :-1]).float()
    log_d, log_d_old = both.log_softmax(-1).chunk(2)
    a, b = EXPONENTS
    corrected = (a * log_p_old + b * log_d - a * log_d_old).softmax(-1)
    moved = changed.cumsum(1)[:, :-1] > 0  # from there on the old law differs
    tv = lambda q: 0.5 * (q - p).abs().sum(-1)[:, 1:][moved].mean()  # noqa: E731
    return {"kl": F.cross_entropy(log_d.flatten(0, 1), p.flatten(0, 1)), "tv": tv(corrected), "tv_old": tv(log_p_old.exp())}
