"""Measures the built-in continuous pair; the parts are run by `python -m csd.training evaluate`.

Parts: mar-loss, mar-classes, mar-alignment, mar-methods, mar-sheet. Every run but those of mar-classes goes through the
real decoder, one picture at a time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from tqdm import tqdm

from csd import LATENT_METHODS, Trace, decode_latents
from csd.models.builtin import choose_threads, load_garden_mar
from csd.models.mar import MAR, Diffusion
from csd.switches import PRESETS, CSpD
from csd.training import classifier, mar
from csd.training.run import sheet

if TYPE_CHECKING:
    from csd.training.evaluate import Bench

GUIDANCE = 1.5
TEMPERED = CSpD(inner_temperature=42.0)  # sequential and without S: the inner temperature alone


def macs(net: MAR, known: int, steps: int = 25) -> int:
    """Multiply-adds of one forward for one row that knows `known` tokens, and of one token's chain."""
    size = lambda part: sum(p.numel() for p in part.parameters() if p.dim() == 2)  # noqa: E731
    c, cells = net.cfg, net.cfg.cells
    inside = c.buffer + known
    attention = 2 * c.dim * (inside**2 * c.encoder_layers + (c.buffer + cells) ** 2 * c.decoder_layers)
    body = inside * size(net.encoder_blocks) + (c.buffer + cells) * size(net.decoder_blocks)
    return body + attention + steps * size(net.diffloss)


