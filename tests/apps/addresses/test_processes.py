"""Real processes on a real database and a real chain: with wrong clocks, killed in the middle, stopped."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apps.addresses import books
from apps.addresses.scheduling import LOCK
from apps.addresses.service import SCHEDULE
from tests.apps.addresses.desk import Node
from tests.apps.addresses.meddler import Meddler
from tests.apps.processes import Process, Town, ask, town
from tests.support import matrix
from tests.support.faketime import faketime_env, remove_leftovers
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until
from trueup import App

pytestmark = pytest.mark.slow

SOON = 40  # seconds; what is waited for takes two or three
ADDRESSES = [f"0x{number:040x}" for number in range(1, 4)]
SCHEDULER = {"RECONCILIATION_SCHEDULER_ENABLED": "true"}
WORKER = {"RECONCILIATION_WORKER_ENABLED": "true"}
COMPLETED = "Reconciliation scheduling completed"

Database = psycopg.Connection[Any]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    async def tables() -> None:
        async with App(database_url) as app, app.transaction() as tx:
            await books.make_tables(tx)

    asyncio.run(tables())
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def place(database_url: str, tmp_path: Path) -> Iterator[Town]:
    environment = {
        "TRUEUP_DATABASE_URL": database_url,
        "TRUEUP_RESCUE_EVERY": "250ms",
        "TRUEUP_LOG_LEVEL": "info",
        "RECONCILIATION_CRON_SCHEDULE": "*/2 * * * * *",
        "RECONCILIATION_POLLING_INTERVAL_MS": "200",
        "RECONCILIATION_LEASE_FOR": "2s",
        "RECONCILIATION_PROVIDER_RATE": "1000/s",
    }
    with town("apps.addresses", environment, tmp_path) as place:
        yield place


def monitor(database: Database, *addresses: str) -> None:
    for address in addresses:
        database.execute("insert into addresses (address, chain) values (%s, 'ethereum')", [address])


def count(database: Database, query: str, *params: Any) -> Any:
    row = database.execute(query, params).fetchone()
    assert row is not None
    return row[0]


def jobs(database: Database) -> int:
    return int(count(database, "select count(*) from reconciliation_jobs"))


def locks(database: Database) -> int:
    """How many have the scheduler's lock, in this database."""
    here = "database = (select oid from pg_database where datname = current_database())"
    return int(count(database, f"select count(*) from pg_locks where objid = %s and granted and {here}", LOCK))


# -- the scheduler ----------------------------------------------------------------------------------------------------


def test_instances_two_with_wrong_clocks_make_one_set_of_jobs_per_tick(place: Town, database: Database) -> None:
    monitor(database, *ADDRESSES)
    right = matrix.count(1, proof=3)
    clocks = [*[{}] * right, faketime_env("+2", base={}), faketime_env("-2", base={})]
    fleet = [place.start("worker", **SCHEDULER, **clock) for clock in clocks]
    seen: dict[int, datetime] = {}

    def all_started() -> bool:
        for process in fleet:
            if process.pid not in seen and process.lines("worker started"):
                seen[process.pid] = count(database, "select clock_timestamp()")
        return len(seen) == len(fleet)

    try:
        started = "all have started, those with wrong clocks last"
        wait_until(all_started, started, timeout=SOON, pause=0.1)
        sets = "select count(*) from (select tick from reconciliation_jobs group by tick having count(*) = 3) as whole"

        def three_sets() -> bool:
            database.execute("update reconciliation_jobs set status = 'completed' where status = 'pending'")
            return int(count(database, sets)) >= 3

        wait_until(three_sets, "three ticks have had their jobs", timeout=SOON, pause=0.1)
        lines = [line for process in fleet for line in process.lines(COMPLETED)]
        ticks = Counter(line["tick"] for line in lines)
        assert set(ticks.values()) == {1}, "each tick was seen to by one instance"
        assert {line["scheduled"] + line["already_active"] for line in lines} == {3}
        made = dict(database.execute("select tick, count(*)::int from reconciliation_jobs group by tick").fetchall())
        told = {datetime.fromisoformat(line["tick"]): line["scheduled"] for line in lines}
        assert {tick: made.get(tick, 0) for tick in told} == told, "and has one set of jobs: one for each that had none"
        assert all(moment.second % 2 == 0 and moment.microsecond == 0 for moment in made)
        assert all(process.alive for process in fleet)
        for process, meant in zip(fleet, [*[0] * right, 2, -2], strict=True):
            least, most = ahead(database, process, seen[process.pid])
            assert least - 0.05 < meant < most + 0.05, "their clocks were as meant"
    finally:
        for process in fleet:
            process.kill()
        remove_leftovers()


