"""Puts trained weights into assets/ in half precision, with the description the loader reads."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from csd.training import data, mar, tokenizer, transformer

FILES = {"tokenizer": "garden-tokenizer", "target": "garden", "draft": "garden-draft",
         "mar-target": "garden-mar", "mar-draft": "garden-mar-draft"}  # fmt: skip


def pack(folder: Path, runs: Path, assets: Path, leave_out: list[str]) -> None:
    """Write what exists in `runs` to `assets`; `leave_out` names classes that are not to be offered."""
    _, _, names = data.load(folder)
    unknown = set(leave_out) - set(names)
    if unknown:
        raise ValueError(f"no such classes: {', '.join(sorted(unknown))}")
    for part, file in FILES.items():
        source = runs / f"{part}.safetensors"
        if source.is_file():
            half = {k: v.to(torch.float16) if v.dtype == torch.float32 else v for k, v in load_file(source).items()}
            save_file(half, assets / f"{file}.safetensors")
    judge = runs / "classifier.ckpt"
    if judge.is_file():
        weights = torch.load(judge, weights_only=True, map_location="cpu")["model"]
        save_file({k: v.to(torch.float16).contiguous() for k, v in weights.items()}, assets / "garden-judge.safetensors")
    vq = tokenizer.CONFIG
    card = {
        "tokenizer": asdict(vq),
        "target": asdict(transformer.config("target", len(names), vq.vocab)),
        "draft": asdict(transformer.config("draft", len(names), vq.vocab)),
        **{part: asdict(mar.config(part, len(names), vq)) for part in mar.SIZES},
        "classes": names,
        "labels": {name: i for i, name in enumerate(names) if name not in leave_out},
    }
    (assets / "garden.json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
