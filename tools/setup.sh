#!/usr/bin/env bash
# Makes .venv from requirements.lock (hashed) and installs trueup into it, editable. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "trueup needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1 || echo missing). Try: make PYTHON=python3.12 …" >&2
  exit 2
fi
if [ ! -x .venv/bin/python ]; then
  # Debian without python3-venv has the venv module but no ensurepip: its own pip can still fill the environment.
  "$python" -m venv .venv 2>/dev/null || { rm -rf .venv; "$python" -m venv --without-pip .venv; }
fi
if [ ! -x .venv/bin/uv ]; then
  echo "setting up .venv …"
  if .venv/bin/python -m pip --version >/dev/null 2>&1; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/uv.txt
  elif "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m pip --python .venv/bin/python install --quiet --disable-pip-version-check --require-hashes -r tools/uv.txt
  else
    echo "'$python' has neither ensurepip nor pip. On Debian: apt-get install python3-venv" >&2
    exit 2
  fi
fi
# Like pip, uv is to trust the system's certificates, where a company's own authority is. uv reads SSL_CERT_FILE and SSL_CERT_DIR by
# itself, and what is set in UV_SYSTEM_CERTS wins.
export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-true}
.venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements.lock
# The build backend is one of the hashed packages, so nothing is fetched to build with.
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
touch .venv/.ready
