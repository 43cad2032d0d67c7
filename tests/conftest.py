"""Shared fixtures. One torch thread: two beside another busy process can be a hundred times slower."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parent))

import pytest


@pytest.fixture(scope="session")
def garden():
    """The built-in (target, draft)."""
    import torch

    from csd import load

    torch.set_num_threads(1)
    return load("garden")
