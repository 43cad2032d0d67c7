"""Measures the built-in models: every figure of the model card comes from `python -m csd.training evaluate`.

Parts: tokenizer, nats, classes, premise, speed, methods, gate, sheet, and those of `evaluate_mar`. Results are printed and
merged into assets/garden-figures.json.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from csd import METHODS, Sampling, Trace, decode
from csd.models.builtin import LlamaGenModel, load_garden
from csd.training import classifier, data, evaluate_mar, tokenizer, transformer
from csd.training.run import sheet

SHEET = ("lemon", "clementine", "banana", "kiwi", "pineapple", "Granny Smith apple", "raspberry", "cherry")


class Bench:
    """The models and held-out data that the parts share."""

    def __init__(self, folder: Path, runs: Path, assets: Path):
        self.runs, self.assets = runs, assets
        self.target, self.draft = load_garden(assets)
        self.pictures, self.labels, self.names = data.load(folder)
        _, self.held = data.split(self.labels)
        self.check = data.held_out_pictures(self.pictures, self.held)

    @torch.no_grad()
    def codes(self, x: Tensor) -> Tensor:
        return torch.cat([self.target.tokenizer.encode(part) for part in x.split(64)])

    @torch.no_grad()
    def pixels(self, codes: Tensor) -> Tensor:
        parts = codes.reshape(-1, *self.target.grid).split(64)
        return torch.cat([self.target.tokenizer.decode(part).clamp(-1, 1) for part in parts])


def part_tokenizer(b: Bench) -> dict:
    """PSNR on held-out pictures and codebook use."""
    return tokenizer.evaluate(b.target.tokenizer, b.check)


def part_nats(b: Bench) -> dict:
    """Held-out loss per token, parameters, and cost per token."""
    some = slice(None, None, max(1, len(b.held) // 512))
    codes, labels = b.codes(b.check[some]).flatten(1), b.labels[b.held][some]
    out = {}
    for model in (b.target, b.draft):
        net = model.transformer
        out[model.name] = {
            "held_out_nats": transformer.held_out_loss(net, labels, codes),
            "parameters": sum(p.numel() for p in net.parameters()),
            "macs_per_token": net.cfg.macs_per_token,
        }
    out["draft_cost_ratio"] = out[b.draft.name]["macs_per_token"] / out[b.target.name]["macs_per_token"]
    return out


def part_classes(b: Bench, per_class: int = 8, guidance: float = 1.5) -> dict:
    """A classifier's accuracy on generated pictures against its accuracy on held-out reconstructions, per class too."""
    judge = classifier.load(b.runs / "classifier.ckpt", len(b.names))
    rebuilt = classifier.predict(judge, b.pixels(b.codes(b.check))) == b.labels[b.held]
    labels = torch.arange(len(b.names)).repeat_interleave(per_class)
    rng, drawn = torch.Generator().manual_seed(3), []
    for part in tqdm(labels.split(64), desc="drawing"):
        drawn.append(transformer.sample(b.target.transformer, part, guidance, rng))
    right = classifier.predict(judge, b.pixels(torch.cat(drawn))) == labels
    by_class = {n: float(right[labels == i].float().mean()) for i, n in enumerate(b.names)}
    offered = torch.tensor([n in b.target.labels for n in b.names])
    share = float(right[offered[labels]].float().mean())
    base = float(rebuilt[offered[b.labels[b.held]]].float().mean())
    return {"pictures": int(offered[labels].sum()), "guidance": guidance, "accuracy_generated": share,
            "accuracy_reconstructions": base, "ratio": share / base,
            "accuracy_photos": classifier.accuracy(judge, b.check, b.labels[b.held]),
            "weakest": dict(sorted(by_class.items(), key=lambda kv: kv[1])[:10])}  # fmt: skip


