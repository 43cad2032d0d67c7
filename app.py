"""The page: wiring only. Models and decoding are in csd/, everything drawn is in viz/.

python app.py        then open the address it prints
"""

from __future__ import annotations

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before gradio is imported: no calls home

import shutil
import sys
import tempfile
import uuid
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import gradio as gr

from csd import ALL_METHODS, MODELS, InputError, Sampling, Trace, decode, decode_latents, load, method
from csd.continuous import fixed_calls
from csd.errors import choose, number
from csd.methods import CORRECT, COUPLING, FILL, GAMMA, WINDOW, LatentMethod, Method
from csd.models import for_kind
from csd.pictures import with_pictures
from csd.rules import DELTA, RULES, WEIGHT
from csd.switches import SWITCHES, CSpD
from csd.trace import Footer, Round
from csd.trace import load as load_trace
from viz import charts, live, words
from viz.component import viewer
from viz.controls import continuous_controls, control, rule_controls

ASSETS = Path(__file__).parent / "assets"
RECORDED = [ASSETS / "recorded" / f"garden-lemon-{name}.trace" for name in ("sjd", "csd", "cspd")]
YIELDS_PER_SECOND = 10  # more only lags the browser
MAX_PANELS = 4
MAX_BUNDLES = 32
SHOWN = ("ar", "sd", "sjd", "csd", "csd-sd", "mar", "cspd")  # the others are in a list of their own
WAITING = "Waits for the speculative run, to take exactly as many target calls."
CONTINUOUS = [*SWITCHES, "iterations"]  # the continuous controls, in the order in which `generate` gets their values
OTHER_RULES = [r for r in RULES.values() if r.knobs and r.name != "csd"]
DISCRETE = [*("weight", "delta", "window", "gamma", "coupling", "fill", "correct"),
            *(f"{r.name}.{k.name}" for r in OTHER_RULES for k in r.knobs)]  # fmt: skip

_bundles: deque[Path] = deque()
_stops: dict[str, bool] = {}  # by browser session: has Stop been pressed since its run began


@dataclass
class Panel:
    """One method as a person set it up: checked values, the model pair, and the trace its run will leave."""

    method: Method | LatentMethod
    values: dict
    pair: tuple
    trace: Trace = field(default_factory=Trace)


def generate(request: gr.Request, model: str, latent_model: str, label: str, names: list[str], more: list[str], seed: float,
             pace: float, guidance: float, temperature: float, top_k: float, top_p: float,
             *knobs: object) -> Iterator[tuple]:  # fmt: skip
    """Run the chosen methods on one clock, a round of each in turn, and stream what happens to the viewer.

    knobs: the values of the controls named in DISCRETE and CONTINUOUS, in that order.
    """
    try:
        sampling = Sampling(guidance, temperature, top_k, top_p)
        discrete = dict(zip(DISCRETE, knobs, strict=False))
        switches = dict(zip(CONTINUOUS, knobs[len(DISCRETE) :], strict=True))
        models = {"discrete": model, "continuous": latent_model}
        panels = _panels(models, label, [*(names or ()), *(more or ())], seed, discrete, switches)
        pace = number("pace", pace, 0, 100)
    except InputError as error:
        raise gr.Error(str(error), duration=None, print_exception=False) from None
    session = request.session_hash or uuid.uuid4().hex
    _stops[session] = False
    text = live.stream_header(label, int(seed), [p.method.title for p in panels])
    runs = [_run(p, panels, label, int(seed), sampling, lambda: _stops.get(session, True)) for p in panels]
    traces = [p.trace for p in panels]
    text += live.notes({i: WAITING for i, p in enumerate(panels) if p.values.get("iterations", 1) is None})
    nothing = [gr.skip()] * 4
    warnings = live.notes({i: w for i, p in enumerate(panels) if (w := _warning(p))})
    try:
        for chunk in _paced(runs, pace):
            text += chunk + warnings  # a panel's header, in the first chunk, clears its note
            warnings = ""
            yield text, *nothing
        text += live.notes(words.notes(traces))
        yield text, _bundle(traces), *_charts(traces)
    except FloatingPointError:
        text += "".join(live.line(i, t.footer) for i, t in enumerate(traces) if t.footer)
        yield text, *nothing
    finally:  # also when the tab was closed
        for run in runs:
            run.close()
        _stops.pop(session, None)


def _panels(models: dict, label: str, names: list[str], seed: float, discrete: dict, switches: dict) -> list[Panel]:
    """Check everything a person chose; a panel per method, in the registry's order."""
    number("seed", seed, 0, 2**53, whole=True)
    for name in names:
        method(name)
    if not 1 <= len(names) <= MAX_PANELS:
        raise InputError(f"{len(names)} methods chosen; allowed: 1 to {MAX_PANELS}")
    out = []
    for m in (ALL_METHODS[n] for n in ALL_METHODS if n in names):
        pair = load(for_kind(m.kind, models[m.kind]))
        choose("label", label, pair[0].labels)
        cells = pair[0].grid[0] * pair[0].grid[1]
        values = _values(m, discrete) if m.kind == "discrete" else {k.name: switches[k.name] for k in m.knobs}
        if m.name == "mar" and values["iterations"] == 0:
            if "cspd" not in names:
                raise InputError("MAR steps 0 means as many as the continuous speculative run has target calls; choose "
                                 "that method too, or 1 to 256 steps")  # fmt: skip
            values["iterations"] = fixed_calls(CSpD(**{k: switches[k] for k in SWITCHES}), cells)
        m.settings({k: v for k, v in values.items() if v is not None}, cells)
        out.append(Panel(m, values, pair))
    return out


