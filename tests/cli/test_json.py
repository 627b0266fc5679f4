"""`--json` of every command, those that change something too: one JSON document on standard output and nothing else, whatever is stored."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.cli.rows import PAPERS, TABLES
from tests.web.dashboard.test_pages import MOMENTS, ODD, ODD_ERRORS
from trueup.cli.main import command

SHOP = f"""{PAPERS}

@app.job(retry=Retry(max_attempts=1))
async def send(to: str) -> int:
    if to == "nowhere":
        raise ValueError("no mailbox")
    return 2**80


@app.cron("30 2 * * *", tz="Europe/Berlin")
async def nightly() -> None: ...
"""

# After =>: the exit codes that a command may end with, if not only 0.
LOOKING = """
status
status --check                                  => 0 1
alerts
actions
audit                                           => 0 1
recovery
doctor                                          => 0 1
migrate --check
migrate --sql
config
jobs list
jobs show 1
jobs show 2
dead list
dead show 2
queues list
schedules list
schedules show nightly
schedules show weekly
schedules preview nightly --year 2027
schedules preview --cron "30 2 * * *" --tz Europe/Berlin
reconcilers list
reconcilers show recover
reconcilers show objects
reconcilers quarantine list
reconcilers quarantine show recover 7
reconcilers run publish --dry-run
rules prometheus
rules grafana
"""
# In this order: each finds what it needs.
CHANGING = """
migrate
jobs enqueue send --arg to=x
jobs cancel 3 99                                => 1
jobs retry 2 99                                 => 1
dead revive --all --yes
dead discard 2                                  => 1
dead discard --all --yes
jobs retry --all --yes
queues pause mail
queues resume mail
schedules create hourly send --arg to=y --every 1h
schedules edit hourly --every 2h
schedules pause hourly
schedules resume hourly
schedules trigger hourly
schedules rewind hourly
schedules delete hourly --yes
schedules backfill weekly --start 2026-01-01T00:00Z --end 2026-01-15T00:00Z --yes
schedules retire nightly
reconcilers pause recover
reconcilers resume recover
reconcilers run objects                         => 0 1
reconcilers quarantine release recover 7
reconcilers run recover                         => 1
reconcilers quarantine discard recover 7
reconcilers quarantine release recover --all --yes
reconcilers quarantine discard recover --all --yes
reconcilers forget pair --yes
"""
HIDDEN = {"reconcilers release", "reconcilers discard"}  # other names of `reconcilers quarantine …`
SERVERS = {"worker", "dashboard", "postgres start", "postgres stop", "postgres url", "postgres status"}
WITHOUT = {"demo", "postgres psql"}  # have no --json


def split(text: str) -> list[tuple[list[str], set[str]]]:
    parts = [line.partition("=>") for line in text.strip().splitlines()]
    return [(shlex.split(words), set(codes.split()) or {"0"}) for words, _, codes in parts]


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, each in group.commands.items():
        if getattr(each, "commands", None):
            yield from commands(each, (*path, name))
        else:
            yield " ".join((*path, name))


def facts(document: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in the document that is neither an object nor a list, with its name."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from facts(value, str(key))
    elif isinstance(document, list):
        for value in document:
            yield from facts(value, name)
    else:
        yield name, document


def wrong(cli: Cli, words: list[str], codes: set[str]) -> str | None:
    """What is wrong with the answer of a command; None if nothing is."""
    result = cli(*words, "--json")
    if "Traceback" in result.err or str(result.code) not in codes:
        return f"exit code {result.code}: {result.err}"
    try:
        document = json.loads(result.out, parse_constant=float.fromhex)  # NaN and Infinity are not JSON
        moments = [text for name, text in facts(document) if name.endswith("_at") and text is not None]
        return None if all(datetime.fromisoformat(text).tzinfo for text in moments) else f"no time zone: {moments}"
    except (ValueError, TypeError) as error:
        return f"{error!r}: {result.out[:300]}"


@pytest.fixture
def filled(cli: Cli, project: Path, database_url: str, run_due: Callable[[], int]) -> Cli:
    """A job that is done, one that is dead and one that waits, two schedules, a paused queue, rows in quarantine, a scan."""
    (project / "shop.py").write_text(SHOP)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)
    for to in ("ann", "nowhere"):
        cli("jobs", "enqueue", "send", "--arg", f"to={to}")
    run_due()
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("delete from trueup.workers")
    cli("jobs", "enqueue", "send", "--arg", "to=later", "--delay", "1h")
    cli("schedules", "create", "weekly", "send", "--arg", "to=z", "--cron", "0 9 * * 1")
    cli("queues", "pause", "other")
    for name in ("recover", "publish", "pair", "objects"):
        cli("reconcilers", "run", name)
    return cli


def all_wrong(cli: Cli, text: str, also: str = "") -> dict[str, str]:
    answers = {" ".join(words): wrong(cli, words, {*codes, *also}) for words, codes in split(text)}
    return {words: why for words, why in answers.items() if why is not None}


def test_every_command_is_tried() -> None:
    tried = {" ".join(words) for words, _ in split(LOOKING + CHANGING)}
    missed = {name for name in commands(command()) if not any(f"{each} ".startswith(f"{name} ") for each in tried)}
    assert missed == HIDDEN | SERVERS | WITHOUT


@pytest.mark.slow
def test_every_command_answers_with_one_json_document(filled: Cli, database_url: str) -> None:
    assert all_wrong(filled, CHANGING) == {}


@pytest.mark.slow
def test_commands_that_look_answer_whatever_is_stored(filled: Cli, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for table in ("jobs", "history"):
            connection.execute(f"update trueup.{table} set args = '{ODD}', progress = '{ODD}', meta = '{ODD}'".encode())
        connection.execute(f"update trueup.history set result = '{ODD}', errors = %s".encode(), [ODD_ERRORS[-1]])
        connection.execute("update trueup.rows set errors = %s", [ODD_ERRORS[-2]])
        for moment in ("infinity", "4000-01-01 BC"):
            connection.execute(MOMENTS.format(moment).encode())
            assert all_wrong(filled, LOOKING, also="1") == {}, moment