def ahead(database: Database, process: Process, seen_at: datetime) -> tuple[float, float]:
    """How many seconds its clock goes before the database's, at least and at most: between the two times of the database's clock at
    which it had registered and at which the test saw what it had said."""
    (line,) = process.lines("worker started")
    believed = datetime.fromisoformat(line["time"])
    registered: datetime = count(database, "select started_at from trueup.workers where pid = %s", process.pid)
    return (believed - seen_at).total_seconds(), (believed - registered).total_seconds()


def once(database: Database, place: Town, **variables: str) -> Process:
    """A scheduler whose only tick is the one that is triggered."""
    return place.start("worker", **SCHEDULER, RECONCILIATION_CRON_SCHEDULE="0 0 29 2 *", **variables)


def trigger(database_url: str) -> None:
    async def fire() -> None:
        async with App(database_url) as app:
            await app.schedules.trigger(SCHEDULE)

    asyncio.run(fire())


def at_work(database: Database, workers: int = 1) -> None:
    """Return when so many are."""
    query = "select count(*) from trueup.workers"
    wait_until(lambda: count(database, query) == workers, f"{workers} are at work", timeout=SOON)


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_an_instance_killed_while_it_creates_jobs_leaves_all_or_nothing(
    place: Town, database: Database, database_url: str, point: str
) -> None:
    monitor(database, *ADDRESSES)
    first = once(database, place, TRUEUP_FAULT=f"{point}:kill")
    at_work(database)
    trigger(database_url)
    assert first.ended() == -signal.SIGKILL
    wait_until(lambda: locks(database) == 0, "the lock went with it")
    assert jobs(database) == (0 if point == "before_commit" else 3)
    second = once(database, place)
    if point == "before_commit":
        wait_until(lambda: second.lines(COMPLETED), "another one finishes that tick", timeout=SOON)
        (line,) = second.lines(COMPLETED)
        assert (line["attempt"], line["scheduled"], line["lock_acquired"]) == (2, 3, True)
        (warning,) = second.lines("Reconciliation scheduling failed, retrying")
        assert "the instance died" in warning["error"]
    else:
        database.execute("update reconciliation_jobs set status = 'completed'")
        wait_until(lambda: second.lines("worker expired"), "the first is found dead", timeout=SOON)
        assert count(database, "select count(*) from trueup.jobs") == 0, "it was done, with its jobs"
        assert second.stop() == 0
    assert jobs(database) == 3
    assert count(database, "select count(distinct tick) from reconciliation_jobs") == 1
    assert locks(database) == 0


def test_an_instance_frozen_while_it_creates_jobs_is_replaced_and_adds_none_later(
    place: Town, database: Database, database_url: str
) -> None:
    monitor(database, *ADDRESSES)
    first = once(database, place, TRUEUP_FAULT="before_commit:stop")
    at_work(database)
    trigger(database_url)
    stat = Path(f"/proc/{first.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is frozen", timeout=SOON)
    assert (jobs(database), locks(database)) == (0, 1), "with jobs that nobody can see yet, and the lock"
    second = once(database, place)
    wait_until(lambda: second.lines(COMPLETED), "another one finishes that tick", timeout=SOON)
    database.execute("update reconciliation_jobs set status = 'completed'")
    first.send(signal.SIGCONT)
    wait_until(lambda: first.lines("worker lost its lease"), "it has noticed", timeout=SOON)
    assert first.stop() == 0
    assert first.lines(COMPLETED) == []
    assert (jobs(database), locks(database)) == (3, 0)


