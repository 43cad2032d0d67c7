"""The LlamaGen transformer: class token, 2-D rotary positions, SwiGLU, classifier-free guidance with a null class.

Sun et al., 2024 (arXiv 2406.06525). Parameter names and shapes are those of the published class-conditional checkpoints,
so the small built-in models and LlamaGen-B/L/XL are one class. A sequence is one class token followed by the codes in
raster order; the row at position i (0 = class token) is the law of code i.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class LlamaGenConfig:
    """Sizes of the transformer; `grid` is tokens per side and `classes` excludes the null class."""

    dim: int
    layers: int
    heads: int
    ffn: int
    vocab: int
    classes: int
    grid: int
    rope_base: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def length(self) -> int:
        return 1 + self.grid**2

    @property
    def macs_per_token(self) -> int:
        """Multiply-adds to process one token at a half-full cache: matrices, attention and the output layer."""
        layer = 4 * self.dim**2 + 3 * self.dim * self.ffn + 2 * self.dim * self.length // 2
        return self.layers * layer + self.dim * self.vocab


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rope_table(cfg: LlamaGenConfig) -> Tensor:
    """Cosine and sine per position, float32 [1 + grid², head_dim / 2, 2].

    The first half of the pairs turns with the row, the second with the column. The class token gets zeros, not the
    identity: its query and key vanish, so every code attends to it with logit 0. The published weights need that.
    """
    half = cfg.dim // cfg.heads // 2
    freqs = 1.0 / cfg.rope_base ** (torch.arange(0, half, 2).float() / half)
    angle = torch.outer(torch.arange(cfg.grid).float(), freqs)
    rows = angle[:, None].expand(-1, cfg.grid, -1)
    columns = angle[None].expand(cfg.grid, -1, -1)
    both = torch.cat([rows, columns], -1).reshape(cfg.grid**2, half)
    table = torch.stack([both.cos(), both.sin()], -1)
    return torch.cat([torch.zeros(1, half, 2), table])


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Turn the pairs (2i, 2i + 1) of x [B, n, heads, head_dim] by table [n, head_dim / 2, 2]."""
    pairs = x.float().unflatten(-1, (-1, 2))
    cos, sin = table[:, None, :, 0], table[:, None, :, 1]
    a, b = pairs[..., 0], pairs[..., 1]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2).to(x.dtype)


class Cache:
    """Preallocated keys and values of one generation. Rolling back is a change of `length`: later rows are overwritten."""

    def __init__(self, cfg: LlamaGenConfig, batch: int, dtype: torch.dtype, device: torch.device):
        shape = (cfg.layers, batch, cfg.heads, cfg.length, cfg.dim // cfg.heads)
        self.k, self.v = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        self.length = 0


class Attention(nn.Module):
    def __init__(self, cfg: LlamaGenConfig):
        super().__init__()
        self.heads = cfg.heads
        self.wqkv = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False)
        self.wo = nn.Linear(cfg.dim, cfg.dim, bias=False)

    def forward(self, x: Tensor, table: Tensor, cache: Cache | None, layer: int, mask: Tensor | None) -> Tensor:
        b, n, d = x.shape
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in self.wqkv(x).chunk(3, -1))
        q, k, v = (t.transpose(1, 2) for t in (rotate(q, table), rotate(k, table), v))
        if cache is not None:
            end = cache.length + n
            cache.k[layer, :, :, cache.length : end], cache.v[layer, :, :, cache.length : end] = k, v
            k, v = cache.k[layer, :, :, :end], cache.v[layer, :, :, :end]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=cache is None)
        return self.wo(y.transpose(1, 2).reshape(b, n, d))


class FeedForward(nn.Module):
    def __init__(self, cfg: LlamaGenConfig):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(cfg.dim, cfg.ffn, bias=False) for _ in range(2))
        self.w2 = nn.Linear(cfg.ffn, cfg.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, cfg: LlamaGenConfig):
        super().__init__()
        self.attention, self.feed_forward = Attention(cfg), FeedForward(cfg)
        self.attention_norm, self.ffn_norm = RMSNorm(cfg.dim, cfg.norm_eps), RMSNorm(cfg.dim, cfg.norm_eps)

    def forward(self, x: Tensor, table: Tensor, cache: Cache | None, layer: int, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table, cache, layer, mask)
        return x + self.feed_forward(self.ffn_norm(x))


class LlamaGen(nn.Module):
    """`forward` takes the whole sequence (training); `extend` feeds tokens into a cache (decoding)."""

    def __init__(self, cfg: LlamaGenConfig):
        super().__init__()
        self.cfg = cfg
        self.tok_embeddings = nn.Embedding(cfg.vocab, cfg.dim)
        self.cls_embedding = nn.Module()  # named as in the published state dict
        self.cls_embedding.embedding_table = nn.Embedding(cfg.classes + 1, cfg.dim)
        self.layers = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = RMSNorm(cfg.dim, cfg.norm_eps)
        self.output = nn.Linear(cfg.dim, cfg.vocab, bias=False)
        self.register_buffer("freqs_cis", rope_table(cfg), persistent=False)

    def init_weights(self) -> None:
        """Normal 0.02 everywhere and a zero output layer, as the published code starts."""
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        nn.init.zeros_(self.output.weight)

    def forward(self, labels: Tensor, codes: Tensor) -> Tensor:
        """Laws of all codes: labels int64 [B], codes int64 [B, n] → logits [B, n + 1, vocab]."""
        x = torch.cat([self.cls_embedding.embedding_table(labels)[:, None], self.tok_embeddings(codes)], 1)
        table = self.freqs_cis[: x.shape[1]]
        for i, block in enumerate(self.layers):
            x = block(x, table, None, i, None)
        return self.output(self.norm(x))

    def extend(self, labels: Tensor, codes: Tensor, cache: Cache) -> Tensor:
        """Feed codes [B, n] after what the cache holds; an empty cache is first given the class token.

        Returns logits [B, n (+ 1 for the class token), vocab]; the last row is the law of the next code.
        """
        x = self.tok_embeddings(codes)
        if cache.length == 0:
            x = torch.cat([self.cls_embedding.embedding_table(labels)[:, None], x], 1)
        n, start = x.shape[1], cache.length
        table = self.freqs_cis[start : start + n]
        mask = None
        if n > 1:  # row i sees the cache and the fed tokens up to itself
            mask = torch.ones(n, start + n, dtype=torch.bool, device=x.device).tril(start)
        for i, block in enumerate(self.layers):
            x = block(x, table, cache, i, mask)
        cache.length += n
        return self.output(self.norm(x))
