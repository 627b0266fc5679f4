"""Commands show what is stored, whatever it looks like: errors of other shapes and long integers. Moments are in test_json.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.cli.rows import PAPERS, TABLES
from tests.web.dashboard.test_pages import ODD, ODD_ERRORS

JOB = """

@app.job(retry=Retry(max_attempts=1))
async def send(to: str) -> None:
    raise ValueError("no mailbox")
"""


@pytest.mark.slow
def test_lists_are_readable_and_their_json_is_json(
    cli: Cli, project: Path, database_url: str, run_due: Callable[[], int]
) -> None:
    (project / "shop.py").write_text(PAPERS + JOB)

    def reads(*commands: str) -> None:
        for command in commands:
            result = cli(*command.split())
            assert (result.code, result.err) == (0, ""), command
            assert not command.endswith("--json") or json.loads(result.out) is not None

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)
        ids = [cli("jobs", "enqueue", "send", '{"to": "a"}', "--json").json["id"] for _ in ODD_ERRORS]
        run_due()
        for job, errors in zip(ids, ODD_ERRORS, strict=True):
            connection.execute("update trueup.history set errors = %s where id = %s", (errors, job))
        everything = f"args = '{ODD}', progress = '{ODD}', meta = '{ODD}', result = '{ODD}'"
        connection.execute(f"update trueup.history set {everything}".encode())
        reads("jobs list", "dead list", "jobs list --json", "dead list --json", f"dead show {ids[0]} --json")
        reads(*(f"jobs show {job}" for job in ids))

        cli("reconcilers", "run", "recover")
        assert cli("reconcilers", "quarantine", "list", "--json").json
        for errors in ODD_ERRORS:
            connection.execute("update trueup.rows set errors = %s", [errors])
            reads("reconcilers show recover", "reconcilers quarantine list", "reconcilers quarantine show recover 7")
