from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from trueup.embedded.embedded import EmbeddedPostgres

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs `trueup postgres …` on a server of its own, which is stopped afterwards."""
    with tempfile.TemporaryDirectory(prefix="trueup-cli-") as directory:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TRUEUP_")}

        def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "trueup.cli", *arguments],
                cwd=directory,
                env={**clean, **environment},
                capture_output=True,
                text=True,
                timeout=100,
            )

        yield run
        EmbeddedPostgres(Path(directory) / ".trueup").stop()


def test_the_server_runs_from_start_to_stop(run: Run) -> None:
    absent = run("postgres", "url")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert "start it: trueup postgres start" in absent.stderr
    assert run("postgres", "status").returncode == 1

    started = run("postgres", "start")
    assert started.returncode == 0, started.stderr
    url = run("postgres", "url").stdout.strip()
    with psycopg.connect(url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert url in started.stdout
    assert run("postgres", "status").returncode == 0
    assert '"running": true' in run("postgres", "status", "--json").stdout

    asked = run("postgres", "psql", "-At", "-c", "select 6 * 7", PGHOST="nowhere.invalid", PGPORT="1")
    assert (asked.returncode, asked.stdout) == (0, "42\n"), asked.stderr
    assert run("postgres", "psql", "-c", "select nonsense").returncode == 1

    looked = run("jobs", "list", "--json")
    assert (looked.returncode, looked.stdout) == (0, "[]\n"), looked.stderr

    assert run("postgres", "stop").stdout == "stopped\n"
    assert run("postgres", "stop").stdout == "it was not running\n"
    assert run("postgres", "status").returncode == 1
