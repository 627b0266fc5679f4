"""Several processes sweep the same tables: each row is seen through once, whoever is killed, stopped, or told the wrong time."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from tests.crash.sweeping import DEADLOCKS, Sweeping, sweeping
from tests.crash.sweeps import MODES, OPTIONS
from tests.support.database import TestServer
from tests.support.faketime import faketime_env, remove_leftovers
from tests.support.matrix import count
from tests.support.pgbouncer import PgBouncer
from tests.support.processes import WorkerProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

UPLOADS = ("uploads", "events", "intents")
STALE = timedelta(hours=2)
ROWS = count(200, proof=500)  # of each claim mode
FILL = """
insert into wallpapers (id, user_id, content_hash, upload_state, state_changed_at)
select 'wlpr_' || %s || n, n, 'hash ' || %s || n, %s, now() - %s from generate_series(1, %s) as n
"""


class Wallpapers(Sweeping):
    """The table of an upload service, and how far its sweeps have come."""

    def add(self, count: int, state: str, age: timedelta = STALE) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(FILL, [state, state, state, age, count])

    def uploads(self) -> dict[str, int]:
        return dict(self.query("select upload_state, count(*) from wallpapers group by upload_state"))

    def sweep(self, processes: int, expected: dict[str, int]) -> None:
        """Let so many processes sweep at once; they have ended, in order, when this returns."""
        self.launch(processes)
        wait_until(lambda: self.uploads() == expected and self.known() == 0, f"{expected} are there", timeout=60)
        swept = "select count(*) from trueup.reconcilers where last_swept_at is null"
        wait_until(lambda: self.scalar(swept) == 0, "each sweep has come to its end", timeout=30)
        self.workers.stop_all()

    def handled(self) -> Counter[str]:
        """How often each row was handed to its handler."""
        return Counter(line["key"].rpartition(":")[0] for line in self.begun())  # without the occasion

    def prove_calm(self) -> None:
        """Nothing went wrong on the way."""
        assert self.scalar(DEADLOCKS) == 0
        assert self.said("service.failed") == []
        assert self.said("row.conflict") == []
        assert self.violations() == []


@pytest.fixture
def wallpapers(database_url: str, tmp_path: Path) -> Iterator[Wallpapers]:
    with sweeping(database_url, tmp_path, UPLOADS) as this:
        yield Wallpapers(this.url, this.workers)


@pytest.fixture
def run(database_url: str, tmp_path: Path) -> Iterator[Sweeping]:
    with sweeping(database_url, tmp_path, MODES) as this:
        yield this


@pytest.mark.proof(beside="test_all_sweeps_of_five_processes_at_once_leave_every_row_where_it_belongs")
def test_twenty_stuck_uploads_are_recovered_once_by_three_processes(wallpapers: Wallpapers) -> None:
    wallpapers.add(20, "uploading")
    wallpapers.sweep(3, {"stored": 20})
    assert wallpapers.handled() == {f"uploads:wlpr_uploading{n}": 1 for n in range(1, 21)}
    wallpapers.prove_calm()


@pytest.mark.proof(beside="test_all_sweeps_of_five_processes_at_once_leave_every_row_where_it_belongs")
def test_thirty_stored_uploads_are_published_once_by_three_processes(wallpapers: Wallpapers) -> None:
    wallpapers.add(30, "stored")
    wallpapers.sweep(3, {"processing": 30})
    assert wallpapers.effects() == {("events", f"wlpr_stored{n}"): 1 for n in range(1, 31)}
    wallpapers.prove_calm()


@pytest.mark.proof(beside="test_all_sweeps_of_five_processes_at_once_leave_every_row_where_it_belongs")
def test_fifteen_orphaned_intents_are_deleted_by_two_processes(wallpapers: Wallpapers) -> None:
    wallpapers.add(15, "initiated")
    wallpapers.sweep(2, {})
    assert len(wallpapers.history().users) == 15
    wallpapers.prove_calm()


def test_all_sweeps_of_five_processes_at_once_leave_every_row_where_it_belongs(wallpapers: Wallpapers) -> None:
    """What was recovered is not stale yet, so it is not published in the same cycle."""
    wallpapers.add(50, "uploading")
    wallpapers.add(30, "stored")
    wallpapers.add(20, "initiated")
    wallpapers.sweep(5, {"stored": 50, "processing": 30})
    assert set(wallpapers.handled().values()) == {1}
    assert len(wallpapers.handled()) == 80
    assert len(wallpapers.effects()) == 30
    wallpapers.prove_calm()


def test_only_the_databases_clock_makes_rows_stale_whatever_the_processes_believe(
    wallpapers: Wallpapers,
) -> None:
    wallpapers.add(20, "uploading")
    for state, age in (("stored", 4), ("initiated", 55)):
        wallpapers.add(20, state, timedelta(minutes=age))
    clocks = [dict(os.environ), faketime_env("+1h"), faketime_env("-1h")]
    started = [wallpapers.workers.launch(base=clock) for clock in clocks]
    for process in started:
        wallpapers.workers.wait_registered(process)
    wallpapers.sweep(0, {"stored": 40, "initiated": 20})
    assert set(wallpapers.handled().values()) == {1}
    assert len(wallpapers.handled()) == 20
    wallpapers.prove_calm()
    remove_leftovers()


@pytest.mark.proof(beside="test_only_the_databases_clock_makes_rows_stale_whatever_the_processes_believe")
def test_wrong_clocks_neither_shorten_nor_stretch_leases(run: Sweeping) -> None:
    for mode in MODES:
        run.fill(mode, 100)
    for clock in (faketime_env("+1h"), faketime_env("-1h")):
        run.workers.launch(base=clock, **{OPTIONS: "lease_for=20s"})  # longer than a busy machine may keep a renewal
    run.wait_done(*MODES)
    run.prove()
    assert run.said("row.claim_lost") == []
    assert Counter(run.effects().values()) == {1: 400}
    remove_leftovers()


def test_with_one_process_killed_and_one_stopped_past_its_leases_rows_are_done_once(run: Sweeping) -> None:
    rows = count(700, proof=4_000)
    lease = timedelta(seconds=4)  # longer than a busy machine keeps a renewal of the others
    # Rows come when all three are there, and no quicker than that each gets some of them.
    killed, stopped, _ = run.launch(3, SWEEPS="transactions", **{OPTIONS: "rate=250/s"})
    run.fill("lease", rows)
    wait_until(lambda: run.states("lease").get("done", 0) > 0, "the first row is done", timeout=30)
    done_before, began_at = run.states("lease")["done"], run.now()
    at_work = "select count(distinct process) from effects.written"
    wait_until(lambda: run.scalar(at_work) == 3, "each has done some", timeout=30)
    wait_until(lambda: holds(run, killed) and holds(run, stopped), "both have rows in hand", timeout=30)
    pace = (run.states("lease")["done"] - done_before) / (run.now() - began_at).total_seconds()
    run.workers.kill(killed)
    in_hand = stop_with_rows_in_hand(run, stopped)
    wait_until(lambda: not holds(run, stopped), "others have taken them over", timeout=60)
    # Those that it claims afterwards are another matter.
    last_term = run.scalar("select trueup.term_floor() + last_value from trueup.row_terms")
    stopped.send(signal.SIGCONT)
    fault_ended_at, left = run.now(), rows - run.states("lease").get("done", 0)
    wait_until(lambda: lost_by(run, stopped, last_term), "the late outcomes are counted", timeout=30)
    run.wait_done("lease", timeout=120)
    # lease, a sweep, and the backlog at a fifth of the pace that the machine has reached before the fault
    run.prove(fault_ended_at=fault_ended_at, within=lease + timedelta(seconds=1 + left / (pace / 5)))
    assert run.states("lease") == {"done": rows}
    assert Counter(run.effects().values()) == {1: rows}
    # Those it had in hand, and those whose commit it had not heard of when it was stopped: they are done, by itself.
    unheard = "select key from effects.written where process = %s"
    assert lost_by(run, stopped, last_term) <= in_hand | {key for (key,) in run.query(unheard, stopped.pid)}
    # On a busy machine the others may renew too late. They notice it themselves.
    assert {line["process"] for line in run.said("row.claim_lost") if line["refused_by"] == "database"} <= {stopped.pid}


def test_outcomes_of_claims_that_ended_early_are_refused_by_the_database_alone(run: Sweeping) -> None:
    """As when the database's clock jumps: the processes have every reason to trust their leases, and yet change nothing."""
    modes = ["lease", "claimed_as", "row_lock"]  # what is known of the others is in the users' rows, too
    run.launch(
        2, SWEEPS=",".join(modes), **{OPTIONS: "rate=100/s"}
    )  # rows come later, and each process gets some of them
    for mode in modes:
        run.fill(mode, ROWS)
    at_work = "select distinct holder, reconciler from trueup.rows where holder is not null"
    wait_until(lambda: len(run.query(at_work)) >= 6, "all work", timeout=60)
    # Of some only: rows whose handler had begun are taken over one at a time.
    # Without waiting for a lock: an update takes its locks in an order of its own, which is not the one of the processes.
    expire = """
        with free as (select reconciler, key from trueup.rows where state = 'held' and mod(term, 3) = 0 for update skip locked)
        update trueup.rows as r set due_at = now() - interval '1 s' from free as f
         where r.reconciler = f.reconciler and r.key = f.key returning r.key
    """
    assert len(run.query(expire)) > 10
    expired_at = run.now()
    run.wait_done(*modes)
    run.prove(fault_ended_at=expired_at, within=timedelta(seconds=60))
    assert "database" in {line["refused_by"] for line in run.said("row.claim_lost")}
    assert Counter(run.effects().values()) == {1: len(modes) * ROWS}


