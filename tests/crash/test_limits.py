"""Fleet-wide limits, measured by what three processes did at the same time; and clocks that are wrong."""

from __future__ import annotations

import re
import time
from pathlib import Path

import psycopg
import pytest

from tests.crash import fleet
from tests.crash.run import Run, run
from tests.support.database import TestServer
from tests.support.faketime import faketime_env, remove_leftovers
from tests.support.matrix import count
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PEAK = """
select max(n) from (
  select (select count(*) from effects.spans as other
           where other.kind = this.kind and other.began <= this.began and other.ended > this.began) as n
    from effects.spans as this where this.kind = %s) as overlapping
"""
JITTER = 0.1  # seconds a start may be late on a busy machine, and so nearer to the next one


LATE_STARTS = 3  # a process that comes late to its moments again and again starts one all the same; there are three


def fullest_second(starts: list[float]) -> int:
    return max(sum(first <= start < first + 1 - JITTER for start in starts) for first in starts)


def start_three(crash: Run, **settings: str) -> None:
    for worker in [crash.workers.launch(**settings) for _ in range(3)]:
        crash.workers.wait_registered(worker)


def test_no_more_run_at_once_in_the_whole_fleet_than_the_limit(crash: Run) -> None:
    crash.enqueue(limited=150)
    start_three(crash, TRUEUP_CONCURRENCY="1", TRUEUP_PREFETCH="0")  # so that no process can use up the limit alone
    crash.wait_ended()
    crash.prove()
    assert crash.count(PEAK, "limited") == fleet.LIMITS["limited"]
    assert len({line["process"] for line in crash.events("job.started")}) > 1


def test_no_second_sees_more_starts_in_the_whole_fleet_than_the_rate(crash: Run) -> None:
    crash.enqueue(rated=80)
    start_three(crash)
    crash.wait_ended()
    crash.prove()
    started = crash.events("job.started")
    for process in {line["process"] for line in started}:
        assert fullest_second([line["elapsed"] for line in started if line["process"] == process]) <= fleet.RATE
    starts = sorted(line["elapsed"] for line in started)
    assert fullest_second(starts) <= fleet.RATE + LATE_STARTS
    assert starts[-1] - starts[0] >= (len(starts) - 1) / fleet.RATE - JITTER


def test_a_noisy_tenant_does_not_starve_the_others(crash: Run) -> None:
    for tenant, jobs in (("noisy", 300), ("quiet", 5), ("shy", 5)):
        crash.jobs.fair.enqueue_many_sync([(tenant,)] * jobs)
    crash.note_enqueued()
    start_three(crash)
    crash.wait_ended()
    crash.prove()
    order = [key for (key,) in crash.query("select key from effects.spans order by began")]
    assert len(order) == 310
    # Turn by turn the ten are among the first fifteen; claims of several processes may swap neighbours.
    assert max(position for position, key in enumerate(order) if key != "noisy") < 30
    assert crash.count(PEAK, "fair") <= fleet.LIMITS["fair"]


@pytest.mark.proof(beside="test_no_more_run_at_once_in_the_whole_fleet_than_the_limit")
@pytest.mark.parametrize("offset", ["+1h", "-1h"][: count(1, proof=2)])
def test_workers_whose_clocks_are_wrong_behave_the_same(crash: Run, offset: str) -> None:
    crash.workers.start(base=faketime_env(offset))
    crash.workers.start()
    began_at = crash.now()
    crash.enqueue(transfer=30, flaky=10, choosy=20, deliver=20)
    crash.wait_ended()
    crash.prove()
    remove_leftovers()
    assert (crash.now() - began_at).total_seconds() < 60
    ((earliest, latest),) = crash.query("select min(finished_at), max(finished_at) from trueup.history")
    assert began_at <= earliest <= latest <= crash.now()


def test_an_idle_worker_asks_about_once_a_second(server: TestServer, database_url: str, tmp_path: Path) -> None:
    """Counted in the server's log: every statement of the worker, renewals and housekeeping included."""
    usual = {"TRUEUP_LEASE_FOR": "30s", "TRUEUP_RESCUE_EVERY": "10s", "TRUEUP_POLL_EVERY": "2s"}
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"alter database {name} set log_statement = 'all'".encode())
    with run(database_url, tmp_path, **usual) as crash:
        crash.enqueue(quick=1)
        crash.workers.start()
        crash.wait_ended()
        # From here on nobody but the worker speaks to this database; others are not logged.
        after_start = time.monotonic() + 3
        wait_until(lambda: time.monotonic() > after_start, "the start is over")
        before, began = statements_logged(server), time.monotonic()
        wait_until(lambda: time.monotonic() > began + 30, "thirty idle seconds have passed", timeout=40)
        asked = statements_logged(server) - before
        crash.prove()
    # 28.5 on average: 15 looks for work, 3 each of renewing, rescuing and ticks, 2 each of declarations and lanes, and half a time dead
    # workers. Each may fall into the window once more or less often. None at all would mean that nothing was counted.
    assert 1 <= asked <= 33


def statements_logged(server: TestServer) -> int:
    return len(re.findall(r" LOG:  (?:execute [^:]*|statement): ", server.cluster.log.read_text(errors="replace")))
