"""Models by name. Each family is one file behind the protocol of `base.py`; nothing heavy is imported before it is used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from csd.errors import InputError, choose


@dataclass(frozen=True)
class Entry:
    """A model a person may choose. kind: discrete (a `TokenModel`) or continuous (a `LatentModel`)."""

    title: str
    kind: str


MODELS: dict[str, Entry] = {
    "garden": Entry("Garden: 59 kinds of fruit, 64×64 pixels, built in", "discrete"),
    "garden-mar": Entry("Garden MAR: the same fruit as continuous tokens, built in", "continuous"),
}


def for_kind(kind: str, name: str | None = None) -> str:
    """The model of that name, or the first, if its tokens are of this kind. Raises InputError that lists those that are."""
    fitting = [key for key, entry in MODELS.items() if entry.kind == kind]
    if name is None:
        return fitting[0]
    choose("model", name, MODELS)
    if name not in fitting:
        raise InputError(f"model {name} has no {kind} tokens, which this method decodes; allowed: {', '.join(fitting)}")
    return name


@lru_cache(maxsize=4)
def load(name: str, dtype: str = "float32") -> tuple:
    """(target, draft model) of that name, loaded once. Raises InputError."""
    choose("model", name, MODELS)
    from csd.models import builtin

    return {"garden": builtin.load_garden, "garden-mar": builtin.load_garden_mar}[name](dtype=dtype)
