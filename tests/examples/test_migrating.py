"""The "before" side of the guide on moving from other tools, run with those tools: what is replaced was real code that worked."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from apps.servers.valkey import Valkey
from bench.peers import install
from tests.docs.pages import DOCS, blocks
from tests.support.debian_server import DebianServer
from tests.support.programs import WITHIN, environment
from tests.support.waiting import wait_until

PAGE = DOCS / "howto/migrating.md"
PEERS = ("celery==5.7.0", "redis==8.1.0", "apscheduler==3.11.3", "procrastinate==3.10.0", "psycopg[binary]==3.3.8")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python() -> Path:
    """An interpreter that has the other tools, at the versions that the page names."""
    page = PAGE.read_text("utf-8")
    for name, version in (("Celery", "5.7"), ("APScheduler", "3.11"), ("Procrastinate", "3.10")):
        assert f"{name} {version}" in page
    return install.python("moving", *PEERS)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A directory with the page's "before" modules."""
    found = {block.file: block.code for block in blocks(PAGE) if (block.file or "").startswith("before_")}
    assert sorted(map(str, found)) == ["before_apscheduler.py", "before_celery.py", "before_procrastinate.py"]
    for name, code in found.items():
        (tmp_path / str(name)).write_text(code)
    return tmp_path


class Programs(ExitStack):
    """Processes that are ended on leaving, and whose output is shown when the test fails."""

    def start(self, command: list[str | Path], cwd: Path, **variables: str) -> Path:
        log = cwd / f"{len(list(cwd.glob('*.log')))}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                list(map(str, command)),
                cwd=cwd,
                env=environment(**variables),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.callback(lambda: print(log.read_text()))
        self.callback(process.wait, 30)
        self.callback(os.killpg, process.pid, signal.SIGKILL)  # with its children: Celery's beat would outlive it
        return log


def test_celery_with_beat_and_a_lock_in_redis(python: Path, before: Path) -> None:
    with Valkey() as redis, closing(redis.client()) as client, Programs() as programs:
        worker = [python, "-m", "celery", "-A", "before_celery", "worker", "--pool", "solo", "--beat"]
        programs.start([*worker, "--schedule", before / "beat"], before, REDIS_URL=redis.url)
        programs.start([python, "-c", "import before_celery; before_celery.pay(7)"], before, REDIS_URL=redis.url)
        done: list[str] = []
        wait_until(
            lambda: done.extend(client.lrange("done", len(done), -1)) or {"receipt 7", "remind"} <= set(done),  # type: ignore[func-returns-value, arg-type]
            "the receipt is sent and the schedule has fired",
            timeout=WITHIN,
            pause=0.1,
        )
        assert client.get("lock:remind") == "held", "and stays held, whatever becomes of the process"


def test_apscheduler_fires_in_every_instance(python: Path, before: Path) -> None:
    file = before / "fired"
    with Programs() as programs:
        for _ in range(2):
            programs.start([python, "before_apscheduler.py", file], before)

        def most_often() -> int:
            fired = Counter(file.read_text().splitlines()) if file.exists() else Counter[str]()
            return max(fired.values(), default=0)

        wait_until(lambda: most_often() == 2, "one tick has fired twice", timeout=WITHIN, pause=0.1)


def test_procrastinate_with_a_queueing_lock(python: Path, before: Path, empty_database_url: str) -> None:
    done = subprocess.run(
        [python, "before_procrastinate.py"],
        cwd=before,
        env=environment(DATABASE_URL=empty_database_url),
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["one is enough", "digest for 7"]


def test_the_statement_of_pg_cron_deletes_what_the_reconciler_deletes(tmp_path: Path) -> None:
    """The extension takes the schedule; its command is run here and not by the server, which would wait for up to five minutes."""
    (statement,) = [block.code for block in blocks(PAGE) if block.language == "sql" and "cron.schedule" in block.code]
    with (
        DebianServer(tmp_path, shared_preload_libraries="pg_cron") as server,
        psycopg.connect(server.cluster.url("postgres"), autocommit=True) as connection,
    ):
        connection.execute("create extension pg_cron")
        connection.execute(statement)
        connection.execute("create table sessions (id int primary key, expires_at timestamptz not null)")
        connection.execute("insert into sessions values (1, now() - interval '1 day'), (2, now() + interval '1 day')")
        ((name, command),) = connection.execute("select jobname, command from cron.job").fetchall()
        assert name == "purge"
        connection.execute(command)
        assert connection.execute("select id from sessions").fetchall() == [(2,)]
