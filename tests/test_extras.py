"""Each extra works without the others, and what needs one says which."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support.packages import canonical, closure

ROOT = Path(__file__).parents[1]
DJANGO = "from django.conf import settings; settings.configure(INSTALLED_APPS=['trueup.django']); import django; django.setup()"
# What a program does that uses the extra.
USES = {
    "embedded": "from trueup.embedded import binaries; binaries.locate()",
    "asyncpg": "import asyncpg",
    "redis": "import trueup.integrations.redis",
    "metrics": "from trueup.observe.metrics import attach_metrics; attach_metrics(trueup.App('postgresql://a@b/c').events)",
    "sqlalchemy": "import trueup.integrations.sqlalchemy, trueup.integrations.sqlalchemy_transactions",
    "django": f"import trueup.integrations.django; {DJANGO}; import trueup.django.models, trueup.django.testing",
    "webhooks": "from trueup.integrations.webhooks import Webhook, delivery_job, verify",
    "nats": "from trueup.integrations.nats import Nats, Stream",
    "demo": "from trueup.demo import application, story; assert not application.missing(), 'trueup[demo]'",
    "dask": "from trueup.integrations.dask import Dask, DaskExecutor; DaskExecutor(Dask('tcp://127.0.0.1:1')).shutdown()",
    "otel": "from trueup.integrations.otel import OpenTelemetry, attach_metrics; OpenTelemetry()",
    "web": "from trueup.web import dashboard; import trueup.cli.dashboard, trueup.web.serving; dashboard.asgi(trueup.App('postgresql://a@b/c'))",
    "testing": "import trueup.testing.plugin, trueup.testing.harness, trueup.testing.databases",
    "fast": "import uvloop",
}
SILENT = {
    "asyncpg",
    "fast",
    "testing",
}  # nothing of trueup fails without them: the caller brings asyncpg, and imports it
CORE = "import trueup, trueup.app, trueup.cli.main, trueup.operate.doctor, trueup.testing.worker, trueup.work.service; trueup.App"

# Forks a process per line, which has imported the core alone: its packages, the modules that it cannot import, the statement.
PROGRAM = """
import json, os, sys
from importlib.machinery import PathFinder

class Installed(PathFinder):
    missing = frozenset()

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in cls.missing else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
core, *cases = json.load(sys.stdin)
for missing, statement in [core, *cases]:
    Installed.missing = frozenset(missing)
    if statement is core[1]:
        exec(statement)
        continue
    if (child := os.fork()) == 0:
        try:
            exec(statement)
            said = None
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        print(json.dumps(said), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@cache
def packages() -> dict[str, set[str]]:
    return {module: set(map(canonical, found)) for module, found in packages_distributions().items()}


def missing(*extras: str) -> list[str]:
    """The modules of all packages here that trueup with these extras does not bring."""
    brought = closure({f"trueup[{','.join(extras)}]" if extras else "trueup"})
    return [module for module, found in packages().items() if not found & {*brought, "trueup"}]


@pytest.mark.slow
def test_each_extra_works_without_the_others_and_its_absence_is_named() -> None:
    alone = missing()
    present = [(missing(extra), statement) for extra, statement in USES.items()]
    absent = [(alone, f"import trueup; {statement}") for extra, statement in USES.items() if extra not in SILENT]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([(alone, CORE), *present, *absent]),
        capture_output=True,
        text=True,
        timeout=110,
    )
    said = list(map(json.loads, done.stdout.splitlines()))

    assert len(said) == len(present) + len(absent), done.stderr
    assert {extra: wrong for extra, wrong in zip(USES, said, strict=False) if wrong} == {}
    named = dict(zip((extra for extra in USES if extra not in SILENT), said[len(present) :], strict=True))
    assert {extra: text for extra, text in named.items() if f"trueup[{extra}]" not in str(text)} == {}


def test_every_extra_is_tried() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert USES.keys() == extras.keys()
