"""The command line: methods, generate, info, whatif, bench. Bad input ends with one line on stderr and exit code 2."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from datetime import date
from pathlib import Path

from csd import metrics
from csd.continuous import decode_latents
from csd.decode import decode
from csd.errors import InputError
from csd.methods import ALL_METHODS, LatentMethod, Method, method, preset
from csd.models import for_kind
from csd.rules import RULES
from csd.sampling import Sampling
from csd.trace import Footer, Trace
from csd.trace import load as load_trace


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m csd", description="Speculative decoding of images.")
    commands = parser.add_subparsers(required=True, metavar="command")
    c = commands.add_parser("methods", help="list methods, models and parameters")
    c.add_argument("--json", action="store_true", help="one JSON object instead of text")
    c.set_defaults(run=run_methods)
    c = commands.add_parser("generate", help="draw one picture and account for it")
    c.add_argument("--model", help="model name (default: the first built-in one the method can use)")
    c.add_argument("--label", default="lemon", help="what to draw (default: lemon)")
    c.add_argument("--method", default="csd", help="decoding method (default: csd)")
    c.add_argument("--seed", default=0, help="whole number; same seed and settings, same picture")
    c.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings",
                   help="a parameter of the method or of sampling, e.g. delta=0.65 or guidance=2")  # fmt: skip
    c.add_argument("--preset", help="published settings, e.g. code for gsd, exact for cspd; --set changes single ones")
    c.add_argument("--dtype", default="float32", help="float32 or bfloat16 (default: float32)")
    c.add_argument("--threads", default=0, help="torch threads; 0 measures which count is fastest")
    c.add_argument("--keep-full", default="", metavar="CELLS",
                   help="store whole p and q: 'all' or cell numbers, e.g. 17,18")  # fmt: skip
    c.add_argument("--out", help="picture file to write (.png, .webp, .jpg)")
    c.add_argument("--trace", help="trace file to write")
    c.add_argument("--pictures", action="store_true", help="put partial pictures into the trace, for replay")
    c.add_argument("--json", action="store_true", help="last line: one JSON object")
    c.set_defaults(run=run_generate)
    c = commands.add_parser("info", help="check a trace and print what it holds")
    c.add_argument("trace")
    c.add_argument("--json", action="store_true", help="one JSON object instead of text")
    c.set_defaults(run=run_info)
    c = commands.add_parser("bench", help="methods against each other on one model: forwards, seconds, quality")
    c.add_argument("methods", nargs="*", metavar="METHOD", help="e.g. sjd csd:delta=0.35,window=32 scd cspd:preset=code")
    c.add_argument("--model", help="model name (default: the first built-in one the methods can use)")
    c.add_argument("--pictures", default=20, help="pictures per method (default: 20)")
    c.add_argument("--labels", default="", help="labels, separated by commas (default: all, in turn)")
    c.add_argument("--guidance", default=1.5, help="guidance of discrete methods (default: 1.5)")
    c.add_argument("--threads", default=0, help="torch threads; 0 measures which count is fastest")
    c.add_argument("--out", default="runs/bench", help="folder for the rows; the same call continues there")
    c.add_argument("--verify", action="store_true",
                   help="no model: what judging a round costs, against a loop over its positions")  # fmt: skip
    c.add_argument("--json", action="store_true", help="last line: one JSON object")
    c.set_defaults(run=run_bench)
    c = commands.add_parser("whatif", help="judge a trace's drafts again by another rule")
    c.add_argument("trace")
    c.add_argument("--rule", default="csd", help="the other rule (default: csd)")
    c.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings", help="a parameter of the rule"
    )
    c.add_argument("--json", action="store_true", help="one JSON object instead of text")
    c.set_defaults(run=run_whatif)
    return parser


def run_methods(args: argparse.Namespace) -> int:
    from csd.models import MODELS

    if args.json:
        out = {m.name: {"title": m.title, "kind": m.kind, "formula": _formula(m), "source": m.source,
                        "parameters": {k.name: [*k.allowed, k.default] for k in m.knobs}}
               | {"presets": {name: values for name, (values, _) in m.presets.items()}}
               | ({"lossless": m.lossless} if m.kind == "discrete" else {})
               for m in ALL_METHODS.values()}  # fmt: skip
        print(json.dumps({"methods": out, "models": {name: vars(e) for name, e in MODELS.items()}}))
        return 0
    for m in ALL_METHODS.values():
        exact = "continuous tokens" if m.kind == "continuous" else "exact" if m.lossless else "not exact"
        print(f"{m.name:8}{m.title} ({exact})\n        {m.summary}")
        print(f"        rule: {_formula(m) or 'none'}   source: {m.source}")
        for k in m.knobs:
            print(f"        {k.name}: {k.describe()}. {k.meaning}")
        for name, (_, meaning) in m.presets.items():
            print(f"        preset {name}: {meaning}")
    print("sampling of discrete tokens: " + ", ".join(f"{f.name} (default {f.default:g})" for f in fields(Sampling)))
    for name, entry in MODELS.items():
        print(f"model   {name}: {entry.title} ({entry.kind})")
    return 0


def _formula(m: Method | LatentMethod) -> str:
    return m.formula if m.kind == "continuous" else m.rule.formula


def parse_settings(pairs: list[str], m: Method | LatentMethod) -> tuple[dict[str, str], dict[str, str]]:
    """Split NAME=VALUE pairs into sampling and method parameters. Raises InputError for unknown names."""
    names = [f.name for f in fields(Sampling)] if m.kind == "discrete" else []
    sampling, knobs = {}, {}
    for pair in pairs:
        name, value = _pair(pair)
        known = [k.name for k in m.knobs]
        if name not in names + known:
            raise InputError(f"unknown parameter {name[:40]!r} for {m.name}; allowed: {', '.join(known + names)}")
        (sampling if name in names else knobs)[name] = value
    return sampling, knobs


def run_generate(args: argparse.Namespace) -> int:
    from csd.errors import number
    from csd.models import load as load_model
    from csd.pictures import image, with_pictures

    m = method(args.method)
    chosen, knobs = parse_settings(args.settings, m)
    if args.preset is not None:
        knobs = preset(m, args.preset) | knobs
    sampling = Sampling(**chosen)
    m.settings(knobs)  # bad values are told before a model is loaded
    seed = number("seed", args.seed, 0, 2**63 - 1, whole=True)
    threads = number("threads", args.threads, 0, 256, whole=True)
    for path in filter(None, (args.out, args.trace)):
        if not Path(path).absolute().parent.is_dir():
            raise InputError(f"there is no folder to write {Path(path).name} into")
    if m.kind == "continuous" and args.keep_full:
        raise InputError("--keep-full is for discrete tokens; a continuous trace holds every mean and sigma as it is")
    target, draft = load_model(for_kind(m.kind, args.model), args.dtype)
    cells = target.grid[0] * target.grid[1]
    keep = _cells(args.keep_full, cells)
    m.settings(knobs, cells)
    target.open(args.label, 1.0, *[2][: m.kind == "continuous"])  # an unknown label should not cost a measurement first
    threads = _threads(target, threads)
    if m.kind == "continuous":
        events = decode_latents(target, m, args.label, knobs, seed, draft)
    else:
        events = decode(target, m, args.label, sampling, knobs, seed, draft, keep_full=keep)
    trace = Trace()
    for _ in trace.record(with_pictures(events, target) if args.pictures else events):
        pass
    if args.out:
        _save_picture(image(target, trace), args.out)
    if args.trace:
        trace.save(args.trace)
    _print_totals(_head(trace) | {"threads": threads, "dtype": trace.header.logits_dtype}, trace.footer, args.json)
    return 0


def _head(trace: Trace) -> dict:
    """What was run, in the order people ask."""
    h = trace.header
    preset = {"preset": h.preset} if h.preset else {}
    return {k: getattr(h, k) for k in ("model", "label", "method")} | preset | {
        k: getattr(h, k) for k in ("seed", "knobs", "sampling")}  # fmt: skip


def _threads(target: object, wanted: int) -> int:
    from csd.models.builtin import choose_threads

    if not wanted:
        return choose_threads(target)
    import torch

    torch.set_num_threads(wanted)
    return wanted


def _cells(text: str, cells: int) -> range | list[int]:
    if text.strip() == "all":
        return range(cells)
    try:
        chosen = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        chosen = [-1]
    if any(not 0 <= c < cells for c in chosen):
        raise InputError(f"--keep-full takes 'all' or cell numbers from 0 to {cells - 1}, separated by commas")
    return chosen


def _save_picture(picture, path: str) -> None:
    try:
        picture.save(path)
    except (ValueError, OSError):
        raise InputError(f"cannot write picture {Path(path).name}; allowed endings: .png, .webp, .jpg") from None


def run_info(args: argparse.Namespace) -> int:
    trace = load_trace(args.trace)
    h, end = trace.header, trace.footer
    head = _head(trace) | {"grid": h.grid} | ({"width": h.width} if h.kind == "continuous" else {"vocab": h.vocab})
    if end is None:
        from csd.trace import footer

        end = footer(trace.rounds, h.cells, "stopped")
        head["note"] = "no footer: the run was still going when this was written"
    _print_totals(head | {"events": len(trace.events)}, end, args.json)
    return 0


def run_bench(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from csd import bench
    from csd.errors import choose, number
    from csd.models import load as load_model
    from csd.quality import Judge

    if args.verify:
        return _bench_verify(args)
    if not args.methods:
        raise InputError(f"name at least one method, e.g. sjd csd:delta=0.35; allowed: {', '.join(ALL_METHODS)}")
    chosen = [bench.Variant.parse(text) for text in dict.fromkeys(args.methods)]
    kinds = {v.method.kind for v in chosen}
    if len(kinds) > 1:
        raise InputError("one bench takes methods of one kind of tokens, discrete or continuous")
    reference = {"discrete": "ar", "continuous": "mar"}[kinds.pop()]
    if all(v.text != reference for v in chosen):
        chosen.insert(0, bench.Variant.parse(reference))  # quality is measured against the target's own samples
    pictures = number("pictures", args.pictures, 1, 100_000, whole=True)
    threads = number("threads", args.threads, 0, 256, whole=True)
    sampling = Sampling(guidance=args.guidance)
    pair = load_model(for_kind(chosen[0].method.kind, args.model))
    labels = [choose("label", part.strip(), pair[0].labels) for part in args.labels.split(",") if part.strip()]
    threads = _threads(pair[0], threads)
    todo = list(bench.jobs(chosen, labels or pair[0].labels, pictures, reference))
    with tqdm(total=len(todo), desc="bench", disable=None) as bar:
        for _ in bench.measure(todo, pair, sampling, Path(args.out), Judge()):
            bar.update()
    names = dict.fromkeys(name for _, name, _, _ in todo)
    wanted = {job[1:] for job in todo}
    found = [r for r in bench.rows(Path(args.out)) if (r["name"], r["label"], r["seed"]) in wanted]
    out = {"model": pair[0].name, "threads": threads, "date": date.today().isoformat(), "machine": bench.machine(),
           "guidance": sampling.guidance, "table": bench.table(found, list(names), reference)}  # fmt: skip
    (Path(args.out) / "table.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(out) if args.json else "\n".join(_bench_lines(out["table"])))
    return 0


def _bench_verify(args: argparse.Namespace) -> int:
    import torch

    from csd.bench_verify import measure

    if args.methods:
        raise InputError("bench --verify measures the rules' own code and takes no methods")
    torch.set_num_threads(1)
    table = list(measure())
    if args.json:
        print(json.dumps({"threads": 1, "table": table}))
        return 0
    print(f"one round of {table[0]['positions']} positions, V = {table[0]['vocab']}, one thread, medians in ms")
    columns = {"judge": "here", "loop_torch": "torch loop", "torch_ratio": "ratio", "loop_numpy": "numpy loop",
               "numpy_ratio": "ratio"}  # fmt: skip
    print(" " * 8 + "".join(f"{title:>12}" for title in columns.values()))
    for row in table:
        print(f"{row['rule']:8}" + "".join(f"{row[key]:12.3g}" for key in columns))
    return 0


def _bench_lines(table: list[dict]) -> list[str]:
    columns = {"target_forwards": "target", "draft_forwards": "draft", "tokens_per_forward": "per forward",
               "rounds_of_one": "of one", "acceptance_rate": "accepted", "drift": "drift",
               "drift_at_high_H": "at high H", "calibration": "Z", "seconds": "seconds", "frechet": "Fréchet",
               "frechet_se": "±", "class_accuracy": "class", "diversity": "diversity"}  # fmt: skip
    show = lambda v: "n/a" if v is None else f"{v:.3g}"  # noqa: E731
    wide = max(len(row["name"]) for row in table) + 2
    lines = [" " * wide + "".join(f"{title:>12}" for title in columns.values())]
    return lines + [f"{row['name']:{wide}}" + "".join(f"{show(row.get(k)):>12}" for k in columns) for row in table]


def run_whatif(args: argparse.Namespace) -> int:
    from csd.space import Space
    from csd.whatif import rejudge

    trace = load_trace(args.trace)
    knobs = dict(_pair(text) for text in args.settings)
    space = None
    if args.rule in RULES and RULES[args.rule].pools:
        from csd.models import load as load_model

        space = Space(load_model(for_kind("discrete", trace.header.model))[0].embeddings())
    out = {"rule": args.rule, "was": trace.header.rule, **rejudge(trace, args.rule, knobs, space).summary()}
    if args.json:
        print(json.dumps(out))
    else:
        for key, value in out.items():
            print(f"{key:18}{'none' if value is None else value}")
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set takes NAME=VALUE, not {text[:40]!r}")
    return name, value


def _print_totals(head: dict, end: Footer, as_json: bool) -> None:
    everything = head | {"status": end.status} | end.totals
    if as_json:
        print(json.dumps(everything))
        return
    for key, value in everything.items():
        text = "n/a" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
        print(f"{key:18}{text:24}{metrics.DEFINITIONS.get(key, '')}".rstrip())
