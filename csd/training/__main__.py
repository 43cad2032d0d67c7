"""python -m csd.training: how the files in assets/ were made.

tokenizer, target, draft, mar-target, mar-draft, classifier: train one part for --minutes (resumable)
distil: the trained draft learns the laws of the trained target
pack: put the weights into assets/
evaluate: measure everything the model card states
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file

JOBS = ["tokenizer", "target", "draft", "distil", "mar-target", "mar-draft", "classifier", "pack", "evaluate"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m csd.training", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("part", choices=JOBS)
    parser.add_argument("--data", type=Path, required=True, help="folder with images.zip, labels.tsv, classes.json")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="checkpoints, logs, samples")
    parser.add_argument("--assets", type=Path, default=Path("assets"))
    parser.add_argument("--minutes", type=float, default=20, help="time budget, a resumed job's earlier time included")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--leave-out", nargs="*", default=[], help="pack: classes not to offer")
    parser.add_argument("--only", nargs="*", default=None, help="evaluate: parts to measure")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    common = (args.data, args.runs, args.minutes, args.resume)
    if args.part == "tokenizer":
        from csd.training.tokenizer import train

        train(*common, args.runs / "tokenizer.safetensors")
    elif args.part in ("target", "draft", "distil", "mar-target", "mar-draft"):
        from csd.models.vq import VQModel
        from csd.training import mar, tokenizer, transformer

        vq = VQModel(tokenizer.CONFIG).to(memory_format=torch.channels_last)
        vq.load_state_dict(load_file(args.runs / "tokenizer.safetensors"))
        if args.part == "distil":
            weights, teacher = args.runs / "draft.safetensors", args.runs / "target.safetensors"
            transformer.train(*common, weights, "draft", vq, teacher)
        else:
            trainer = mar if args.part.startswith("mar") else transformer
            trainer.train(*common, args.runs / f"{args.part}.safetensors", args.part, vq)
    elif args.part == "classifier":
        from csd.training.classifier import train

        train(*common)
    elif args.part == "pack":
        from csd.training.pack import pack

        pack(args.data, args.runs, args.assets, args.leave_out)
    else:
        from csd.training.evaluate import PARTS, evaluate

        evaluate(args.data, args.runs, args.assets, args.only or list(PARTS))


main()