def test_the_lock_of_a_killed_instances_server_process_is_waited_for(
    place: Town, database: Database, database_url: str
) -> None:
    """The statement of the dead one goes on in the server, lock and all, until it notices."""
    monitor(database, *ADDRESSES)
    first = once(database, place)
    at_work(database)
    with psycopg.connect(database_url) as blocking:
        blocking.execute("lock table addresses in access exclusive mode")
        trigger(database_url)
        wait_until(lambda: locks(database) == 1, "it has the lock, and reads addresses", timeout=SOON)
        first.kill()
        second = once(database, place)
        started = "Reconciliation scheduling started"
        wait_until(lambda: second.lines(started), "another one tries", timeout=SOON)
        assert locks(database) == 1
        assert second.lines("Another instance handling") == []
    wait_until(lambda: second.lines(COMPLETED), "it has waited, and finishes that tick", timeout=SOON)
    assert jobs(database) == 3
    assert locks(database) == 0


def test_a_lock_held_elsewhere_skips_the_tick_and_the_process_lives(
    place: Town, database: Database, database_url: str
) -> None:
    monitor(database, *ADDRESSES)
    instance = once(database, place)
    at_work(database)
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("select pg_advisory_lock(%s)", [LOCK])
        trigger(database_url)
        wait_until(lambda: instance.lines("Another instance handling"), "it says so", timeout=SOON)
    (line,) = instance.lines("Another instance handling")
    assert (line["level"], line["skipped"], line["lock_acquired"], line["attempt"]) == ("info", True, False, 1)
    assert jobs(database) == 0
    wait_until(lambda: locks(database) == 0, "it is free again")
    trigger(database_url)
    wait_until(lambda: jobs(database) == 3, "the next one is as usual", timeout=SOON)
    assert instance.stop() == 0


def test_a_database_that_is_away_over_a_tick_is_told_of_and_the_tick_is_made_up_for(
    place: Town, database: Database, database_url: str
) -> None:
    """Nothing was tried, so nothing is retried or exhausted: the tick waits in the ledger."""
    with Proxy.before(database_url) as way:
        instance = place.start("worker", **SCHEDULER, TRUEUP_DATABASE_URL=way.url(database_url))
        wait_until(lambda: instance.lines(COMPLETED), "it ticks", timeout=SOON)
        way.cut()
        wait_until(lambda: instance.lines("database lost"), "it says so", timeout=SOON)
        lost_at = count(database, "select clock_timestamp()")
        wait_until(
            lambda: count(database, "select clock_timestamp() > %s::timestamptz + '4 s'", lost_at), "two ticks pass"
        )
        way.heal()
        healed_at = count(database, "select clock_timestamp()")

        def made_up_for() -> bool:
            ticks = [datetime.fromisoformat(line["tick"]) for line in instance.lines(COMPLETED)]
            return any(lost_at < tick <= healed_at for tick in ticks)

        wait_until(made_up_for, "a tick of the outage is made up for", timeout=SOON)
        assert {line["level"] for line in instance.lines("database lost")} == {"warning"}
        assert instance.stop() == 0


# -- the worker -------------------------------------------------------------------------------------------------------


def pay(node: Node, blocks: int) -> tuple[str, dict[str, int]]:
    """A transfer in each of so many blocks, by the one whose address is returned; block by hash."""
    ada, bob = node.accounts()[:2]
    return ada, {node.pay(ada, bob, number): node.mine() for number in range(1, blocks + 1)}


def here(database: Database) -> dict[str, int]:
    rows = database.execute("select hash, block_number from transactions where deleted_at is null").fetchall()
    return dict(rows)


def ask_for(database: Database, address: str) -> int:
    query = "insert into reconciliation_jobs (address, chain, mode) values (%s, 'ethereum', 'partial') returning id"
    return int(count(database, query, address))


def column(database: Database, job: int, name: str) -> Any:
    return count(database, f"select {name} from reconciliation_jobs where id = %s", job)


