"""The files under deploy/ are what their programs accept, have the fields we rely on, and every command in them exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
import yaml

from tests.docs.pages import ROOT
from tests.support import schemas
from trueup.cli.main import app as cli
from trueup.config import SETTINGS
from trueup.config.settings import Settings
from trueup.work.probes import BEATS_WITHIN

DEPLOY = ROOT / "deploy"
DRAIN_FOR = Settings().drain_for.total_seconds()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
OBJECTS = [
    found
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for found in yaml.safe_load_all(path.read_text("utf-8"))
]
UNIT = (DEPLOY / "systemd/shop-worker@.service").read_text("utf-8")
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [each for each in OBJECTS if each["kind"] == kind]
    return dict(found)


def pods() -> list[dict[str, Any]]:
    return [each["spec"]["template"]["spec"] for each in OBJECTS if each["kind"] in ("Deployment", "Job")]


def commands() -> Iterator[list[str]]:
    """Every `trueup …` that the files run, without the program's name."""
    for pod in pods():
        yield from (container["command"][1:] for container in pod["containers"])
    for service in ("migrate", "worker"):
        yield COMPOSE["services"][service]["command"]
    yield re.findall(r'"([^"]+)"', re.findall(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)[0])
    yield re.findall(r"^ExecStart=\S+/trueup (.+)$", UNIT, re.MULTILINE)[0].split()


def variables() -> set[str]:
    text = "\n".join(path.read_text("utf-8") for path in DEPLOY.rglob("*") if path.is_file())
    return set(re.findall(r"\bTRUEUP_\w+", text))


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_command_parses(command: list[str]) -> None:
    name, *arguments = command
    found = typer.main.get_command(cli).commands[name]  # type: ignore[attr-defined]
    found.make_context(name, list(arguments))  # raises for an option that does not exist or does not take that value


def test_every_variable_is_a_setting() -> None:
    assert variables() <= {setting.variable for setting in SETTINGS.values()}


def test_compose_accepts_the_file() -> None:
    assert schemas.wrong("compose-spec", COMPOSE) == []
    assert schemas.wrong("compose-spec", {"services": {"worker": {"imag": "shop"}}})


@pytest.mark.slow
@pytest.mark.parametrize("resource", OBJECTS, ids=lambda resource: resource["kind"])
def test_kubernetes_and_keda_accept_the_resources(resource: dict[str, Any]) -> None:
    assert schemas.wrong_for_kubernetes(resource) == []
    mistaken = {**resource, "spec": {**resource["spec"], "minReplicaCount": "2", "template": 7, "minAvailable": []}}
    mistaken["spec"]["secretTargetRef"] = "shop"
    assert schemas.wrong_for_kubernetes(mistaken)


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    assert schemas.wrong_in_dockerfile(DOCKERFILE) == []
    assert schemas.wrong_in_dockerfile(DOCKERFILE.replace(":3.13.7-slim-bookworm", ""))


def test_pods_have_no_privileges_and_take_the_database_from_a_secret() -> None:
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            own = container["securityContext"]
            assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
            assert own["capabilities"] == {"drop": ["ALL"]}
            (database,) = [each for each in container["env"] if each["name"] == "TRUEUP_DATABASE_URL"]
            assert "secretKeyRef" in database["valueFrom"]


def test_the_deployment_is_probed_where_the_worker_answers() -> None:
    deployment = of_kind("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert container["command"][-2:] == ["--health-port", str(port["containerPort"])]
    probes = [(container[f"{probe}Probe"]["httpGet"]) for probe in ("liveness", "readiness")]
    assert probes == [{"path": "/healthz", "port": "health"}, {"path": "/readyz", "port": "health"}]
    assert port["name"] == "health"


def test_selectors_and_targets_name_the_deployment() -> None:
    deployment = of_kind("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    scaled = of_kind("ScaledObject")["spec"]
    assert scaled["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert scaled["triggers"][0]["authenticationRef"]["name"] == of_kind("TriggerAuthentication")["metadata"]["name"]


def test_at_least_two_workers_run() -> None:
    assert of_kind("Deployment")["spec"]["replicas"] >= 2
    assert of_kind("ScaledObject")["spec"]["minReplicaCount"] >= 2
    assert COMPOSE["services"]["worker"]["deploy"]["replicas"] >= 2
    assert of_kind("PodDisruptionBudget")["spec"]["minAvailable"] >= 1


def test_every_grace_period_is_longer_than_the_drain() -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    grace = COMPOSE["services"]["worker"]["stop_grace_period"]
    for seconds in (pod["terminationGracePeriodSeconds"], int(stop), int(grace.removesuffix("s"))):
        assert seconds > DRAIN_FOR + 5


def test_the_query_that_scales_workers_runs_on_the_schema(database_url: str) -> None:
    (trigger,) = of_kind("ScaledObject")["spec"]["triggers"]
    with psycopg.connect(database_url) as connection:
        assert connection.execute(trigger["metadata"]["query"].encode()).fetchone() == (0,)


def test_images_are_pinned_by_version_and_do_not_run_as_root() -> None:
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    images.append(COMPOSE["services"]["database"]["image"])
    assert all(re.search(r":\d+\.\d+", image) for image in images), images
    assert re.search(r"^USER \d+$", DOCKERFILE, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["trueup"\]$', DOCKERFILE, re.MULTILINE), (
        "no shell between the signal and the worker"
    )


def test_compose_services_have_no_privileges() -> None:
    for name in ("migrate", "worker", "api"):
        service = COMPOSE["services"][name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert "latest" not in COMPOSE["services"]["database"]["image"]


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    keys = set(re.findall(r"^(\w+)=", UNIT, re.MULTILINE))
    assert {"ExecStart", "EnvironmentFile", "KillSignal", "TimeoutStopSec", "Restart", "NoNewPrivileges"} <= keys
    assert re.search(r"^Type=notify$", UNIT, re.MULTILINE), "the worker tells systemd when it is ready"
    (watchdog,) = re.findall(r"^WatchdogSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(watchdog) > 2 * BEATS_WITHIN, "a loop that is blocked for a moment is no reason to restart"
    (starting,) = re.findall(r"^TimeoutStartSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(starting) > Settings().start_within.total_seconds()
    analyzer = shutil.which("systemd-analyze")
    if analyzer is not None:  # where systemd is; the fields above are checked everywhere
        unit = tmp_path / "shop-worker@1.service"
        unit.write_text(UNIT.replace("/opt/shop/bin/trueup", "/bin/true"))
        said = subprocess.run([analyzer, "verify", unit], capture_output=True, text=True, timeout=60).stderr
        assert not [line for line in said.splitlines() if unit.name in line]
