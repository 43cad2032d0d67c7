"""MAR: a masked autoencoder over continuous tokens with a small diffusion head per token.

Li et al., 2024 (Autoregressive Image Generation without Vector Quantization, arXiv 2406.11838). Parameter names and
shapes are those of the published MAR-B/L/H, so a small pair and the published models are one class. The model is
bidirectional and keeps no cache: every step encodes the known tokens (behind buffer tokens that carry the class) and
decodes a context for the tokens that are wanted; the head then denoises each wanted token on its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class MARConfig:
    """Sizes: `width` numbers per token, `grid` tokens per side, a head of `head_depth` blocks of `head_dim`.

    clip: bound of a predicted number of a clean token, for models whose tokens have one; 0 is none, as published. The
    cosine schedule's first transition divides by a square root of 2e-9, which a small model's error does not survive.
    """

    dim: int
    encoder_layers: int
    decoder_layers: int
    heads: int
    head_depth: int
    head_dim: int
    width: int = 16
    grid: int = 16
    classes: int = 1000
    buffer: int = 64
    clip: float = 0.0

    @property
    def cells(self) -> int:
        return self.grid**2


class Attention(nn.Module):
    """Multi-head self-attention; `keys` bool [B, n] says which tokens exist (padding of rows of unequal length)."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, keys: Tensor | None) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mask = None if keys is None else keys[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).reshape(b, n, d))


class Mlp(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """A ViT block."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn, self.mlp = Attention(dim, heads), Mlp(dim)

    def forward(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.norm1(x), keys)
        return x + self.mlp(self.norm2(x))


def _adaln(dim: int, parts: int) -> nn.Sequential:
    return nn.Sequential(nn.SiLU(), nn.Linear(dim, parts * dim))


class TimeEmbed(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t: Tensor) -> Tensor:
        freqs = torch.exp(-math.log(10000) * torch.arange(128, device=t.device) / 128)
        angle = t[:, None].float() * freqs
        return self.mlp(torch.cat([angle.cos(), angle.sin()], -1).to(self.mlp[0].weight.dtype))


class HeadBlock(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.in_ln = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.adaLN_modulation = _adaln(dim, 3)

    def forward(self, x: Tensor, modulation: Tensor) -> Tensor:
        shift, scale, gate = modulation.chunk(3, -1)
        return x + gate * self.mlp(self.in_ln(x) * (1 + scale) + shift)


class FinalLayer(nn.Module):
    def __init__(self, dim: int, out: int):
        super().__init__()
        self.norm_final = nn.LayerNorm(dim, eps=1e-6, elementwise_affine=False)
        self.linear, self.adaLN_modulation = nn.Linear(dim, out), _adaln(dim, 2)

    def forward(self, x: Tensor, modulation: Tensor) -> Tensor:
        shift, scale = modulation.chunk(2, -1)
        return self.linear(self.norm_final(x) * (1 + scale) + shift)


class Head(nn.Module):
    """The denoiser of one token: noisy token [n, width], time [n], context [n, dim] → noise and variance [n, 2 · width]."""

    def __init__(self, cfg: MARConfig):
        super().__init__()
        d = cfg.head_dim
        self.time_embed, self.cond_embed, self.input_proj = TimeEmbed(d), nn.Linear(cfg.dim, d), nn.Linear(cfg.width, d)
        self.res_blocks = nn.ModuleList(HeadBlock(d) for _ in range(cfg.head_depth))
        self.final_layer = FinalLayer(d, 2 * cfg.width)

    def forward(self, x: Tensor, t: Tensor, context: Tensor) -> Tensor:
        return self.denoise(x, self.modulations(self.time_embed(t) + self.cond_embed(context)))

    def modulations(self, y: Tensor) -> list[Tensor]:
        """What the condition y [..., dim] does to each layer; x has no part in it: a whole chain's can be had at once."""
        return [layer.adaLN_modulation(y) for layer in (*self.res_blocks, self.final_layer)]

    def denoise(self, x: Tensor, modulations: list[Tensor]) -> Tensor:
        x = self.input_proj(x)
        for layer, modulation in zip((*self.res_blocks, self.final_layer), modulations, strict=True):
            x = layer(x, modulation)
        return x


class MAR(nn.Module):
    """`contexts` gives the head's condition for every position; `diffloss.net` is the head."""

    def __init__(self, cfg: MARConfig):
        super().__init__()
        self.cfg, d, n = cfg, cfg.dim, cfg.cells
        self.class_emb, self.fake_latent = nn.Embedding(cfg.classes, d), nn.Parameter(torch.zeros(1, d))
        self.z_proj, self.z_proj_ln = nn.Linear(cfg.width, d), nn.LayerNorm(d, eps=1e-6)
        self.encoder_pos_embed_learned = nn.Parameter(torch.zeros(1, cfg.buffer + n, d))
        self.encoder_blocks = nn.ModuleList(Block(d, cfg.heads) for _ in range(cfg.encoder_layers))
        self.encoder_norm, self.decoder_embed = nn.LayerNorm(d, eps=1e-6), nn.Linear(d, d)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, d))
        self.decoder_pos_embed_learned = nn.Parameter(torch.zeros(1, cfg.buffer + n, d))
        self.decoder_blocks = nn.ModuleList(Block(d, cfg.heads) for _ in range(cfg.decoder_layers))
        self.decoder_norm = nn.LayerNorm(d, eps=1e-6)
        self.diffusion_pos_embed_learned = nn.Parameter(torch.zeros(1, n, d))
        self.diffloss = nn.Module()  # named as in the published state dict
        self.diffloss.net = Head(cfg)

    def init_weights(self) -> None:
        """Xavier for matrices, 0.02 for embeddings, zeros for what modulates and for the head's output (as published)."""
        for name, p in self.named_parameters():
            if p.dim() < 2:
                nn.init.constant_(p, 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0)
            elif "embed_learned" in name or name in ("fake_latent", "mask_token", "class_emb.weight"):
                nn.init.normal_(p, std=0.02)
            elif "adaLN" in name or "final_layer" in name:
                nn.init.zeros_(p)
            else:
                nn.init.xavier_uniform_(p)
        for block in self.diffloss.net.res_blocks:
            nn.init.ones_(block.in_ln.weight)
        nn.init.ones_(self.z_proj_ln.weight)

    def condition(self, labels: Tensor) -> Tensor:
        """Class vectors [B, dim]; label -1 stands for no class."""
        known = self.class_emb(labels.clamp(min=0))
        return torch.where((labels < 0)[:, None], self.fake_latent, known)

    def contexts(self, labels: Tensor, latents: Tensor, known: Tensor) -> Tensor:
        """labels int64 [B]; latents [B, cells, width]; known bool [B, cells] → contexts [B, cells, dim].

        Only known tokens are encoded; rows may know different numbers of them.
        """
        b, n = known.shape
        buffer = self.condition(labels)[:, None].expand(-1, self.cfg.buffer, -1)
        x = torch.cat([buffer, self.z_proj(latents)], 1) + self.encoder_pos_embed_learned
        x = self.z_proj_ln(x)
        there = torch.cat([torch.ones(b, self.cfg.buffer, dtype=torch.bool, device=known.device), known], 1)
        count = int(there.sum(1).max())
        order = (
            (~there).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]
        )  # known first, in raster order, then padding
        keys = there.gather(1, order)
        x = x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))
        pad = None if bool(keys.all()) else keys
        for block in self.encoder_blocks:
            x = block(x, pad)
        x = self.decoder_embed(self.encoder_norm(x))
        x = torch.where(keys[..., None], x, self.mask_token.to(x.dtype))
        full = self.mask_token.to(x.dtype).expand(b, self.cfg.buffer + n, -1)
        full = full.scatter(1, order[..., None].expand(-1, -1, x.shape[-1]), x) + self.decoder_pos_embed_learned
        for block in self.decoder_blocks:
            full = block(full)
        return self.decoder_norm(full)[:, self.cfg.buffer :] + self.diffusion_pos_embed_learned


