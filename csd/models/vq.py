"""The image tokeniser: a VQ autoencoder, in the layout of LlamaGen's VQ-16 (which is also Janus's).

Parameter names and shapes follow the published LlamaGen checkpoints (Sun et al., 2024, arXiv 2406.06525; the
autoencoder goes back to VQGAN, Esser et al., 2021), so this one class is both the small built-in tokeniser and the
loader of the real one. Codes are compared and looked up on the unit sphere, as there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class VQConfig:
    """Widths of the tokeniser. The defaults are VQ-16: 16 pixels per token side, 16,384 codes of 8 numbers."""

    vocab: int = 16384
    code_dim: int = 8
    ch: int = 128
    encoder_mult: tuple[int, ...] = (1, 1, 2, 2, 4)
    decoder_mult: tuple[int, ...] = (1, 1, 2, 2, 4)
    res_blocks: int = 2
    z_channels: int = 256

    @property
    def patch(self) -> int:
        """Pixels per token side."""
        return 2 ** (len(self.encoder_mult) - 1)


def _norm(channels: int) -> nn.GroupNorm:
    # 32 groups in the published models; at the built-in widths that would be one channel a group.
    return nn.GroupNorm(min(32, channels // 4), channels, eps=1e-6)


class ResBlock(nn.Module):
    def __init__(self, cin: int, cout: int):
        super().__init__()
        self.norm1, self.conv1 = _norm(cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2, self.conv2 = _norm(cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.nin_shortcut = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        return self.nin_shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class AttnBlock(nn.Module):
    """Single-head attention over all grid positions."""

    def __init__(self, c: int):
        super().__init__()
        self.norm = _norm(c)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(c, c, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        y = self.norm(x)
        q, k, v = (f(y).flatten(2).transpose(1, 2).unsqueeze(1) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v).squeeze(1).transpose(1, 2).reshape(b, c, h, w)
        return x + self.proj_out(y)


class _Down(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))  # the published models pad on one side only


class _Up(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class _Level(nn.Module):
    """Residual blocks at one resolution; attention after each of them at the coarsest."""

    def __init__(self, cin: int, cout: int, blocks: int, attention: bool):
        super().__init__()
        self.res = nn.ModuleList(ResBlock(cin if i == 0 else cout, cout) for i in range(blocks))
        self.attn = nn.ModuleList(AttnBlock(cout) for _ in range(blocks if attention else 0))

    def forward(self, x: Tensor) -> Tensor:
        for i, res in enumerate(self.res):
            x = res(x)
            if self.attn:
                x = self.attn[i](x)
        return x


def _mid(c: int) -> nn.ModuleList:
    return nn.ModuleList([ResBlock(c, c), AttnBlock(c), ResBlock(c, c)])


class Encoder(nn.Module):
    def __init__(self, cfg: VQConfig):
        super().__init__()
        widths = [cfg.ch * m for m in cfg.encoder_mult]
        self.conv_in = nn.Conv2d(3, cfg.ch, 3, padding=1)
        self.conv_blocks, c = nn.ModuleList(), cfg.ch
        for i, w in enumerate(widths):
            last = i == len(widths) - 1
            level = _Level(c, w, cfg.res_blocks, attention=last)
            if not last:
                level.downsample = _Down(w)
            self.conv_blocks.append(level)
            c = w
        self.mid, self.norm_out = _mid(c), _norm(c)
        self.conv_out = nn.Conv2d(c, cfg.z_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv_in(x)
        for level in self.conv_blocks:
            h = level(h)
            if hasattr(level, "downsample"):
                h = level.downsample(h)
        for block in self.mid:
            h = block(h)
        return self.conv_out(F.silu(self.norm_out(h)))


class Decoder(nn.Module):
    def __init__(self, cfg: VQConfig):
        super().__init__()
        widths = [cfg.ch * m for m in reversed(cfg.decoder_mult)]
        c = widths[0]
        self.conv_in, self.mid = nn.Conv2d(cfg.z_channels, c, 3, padding=1), _mid(c)
        self.conv_blocks = nn.ModuleList()
        for i, w in enumerate(widths):
            level = _Level(c, w, cfg.res_blocks + 1, attention=i == 0)
            if i < len(widths) - 1:
                level.upsample = _Up(w)
            self.conv_blocks.append(level)
            c = w
        self.norm_out, self.conv_out = _norm(c), nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        h = self.conv_in(z)
        for block in self.mid:
            h = block(h)
        for level in self.conv_blocks:
            h = level(h)
            if hasattr(level, "upsample"):
                h = level.upsample(h)
        return self.conv_out(F.silu(self.norm_out(h)))


def pixels(x: Tensor) -> np.ndarray:
    """Network output float [..., 3, H, W] in [-1, 1] → picture uint8 [..., H, W, 3]."""
    return ((x.float().clamp(-1, 1) + 1) * 127.5).round().byte().movedim(-3, -1).cpu().numpy()


class VQModel(nn.Module):
    """Picture ↔ codes. Pictures are float [B, 3, H, W] in [-1, 1]; codes are int64 [B, H/patch, W/patch]."""

    def __init__(self, cfg: VQConfig):
        super().__init__()
        self.cfg = cfg
        self.encoder, self.decoder = Encoder(cfg), Decoder(cfg)
        self.quant_conv = nn.Conv2d(cfg.z_channels, cfg.code_dim, 1)
        self.post_quant_conv = nn.Conv2d(cfg.code_dim, cfg.z_channels, 1)
        self.quantize = nn.Module()  # named as in the published state dict
        self.quantize.embedding = nn.Embedding(cfg.vocab, cfg.code_dim)

    def codebook(self) -> Tensor:
        """Unit-length codes, [vocab, code_dim]."""
        return F.normalize(self.quantize.embedding.weight.float(), dim=-1)

    def latent(self, x: Tensor) -> Tensor:
        """Encoder output before quantising, unit length per position, float32 [B, code_dim, h, w]."""
        return F.normalize(self.quant_conv(self.encoder(x)).float(), dim=1)

    def nearest(self, z: Tensor) -> Tensor:
        """Index of the nearest code on the sphere: [B, code_dim, h, w] → int64 [B, h, w]."""
        return (z.permute(0, 2, 3, 1) @ self.codebook().T).argmax(-1)

    def look_up(self, codes: Tensor) -> Tensor:
        """Codes → unit vectors, [B, h, w] → [B, code_dim, h, w]."""
        return self.codebook()[codes].permute(0, 3, 1, 2)

    def encode(self, x: Tensor) -> Tensor:
        return self.nearest(self.latent(x))

    def decode_latent(self, z: Tensor) -> Tensor:
        return self.decoder(self.post_quant_conv(z))

    def decode(self, codes: Tensor) -> Tensor:
        return self.decode_latent(self.look_up(codes).to(self.post_quant_conv.weight.dtype))