def test_a_worker_killed_in_the_middle_of_a_job_leaves_exact_books(place: Town, database: Database, node: Node) -> None:
    ada, sent = pay(node, 12)
    monitor(database, ada)
    database.execute(
        "insert into transactions (chain, hash, block_number, from_address, value, fee, succeeded)"
        " values ('ethereum', '0x01', 3, %s, 1, 1, true)",
        [ada],
    )
    job = ask_for(database, ada)
    slow = {"RECONCILIATION_PROVIDERS": f"ethereum={node.url}", "RECONCILIATION_PAGE_BLOCKS": "1"}
    first = place.start("worker", **WORKER, **slow, RECONCILIATION_PROVIDER_RATE="5/s")
    wait_until(lambda: (column(database, job, "next_block") or 0) >= 4, "it is in the middle", timeout=SOON)
    first.kill()
    reached = column(database, job, "next_block")
    assert 4 <= reached <= 11
    assert column(database, job, "status") == "running"
    assert column(database, job, "started_at") is not None, "set by the claim"
    assert "0x01" in here(database), "nothing is deleted before all is read"
    place.start("worker", **WORKER, **slow)
    wait_until(lambda: column(database, job, "status") == "completed", "another one finishes it", timeout=SOON)
    assert here(database) == sent
    counted = database.execute("select action, count(*)::int from reconciliation_audit_log group by 1").fetchall()
    assert dict(counted) == {"added": 12, "soft_deleted": 1}, "and nothing is told of twice"
    assert [column(database, job, name) for name in ("checked", "added", "soft_deleted")] == [12, 12, 1]
    assert count(database, "select last_reconciled_block from addresses") == 12


@pytest.mark.proof(beside="test_a_worker_killed_in_the_middle_of_a_job_leaves_exact_books")
def test_a_worker_killed_right_before_its_last_commit_does_nothing_twice(
    place: Town, database: Database, node: Node
) -> None:
    ada, sent = pay(node, 3)
    monitor(database, ada)
    job = ask_for(database, ada)
    nodes = {"RECONCILIATION_PROVIDERS": f"ethereum={node.url}"}
    first = place.start("worker", **WORKER, **nodes, TRUEUP_FAULT="before_row_commit:kill")
    assert first.ended() == -signal.SIGKILL
    assert (column(database, job, "status"), column(database, job, "added")) == ("running", 3)
    assert count(database, "select last_reconciled_block from addresses") is None
    place.start("worker", **WORKER, **nodes)
    wait_until(lambda: column(database, job, "status") == "completed", "another one finishes it", timeout=SOON)
    assert here(database) == sent
    assert count(database, "select count(*) from reconciliation_audit_log") == 3
    assert (column(database, job, "added"), column(database, job, "checked")) == (3, 3)
    assert count(database, "select last_reconciled_block from addresses") == 3


@pytest.mark.proof(beside="test_a_worker_killed_in_the_middle_of_a_job_leaves_exact_books")
def test_a_worker_frozen_past_its_lease_writes_nothing_when_it_wakes(
    place: Town, database: Database, node: Node
) -> None:
    ada, sent = pay(node, 12)
    monitor(database, ada)
    job = ask_for(database, ada)
    slow = {"RECONCILIATION_PROVIDERS": f"ethereum={node.url}", "RECONCILIATION_PAGE_BLOCKS": "1"}
    first = place.start("worker", **WORKER, **slow, RECONCILIATION_PROVIDER_RATE="5/s")
    wait_until(lambda: (column(database, job, "next_block") or 0) >= 3, "it is in the middle", timeout=SOON)
    first.send(signal.SIGSTOP)
    version = column(database, job, "version")
    place.start("worker", **WORKER, **slow)
    wait_until(lambda: column(database, job, "version") > version, "another one has claimed it", timeout=SOON)
    first.send(signal.SIGCONT)
    wait_until(lambda: column(database, job, "status") == "completed", "it finishes it", timeout=SOON)
    assert first.stop() == 0
    assert here(database) == sent
    assert count(database, "select count(*) from reconciliation_audit_log where action = 'added'") == 12
    assert column(database, job, "added") == 12