def cell_detail(picture: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """How detailed each cell is: standard deviation of luminance over the cell and half a cell around it, [cells]."""
    lum = picture.astype(np.float64) @ [0.299, 0.587, 0.114]
    h, w = lum.shape[0] // grid[0], lum.shape[1] // grid[1]
    padded = np.pad(lum, ((h // 2, h // 2), (w // 2, w // 2)), mode="reflect")
    out = [padded[r * h : (r + 2) * h, c * w : (c + 2) * w].std() for r in range(grid[0]) for c in range(grid[1])]
    return np.array(out)


def run_once(
    target: LlamaGenModel, draft: LlamaGenModel, name: str, label: str, seed: int, knobs: dict | None = None
) -> Trace:
    return Trace(decode(target, METHODS[name], label, Sampling(), knobs, seed, draft))


def part_premise(b: Bench, pictures: int = 64) -> dict:
    """Mean entropy of the target on the most and on the least detailed quarter of cells, over pictures drawn by AR."""
    low, high, correlation = [], [], {}
    for i in tqdm(range(pictures), desc="premise"):
        label = b.target.labels[i % len(b.target.labels)]
        trace = run_once(b.target, b.draft, "ar", label, i)
        H = np.array([h for r in trace.rounds for h in r.cells["H"]])
        detail = cell_detail(b.target.decode(np.array(trace.tokens)), b.target.grid)
        order = np.argsort(detail, kind="stable")
        quarter = len(order) // 4
        low.append(H[order[:quarter]].mean())
        high.append(H[order[-quarter:]].mean())
        correlation[label] = float(np.corrcoef(H, detail)[0, 1])
    values = sorted(correlation.items(), key=lambda kv: kv[1])
    return {"pictures": pictures, "mean_H_most_detailed_quarter": float(np.mean(high)),
            "mean_H_least_detailed_quarter": float(np.mean(low)),
            "pictures_where_detail_has_lower_H": int(np.sum(np.array(high) < np.array(low))),
            "mean_correlation": statistics.fmean(correlation.values()),
            "lowest": dict(values[:4]), "highest": dict(values[-4:])}  # fmt: skip


def part_speed(b: Bench) -> dict:
    """Median milliseconds of one guided forward by window, thread count and dtype, at a half-full cache."""
    out = {}
    for dtype in ("float32", "bfloat16"):
        for model in load_garden(b.assets, dtype):
            for threads in (1, 2):
                torch.set_num_threads(threads)
                session = model.open(model.labels[0], 1.5)
                session.forward(np.zeros(128, np.int64))
                row = {w: _median_ms(session, w) for w in (1, 4, 8, 16, 32)}
                out[f"{model.name} {dtype} {threads} threads"] = row
    return out


def _median_ms(session, window: int, repeats: int = 40) -> float:
    times, tokens = [], np.zeros(window, np.int64)
    for _ in range(repeats):
        start = perf_counter()
        session.forward(tokens)
        times.append(perf_counter() - start)
        session.rollback(window)
    return round(1000 * statistics.median(times), 3)


def part_methods(b: Bench, seeds: int = 20) -> dict:
    """Forwards, seconds and acceptance per method over the same labels and seeds, in one run, methods interleaved."""
    from csd.models.builtin import choose_threads

    threads = choose_threads(b.target)
    variants: dict[str, tuple[str, dict]] = {
        "ar": ("ar", {}), "sd": ("sd", {}), "sjd": ("sjd", {}), "csd δ .35": ("csd", {"delta": 0.35}),
        "csd δ .65": ("csd", {"delta": 0.65}), "csd δ .8": ("csd", {"delta": 0.8}), "csd-sd δ .65": ("csd-sd", {}),
    }  # fmt: skip
    rows: dict[str, list[dict]] = {name: [] for name in variants}
    for seed in tqdm(range(seeds), desc="methods"):
        label = b.target.labels[seed * 3 % len(b.target.labels)]
        for name, (m, knobs) in variants.items():
            rows[name].append(run_once(b.target, b.draft, m, label, seed, knobs).footer.totals)
    keys = ("committed", "target_forwards", "draft_forwards", "acceptance_rate", "mean_H", "drift", "calibration",
            "seconds", "seconds_model", "seconds_draft", "seconds_target", "seconds_verify", "seconds_record")  # fmt: skip
    table = {name: {k: _middle(k, [t[k] for t in rs]) for k in keys} for name, rs in rows.items()}
    return {"seeds": seeds, "threads": threads, "dtype": b.target.dtype_name, "methods": table}


def _middle(key: str, values: list) -> float | None:
    """Median for times (machines are noisy), mean for counts."""
    if any(v is None for v in values):
        return None
    return statistics.median(values) if key.startswith("seconds") else statistics.fmean(values)


def part_gate(b: Bench) -> dict:
    """CSD's gate from closed to open: forwards, accepted drafts, and how many of them were uniform fillers; the strip."""
    out, rows = {}, []
    for delta in (0, 0.35, 0.65, 0.8, 0.9, 0.95, 1.01):
        traces = [
            run_once(b.target, b.draft, "csd", label, seed, {"delta": delta})
            for seed, label in enumerate(("lemon", "kiwi", "pineapple", "banana"))
        ]
        kept = [o for t in traces for r in t.rounds for o in r.origin[: r.accepted]]
        forwards = statistics.fmean(t.footer.totals["target_forwards"] for t in traces)
        out[str(delta)] = {"target_forwards": forwards, "accepted": len(kept), "fillers": kept.count("fill")}
        rows.append(np.concatenate([b.target.decode(np.array(t.tokens)) for t in traces], 1))
    strip = Image.fromarray(np.concatenate(rows))
    strip.resize((3 * strip.width, 3 * strip.height), Image.NEAREST).save(b.assets / "delta.webp", quality=88)
    return out


def part_sheet(b: Bench) -> dict:
    """Contact sheet of 8 classes × 8 seeds, drawn by AR through the real decoder; needs a look, not a number."""
    tiles = []
    for label in tqdm(SHEET, desc="sheet"):
        for seed in range(8):
            tokens = run_once(b.target, b.draft, "ar", label, seed).tokens
            tiles.append(torch.from_numpy(b.target.decode(np.array(tokens))).permute(2, 0, 1) / 127.5 - 1)
    sheet(torch.stack(tiles), 8).save(b.assets / "garden-sheet.webp", quality=90)
    return {"labels": list(SHEET)}


PARTS: dict[str, Callable[[Bench], dict]] = {
    "tokenizer": part_tokenizer, "nats": part_nats, "classes": part_classes, "premise": part_premise,
    "speed": part_speed,
    "methods": part_methods, "gate": part_gate, "sheet": part_sheet, **evaluate_mar.PARTS,
}  # fmt: skip


def evaluate(folder: Path, runs: Path, assets: Path, parts: list[str]) -> None:
    bench, path = Bench(folder, runs, assets), assets / "garden-figures.json"
    figures = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for part in parts:
        figures[part] = PARTS[part](bench)
        print(part, json.dumps(figures[part], indent=1, ensure_ascii=False), flush=True)
        path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
