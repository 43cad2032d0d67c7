#!/usr/bin/env bash
# Installs what the tests need (Python packages, and Chromium for the browser tests) and runs lint and tests.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 GRADIO_ANALYTICS_ENABLED=False HF_HUB_OFFLINE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

python3 -m pip install --quiet -r requirements-dev.txt

if ! command -v chromium chromium-browser google-chrome >/dev/null; then
  as_root=$([ "$(id -u)" = 0 ] && echo "" || echo sudo)
  $as_root apt-get update -qq
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null
fi

python3 -m ruff check .
# two workers; tests that share a browser stay together
python3 -m pytest -n 2 --dist loadgroup "$@"
