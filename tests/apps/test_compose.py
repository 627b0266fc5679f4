"""The compose files of the applications: what they refer to is there, their commands parse, and their images have what is imported."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from typing import Any

import pytest
import yaml

from tests.support import schemas
from tests.support.packages import canonical, closure
from tests.support.processes import ROOT

NAMES = ("addresses", "birthdays", "payments", "pulse", "wallpapers")
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
# Imported where they are there, and not needed.
OPTIONAL = {"cffi", "pycparser", "setuptools"}
OPTIONAL_FOR = {"wallpapers": {"httpx", "certifi"}}  # aiobotocore's other transport
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)(:?[-?][^}]*)?\}")


@cache
def compose(name: str) -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load((ROOT / "apps" / name / "compose.yaml").read_text("utf-8"))
    return told


def services(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose(name)["services"]
    return found


def commands(name: str) -> Iterator[list[str]]:
    """Those that run our code, as words."""
    for service in services(name).values():
        command = service.get("environment", {}).get("COMMAND") or service.get("command", "")
        words = shlex.split(command) if isinstance(command, str) else command
        if words and words[0] in ("python", "trueup"):
            yield words


@pytest.mark.parametrize("name", NAMES)
def test_what_services_refer_to_is_there(name: str) -> None:
    told = compose(name)
    assert {key for key in told if not key.startswith("x-")} <= {"services", "volumes", "name"}
    for title, service in services(name).items():
        assert "image" in service or "build" in service, title
        for other, how in service.get("depends_on", {}).items():
            assert other in services(name), f"{title} depends on {other}"
            assert how["condition"] in CONDITIONS
            healthy = how["condition"] == "service_healthy"
            assert not healthy or "healthcheck" in services(name)[other], f"{title} waits for the health of {other}"
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in told.get("volumes", {}) or (ROOT / "apps" / name / source).exists(), volume
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "only this machine reaches it, unless somebody decides otherwise"


@pytest.mark.parametrize("name", NAMES)
def test_compose_accepts_the_file_and_hadolint_its_image(name: str) -> None:
    assert schemas.wrong("compose-spec", compose(name)) == []
    for service in services(name).values():
        if built := service.get("build"):
            assert schemas.wrong_in_dockerfile(built["dockerfile_inline"]) == []


@pytest.mark.parametrize("name", NAMES)
def test_images_and_packages_are_pinned(name: str) -> None:
    text = (ROOT / "apps" / name / "compose.yaml").read_text("utf-8")
    images = re.findall(r"^ *(?:image:|FROM) (\S+)$", text, re.MULTILINE)
    assert len(images) >= 2
    assert [image for image in images if not re.search(r":(\d+\.\d+|local$)", image)] == []
    assert len(re.findall(r"pip install", text)) == len(
        re.findall(r"PIP_CONSTRAINT=versions.txt pip install|pip install .*--require-hashes", text)
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_database_has_connections_for_ten_replicas(name: str) -> None:
    """Each takes ten of its own, and two pools of up to `pool_size` (10) as its handlers use them."""
    (database,) = [each for each in services(name).values() if each.get("image", "").startswith("postgres:")]
    (given,) = [int(each.partition("=")[2]) for each in database["command"] if each.startswith("max_connections=")]
    assert given >= 10 * 32 + 40


@pytest.mark.parametrize("name", NAMES)
def test_every_command_parses(name: str) -> None:
    ours = list(commands(name))
    assert len(ours) >= 2
    for command in ours:
        match command:
            case ["trueup", "migrate"] | ["python", "-m", "trueup.cli", "migrate"]:
                pass
            case ["python", "-m", module]:
                assert callable(import_module(module).main)
            case ["python", "-m", module, *arguments]:
                parsed = import_module(f"{module}.__main__")._parse(arguments)
                assert parsed.command == arguments[0]
            case _:
                pytest.fail(f"{command}: nobody has looked whether this exists")


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_of_the_application_is_documented(name: str) -> None:
    example = (ROOT / "apps" / name / ".env.example").read_text(
        "utf-8"
    ) + " HTTP_TOKEN HTTP_HOSTS REPLICAS POSTGRES_PASSWORD"
    example += (ROOT / "apps" / name / "README.md").read_text("utf-8")
    text = (ROOT / "apps" / name / "compose.yaml").read_text("utf-8")
    used = {found[1] for found in VARIABLE.finditer(text)}
    known = {"TRUEUP_DATABASE_URL", "TRUEUP_APP", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "COMMAND"}
    for service in services(name).values():
        if list(service.get("environment", {}))[:1] == ["TRUEUP_DATABASE_URL"]:
            used |= set(service["environment"])
    assert {each for each in used - known if not re.search(rf"\b{each}\b", example)} == set()


IMPORTED = """
import importlib, json, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_image_has_every_package_that_the_application_imports(name: str) -> None:
    installed = installs((ROOT / "apps" / name / "compose.yaml").read_text("utf-8"))
    if not installed:
        return  # requirements.lock has all of them
    modules = [f"apps.{name}.{part}" for part in ("__main__", "api", "service")]
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTED, *modules], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    given = closure(installed) | OPTIONAL | OPTIONAL_FOR.get(name, set())
    distributions = packages_distributions()
    missing = {
        module: distributions[module]
        for module in json.loads(ran.stdout)
        if module in distributions and not {canonical(each) for each in distributions[module]} & given
    }
    assert missing == {}, f"pip install {' '.join(sorted(installed))} does not bring them"


def installs(text: str) -> set[str]:
    """What `pip install …` names; "." is trueup itself."""
    (line,) = re.findall(r"pip install ([^&\n]+)", text)
    if "-r requirements.lock" in line:
        return set()
    return {re.sub(r"^\.", "trueup", word) for word in shlex.split(line) if not word.startswith("-")}
