"""Trains the continuous pair: MAR on the tokeniser's own latents before quantising, scaled to unit variance.

The loss is the published one: noise prediction on masked tokens plus the variational bound for the learned variance, the
mean held fixed (Nichol and Dhariwal, 2021, §3.1), several noise levels per context.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from csd.models.mar import MAR, Diffusion, MARConfig
from csd.models.vq import VQConfig, VQModel
from csd.training import data
from csd.training.run import Average, Run, descend, device_and_amp, muon_and_adam, write_weights

SIZES = {
    "mar-target": {"dim": 256, "encoder_layers": 4, "decoder_layers": 4, "heads": 4, "head_depth": 3, "head_dim": 256},
    "mar-draft": {"dim": 112, "encoder_layers": 2, "decoder_layers": 2, "heads": 4, "head_depth": 2, "head_dim": 112},
}
BATCH, DROP_LABEL, LR_MUON, LR_ADAM, NOISES = 24, 0.1, 0.01, 1e-3, 2


def config(size: str, classes: int, vq: VQConfig) -> MARConfig:
    return MARConfig(**SIZES[size], width=vq.code_dim, grid=16, classes=classes, buffer=16, clip=vq.code_dim**0.5)


def latents(vq: VQModel, x: Tensor) -> Tensor:
    """Continuous tokens [B, cells, width]: the encoder's unit vectors times the root of their length, unit variance."""
    return vq.latent(x).flatten(2).transpose(1, 2) * vq.cfg.code_dim**0.5


def masking(b: int, cells: int, generator: torch.Generator) -> Tensor:
    """Known tokens, bool [B, cells]: mostly few, as in sampling from nothing; a random set per picture."""
    share = 1 - (1 - torch.rand(b, generator=generator).sqrt()) * 0.95  # masked share, denser towards 1
    rank = torch.rand(b, cells, generator=generator).argsort(1).argsort(1)
    return rank >= (share[:, None] * cells).round().clamp(1, cells)


def head_loss(net: MAR, diffusion: Diffusion, context: Tensor, x0: Tensor, rng: torch.Generator) -> Tensor:
    """Noise prediction and variance bound for tokens x0 [n, width] in their contexts [n, dim]."""
    t = torch.randint(0, diffusion.TRAIN_STEPS, (len(x0),), generator=rng).to(x0.device)
    noise = torch.randn(x0.shape, generator=rng).to(x0.device)
    xt = diffusion.noised(x0, t, noise)
    eps, v = net.diffloss.net(xt, t, context).float().chunk(2, -1)
    return F.mse_loss(eps, noise) + variance_bound(diffusion, eps.detach(), v, x0, xt, t)


def variance_bound(d: Diffusion, eps: Tensor, v: Tensor, x0: Tensor, xt: Tensor, t: Tensor) -> Tensor:
    """KL from the true posterior to the predicted transition, in nats per number; needs the chain of all 1000 steps."""
    a, c0, ct = (s.to(x0.device)[t][:, None].float() for s in (d.alpha, d.coef_x0, d.coef_xt))
    low, high = (s.to(x0.device)[t][:, None].float() for s in (d.log_min, d.log_max))
    guess = c0 * (xt - (1 - a).sqrt() * eps) / a.sqrt() + ct * xt
    true = c0 * x0 + ct * xt
    log_var = (v + 1) / 2 * high + (1 - v) / 2 * low
    return 0.5 * (log_var - low + torch.exp(low - log_var) + (true - guess) ** 2 * torch.exp(-log_var) - 1).mean()


@torch.inference_mode()
def sample(net: MAR, labels: Tensor, guidance: float, iterations: int, steps: int, rng: torch.Generator) -> Tensor:
    """Latents [B, cells, width] of plain MAR, many pictures at once (the decoder draws one); labels int64 [B]."""
    d, n, cells, width = Diffusion(steps, net.cfg.clip), len(labels), net.cfg.cells, net.cfg.width
    z, known = torch.zeros(n, cells, width), torch.zeros(n, cells, dtype=torch.bool)
    order = torch.rand(n, cells, generator=rng).argsort(1)
    done = 0
    for i in range(iterations):
        left = min(max(int(cells * math.cos(math.pi / 2 * (i + 1) / iterations)), 1), cells - done - 1)
        count = cells - done - (left if i < iterations - 1 else 0)
        at = order[:, done : done + count]
        both = torch.cat([labels, torch.full_like(labels, -1)])
        context = net.contexts(both, z.repeat(2, 1, 1), known.repeat(2, 1))
        context = context.gather(1, at.repeat(2, 1)[..., None].expand(-1, -1, context.shape[-1])).flatten(0, 1)
        x = torch.randn(n * count, width, generator=rng)
        for k in reversed(range(steps)):
            cond, null = net.diffloss.net(x.repeat(2, 1), d.times[k].expand(len(context)), context).chunk(2)
            eps, free = cond[:, :width], null[:, :width]
            mean, sigma = d.transition(torch.cat([free + guidance * (eps - free), cond[:, width:]], -1), x, k)
            x = (mean + sigma * torch.randn(x.shape, generator=rng)).float()
        z.scatter_(1, at[..., None].expand(-1, -1, width), x.unflatten(0, (n, count)))
        known.scatter_(1, at, True)
        done += count
    return z


def train(folder: Path, out: Path, minutes: float, resume: bool, weights: Path, size: str, vq: VQModel) -> None:
    device, amp = device_and_amp()
    pictures, labels, names = data.load(folder)
    rows, _ = data.split(labels)
    vq = vq.to(device).eval()
    torch.manual_seed(3)
    net, diffusion = MAR(config(size, len(names), vq.cfg)).to(device), Diffusion(Diffusion.TRAIN_STEPS)
    net.init_weights()
    matrices = [p for n, p in net.named_parameters() if p.dim() == 2 and ("blocks" in n or "mlp" in n)]
    opts = muon_and_adam(net, matrices, LR_MUON, LR_ADAM)
    average = Average(net, 0.999)
    run = Run(size, out, minutes, {"model": net, "average": average, "opt0": opts[0], "opt1": opts[1]}, resume)
    rng = torch.Generator().manual_seed(3 + run.step)
    while run.running():
        pick = rows[torch.randint(len(rows), (BATCH,), generator=rng)]
        x = data.add_grain(pictures[pick], rng)
        x = (x.flip(3) if run.step % 2 else x).to(device, memory_format=torch.channels_last)
        with torch.no_grad(), amp:
            z = latents(vq, x).float()
        known = masking(BATCH, z.shape[1], rng).to(device)
        null = torch.rand(BATCH, generator=rng) < DROP_LABEL
        y = torch.where(null, torch.tensor(-1), labels[pick]).to(device)
        factor = min(1.0, (run.step + 1) / 100) * min(1.0, max(0.02, (1 - run.progress) / 0.6))
        with amp:
            context = net.contexts(y, z, known)[~known]
            loss = head_loss(net, diffusion, context.repeat(NOISES, 1), z[~known].repeat(NOISES, 1), rng)
        descend(loss, net, opts, (LR_MUON * factor, LR_ADAM * factor))
        average.update(run.step)
        run.step, run.seen = run.step + 1, run.seen + BATCH
        if run.step % 100 == 0:
            run.log(loss=loss.detach())
    run.close()
    net.load_state_dict(average.shadow)
    write_weights(weights, net.state_dict(), {"pictures_seen": run.seen, "minutes": round(run.spent / 60, 1)})
