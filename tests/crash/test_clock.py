"""The database's clock jumps while jobs, rows and ticks are in hand."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from tests.crash import gated
from tests.crash.in_hand import LEASE, ROWS, InHand, in_hand
from tests.docs.pages import DOCS, blocks
from tests.support.jumping import RIGHT, JumpingServer
from tests.support.matrix import count
from tests.support.waiting import wait_until
from trueup import App, LostLease, NotAcquired

pytestmark = pytest.mark.slow

HOUR = 3600
JUMPS = [120, HOUR][: count(1, proof=2)]  # seconds
AS_LONG_AS_EVER = f"now() + interval '{LEASE}'"


@pytest.fixture(scope="module")
def server() -> Iterator[JumpingServer]:
    with tempfile.TemporaryDirectory(prefix="trueup-pg-") as directory, JumpingServer(Path(directory)) as server:
        yield server


@pytest.fixture
def url(server: JumpingServer) -> Iterator[str]:
    server.jump(RIGHT)
    with server.database() as url:
        yield url


@pytest.fixture
def run(url: str, tmp_path: Path) -> Iterator[InHand]:
    with in_hand(url, tmp_path) as run:
        yield run


def jump(server: JumpingServer, run: InHand, seconds: int) -> None:
    """Everything is in hand when the clock jumps: the gate comes afterwards."""
    assert not run.gate.exists()
    assert server.jump(seconds) == pytest.approx(seconds, abs=5)
    run.back_by = max(run.back_by, timedelta(seconds=-seconds))


def losers(run: InHand) -> set[int]:
    return {line["process"] for line in run.said("worker.lease_lost")}


@pytest.mark.proof(beside="test_a_lease_that_ended_early_is_fenced_by_whoever_has_it_next")
@pytest.mark.parametrize("seconds", JUMPS)
def test_a_clock_that_jumps_forward_ends_leases_early_and_nothing_is_done_twice(
    server: JumpingServer, run: InHand, seconds: int
) -> None:
    jump(server, run, seconds)
    wait_until(lambda: run.said("job.rescued"), "jobs are taken from those who hold them")
    run.gate.touch()  # those who have lost them may not know it yet
    run.more_work()
    run.wait_ended()
    run.wait_fired(2)
    wait_until(lambda: losers(run) == {worker.pid for worker in run.workers.alive}, "every worker has lost its lease")
    run.prove()
    assert run.said("job.claim_lost")
    assert run.said("row.claim_lost")


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_clock_that_jumps_back_leaves_jobs_to_their_holders_and_new_work_runs(
    server: JumpingServer, run: InHand, seconds: int
) -> None:
    jump(server, run, -seconds)
    renewed = f"select (select bool_and(lease_until <= {AS_LONG_AS_EVER}) from trueup.workers) and (select bool_and(due_at <= {AS_LONG_AS_EVER}) from trueup.rows)"
    wait_until(lambda: run.query(renewed) == [(True,)], "leases are as long as ever")
    run.gate.touch()
    fired = run.fired()
    run.more_work()
    run.wait_ended()
    assert run.fired() == fired
    for event in ("worker.lease_lost", "job.rescued", "job.claim_lost", "row.claim_lost"):
        assert run.said(event) == []
    server.jump(RIGHT)
    run.wait_fired(2)
    run.prove()


def test_statements_for_operators_free_what_the_dead_held_when_the_clock_went_back(
    server: JumpingServer,
    run: InHand,
) -> None:
    for worker in run.workers.alive:
        run.workers.kill(worker)
    with psycopg.connect(run.url, autocommit=True) as connection:
        take = "insert into trueup.leases (name, holder, term, lease_until, acquired_at, renewed_at) values"
        connection.execute(f"{take} ('nightly', gen_random_uuid(), 1, now() + interval '2 s', now(), now())")
    in_hand = run.in_hand()
    jump(server, run, -HOUR)
    run.gate.touch()
    run.workers.start()
    run.more_work()
    new = f"effects.written where key::int > {ROWS}"
    wait_until(lambda: run.count(new) == 3 * len(gated.MODES), "new rows are done", timeout=30)
    wait_until(lambda: run.count("trueup.jobs where kind in ('quick', 'rated')") == 0, "new jobs are done")
    wait_until(lambda: run.in_hand() == in_hand, "only what the dead hold is held")
    assert not is_free(run.app, "nightly")

    with psycopg.connect(run.url, autocommit=True) as connection:
        for block in blocks(DOCS / "howto/operating.md"):
            if block.language == "sql":
                connection.execute(block.code.encode())
        connection.execute("set session_replication_role = 'replica'")  # by hand, so not to be recorded
        connection.execute("update tasks_lease_columns set leased_until = now() where leased_until > now()")
    run.wait_ended()
    assert is_free(run.app, "nightly")
    server.jump(RIGHT)
    run.wait_fired(2)
    run.prove()


def is_free(app: App, name: str) -> bool:
    try:
        with app.lease_sync(name):
            return True
    except NotAcquired:
        return False


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_lease_that_ended_early_is_fenced_by_whoever_has_it_next(
    server: JumpingServer, url: str, seconds: int
) -> None:
    app = App(url)
    with psycopg.connect(url) as connection, app.lease_sync("nightly", ttl="30s") as mine:
        assert server.jump(seconds) == pytest.approx(seconds, abs=5)
        with app.lease_sync("nightly", ttl="30s") as next_one:
            assert next_one.term > mine.term
            assert mine.held()  # as far as it knows: its next renewal is seconds away
            with pytest.raises(LostLease):
                mine.fence_sync(connection)
            next_one.fence_sync(connection)
            connection.rollback()
    app.close_sync()
