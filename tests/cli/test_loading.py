from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere:app", "there is no module 'nowhere'"),
        ("shop.parts:app", "there is no module 'shop.parts'"),
        ("shop:shop", "shop:shop does not exist; did you mean --app shop:app?"),
        ("shop:add", "shop:add is of type Job, not an App; did you mean --app shop:app?"),
        ("shop", 'did you mean "shop:app"?'),
        (
            "made:create_app",
            "made:create_app is of type function, not an App; write `app = create_app()` there, and --app made:app",
        ),
        ("ends:app", "importing ends failed at {project}/ends.py:2: it ended the program (SystemExit: 3)"),
        ("first:app", "(most likely due to a circular import)"),
        ("first:app", "; make the App in a module of its own, which imports no module that declares on it"),
    ],
)
def test_an_app_that_is_not_there_is_explained(cli: Cli, project: Path, place: str, said: str) -> None:
    (project / "made.py").write_text("from trueup import App\ndef create_app():\n    return App()\n")
    (project / "ends.py").write_text("import sys\nsys.exit(3)\n")
    (project / "first.py").write_text("from trueup import App\nimport second\napp = App()\n")
    (project / "second.py").write_text("from first import app\n")
    result = cli("worker", "--app", place)
    assert result.code == 2
    assert said.format(project=project) in result.err
    assert "Traceback" not in result.err


def test_an_error_in_the_application_names_its_file_and_line(cli: Cli, project: Path) -> None:
    (project / "broken.py").write_text("\n\nvalue = 1 / 0\n")
    result = cli("worker", "--app", "broken:app")
    assert result.code == 2
    assert "broken.py:3: ZeroDivisionError: division by zero" in result.err


def test_a_package_the_application_misses_is_not_taken_for_the_application(cli: Cli, project: Path) -> None:
    (project / "hungry.py").write_text("import not_installed_here\n")
    result = cli("worker", "--app", "hungry:app")
    assert result.code == 2
    assert "importing hungry failed" in result.err
    assert "not_installed_here" in result.err


def test_the_app_is_found_in_the_configuration_file(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUEUP_APP")
    (project / "trueup.toml").write_text('app = "shop:app"\n')
    assert cli("jobs", "enqueue", "add", "[1]").code == 0


def test_the_database_of_the_command_line_wins_over_the_one_in_the_code(
    cli: Cli, project: Path, database_url: str
) -> None:
    (project / "fixed.py").write_text(
        "from trueup import App\napp = App('postgresql://app@127.0.0.1:1/elsewhere', schema='other')\n"
    )
    assert cli("status", "--app", "fixed:app").code == 1
    assert cli("status", "--app", "fixed:app", "--database-url", database_url, "--schema", "trueup").code == 0


def test_looking_needs_no_app(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUEUP_APP")
    for command in (["status"], ["jobs", "list"], ["dead", "list"], ["migrate", "--check"], ["config"]):
        assert cli(*command).code == 0


@pytest.mark.parametrize("command", [["worker"], ["jobs", "enqueue", "add"]], ids=" ".join)
def test_running_and_enqueueing_say_that_they_need_an_app(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.delenv("TRUEUP_APP")
    result = cli(*command)
    assert result.code == 2
    assert "--app module:attribute" in result.err


def test_a_worker_for_an_app_without_jobs_does_not_start(cli: Cli, project: Path) -> None:
    (project / "bare.py").write_text("from trueup import App\napp = App()\n")
    result = cli("worker", "--app", "bare:app")
    assert result.code == 2
    assert "bare:app declares no job" in result.err


@pytest.mark.parametrize(
    "declares",
    [
        '@app.table("things", key="id", state="state").reconcile("new")\nasync def fix(row): ...',
        '@app.scan("items", every="1h")\nasync def items(cursor):\n    yield 1, 1',
    ],
    ids=["a reconciler", "a scan"],
)
def test_an_app_without_jobs_that_declares_something_else_is_one_for_a_worker(
    cli: Cli, project: Path, declares: str
) -> None:
    (project / "other.py").write_text(f"from trueup import App\napp = App()\n{declares}\n")
    result = cli("worker", "--app", "other:app", "--queue", "no such=0")
    assert "declares no job" not in result.err


def test_a_django_project_without_its_settings_is_explained(start: Callable[..., subprocess.Popen[str]]) -> None:
    _, error = start("status", "--app", "trueup.django:app").communicate(timeout=30)
    expected = (
        "error: trueup.django needs the project's settings: use `manage.py trueup`, or set DJANGO_SETTINGS_MODULE\n"
    )
    assert error == expected