def test_a_worker_that_is_asked_to_stop_hands_back_and_another_goes_on_where_it_was(
    place: Town, database: Database, node: Node
) -> None:
    ada, sent = pay(node, 12)
    monitor(database, ada)
    job = ask_for(database, ada)
    slow = {"RECONCILIATION_PROVIDERS": f"ethereum={node.url}", "RECONCILIATION_PAGE_BLOCKS": "1"}
    first = place.start("worker", **WORKER, **slow, RECONCILIATION_PROVIDER_RATE="2/s", TRUEUP_DRAIN_FOR="0s")
    wait_until(lambda: (column(database, job, "next_block") or 0) >= 2, "it is in the middle", timeout=SOON)
    assert first.stop() == 0
    assert column(database, job, "status") == "pending", "at once, not when a lease has passed"
    reached = column(database, job, "next_block")
    second = place.start("worker", **WORKER, **slow)
    wait_until(lambda: column(database, job, "status") == "completed", "another one finishes it", timeout=SOON)
    assert here(database) == sent
    assert reached >= 2
    assert column(database, job, "attempts") == 1, "no attempt was spent"
    assert second.stop() == 0


def test_the_rate_of_a_provider_holds_for_the_whole_fleet(place: Town, database: Database, node: Node) -> None:
    addresses = node.accounts()
    monitor(database, *addresses)
    node.mine(7)
    with Meddler(node.url) as meddler:
        nodes = {"RECONCILIATION_PROVIDERS": f"ethereum={meddler.url}", "RECONCILIATION_PROVIDER_RATE": "8/s"}
        nodes["RECONCILIATION_PAGE_BLOCKS"] = "1"
        fleet = [place.start("worker", **WORKER, **nodes, RECONCILIATION_CONCURRENCY="2") for _ in range(2)]
        at_work(database, 2)
        began = count(database, "select clock_timestamp()")
        for address in addresses:
            ask_for(database, address)
        finished = "select count(*) from reconciliation_jobs where status = 'completed'"
        wait_until(lambda: count(database, finished) == 10, "all are done", timeout=SOON)
        assert all(process.lines("Reconciliation completed") for process in fleet), "by both of them"
    asked = len(meddler.asked_at)
    assert 2 * 9 <= asked < 2 * 20, "the tip and eight blocks, by each of them; and not by each of the jobs"
    taken = count(database, "select extract(epoch from max(next_at) - %s) from trueup.rates", began)
    assert taken >= asked / 8, "each request took a moment of its own, a spacing after the one before"


def test_a_day_from_the_tick_to_the_checkpoint_with_a_reorganisation_in_between(
    place: Town, database: Database, node: Node
) -> None:
    ada, bob = node.accounts()[:2]
    kept, gone = node.pay(ada, bob, 1), node.pay(bob, ada, 2)
    node.mine(2)
    monitor(database, ada, bob)
    nodes = {"RECONCILIATION_PROVIDERS": f"ethereum={node.url}"}
    for _ in range(2):
        place.start("worker", **SCHEDULER, **WORKER, **nodes)
    wait_until(lambda: set(here(database)) == {kept, gone}, "the copy is the chain", timeout=SOON)
    node.call("anvil_reorg", 2, [])
    new = node.pay(ada, bob, 3)
    node.mine()
    wait_until(lambda: set(here(database)) == {new}, "and again", timeout=SOON)
    rows = database.execute("select action, transaction from reconciliation_audit_log").fetchall()
    expected = [("added", kept), ("added", gone), ("soft_deleted", kept), ("soft_deleted", gone), ("added", new)]
    assert Counter(rows) == Counter(expected)


# -- starting and stopping --------------------------------------------------------------------------------------------


