"""Trains the VQ tokeniser of the built-in models.

Reconstruction (L1 at three scales and MSE) plus commitment; the codebook follows the encoder by exponential moving
averages with restarts of dead codes (van den Oord et al., 2017, appendix A; Razavi et al., 2019), and a small patch
discriminator (VQGAN, Esser et al., 2021) keeps grain and edges crisp in the second half.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csd.models.vq import VQConfig, VQModel
from csd.training import data
from csd.training.run import Average, Run, cosine, device_and_amp, sheet, write_weights

CONFIG = VQConfig(
    vocab=2048, code_dim=8, ch=24, encoder_mult=(1, 2, 4), decoder_mult=(1, 2, 4), res_blocks=1, z_channels=64
)
BATCH, LR, ADVERSARIAL_FROM, ADVERSARIAL_WEIGHT = 32, 1e-3, 0.55, 0.02
# A fresh encoder puts every patch in nearly one direction, where a codebook collapses; it first learns to spread them.
UNQUANTISED_STEPS = 150


class Codebook:
    """Moving averages of the vectors assigned to each code; codes nobody uses restart at a current vector."""

    def __init__(self, model: VQModel, decay: float = 0.98):
        self.model, self.decay = model, decay
        self.count = torch.ones(model.cfg.vocab)
        self.total = model.codebook().detach().clone()

    @torch.no_grad()
    def update(self, z: Tensor, codes: Tensor, restart: bool) -> None:
        flat, idx = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1]), codes.flatten()
        count = torch.zeros_like(self.count).index_add_(0, idx, torch.ones_like(idx, dtype=torch.float32))
        total = torch.zeros_like(self.total).index_add_(0, idx, flat)
        self.count.lerp_(count, 1 - self.decay)
        self.total.lerp_(total, 1 - self.decay)
        dead = (self.count < 0.05).nonzero().flatten() if restart else []
        if len(dead):
            self.total[dead] = flat[torch.randint(len(flat), (len(dead),))]
            self.count[dead] = 1.0
        self.model.quantize.embedding.weight.copy_(F.normalize(self.total, dim=-1))

    @torch.no_grad()
    def start(self, z: Tensor) -> None:
        """Put the codes on latents of the current batch."""
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        self.total = flat[torch.randperm(len(flat))[: len(self.count)]].clone()
        self.count.fill_(1.0)
        self.model.quantize.embedding.weight.copy_(self.total)

    def state_dict(self) -> dict:
        return {"count": self.count, "total": self.total}

    def load_state_dict(self, saved: dict) -> None:
        self.count, self.total = saved["count"], saved["total"]


def discriminator() -> nn.Module:
    """Judges 16-pixel patches."""
    layers, c = [nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2)], 32
    for _ in range(2):
        layers += [nn.Conv2d(c, 2 * c, 4, 2, 1), nn.GroupNorm(8, 2 * c), nn.LeakyReLU(0.2)]
        c *= 2
    return nn.Sequential(*layers, nn.Conv2d(c, 1, 3, 1, 1))


def reconstruction_loss(y: Tensor, x: Tensor) -> Tensor:
    loss = 2 * F.mse_loss(y, x)
    for scale in (1, 2, 4):
        loss = loss + F.l1_loss(F.avg_pool2d(y, scale), F.avg_pool2d(x, scale)) / 3
    return loss


@torch.no_grad()
def evaluate(model: VQModel, x: Tensor) -> dict[str, float]:
    """PSNR in dB over held-out pictures in 8-bit values, quantised and not, and the share of the codebook used."""
    errors, raw, used = [], [], torch.zeros(model.cfg.vocab, dtype=torch.bool)
    for part in x.split(64):
        z = model.latent(part)
        codes = model.nearest(z)
        used[codes.flatten()] = True
        for store, y in ((errors, model.decode(codes)), (raw, model.decode_latent(z))):
            store.append(((y.clamp(-1, 1) - part).mul(127.5).round().square()).mean((1, 2, 3)))
    psnr = [float((10 * torch.log10(255**2 / torch.cat(e))).mean()) for e in (errors, raw)]
    return {"psnr": psnr[0], "psnr_unquantised": psnr[1], "used": float(used.float().mean())}


def train(folder: Path, out: Path, minutes: float, resume: bool, weights: Path) -> None:
    device, amp = device_and_amp()
    pictures, labels, _ = data.load(folder)
    rows, held = data.split(labels)
    check = data.held_out_pictures(pictures, held)
    torch.manual_seed(0)
    model = VQModel(CONFIG).to(device, memory_format=torch.channels_last)
    judge = discriminator().to(device, memory_format=torch.channels_last)
    codebook, average = Codebook(model), Average(model, 0.998)
    opt = torch.optim.AdamW(model.parameters(), LR, betas=(0.9, 0.95), weight_decay=1e-4)
    opt_judge = torch.optim.AdamW(judge.parameters(), 2e-4, betas=(0.5, 0.9))
    parts = {"model": model, "judge": judge, "codebook": codebook, "average": average, "opt": opt, "optj": opt_judge}
    run = Run("tokenizer", out, minutes, parts, resume)
    rng = torch.Generator().manual_seed(run.step)
    while run.running():
        pick = rows[torch.randint(len(rows), (BATCH,), generator=rng)]
        x = data.add_grain(pictures[pick], rng)
        x = (x.flip(3) if run.step % 2 else x).to(device, memory_format=torch.channels_last)
        for group in opt.param_groups:
            group["lr"] = LR * cosine(run.progress)
        with amp:
            z = model.latent(x)
            if run.step == UNQUANTISED_STEPS:
                codebook.start(z.detach())
            codes = model.nearest(z)
            code = model.look_up(codes).detach()
            # Straight through; a share of the batch sees its raw latents, which keeps the encoder output itself
            # decodable (a continuous model may want it).
            quantised = z + (code - z).detach()
            warm = run.step < UNQUANTISED_STEPS
            raw = torch.rand(BATCH, 1, 1, 1, generator=rng).to(device) < (1.0 if warm else 0.1)
            y = model.decode_latent(torch.where(raw, z, quantised).to(torch.bfloat16)).float()
        loss = reconstruction_loss(y, x) + (0.0 if warm else 0.25) * F.mse_loss(z, code)
        fooled = torch.zeros(())
        if run.progress > ADVERSARIAL_FROM:
            with amp:
                fooled = -judge(y).mean()
            loss = loss + ADVERSARIAL_WEIGHT * fooled
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if not warm:
            codebook.update(z.detach(), codes, restart=run.step % 10 == 0 and run.progress < 0.8)
        average.update(run.step)
        if run.progress > ADVERSARIAL_FROM - 0.05:
            with amp:
                lj = F.relu(1 - judge(x)).mean() + F.relu(1 + judge(y.detach())).mean()
            opt_judge.zero_grad(set_to_none=True)
            lj.backward()
            opt_judge.step()
        run.step, run.seen = run.step + 1, run.seen + BATCH
        if run.step % 100 == 0:
            run.log(loss=loss, codes=len(codes.unique()), fooled=fooled, psnr=10 * torch.log10(4 / F.mse_loss(y, x)))
    run.close()
    model.load_state_dict(average.shadow)
    model.eval()
    figures = evaluate(model, check.to(device))
    run.log(**figures)
    with torch.no_grad():
        some = check[torch.linspace(0, len(check) - 1, 32).long()].to(device)
        sheet(torch.cat([some, model.decode(model.encode(some))]), 16).save(out / "tokenizer.png")
    write_weights(weights, model.state_dict(), {"pictures_seen": run.seen, "minutes": round(run.spent / 60, 1)} | figures)
