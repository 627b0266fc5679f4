"""Slips: names that do not exist, texts that are no durations, empty variables. Each is named, with what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Cli
from trueup.cli.main import command
from trueup.cli.session import note_new_server
from trueup.config import load_settings


@pytest.mark.parametrize("option", ["--app", "--database-url", "--schema"])
@pytest.mark.parametrize("after", [True, False], ids=["after the command", "before it"])
def test_an_empty_option_is_refused_and_not_ignored(bare_cli: Cli, project: Path, option: str, after: bool) -> None:
    result = bare_cli("status", option, "") if after else bare_cli(option, "", "status")
    assert result.code == 2
    assert result.err.startswith(f"error: {option}")
    assert not (project / ".trueup").exists()


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["enqueue"], "trueup jobs enqueue"),
        (["revive", "7"], "trueup dead revive"),
        (["jobs", "revive", "7"], "trueup dead revive"),
        (["backfill"], "trueup schedules backfill"),
        (["pause", "mails"], "trueup queues pause, or trueup schedules pause"),
        (["jobs", "status"], "trueup status"),
    ],
    ids=" ".join,
)
def test_a_command_of_another_group_is_named_with_its_group(bare_cli: Cli, words: list[str], path: str) -> None:
    result = bare_cli(*words)
    assert result.code == 2
    assert f". It is: {path}" in result.err


def parameters(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every argument and option of every command: (`jobs list`, …)."""
    for name, each in (group or command()).commands.items():
        if getattr(each, "commands", None):
            yield from parameters(each, (*path, name))
        else:
            yield from ((" ".join((*path, name)), parameter) for parameter in each.params)


DURATIONS = [(words, each.opts[-1]) for words, each in parameters() if each.metavar == "DURATION"]


@pytest.mark.parametrize(("words", "option"), DURATIONS)
def test_a_duration_that_is_none_is_refused_by_the_name_of_its_option(bare_cli: Cli, words: str, option: str) -> None:
    for given, why in (("5", "has no unit"), ("soon", "is not a duration"), ("", "is not a duration")):
        result = bare_cli(*words.split(), option, given)
        assert result.code == 2
        assert f"'{option}'" in result.err
        assert why in result.err


def test_why_jobs_were_left_unchanged_is_said_by_job(cli: Cli, run_due: Callable[[], int], database_url: str) -> None:
    assert cli("jobs", "enqueue", "add", "[1]").out == "enqueued job 1\n"
    assert cli("jobs", "enqueue", "send", '["x"]').out == "enqueued job 2\n"
    run_due()
    assert cli("jobs", "enqueue", "add", "[2]", "--delay", "1h").out == "enqueued job 3\n"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update trueup.history set unique_key = 'one' where state = 'dead'")
    assert cli("jobs", "enqueue", "send", '["y"]', "--unique", "one").code == 0

    revived = cli("dead", "revive", 1, 2, 3, 99)
    assert revived.code == 1
    assert revived.err.splitlines() == [
        "unchanged job 1: done, not dead",
        "unchanged job 2: a live job has its unique key",
        "unchanged job 3: queued, not dead",
        "unchanged job 99: no such job; its history may have passed its retention",
    ]
    assert "unchanged job 1: done; only dead and waiting jobs can be retried" in cli("jobs", "retry", 1).err
    assert "unchanged job 1: already done" in cli("jobs", "cancel", 1).err
    assert cli("dead", "discard", 1, 99, "--json").json == {"discarded": [], "unchanged": [1, 99]}


def test_names_that_nothing_has_are_doubted(cli: Cli) -> None:
    assert "has the queue 'mial'; did you mean 'mail'?" in cli("jobs", "list", "--queue", "mial").err
    assert "has the kind 'sned'; did you mean 'send'?" in cli("dead", "list", "--kind", "sned").err
    assert cli("jobs", "list", "--queue", "mail", "--kind", "send").err == ""
    assert "has the queue 'mial'; did you mean 'mail'?" in cli("queues", "pause", "mial").err
    assert "note" not in cli("queues", "pause", "--kind", "send").err


def test_a_schedule_that_does_not_exist_is_compared_with_those_that_do(cli: Cli) -> None:
    assert "no schedule is called 'nightly'; none is known yet" in cli("schedules", "show", "nightly").err
    assert cli("schedules", "create", "nightly", "add", "[1]", "--every", "1h").code == 0
    for verb in ("show", "pause", "resume", "trigger"):
        result = cli("schedules", verb, "nihgtly")
        assert (result.code, "did you mean 'nightly'?" in result.err) == (1, True)


def test_a_database_that_does_not_exist_is_named_with_what_to_do(bare_cli: Cli, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        name = connection.info.dbname
    result = bare_cli("status", "--database-url", database_url.replace(f"/{name}", "/nosuchdatabase"))
    assert result.code == 1
    assert "create it (createdb), or name another one in database_url" in result.err


@pytest.mark.parametrize(
    "declaration",
    [
        '@app.cron("0 3 * * *", tz="Europe/Viena")\nasync def f(): ...',
        "@app.job\nasync def f(): ...\n@app.job(name='f')\nasync def g(): ...",
        '@app.job(timeout="5")\nasync def f(): ...',
        'app.table("")',
        "App(concurency=5)",
    ],
)
def test_a_wrong_declaration_is_at_the_line_of_the_user(cli: Cli, project: Path, declaration: str) -> None:
    (project / "wrong.py").write_text(f"from trueup import App\napp = App()\n{declaration}\n")
    result = cli("worker", "--app", "wrong:app")
    assert result.code == 2
    assert f"importing wrong failed at {project}/wrong.py:" in result.err


def test_a_command_that_is_about_to_create_a_database_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note_new_server(load_settings(environ={}, directory=tmp_path))
    assert f"creating an embedded PostgreSQL in {tmp_path}/.trueup" in capsys.readouterr().err
    (tmp_path / ".trueup").mkdir()
    note_new_server(load_settings(environ={}, directory=tmp_path))
    note_new_server(load_settings(environ={"TRUEUP_DATABASE_URL": "postgresql://db/x"}, directory=tmp_path))
    assert capsys.readouterr().err == ""


def test_every_argument_and_option_is_explained_and_says_what_it_takes() -> None:
    """No `<int range>` or `<list[…]>`: those are types of Python, not what people write."""
    shown = [(words, each) for words, each in parameters() if not getattr(each, "hidden", False)]
    unexplained = [f"{words} {each.opts[-1]}" for words, each in shown if not getattr(each, "help", None)]
    untyped = [
        f"{words} {each.opts[-1]}" for words, each in shown if not (each.metavar or getattr(each, "is_flag", False))
    ]
    assert (unexplained, untyped) == ([], [])


@pytest.mark.parametrize(
    ("table", "said"), [("schedules", "create it before the worker starts"), ("oders", "did you mean 'orders'?")]
)
def test_a_missing_table_is_never_taken_for_one_of_trueups(
    cli: Cli, project: Path, database_url: str, table: str, said: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table orders (id int primary key, state text not null)")
    declared = f'rows = app.table("{table}", key="id", state="state")\n\n\n@rows.reconcile("paid", every="1m")\nasync def ship(row): ...'
    (project / "missing.py").write_text(f"from trueup import App\napp = App()\n{declared}\n")
    result = cli("reconcilers", "run", "ship", "--dry-run", "--app", "missing:app")
    assert result.code == 2
    assert f"table '{table}': there is no such table" in result.err
    assert said in result.err
    assert "trueup." not in result.err