def _warning(panel: Panel) -> str:
    m = panel.method
    return words.warning(m.rule.name, m.settings(panel.values)) if m.kind == "discrete" else ""


def _values(m: Method, discrete: dict) -> dict:
    """The method's knobs from the page's controls; a rule's own control goes before a common one, a preset before both."""
    names = [k.name for k in m.knobs if k.name not in dict(m.preset)]
    own = {name: f"{m.rule.name}.{name}" for name in names}
    return {name: discrete[own[name] if own[name] in discrete else name] for name in names}


def _run(panel: Panel, panels: list[Panel], label: str, seed: int, sampling: Sampling, stop: Callable) -> Iterator:
    """The events of a panel, recorded as its trace. Yields None while it has to wait for another panel."""
    m, values, (target, draft) = panel.method, panel.values, panel.pair
    if values.get("iterations", 1) is None:  # plain MAR with as many target calls as the speculative run will have made
        lead = next(p.trace for p in panels if p.method.name == "cspd")
        while lead.footer is None:
            yield None
        values = values | {"iterations": lead.footer.totals["target_forwards"] or 1}
    if m.kind == "continuous":
        events = decode_latents(target, m, label, values, seed, draft, stop)
    else:
        events = decode(target, m, label, sampling, values, seed, draft, stop=stop)
    yield from panel.trace.record(with_pictures(events, target, every_cells=4, every_seconds=0.2))


def _paced(runs: list[Iterator], pace: float) -> Iterator[str]:
    """Advance every run by one round per turn, `pace` turns a second (0: no waiting); yields batches of viewer lines."""
    active, chunk, sent, turn = dict(enumerate(runs)), "", 0.0, monotonic()
    while active:
        for i, run in list(active.items()):
            for event in run:
                if event is None:
                    break
                chunk += live.line(i, event)
                if isinstance(event, Footer):
                    del active[i]
                if isinstance(event, Round | Footer):
                    break
            else:
                active.pop(i, None)
        if chunk and (monotonic() - sent > 1 / YIELDS_PER_SECOND or not active):
            yield chunk
            chunk, sent = "", monotonic()
        if pace and active:
            turn = max(turn + 1 / pace, monotonic() - 0.2)
            sleep(max(0.0, turn - monotonic()))


def _bundle(traces: list[Trace]) -> dict:
    """A file with the traces of a finished run, for the download button."""
    folder = Path(tempfile.mkdtemp(prefix="csd-"))
    _bundles.append(folder)
    while len(_bundles) > MAX_BUNDLES:  # the page's own copies expire by delete_cache
        shutil.rmtree(_bundles.popleft(), ignore_errors=True)
    head = traces[0].header
    stem = f"{head.model}-{head.label.replace(' ', '-')}"
    path = folder / f"{stem}-seed{head.seed}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for t in traces:
            z.writestr(f"{stem}-{t.header.method}-seed{head.seed}.trace", t.dumps())
    return gr.update(value=str(path), interactive=True)


def _charts(traces: list[Trace]) -> tuple:
    return charts.progress(traces), charts.accepted_lengths(traces), charts.calibration(traces)


def stop(request: gr.Request) -> None:
    """End the session's run after the round in progress; the generator then reports it as stopped."""
    if request.session_hash in _stops:
        _stops[request.session_hash] = True


def replay(traces: list[Trace]) -> str:
    """The viewer's text for stored traces: no model needed."""
    head = traces[0].header
    lines = [live.line(i, e) for i, t in enumerate(traces) for e in t.events]
    top = live.stream_header(head.label, head.seed, [t.header.title for t in traces], recorded=True)
    return top + "".join(lines) + live.notes(words.notes(traces))


def open_traces(files: list[str] | None) -> tuple:
    """Show uploaded traces; a bad file is told in one line and the page stays as it was."""
    if not files:
        return (gr.skip(),) * 4
    try:
        if len(files) > MAX_PANELS:
            raise InputError(f"{len(files)} traces chosen; allowed: 1 to {MAX_PANELS}")
        traces = [load_trace(p) for p in files]
        return replay(traces), *_charts(traces)
    except InputError as error:
        raise gr.Error(str(error), duration=None, print_exception=False) from None


def model_choice(kind: str) -> gr.Dropdown:
    fitting = [(entry.title, name) for name, entry in MODELS.items() if entry.kind == kind]
    return gr.Dropdown(fitting, value=for_kind(kind), label=f"Model, {kind} tokens")


