"""Modules that `App(include=[…])` names: which are found, imported and reported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trueup import App, ConfigError
from trueup.events import Event, ModuleDeclared
from trueup.include import import_included

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
TREE = [
    "larder/__init__.py",
    "larder/__main__.py",
    "larder/jobs.py",
    "larder/mail/__init__.py",
    "larder/mail/jobs.py",
    "larder/mail/deep/__init__.py",
    "larder/mail/deep/jobs.py",
    "larder/plain/__init__.py",
    "larder/spaces/jobs.py",
]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `larder` on the Python path; its __main__ raises when it is imported."""
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit(1)\n" if "__main__" in name else "")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "larder"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("patterns", "imported"),
    [
        (["larder.jobs"], ["larder.jobs"]),
        (["larder"], ["larder"]),
        (["larder.*"], ["larder.jobs", "larder.mail", "larder.plain"]),
        (["larder.*.jobs"], ["larder.mail.jobs"]),
        (["larder.spaces.*"], ["larder.spaces.jobs"]),
        (
            ["larder.**"],
            [
                "larder.jobs",
                "larder.mail",
                "larder.mail.deep",
                "larder.mail.deep.jobs",
                "larder.mail.jobs",
                "larder.plain",
            ],
        ),
        (["larder.**.jobs"], ["larder.mail.jobs", "larder.mail.deep.jobs"]),
        (["larder.jobs", "larder.*", "larder.jobs"], ["larder.jobs", "larder.mail", "larder.plain"]),
    ],
    ids=" ".join,
)
def test_patterns_name_modules(tree: Path, patterns: list[str], imported: list[str]) -> None:
    assert import_included(patterns) == imported
    assert all(name in sys.modules for name in imported)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("larder.jobz", "there is no module 'larder.jobz' on the Python path; include= names it"),
        ("lader.*", "there is no module 'lader' on the Python path; include= looks into it"),
        ("larder.*.tasks", "include='larder.*.tasks' matches no module"),
        ("larder.jobs.*", "include='larder.jobs.*' matches no module"),
    ],
)
def test_a_module_that_is_not_there_is_named(tree: Path, pattern: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        App(NOWHERE, include=[pattern]).discover()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("\n\nvalue = 1 / 0\n", "jobs.py:3: ZeroDivisionError: division by zero"),
        ("import not_installed_here\n", "jobs.py:1: ModuleNotFoundError: No module named 'not_installed_here'"),
        ("\ndef (:\n", "jobs.py:2: SyntaxError"),
    ],
)
def test_an_error_in_an_included_module_names_the_module_and_the_line(tree: Path, code: str, said: str) -> None:
    (tree / "larder" / "mail" / "jobs.py").write_text(code)
    app = App(NOWHERE, include=["larder.*.jobs"])
    for _ in range(2):  # a second one is not taken for done
        with pytest.raises(ConfigError, match=r"importing larder\.mail\.jobs failed") as refused:
            app.discover()
        assert said in str(refused.value)


@pytest.mark.parametrize("value", ["", "larder..jobs", ".jobs", "*", "*.jobs", "larder.j*", "larder jobs", [], [1], 3])
def test_what_names_no_module_is_refused_when_the_app_is_made(value: object) -> None:
    with pytest.raises(ConfigError, match="include"):
        App(NOWHERE, include=value)


def test_the_included_modules_may_come_from_the_environment(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEUP_INCLUDE", "larder.jobs, larder.plain")
    assert App(NOWHERE).discover() == ["larder.jobs", "larder.plain"]


async def _nothing() -> None: ...


@pytest.mark.asyncio
async def test_a_worker_says_which_module_declares_what(tree: Path, database_url: str) -> None:
    (tree / "larder" / "app.py").write_text(
        f"from trueup import App\napp = App({database_url!r}, include=['larder.*.jobs', 'larder.plain'])\n"
    )
    (tree / "larder" / "mail" / "jobs.py").write_text(
        "from larder.app import app\n"
        "@app.job\ndef send(): ...\n"
        "@app.cron('@daily')\ndef nightly(): ...\n"
        "letters = app.table('letters', key='id', state='state', changed_at='at')\n"
        "letters.delete('sent', stale_for='1d', name='old-letters')\n"
        "@letters.reconcile('new')\ndef post(row): ...\n"
        "@app.scan('boxes', every='1h')\nasync def boxes(cursor):\n    yield 1, 1\n@boxes.each\nasync def box(item): ...\n"
    )
    from larder.app import app  # type: ignore[import-not-found]

    told: list[Event] = []
    app.events.subscribe(told.append, ModuleDeclared)
    app.job(_nothing)
    assert len(app.registry) == 1
    async with app:
        app.worker()
    assert told == [
        ModuleDeclared("larder.mail.jobs", ("send", "nightly"), ("nightly",), ("old-letters", "post"), ("boxes",)),
        ModuleDeclared("larder.plain"),
        ModuleDeclared(__name__, ("_nothing",)),
    ]
