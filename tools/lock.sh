#!/usr/bin/env bash
# Resolves all dependencies anew. uv.lock names hosts and stays out of git; requirements.lock has hashes and names none.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-true}  # as tools/setup.sh does
.venv/bin/uv lock --upgrade --quiet
.venv/bin/uv export --frozen --quiet --format requirements-txt --no-emit-project --all-extras --all-groups --no-annotate --no-header > requirements.lock
if grep -q '://' requirements.lock; then
  echo "requirements.lock names a host" >&2
  exit 1
fi
