"""Models by name. Each family is one file behind the protocol of `base.py`; nothing heavy is imported before it is used."""

from __future__ import annotations

from functools import lru_cache

from csd.errors import choose
from csd.models.base import TokenModel

MODELS = {"garden": "Garden: 59 kinds of fruit, 64×64 pixels, built in"}


@lru_cache(maxsize=2)
def load(name: str, dtype: str = "float32") -> tuple[TokenModel, TokenModel | None]:
    """(target, draft model or None) of that name, loaded once. Raises InputError."""
    choose("model", name, MODELS)
    from csd.models.builtin import load_garden

    return load_garden(dtype=dtype)