class Diffusion:
    """Gaussian diffusion with the cosine schedule of 1000 steps, respaced to `steps`, and a learned variance range.

    Nichol and Dhariwal, 2021 (Improved DDPM). The chain runs x_T → x_0 through transitions N(mean, sigma²).
    """

    TRAIN_STEPS = 1000

    def __init__(self, steps: int, clip: float = 0.0):
        self.clip = clip
        bar = [math.cos((i / self.TRAIN_STEPS + 0.008) / 1.008 * math.pi / 2) ** 2 for i in range(self.TRAIN_STEPS + 1)]
        betas = torch.tensor([min(1 - b / a, 0.999) for a, b in pairwise(bar)], dtype=torch.float64)
        cumulative = (1 - betas).cumprod(0)
        self.all_cumulative = cumulative
        stride = (self.TRAIN_STEPS - 1) / max(steps - 1, 1)
        self.times = torch.tensor([round(i * stride) for i in range(steps)])
        alpha = cumulative[self.times]
        before = torch.cat([torch.ones(1, dtype=torch.float64), alpha[:-1]])
        beta = 1 - alpha / before
        posterior = beta * (1 - before) / (1 - alpha)
        self.log_max = beta.log()
        # the last transition's posterior variance is 0; the published code uses its neighbour's
        self.log_min = torch.cat([posterior[1:2] if steps > 1 else beta[:1], posterior[1:]]).log()
        self.coef_x0 = beta * before.sqrt() / (1 - alpha)
        self.coef_xt = (1 - before) * (1 - beta).sqrt() / (1 - alpha)
        self.alpha = alpha

    @property
    def steps(self) -> int:
        return len(self.times)

    def noised(self, x0: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        """x_t for training: t int64 [n] in the 1000 original steps."""
        a = self.all_cumulative.to(x0.device)[t][:, None].to(x0.dtype)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def transition(self, out: Tensor, x: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation [n, width] of the transition out of step i (0: the last), from the head's out."""
        eps, v = out.double().chunk(2, -1)
        x0 = (x.double() - (1 - self.alpha[i]).sqrt() * eps) / self.alpha[i].sqrt()
        if self.clip:
            x0 = x0.clamp(-self.clip, self.clip)
        mean = self.coef_x0[i] * x0 + self.coef_xt[i] * x.double()
        share = (v + 1) / 2
        return mean, torch.exp(0.5 * (share * self.log_max[i] + (1 - share) * self.log_min[i]))