def stop_with_rows_in_hand(run: Sweeping, process: WorkerProcess) -> set[str]:
    """Stop it at a moment when it has rows in hand: between two claims it has none, and then it goes on."""
    for _ in range(100):
        wait_until(lambda: holds(run, process), "it has rows in hand", timeout=30)
        process.send(signal.SIGSTOP)
        if in_hand := holds(run, process):
            return in_hand
        process.send(signal.SIGCONT)
    raise AssertionError("the fault did not land")


def holds(run: Sweeping, process: WorkerProcess) -> set[str]:
    """Rows of which the last claim is this process's."""
    of = "select key from trueup.rows join trueup.workers using (holder) where state = 'held' and pid = %s"
    return {key for (key,) in run.query(of, process.pid)}


def lost_by(run: Sweeping, process: WorkerProcess, last_term: int) -> set[str]:
    lost = [line for line in run.said("row.claim_lost") if line["process"] == process.pid]
    return {line["key"] for line in lost if line["term"] <= last_term}


@pytest.fixture
def server_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """A server that may be crashed: what it has confirmed must survive that, unlike on the fast one of other tests."""
    with TestServer(tmp_path_factory.mktemp("pg"), synchronous_commit="on", full_page_writes="on") as server:
        yield server


@pytest.mark.proof(
    beside="tests/crash/test_database.py::test_a_database_restarted_at_once_in_a_loop_loses_and_repeats_nothing"
)
def test_a_database_restarted_in_the_middle_of_sweeps_loses_and_repeats_nothing(
    server_of_its_own: TestServer, tmp_path: Path
) -> None:
    with server_of_its_own.database() as url, sweeping(url, tmp_path, MODES) as run:
        for mode in MODES:
            run.fill(mode, ROWS)
        run.launch(3)
        for restart in range(1, count(2, proof=3) + 1):
            wait_until(lambda r=restart: done(run) > ROWS // 2 * r, "work goes on", timeout=60)
            server_of_its_own.cluster.restart("immediate")
        assert done(run) < len(MODES) * ROWS, "the last restart came while there was work"
        back_at = run.now()
        run.wait_done(*MODES, timeout=120)
        run.prove(fault_ended_at=back_at, within=timedelta(seconds=90))
        assert Counter(run.effects().values()) == {1: len(MODES) * ROWS}
        assert run.said("database.lost")
        assert run.said("database.restored")


def done(run: Sweeping) -> int:
    try:
        return sum(run.states(mode).get("done", 0) for mode in MODES)
    except psycopg.OperationalError:
        return 0


def test_sweeps_through_a_pooler_in_transaction_mode_do_every_row_once(
    database_url: str, server: TestServer, tmp_path: Path
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with (
        PgBouncer(server.cluster.url(str(name)), default_pool_size=10) as pooler,
        sweeping(database_url, tmp_path, MODES, workers_url=pooler.url(str(name))) as run,
    ):
        for mode in MODES:
            run.fill(mode, ROWS // 4)
        first, *_ = run.launch(3)
        wait_until(lambda: done(run) > 40, "work is under way", timeout=30)
        run.workers.kill(first)
        run.wait_done(*MODES)
        run.workers.stop_all()
        pooler.stop()
        run.prove()
        assert Counter(run.effects().values()) == {1: len(MODES) * (ROWS // 4)}