def part_loss(b: Bench, pictures: int = 256) -> dict:
    """Held-out noise prediction error at fixed masks and noise, parameters, cost of a call in the middle of a picture."""
    pair, out = load_garden_mar(b.assets), {}
    x = b.check[:: max(1, len(b.check) // pictures)]
    labels = b.labels[b.held][:: max(1, len(b.check) // pictures)]
    for model in pair:
        rng, losses = torch.Generator().manual_seed(5), []
        for part, y in zip(x.split(32), labels.split(32), strict=True):
            with torch.no_grad():
                z = mar.latents(model.tokenizer, part)
                known = mar.masking(len(part), z.shape[1], rng)
                context = model.model.contexts(y, z, known)[~known]
                t = torch.randint(0, Diffusion.TRAIN_STEPS, (len(context),), generator=rng)
                noise = torch.randn(len(context), z.shape[2], generator=rng)
                xt = Diffusion(Diffusion.TRAIN_STEPS).noised(z[~known], t, noise)
                eps = model.model.diffloss.net(xt, t, context).chunk(2, -1)[0]
                losses.append(float(((eps - noise) ** 2).mean()))
        out[model.name] = {"held_out_noise_error": statistics.fmean(losses), "macs_per_call": macs(model.model, 128),
                           "parameters": sum(p.numel() for p in model.model.parameters())}  # fmt: skip
    target, draft = (out[m.name] for m in pair)
    return out | {"draft_cost_ratio": draft["macs_per_call"] / target["macs_per_call"]}


def part_classes(b: Bench, per_class: int = 4) -> dict:
    """A classifier's accuracy on pictures of the continuous target against its accuracy on held-out reconstructions."""
    model, _ = load_garden_mar(b.assets)
    judge = classifier.load(b.runs / "classifier.ckpt", len(b.names))
    offered = [i for i, n in enumerate(b.names) if n in model.labels]
    labels = torch.tensor(offered).repeat_interleave(per_class)
    rng, right = torch.Generator().manual_seed(3), []
    for part in tqdm(labels.split(16), desc="drawing"):
        z = mar.sample(model.model, part, GUIDANCE, 32, 25, rng)
        grids = (z / model.width**0.5).transpose(1, 2).unflatten(2, model.grid)
        with torch.no_grad():
            right.append(classifier.predict(judge, model.tokenizer.decode_latent(grids).clamp(-1, 1)) == part)
    right = torch.cat(right)
    by_class = {b.names[i]: float(right[labels == i].float().mean()) for i in offered}
    base = _reconstructions(b, judge, model, offered)
    return {"pictures": len(labels), "guidance": GUIDANCE, "steps": 32, "accuracy_generated": float(right.float().mean()),
            "accuracy_reconstructions": base, "ratio": float(right.float().mean()) / base,
            "weakest": dict(sorted(by_class.items(), key=lambda kv: kv[1])[:10])}  # fmt: skip


@torch.no_grad()
def _reconstructions(b: Bench, judge: torch.nn.Module, model, offered: list[int]) -> float:
    """Accuracy on held-out pictures through the autoencoder without quantising."""
    held = b.labels[b.held]
    rebuilt = [model.tokenizer.decode_latent(model.tokenizer.latent(part)).clamp(-1, 1) for part in b.check.split(64)]
    right = classifier.predict(judge, torch.cat(rebuilt)) == held
    return float(right[torch.isin(held, torch.tensor(offered))].float().mean())


def run(pair: tuple, settings: CSpD, label: str, seed: int) -> Trace:
    return Trace(decode_latents(pair[0], LATENT_METHODS["cspd"], label, asdict(settings), seed, pair[1]))


def run_plain(pair: tuple, settings: CSpD, label: str, seed: int, iterations: int) -> Trace:
    m = LATENT_METHODS["mar"]
    knobs = {k.name: getattr(settings, k.name) for k in m.knobs if k.name != "iterations"} | {"iterations": iterations}
    return Trace(decode_latents(pair[0], m, label, knobs, seed))


def token_distance(traces: list[Trace]) -> float:
    """Mean Euclidean distance of draft and target means in the last transition, in latent units (variance 1)."""
    rows = [np.array(r.tests[k]) for t in traces for r in t.rounds if r.tests for k in ("mean_p", "mean_q")]
    p, q = np.concatenate(rows[::2]), np.concatenate(rows[1::2])
    return float(np.linalg.norm(p - q, axis=1).mean())


def part_alignment(b: Bench, pictures: int = 6) -> dict:
    """Shared noise on and off, and the pre-fill share: distance of draft and target tokens and acceptance."""
    pair = load_garden_mar(b.assets)
    choose_threads(pair[0])
    variants = {f"shared noise, pre-fill {share}": replace(TEMPERED, prefill=share) for share in (0.0, 0.05, 0.15, 0.3)}
    variants["own noise, pre-fill 0.05"] = replace(TEMPERED, shared_noise=False)
    jobs = [(pair[0].labels[i * 7 % len(pair[0].labels)], i) for i in range(pictures)]
    out = {}
    for name, settings in variants.items():
        traces = [run(pair, settings, *job) for job in tqdm(jobs, desc=name)]
        ends = [t.footer.totals for t in traces]
        out[name] = {"acceptance": sum(e["accepted"] for e in ends) / sum(e["examined"] for e in ends),
                     "target_forwards": statistics.fmean(e["target_forwards"] for e in ends),
                     "token_distance": token_distance(traces),
                     "distance_sigmas_mean": statistics.fmean(e["mean_distance"] for e in ends),
                     "distance_sigmas_median": statistics.median(e["median_distance"] for e in ends)}  # fmt: skip
    return {"pictures": pictures, "rule": "sequential, S off, inner temperature 42, draft length 4", "variants": out}


def part_methods(b: Bench, pictures: int = 3) -> dict:
    """Calls, head steps, acceptance and seconds of plain MAR and of the presets, interleaved, in one run."""
    pair = load_garden_mar(b.assets)
    threads = choose_threads(pair[0])
    speculative = {**PRESETS, "inner temperature 42 alone": TEMPERED}
    rows: dict[str, list[dict]] = {}
    for seed in tqdm(range(pictures), desc="methods"):
        label = pair[0].labels[seed * 11 % len(pair[0].labels)]
        for name, settings in speculative.items():
            rows.setdefault(name, []).append(run(pair, settings, label, seed).footer.totals)
        fixed = rows["code"][-1]["target_forwards"]
        for steps in (256, fixed, 32):
            end = run_plain(pair, CSpD(), label, seed, steps).footer.totals
            rows.setdefault(f"plain MAR, {steps} steps", []).append(end)
    keys = ("target_forwards", "target_rows", "draft_forwards", "head_steps", "acceptance_rate", "median_distance",
            "fallbacks", "trials", "seconds", "seconds_draft", "seconds_target", "seconds_verify")  # fmt: skip
    middle = lambda key, values: (statistics.median if "seconds" in key else statistics.fmean)(values)  # noqa: E731
    table = {
        name: {k: None if rs[0][k] is None else middle(k, [r[k] for r in rs]) for k in keys} for name, rs in rows.items()
    }
    return {"pictures": pictures, "threads": threads, "methods": table}


def part_sheet(b: Bench, steps: int = 64) -> dict:
    """Contact sheet of 8 classes × 8 seeds, drawn by plain MAR through the real decoder; needs a look, not a number."""
    from csd.pictures import image
    from csd.training.evaluate import SHEET

    pair, tiles = load_garden_mar(b.assets), []
    choose_threads(pair[0])
    for label in tqdm(SHEET, desc="sheet"):
        for seed in range(8):
            trace = run_plain(pair, CSpD(guidance=GUIDANCE), label, seed, steps)
            tiles.append(torch.from_numpy(np.asarray(image(pair[0], trace)).copy()).permute(2, 0, 1) / 127.5 - 1)
    sheet(torch.stack(tiles), 8).save(b.assets / "garden-mar-sheet.webp", quality=90)
    return {"labels": list(SHEET), "steps": steps, "guidance": GUIDANCE}


PARTS: dict[str, Callable[[Bench], dict]] = {
    "mar-loss": part_loss, "mar-classes": part_classes, "mar-alignment": part_alignment, "mar-methods": part_methods,
    "mar-sheet": part_sheet,
}  # fmt: skip
