"""Shared fixtures: the built-in models, a running app, a browser, a page.

One torch thread: two beside another busy process can be a hundred times slower.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
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


ROOT = Path(__file__).parents[1]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """A running app on a free port."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = os.environ | {"GRADIO_SERVER_PORT": str(port), "GRADIO_TEMP_DIR": str(tmp_path_factory.mktemp("gradio"))}
    log = tmp_path_factory.mktemp("log") / "app.log"
    with log.open("w") as out:
        app = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=env, stdout=out, stderr=out)
    url = f"http://127.0.0.1:{port}"
    for _ in range(240):
        try:
            urllib.request.urlopen(url, timeout=1)
            break
        except OSError:
            assert app.poll() is None, log.read_text()
            time.sleep(0.5)
    else:
        raise AssertionError(log.read_text())
    yield url
    app.terminate()
    app.wait(20)
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert path, "the browser tests need Chromium: bash tests/run.sh installs it"
    with sync_playwright() as playwright:
        b = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield b
        b.close()


@pytest.fixture()
def page(browser, address):
    p = browser.new_page(viewport={"width": 1360, "height": 1000})
    errors = []
    p.on("pageerror", lambda e: errors.append(str(e)))
    p.goto(f"{address}/?__theme=light")
    p.wait_for_selector(".csd-viewer .panel:not([hidden])", timeout=60_000)
    yield p
    p.close()
    assert not errors, errors
