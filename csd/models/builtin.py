"""The built-in models, read from assets/: a small LlamaGen pair and a small MAR pair over one small VQ tokeniser.

They are `LlamaGen`, `MAR` and `VQModel` instances with small numbers in their configs; the classes are those that hold
the published checkpoints. The MAR pair draws the tokeniser's latents as they are before quantising.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from csd.errors import InputError, choose
from csd.models.base import find_label
from csd.models.classifier import Classifier
from csd.models.latent import MARModel
from csd.models.llamagen import Cache, LlamaGen, LlamaGenConfig
from csd.models.mar import MAR, MARConfig
from csd.models.vq import VQConfig, VQModel, pixels

Array = np.ndarray
ASSETS = Path(__file__).parents[2] / "assets"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class LlamaGenSession:
    """A `Session` of a LlamaGen transformer: one preallocated cache, two rows when guided, one when guidance is 1."""

    def __init__(self, model: LlamaGen, class_id: int, guidance: float):
        self._model, self._guidance = model, guidance
        weight = model.output.weight
        ids = [class_id] if guidance == 1 else [class_id, model.cfg.classes]
        self._labels = torch.tensor(ids, device=weight.device)
        self._cache = Cache(model.cfg, len(ids), weight.dtype, weight.device)
        self.forwards = self.rows = 0

    @property
    def length(self) -> int:
        return max(0, self._cache.length - 1)  # the class token is not an image token

    @torch.inference_mode()
    def forward(self, tokens: Array) -> Array:
        codes = torch.as_tensor(tokens, device=self._labels.device).expand(len(self._labels), -1)
        logits = self._model.extend(self._labels, codes, self._cache).float()
        self.forwards += 1
        self.rows += len(self._labels)
        if len(self._labels) == 2:
            cond, null = logits
            logits = null + self._guidance * (cond - null)
        else:
            logits = logits[0]
        return logits.cpu().numpy()

    def rollback(self, n: int) -> None:
        if not 0 <= n <= self.length:
            raise ValueError(f"cannot roll back {n} of {self.length} tokens")
        self._cache.length -= n


class LlamaGenModel:
    """A `TokenModel`: a LlamaGen transformer, the tokeniser its codes belong to, and names for its classes."""

    def __init__(self, name: str, transformer: LlamaGen, tokenizer: VQModel, labels: dict[str, int], weights: str = ""):
        self.name, self.labels, self.weights = name, list(labels), weights
        self.transformer, self.tokenizer = transformer.eval(), tokenizer.eval()
        self._class = labels
        self.grid, self.vocab = (transformer.cfg.grid,) * 2, transformer.cfg.vocab

    @property
    def dtype_name(self) -> str:
        return str(self.transformer.output.weight.dtype).removeprefix("torch.")

    def open(self, label: str, guidance: float) -> LlamaGenSession:
        return LlamaGenSession(self.transformer, self._class[find_label(label, self.labels)], guidance)

    @torch.inference_mode()
    def decode(self, tokens: Array) -> Array:
        codes = torch.as_tensor(np.asarray(tokens, np.int64)).reshape(1, *self.grid)
        return pixels(self.tokenizer.decode(codes)[0])

    def embeddings(self) -> Array:
        return self._codebook

    def probe(self) -> Callable[[], None]:
        """A typical step, for timing: one guided window of 15 tokens, taken back again."""
        session, window = self.open(self.labels[0], 1.5), np.zeros(15, np.int64)

        def step() -> None:
            session.forward(window)
            session.rollback(15)

        return step

    @cached_property
    def _codebook(self) -> Array:
        return self.tokenizer.codebook().detach().numpy()


def load_garden(folder: Path = ASSETS, dtype: str = "float32") -> tuple[LlamaGenModel, LlamaGenModel]:
    """The built-in target and draft. dtype: of the transformers' weights and cache, float32 or bfloat16.

    Raises InputError when files are missing or damaged.
    """
    card, tokenizer = _tokenizer(folder, dtype)
    pair = []
    for role, name in (("target", "garden"), ("draft", "garden-draft")):
        net = LlamaGen(LlamaGenConfig(**card[role]))
        mark = _fill(net, folder / f"{name}.safetensors")
        pair.append(LlamaGenModel(name, net.to(DTYPES[dtype]), tokenizer, card["labels"], mark))
    return pair[0], pair[1]


def load_garden_mar(folder: Path = ASSETS, dtype: str = "float32") -> tuple[MARModel, MARModel]:
    """The built-in continuous target and draft. dtype: of the networks' weights, float32 or bfloat16.

    Raises InputError when files are missing or damaged.
    """
    card, tokenizer = _tokenizer(folder, dtype)
    pair = []
    for role, name in (("mar-target", "garden-mar"), ("mar-draft", "garden-mar-draft")):
        net = MAR(MARConfig(**card[role]))
        mark = _fill(net, folder / f"{name}.safetensors")
        pair.append(MARModel(name, net.to(DTYPES[dtype]), tokenizer, card["labels"], mark))
    return pair[0], pair[1]


def load_judge(folder: Path = ASSETS) -> tuple[Classifier, list[str]]:
    """The classifier that measures pictures, and the names of its classes. Raises InputError as `load_garden` does."""
    names = _read_card(folder / "garden.json")["classes"]
    net = Classifier(len(names))
    _fill(net, folder / "garden-judge.safetensors")
    return net.eval(), names


def _tokenizer(folder: Path, dtype: str) -> tuple[dict, VQModel]:
    """The description of the built-in models and the tokeniser they share."""
    choose("dtype", dtype, DTYPES)
    card = _read_card(folder / "garden.json")
    tokenizer = VQModel(VQConfig(**{k: tuple(v) if isinstance(v, list) else v for k, v in card["tokenizer"].items()}))
    _fill(tokenizer, folder / "garden-tokenizer.safetensors")
    return card, tokenizer


def _read_card(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"the built-in models' description {path.name} is missing or damaged") from None


def _fill(module: torch.nn.Module, path: Path) -> str:
    """Load a safetensors file (stored in half precision or wider) strictly into a module; returns its fingerprint."""
    try:
        tensors = {k: v.float() for k, v in load_file(path).items()}
        module.load_state_dict(tensors)
    except FileNotFoundError:
        raise InputError(f"weights {path.name} are missing; fetch the repository again, with its assets") from None
    except (SafetensorError, OSError):
        raise InputError(f"weights {path.name} are damaged; fetch the repository again, with its assets") from None
    except RuntimeError:
        raise InputError(f"weights {path.name} do not fit the model they should fill") from None
    bad = [k for k, v in tensors.items() if not torch.isfinite(v).all()]
    if bad:
        raise InputError(f"weights {path.name} hold numbers that are not finite ({bad[0]})")
    return "sha256:" + sha256(path.read_bytes()).hexdigest()[:16]


def choose_threads(model: LlamaGenModel | MARModel, most: int | None = None) -> int:
    """Set torch's thread count to the fastest of 1, 2, 4, … for one verification step, by measuring; returns it.

    Two threads on a machine whose other core is busy can be a hundred times slower than one, so nothing is assumed.
    """
    import os

    most = most or min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    best, found = float("inf"), 1
    count = 1
    while count <= most:
        torch.set_num_threads(count)
        step, times = model.probe(), []
        for _ in range(12):
            start = perf_counter()
            step()
            times.append(perf_counter() - start)
        median = sorted(times)[6]
        if median < 0.9 * best:  # more threads must pay clearly
            best, found = median, count
        count *= 2
    torch.set_num_threads(found)
    return found
