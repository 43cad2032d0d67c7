"""Speculative decoding of images, watched token by token.

from csd import Sampling, Trace, decode, load, method
target, draft = load("garden")
trace = Trace()
for event in trace.record(decode(target, method("csd"), "lemon", Sampling(guidance=1.5), seed=0)):
    ...
trace.save("lemon.trace")

Continuous tokens: decode_latents(target, method("cspd"), "lemon", preset_values("exact"), seed=0, draft=draft) with
target, draft = load("garden-mar").
"""

from csd.continuous import decode_latents
from csd.decode import decode
from csd.errors import InputError
from csd.methods import ALL_METHODS, LATENT_METHODS, METHODS, method
from csd.models import MODELS, load
from csd.sampling import Sampling
from csd.switches import preset_values
from csd.trace import Trace

__all__ = ["ALL_METHODS", "LATENT_METHODS", "METHODS", "MODELS", "InputError", "Sampling", "Trace", "decode",
           "decode_latents", "load", "method", "preset_values"]  # fmt: skip