def test_the_api_serves_with_everything_inside_and_stops_in_order(place: Town, database: Database, node: Node) -> None:
    ada, sent = pay(node, 2)
    monitor(database, ada)
    nodes = {"RECONCILIATION_PROVIDERS": f"ethereum={node.url}"}
    process, base = place.serve("serve", **SCHEDULER, **WORKER, **nodes, RECONCILIATION_CRON_SCHEDULE="0 0 29 2 *")
    made = ask(f"{base}/v2/addresses/{ada}/chains/ethereum/reconcile", "POST", {"mode": "full"})
    assert (made["status"], made["mode"]) == ("pending", "full")
    job = f"{base}/v2/reconciliation-jobs/{made['id']}"
    wait_until(lambda: ask(job)["status"] == "completed", "it is done", timeout=SOON)
    assert (ask(job)["added"], ask(job)["effective_mode"]) == (2, "full")
    assert {line["transaction"] for line in ask(f"{job}/audit")} == set(sent)
    assert (ask(f"{base}/healthz"), ask(f"{base}/readyz")) == ({"alive": True}, {"ready": True, "down": []})
    assert process.said.count(f"addresses: listening on {base} ") == 1
    assert process.stop() == 0
    assert "Traceback" not in process.said
    assert count(database, "select count(*) from trueup.workers") == 0


def test_an_api_with_nothing_enabled_registers_nothing(place: Town, database: Database) -> None:
    monitor(database, *ADDRESSES)
    _, base = place.serve("serve", RECONCILIATION_SCHEDULER_ENABLED="TRUE", RECONCILIATION_WORKER_ENABLED="1")
    made = ask(f"{base}/v2/addresses/{ADDRESSES[0]}/chains/ethereum/reconcile", "POST")
    assert ask(f"{base}/v2/reconciliation-jobs")["jobs"][0]["id"] == made["id"]
    for table in ("schedules", "reconcilers", "workers", "jobs"):
        assert count(database, f"select count(*) from trueup.{table}") == 0


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({**SCHEDULER, "RECONCILIATION_CRON_SCHEDULE": "61 2 * * *"}, "RECONCILIATION_CRON_SCHEDULE"),
        ({}, "RECONCILIATION_SCHEDULER_ENABLED or RECONCILIATION_WORKER_ENABLED"),
    ],
)
def test_what_is_not_configured_stops_the_start_and_is_named(
    place: Town, variables: dict[str, str], named: str
) -> None:
    process = place.start("worker", **variables)
    assert process.ended() == 2
    assert process.said.startswith("addresses: ")
    assert named in process.said
    assert "Traceback" not in process.said
    assert "hunter2" not in process.said


def test_a_key_in_a_providers_url_appears_in_no_log(place: Town, database: Database, node: Node) -> None:
    ada, bob = node.accounts()[:2]
    monitor(database, ada, bob)
    failing, working = ask_for(database, ada), ask_for(database, bob)
    with Meddler(node.url) as meddler:
        meddler.alter = lambda _, answers: 503 if len(meddler.asked_at) == 1 else answers
        url = meddler.url.replace("http://", "http://user:hunter2@")
        nodes = {"RECONCILIATION_PROVIDERS": f"ethereum={url}/v3/hunter3?key=hunter4", "TRUEUP_LOG_LEVEL": "debug"}
        nodes["RECONCILIATION_TIP_FRESH_FOR"] = "0s"  # the second job asks again
        worker = place.start("worker", **WORKER, **nodes, RECONCILIATION_CONCURRENCY="1")
        wait_until(lambda: column(database, working, "status") == "completed", "one is done", timeout=SOON)
    assert "HTTP 503" in column(database, failing, "error")
    assert worker.lines("Reconciliation failed")
    assert worker.stop() == 0
    assert "hunter" not in worker.said
    for table in ("reconciliation_audit_log", "reconciliation_jobs", "trueup.rates", "trueup.rows"):
        assert "hunter" not in str(database.execute(f"select * from {table}").fetchall())


def test_addresses_are_monitored_from_the_command_line(place: Town, database: Database) -> None:
    checksummed = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
    assert place.start("monitor", "ethereum", checksummed, checksummed.lower(), ADDRESSES[0]).ended() == 0
    refused = place.start("monitor", "ethereum", "0xnonsense")
    assert refused.ended() == 2
    assert "not an address of ethereum: 0xnonsense" in refused.said
    mistyped = place.start("monitor", "ethereum", checksummed.replace("5aAeb", "5aAEb"))
    assert mistyped.ended() == 2
    elsewhere = place.start("monitor", "etherum", checksummed)
    assert elsewhere.ended() == 2
    assert "did you mean ethereum?" in elsewhere.said
    assert count(database, "select count(*) from addresses") == 2
