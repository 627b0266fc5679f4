"""Several processes of one host, one lease."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.leases.keepers import Keeper
from tests.support import warm
from tests.support.processes import ROOT

pytestmark = pytest.mark.slow

PROCESSES, TIMES = 3, 6


def start(module: str, keeper: Keeper, *arguments: str) -> subprocess.Popen[str]:
    where = (keeper.database_url, keeper.backend, keeper.settings.get("redis_url", ""))
    return warm.Popen(
        [sys.executable, "-W", "error", "-m", module, *where, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_counter_stays_right_and_processes_of_one_host_are_different_holders(keeper: Keeper, tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    counting = [start("tests.leases.counting", keeper, str(number), str(TIMES)) for _ in range(PROCESSES)]
    try:
        said = [process.communicate(timeout=60)[0] for process in counting]
    finally:
        for process in counting:
            process.kill()
    assert [process.returncode for process in counting] == [0] * PROCESSES
    held = [json.loads(line) for output in said for line in output.splitlines()]
    assert int(number.read_text()) == PROCESSES * TIMES
    assert len({each["holder"] for each in held}) == PROCESSES * TIMES
    assert len({each["term"] for each in held}) == PROCESSES * TIMES


def test_a_holder_that_was_stopped_past_its_ttl_is_told_and_its_write_is_refused(keeper: Keeper) -> None:
    with psycopg.connect(keeper.database_url, autocommit=True) as connection:
        connection.execute("create table written (term bigint not null)")
    holder = start("tests.leases.holder", keeper)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        if keeper.backend == "advisory":
            keeper.forget("nightly")  # a stopped process keeps its connection: somebody has to end it
        with keeper.app.lease_sync("nightly", ttl="10s", wait="20s", backend=keeper.backend) as heir:
            with psycopg.connect(keeper.database_url) as tx:
                heir.fence_sync(tx)
                tx.execute("insert into written (term) values (%s)", [heir.term])
            holder.send_signal(signal.SIGCONT)
            assert holder.communicate("write\n", timeout=20)[0] == "lost\n"
    finally:
        holder.kill()
        holder.communicate()
    with psycopg.connect(keeper.database_url) as connection:
        assert connection.execute("select term from written").fetchall() == [(heir.term,)]


@pytest.mark.parametrize("keeper", ["postgres", "advisory"], indirect=True)
def test_what_a_killed_process_held_is_free_after_its_ttl(keeper: Keeper) -> None:
    holder = start("tests.leases.holder", keeper)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
    finally:
        holder.kill()
        holder.communicate()
    with keeper.app.lease_sync("nightly", ttl="1s", wait="10s", backend=keeper.backend) as heir:
        assert heir.held()
    assert holder.returncode == -signal.SIGKILL
