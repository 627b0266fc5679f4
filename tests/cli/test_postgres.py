from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Cli
from trueup.embedded.embedded import EmbeddedPostgres

pytestmark = pytest.mark.slow


@pytest.fixture
def own(bare_cli: Cli, project: Path) -> Iterator[Cli]:
    """Commands in a project whose embedded server is stopped afterwards."""
    yield bare_cli
    EmbeddedPostgres(project / ".trueup").stop()


def test_a_server_that_does_not_run_has_no_url(own: Cli) -> None:
    result = own("postgres", "url")
    assert (result.code, result.out) == (1, "")
    assert "start it: trueup postgres start" in result.err
    assert own("postgres", "status").code == 1
    assert own("postgres", "stop").out == "it was not running\n"


def test_the_server_runs_from_start_to_stop(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    started = own("postgres", "start")
    assert started.code == 0, started.err
    url = own("postgres", "url").out.strip()
    assert url in started.out
    with psycopg.connect(url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert own("postgres", "status").code == 0
    status = own("postgres", "status", "--json").json
    assert (status["running"], status["kept"], status["url"]) == (True, True, url)

    monkeypatch.setenv("PGHOST", "nowhere.invalid")
    asked = own("postgres", "psql", "-At", "-c", "select 6 * 7")
    assert (asked.code, asked.out) == (0, "42\n"), asked.err
    assert own("postgres", "psql", "-c", "select nonsense").code == 1
    for other in (["-d", "template1"], ["--dbname=template1"], ["template1"], ["-dtemplate1"]):
        elsewhere = own("postgres", "psql", *other, "-At", "-c", "select current_database()")
        assert (elsewhere.code, elsewhere.out) == (0, "template1\n"), elsewhere.err

    assert own("jobs", "list", "--json").json == []
    assert own("postgres", "stop").out == "stopped\n"
    assert own("postgres", "status").code == 1
