"""Commands in what people read are written as they are typed here: under Django, `python manage.py trueup …`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import trueup
from trueup import program
from trueup.cli.main import command
from trueup.cli.session import Session
from trueup.operate.checks import ADVICE, advice
from trueup.program import typed

SOURCE = Path(trueup.__file__).parent
COMMAND = re.compile(rf"\btrueup ({'|'.join(command().commands)})\b")  # type: ignore[attr-defined]
OTHERS = {
    "trueup dashboard",
    "trueup status",
    "trueup demo",
    "trueup migrate ",
}  # names of servers, of a picture, of a lock
ELSEWHERE = {  # where Django's manage.py plays no part
    "demo/__main__.py",
    "demo/stage.py",
    "demo/story.py",
    "integrations/alembic.py",
    "django/management/commands/trueup.py",
    "config/settings.py",  # the meanings of settings, as the reference has them
    "observe/fleet.py",  # the help of a metric, which is the same in every process
}


def untyped(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text())
    passed = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "typed":
            passed |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if COMMAND.search(text) and id(node) not in passed and text not in {*OTHERS, *ADVICE.values()}:
            yield f"{file.relative_to(SOURCE)}:{node.lineno}: {text}"


def test_every_command_in_a_text_is_written_as_it_is_typed_here() -> None:
    files = [file for file in SOURCE.rglob("*.py") if str(file.relative_to(SOURCE)) not in ELSEWHERE]
    assert [found for file in files for found in untyped(file)] == []


def test_every_command_on_a_page_is_written_as_it_is_typed_here() -> None:
    for file in SOURCE.rglob("*.html"):
        for line in file.read_text().splitlines():
            for found in COMMAND.finditer(line):
                assert re.match(r"[^|]*\| typed", line[found.start() :]), f"{file.name}: {line.strip()}"


@pytest.mark.parametrize(
    ("session", "variable", "command"),
    [
        (Session(), None, "trueup worker --app module:app"),
        (Session("examples.script.orders:app"), None, "trueup worker --app examples.script.orders:app"),
        (Session(), "examples.script.orders:app", "trueup worker"),
    ],
)
def test_a_command_names_the_app_that_this_one_was_given(
    session: Session, variable: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "place", program.PLACE)
    if variable:
        monkeypatch.setenv("TRUEUP_APP", variable)
    session.app()
    assert advice("workers").startswith(f"start one: {command}; ")


def test_under_django_no_command_names_an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "name", "python manage.py trueup")
    assert typed("start one: trueup worker --app module:app") == "start one: python manage.py trueup worker"
    for check in ADVICE:
        assert not re.search(r"(?<!manage\.py )\btrueup [a-z]", advice(check)), advice(check)
        assert "module:app" not in advice(check)
