"""The page's inputs, made from knobs: what a method declares is what a person can turn."""

from __future__ import annotations

import json
from dataclasses import replace

import gradio as gr

from csd.knobs import Knob
from csd.laws import Rule
from csd.methods import ITERATIONS, PUBLISHED
from csd.switches import PRESET_MEANINGS, SWITCHES, preset_values

# upper ends of sliders, where what is allowed reaches further than what is of use here
TOP = {
    "weight": 2,
    "window": 64,
    "gamma": 32,
    "steps": 100,
    "trials": 500,
    "guidance": 6,
    "temperature": 2,
    "factor": 8,
    "multiple": 20,
    "group": 50,
    "neighbours": 1000,
    "reach": 4,
}


def control(knob: Knob, **kw: object) -> gr.components.Component:
    """The input that fits a knob: a choice, a switch or a slider."""
    common = {"label": knob.title, "info": knob.meaning, **kw}
    if knob.choices:
        return gr.Radio(list(knob.choices), value=knob.default, **common)
    if isinstance(knob.default, bool):
        return gr.Checkbox(knob.default, **common)
    if isinstance(knob.default, tuple):
        return gr.Textbox(", ".join(f"{v:g}" for v in knob.default), **common)
    low, step = (0.1, 0.05) if knob.name == "temperature" else (knob.low, knob.step)
    return gr.Slider(low, min(knob.high, TOP.get(knob.name, knob.high)), knob.default, step=step, **common)


def rule_controls(rule: Rule) -> dict[str, gr.components.Component]:
    """The inputs of a rule by `rule.knob`, with its published settings where there are others than the defaults."""
    gr.Markdown(f"**{rule.title[0].upper()}{rule.title[1:]}**: {rule.formula}")
    made = {f"{rule.name}.{k.name}": control(k) for k in rule.knobs}
    published = PUBLISHED.get(rule.name, {})
    if published:
        defaults = {k.name: k.default for k in rule.knobs}
        table = {"default": list(defaults.values())}
        table |= {name: list((defaults | values).values()) for name, (values, _) in published.items()}
        table = {name: [", ".join(f"{x:g}" for x in v) if isinstance(v, tuple) else v for v in row]
                 for name, row in table.items()}  # fmt: skip
        info = ". ".join(f"{name}: {meaning}" for name, (_, meaning) in published.items()) + "."
        preset = gr.Radio([*table, "own"], value="default", label=f"{rule.title}, preset", info=info)
        _preset_of(preset, table, list(made.values()))
    return made


def _preset_of(preset: gr.Radio, table: dict[str, list], inputs: list[gr.components.Component]) -> None:
    """In the browser: a preset fills the inputs with its row of the table, and an input names the preset they make up."""
    rows = json.dumps(table)
    preset.input(None, [preset, *inputs], inputs, js=f"(p, ...now) => ({rows})[p] || now")
    same = "([, row]) => JSON.stringify(row) === JSON.stringify(now)"
    find = f"(...now) => (Object.entries({rows}).find({same}) || ['own'])[0]"
    for c in inputs:
        c.input(None, inputs, preset, js=find)


def continuous_controls() -> dict[str, gr.components.Component]:
    """Preset and switches of continuous decoding, the switches by name; a preset sets what it fixes, in the browser."""
    names = {"exact": "exact", "paper": "paper", "code": "public code", "own": "own"}
    gr.Markdown("A preset sets the five switches below it; change one and the preset is your own.  \n"
                + "  \n".join(f"**{names[k]}**: {v}." for k, v in PRESET_MEANINGS.items()))  # fmt: skip
    preset = gr.Radio([(v, k) for k, v in names.items()], value="code", label="preset", elem_id="preset")
    fixed = preset_values("code")
    made = {k: control(replace(SWITCHES[k], default=v)) for k, v in fixed.items()}
    made |= {k: control(SWITCHES[k]) for k in ("gamma", "shared_noise", "guidance")}
    with gr.Accordion("More", open=False):
        made |= {k: control(SWITCHES[k]) for k in SWITCHES if k not in made}
    _preset_of(preset, {k: list(preset_values(k).values()) for k in PRESET_MEANINGS}, [made[k] for k in fixed])
    made["iterations"] = gr.Slider(0, 256, 0, step=1, label=f"{ITERATIONS.title} (plain MAR)",
                                   info=f"{ITERATIONS.meaning} 0: as many as the speculative run has.")  # fmt: skip
    return made
