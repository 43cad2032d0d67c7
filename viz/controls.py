"""The page's inputs, made from knobs: what a method declares is what a person can turn."""

from __future__ import annotations

import json
from dataclasses import replace

import gradio as gr

from csd.knobs import Knob
from csd.methods import ITERATIONS
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
    made["iterations"] = gr.Slider(0, 256, 0, step=1, label=f"{ITERATIONS.title} (plain MAR)",
                                   info=f"{ITERATIONS.meaning} 0: as many as the speculative run has.")  # fmt: skip
    table = json.dumps({k: list(preset_values(k).values()) for k in PRESET_MEANINGS})
    inputs = [made[k] for k in fixed]
    preset.input(None, [preset, *inputs], inputs, js=f"(p, ...now) => ({table})[p] || now")
    find = f"(...now) => (Object.entries({table}).find(([, v]) => JSON.stringify(v) === JSON.stringify(now)) || ['own'])[0]"
    for c in inputs:
        c.input(None, inputs, preset, js=find)
    return made
