"""Completion as a shell asks for it: a real process, an App, and no database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import warm

DECLARED = """
from trueup import App

print("a module that prints")
app = App("postgresql://app@127.0.0.1:1/nowhere")
papers = app.table("papers", key="id", state="state", changed_at="at")


@app.job(queue="mail")
def send(to: str) -> None: ...


@app.job
def sweep_up() -> None: ...


@app.cron("0 3 * * *")
def nightly() -> None: ...


@papers.reconcile("new")
def publish(row) -> None: ...


@app.scan("objects", every="1h")
async def objects(cursor):
    yield 1, None
"""
ALL_KINDS = ["nightly", "send", "sweep_up"]


def complete(directory: Path, words: str, app: str = "declared:app") -> list[str]:
    given = words.split(" ")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRUEUP_")},
        "TRUEUP_APP": app,
        "_TRUEUP_COMPLETE": "complete_bash",
        "COMP_WORDS": f"trueup {words}",
        "COMP_CWORD": str(len(given)),
    }
    done = warm.run("trueup.cli", cwd=directory, env=environment)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "declared.py").write_text(DECLARED)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("jobs enqueue ", ALL_KINDS),
        ("dead list --kind se", ["send"]),
        ("jobs list --queue ", ["default", "mail"]),
        ("schedules pause ", ["nightly"]),
        ("schedules create ", []),
        ("schedules create new s", ["send", "sweep_up"]),
        ("reconcilers run ", ["objects", "publish"]),
        ("reconcilers quarantine release pu", ["publish"]),
        ("--app declared:app jobs enqueue send", ["send"]),
    ],
)
def test_names_that_the_app_declares_are_completed_without_a_database(
    project: Path, words: str, names: list[str]
) -> None:
    app = "missing:app" if "--app" in words else "declared:app"
    assert complete(project, words, app) == names
    assert {path.name for path in project.iterdir()} <= {"declared.py", "__pycache__"}


@pytest.mark.parametrize("wrong", ["raise SystemExit(3)", "import no_such_module"])
def test_an_app_that_cannot_be_loaded_completes_nothing_and_says_nothing(project: Path, wrong: str) -> None:
    (project / "declared.py").write_text(wrong)
    assert complete(project, "jobs enqueue ") == []
