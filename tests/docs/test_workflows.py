"""The workflows, templates and hooks are well formed, and the commands in them exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.support import schemas

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
PINNED = re.compile(r"[\w-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})")


SCHEMAS = {
    **dict.fromkeys(WORKFLOWS, "github-workflows"),
    **{GITHUB / f"ISSUE_TEMPLATE/{name}.yml": "github-issue-forms" for name in ("bug", "idea")},
    GITHUB / "ISSUE_TEMPLATE/config.yml": "github-issue-config",
    GITHUB / "dependabot.yml": "dependabot",
}


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_a_file_is_what_its_schema_allows(path: Path) -> None:
    content = {"on" if key is True else key: value for key, value in loaded(path).items()}  # YAML reads `on` as true
    assert schemas.wrong(SCHEMAS[path], content) == []
    assert schemas.wrong(SCHEMAS[path], [])


def loaded(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def jobs(path: Path) -> dict[str, Any]:
    return dict(loaded(path)["jobs"])


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(path).values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_a_trigger_bounded_jobs_and_few_rights(path: Path) -> None:
    workflow = loaded(path)
    assert workflow[True], "YAML reads the key `on` as true"
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 90, name
        assert re.fullmatch(r"ubuntu-\d\d\.\d\d", job["runs-on"]), name
        assert set(job.get("needs", "").split()) <= workflow["jobs"].keys()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_every_make_target_exists(path: Path) -> None:
    for step in steps(path):
        if "uses" in step:
            assert PINNED.fullmatch(step["uses"]), step["uses"]
        for called in re.findall(r"\bmake ([a-z -]+)", step.get("run", "")):
            assert set(called.split()) <= TARGETS, called


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_module_that_a_workflow_runs_exists(path: Path) -> None:
    for step in steps(path):
        for module in re.findall(r"-m (tools\.\w+)", step.get("run", "")):
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file()


def test_the_matrix_covers_what_the_package_claims() -> None:
    test = jobs(GITHUB / "workflows/test.yml")
    claimed = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert test["suite"]["strategy"]["matrix"]["python"] == claimed
    assert test["servers"]["strategy"]["matrix"]["postgres"] == ["14", "15", "16", "17", "18"]


def test_publishing_needs_no_stored_token_and_follows_the_tests() -> None:
    release = jobs(GITHUB / "workflows/release.yml")
    assert release["publish"]["permissions"] == {"id-token": "write"}
    assert release["publish"]["needs"] == "build"
    assert "make test" in [step.get("run") for step in release["build"]["steps"]]
    assert "secrets." not in "".join(path.read_text("utf-8") for path in WORKFLOWS)


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_an_issue_form_has_what_its_host_requires(name: str) -> None:
    form = loaded(GITHUB / f"ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    assert all(field["type"] == "markdown" or field["attributes"]["label"] for field in form["body"])


def test_dependabot_looks_at_actions_packages_and_images() -> None:
    updates = loaded(GITHUB / "dependabot.yml")["updates"]
    assert {each["package-ecosystem"] for each in updates} == {"github-actions", "pip", "docker"}
    assert all((ROOT / each["directory"].strip("/")).is_dir() for each in updates)


def test_hooks_run_the_tools_of_the_environment() -> None:
    (repo,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"
    for hook in repo["hooks"]:
        assert hook["entry"].startswith(".venv/bin/")
        assert hook["language"] == "system"