CSS = """
@media (max-width: 760px) { #body > :first-child { order: 2; } }
#seed input { font-variant-numeric: tabular-nums; }
"""


def build() -> gr.Blocks:
    """The whole page."""
    labels = load("garden")[0].labels
    recorded = [load_trace(p) for p in RECORDED if p.is_file()]
    title = "Speculative decoding of images, token by token"
    with gr.Blocks(title=title, delete_cache=(3600, 7200), fill_width=True) as page:
        gr.Markdown(
            f"# {title}\n"
            "A model draws a picture as a grid of tokens. Drafts are guessed ahead and judged by the target model; every "
            "cell shows what became of its draft. Side by side: exact, relaxed, and continuous tokens. Choose a fruit and "
            "press Generate, or watch the recorded run."
        )
        with gr.Row(equal_height=False):
            label = gr.Dropdown(labels, value="lemon", label="What to draw", scale=2, min_width=180)
            seed = gr.Number(0, precision=0, minimum=0, label="seed", scale=1, min_width=90, elem_id="seed")
            methods = gr.CheckboxGroup(
                [(ALL_METHODS[name].title, name) for name in SHOWN], value=["sjd", "csd", "cspd"], scale=6, min_width=320,
                label=f"Methods, side by side (1 to {MAX_PANELS}): same class and seed",
            )  # fmt: skip
            more = gr.Dropdown([(m.title, m.name) for m in ALL_METHODS.values() if m.name not in SHOWN], value=[],
                               multiselect=True, label="More methods", scale=2, min_width=200)  # fmt: skip
            with gr.Column(scale=1, min_width=140):
                go = gr.Button("Generate", variant="primary", elem_id="generate")
                halt = gr.Button("Stop", elem_id="stop")
        with gr.Row(elem_id="body", equal_height=False):
            with gr.Column(scale=1, min_width=280):
                pace = gr.Slider(0, 60, 12, step=1, label="pace, rounds per second",
                                 info="Slowed for the eye; 0 runs free. Measured times leave the waiting out.")  # fmt: skip
                with gr.Accordion("Discrete tokens"):
                    knobs = {k.name: control(k) for k in (WEIGHT, DELTA, WINDOW)}
                    guidance = gr.Slider(1, 6, 1.5, step=0.25, label="guidance", info="Pull towards the label; 1 is none.")
                    temperature = gr.Slider(0.1, 2, 1, step=0.05, label="temperature", info="Divides the logits.")
                    with gr.Accordion("More", open=False):
                        knobs |= {k.name: control(k) for k in (GAMMA, COUPLING, FILL, CORRECT)}
                        top_k = gr.Number(0, precision=0, minimum=0, label="top-k", info="Keep the k likeliest; 0 all.")
                        top_p = gr.Slider(0.05, 1, 1, step=0.05, label="top-p", info="Keep the likeliest up to this mass.")
                    with gr.Accordion("Other rules", open=False):
                        for rule in OTHER_RULES:
                            knobs |= rule_controls(rule)
                with gr.Accordion("Continuous tokens"):
                    switches = continuous_controls()
                with gr.Accordion("Models", open=False):
                    models = [model_choice(kind) for kind in ("discrete", "continuous")]
                save = gr.DownloadButton("Save traces of this run", interactive=False)
                load_button = gr.UploadButton("Open traces", file_count="multiple", file_types=[".trace"])
            with gr.Column(scale=4, min_width=320):
                view = viewer(replay(recorded) if recorded else "")
                with gr.Row():
                    titles = ("settled tokens against target forwards", "how many tokens a round settles",
                              "calibration: does the picture look likely to its own model?")  # fmt: skip
                    plots = [gr.Plot(f, label=t) for f, t in zip(_charts(recorded), titles, strict=True)]
        inputs = [*models, label, methods, more, seed, pace, guidance, temperature, top_k, top_p]
        inputs += [knobs[k] for k in DISCRETE] + [switches[k] for k in CONTINUOUS]
        go.click(generate, inputs, [view, save, *plots],
                 concurrency_limit=4, show_progress="hidden", api_name="generate")  # fmt: skip
        halt.click(stop, None, None, queue=False, show_progress="hidden", api_visibility="private")
        load_button.upload(open_traces, load_button, [view, *plots], show_progress="hidden", api_visibility="private")
    return page


def main() -> None:
    """Measure the thread count, build, serve."""
    from csd.models.builtin import choose_threads

    try:
        load("garden-mar")  # damaged weights are told at the start, not at the first click
        choose_threads(load("garden")[0])
        page = build()
    except InputError as error:  # weights or recorded runs are damaged
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    font = ["system-ui", "sans-serif"]
    theme = gr.themes.Base(font=font, font_mono=["ui-monospace", "monospace"]).set(
        block_info_text_color="*neutral_600", block_info_text_color_dark="*neutral_400"
    )
    page.queue(max_size=32).launch(theme=theme, css=CSS, ssr_mode=False, max_file_size="16mb", allowed_paths=[])


if __name__ == "__main__":
    main()
