"""Replicas that share the rows: killed, frozen, refused by the database, and with ten thousand to look at."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from apps.chain.anvil import Anvil
from tests.apps.payments import leases
from tests.apps.payments.desk import CHAIN
from tests.apps.payments.fleet import NAME, SOON, leased, pay, requested, statuses
from tests.apps.payments.leases import Held
from tests.apps.payments.relay import Relay
from tests.apps.processes import Town
from tests.support.matrix import count
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

SHARED = count(60, proof=300)  # rows that three replicas share
REVISITED_WITHIN = 45  # seconds, each of 10,000; five on a machine that does nothing else


def test_three_replicas_never_hold_a_row_at_once(place: Town, database: psycopg.Connection[Any], live: Anvil) -> None:
    """With one of them frozen for longer than a lease, and another one killed."""
    addresses = requested(database, SHARED)
    database.execute(leases.RECORDER)
    replicas = [place.start(**{f"{NAME}BATCH_SIZE": str(SHARED // 3)}) for _ in range(3)]

    def busy(count: int) -> bool:
        return len(leases.owners(leases.history(database))) >= count

    wait_until(lambda: busy(3), "all three have had rows", timeout=SOON, pause=0.1)
    replicas[0].send(signal.SIGSTOP)
    frozen_at = len(leases.history(database))
    since = "every row was held by others since"
    wait_until(lambda: leased_before(database, frozen_at), since, timeout=SOON, pause=0.1)
    replicas[0].send(signal.SIGCONT)
    replicas[1].kill()
    pay(live, *addresses[: SHARED // 6])
    live.mine(1)
    paid = SHARED // 6
    wait_until(lambda: statuses(database)["confirmed"] == paid, "the payments are confirmed", timeout=SOON)
    often = "each was taken and given up again and again"
    wait_until(lambda: len(leases.history(database)) > 7 * SHARED, often, timeout=SOON, pause=0.1)
    assert leases.shared(leases.history(database)) == []
    assert statuses(database) == {"confirmed": paid, "pending": SHARED - paid}
    assert database.execute("select count(*) from app.payment_request_settlements").fetchone() == (paid,)


def leased_before(database: psycopg.Connection[Any], number: int) -> bool:
    """Whether every row has been held since that entry."""
    row = database.execute(
        "select count(distinct id) from held where n > %s and owner is not null", [number]
    ).fetchone()
    assert row is not None
    return bool(row[0] >= SHARED)


def test_whoever_takes_a_row_from_its_holder_is_found_out() -> None:
    """The check itself: it must see what it is there for."""
    noon = datetime(2031, 1, 1, 12, tzinfo=UTC)

    def held(second: float, owner: str | None, until: float | None) -> Held:
        return Held(
            noon + timedelta(seconds=second), 1, owner, None if until is None else noon + timedelta(seconds=until)
        )

    fine = [held(0, "a/1", 30), held(10, "a/1", 40), held(20, None, None), held(21, "b/2", 51), held(51, "a/3", 81)]
    assert leases.shared(fine) == []
    taken = [held(0, "a/1", 30), held(29, "b/2", 59)]
    assert leases.shared(taken) == [(taken[0], taken[1])]
    same_process = [held(0, "a/1", 30), held(29, "a/2", 59)]
    assert len(leases.shared(same_process)) == 1


def test_a_replica_killed_in_the_middle_is_succeeded_after_the_lease(
    place: Town, database: psycopg.Connection[Any], live: Anvil, live_relay: Relay
) -> None:
    addresses = requested(database, 10)
    pay(live, *addresses)
    live.mine(1)
    database.execute(leases.RECORDER)
    live_relay.go_on.clear()
    first = place.start(PAYMENT_REQUEST_CHAINS=f"{CHAIN}={live_relay.url}", **{f"{NAME}OBSERVER_TIMEOUT_SECONDS": "60"})
    assert live_relay.holding.wait(SOON)
    wait_until(lambda: leased(database) == 10, "it holds them all")
    second = place.start()
    wait_until(lambda: second.lines("Reconciler started"), "the other one has started", timeout=SOON)
    first.kill()
    assert statuses(database) == {"pending": 10}, "the first one has done nothing"
    wait_until(lambda: statuses(database)["confirmed"] == 10, "the other one has done it all", timeout=SOON)
    told = leases.history(database)
    assert leases.shared(told) == []
    of_first = {held.id: held for held in told if held.owner is not None and f":{first.pid}/" in held.owner}
    taken = {held.id: held for held in reversed(told) if held.owner is not None and f":{second.pid}/" in held.owner}
    assert of_first.keys() == taken.keys()
    for key, held in of_first.items():
        assert held.until is not None
        assert held.until <= taken[key].at <= held.until + timedelta(seconds=SOON)


def test_a_replica_that_wakes_up_after_its_lease_changes_nothing(
    place: Town, database: psycopg.Connection[Any], live: Anvil, live_relay: Relay
) -> None:
    (address,) = requested(database)
    live_relay.go_on.clear()
    first = place.start(PAYMENT_REQUEST_CHAINS=f"{CHAIN}={live_relay.url}", **{f"{NAME}OBSERVER_TIMEOUT_SECONDS": "60"})
    assert live_relay.holding.wait(SOON)
    wait_until(lambda: leased(database) == 1, "it holds the row")
    first.send(signal.SIGSTOP)
    pay(live, address)
    live.mine(1)
    second = place.start()
    wait_until(lambda: statuses(database)["confirmed"] == 1, "the other one has confirmed it", timeout=SOON)
    assert second.stop() == 0
    database.execute("update app.payment_requests set next_observation_at = null")  # so that nobody takes it again
    before = database.execute("select * from app.payment_requests").fetchall()
    live_relay.go_on.set()
    first.send(signal.SIGCONT)
    wait_until(lambda: first.lines("Reconciliation cycle"), "its cycle is over", timeout=SOON)
    (cycle,) = first.lines("Reconciliation cycle")
    assert (cycle["claimed"], cycle["skipped"], cycle["confirmed"], cycle["errors"]) == (1, 1, 0, 0)
    assert database.execute("select * from app.payment_requests").fetchall() == before
    assert not first.lines("Payment request moved")


def test_what_somebody_else_has_done_meanwhile_is_not_overwritten(
    place: Town, database: psycopg.Connection[Any], live: Anvil, live_relay: Relay
) -> None:
    (address,) = requested(database)
    pay(live, address)
    live.mine(1)
    live_relay.go_on.clear()
    replica = place.start(PAYMENT_REQUEST_CHAINS=f"{CHAIN}={live_relay.url}")
    assert live_relay.holding.wait(SOON)
    wait_until(lambda: leased(database) == 1, "it holds the row")
    database.execute("update app.payment_requests set status = 'failed'")
    live_relay.go_on.set()
    wait_until(lambda: replica.lines("Reconciliation cycle"), "its cycle is over", timeout=SOON)
    (cycle,) = replica.lines("Reconciliation cycle")
    assert (cycle["claimed"], cycle["skipped"], cycle["confirmed"], cycle["errors"]) == (1, 1, 0, 0)
    assert statuses(database) == {"failed": 1}
    assert database.execute("select count(*) from app.payment_request_settlements").fetchone() == (0,)
    assert leased(database) == 0


def test_a_row_that_the_database_refuses_stops_no_other(
    place: Town, database: psycopg.Connection[Any], live: Anvil
) -> None:
    """Neither one that moves, nor one that only is put off."""
    addresses = requested(database, 50)
    database.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin"
        " if new.observed_at is distinct from old.observed_at then raise exception 'not this one'; end if;"
        " return new; end $$"
    )
    bad = "address in ({}, {})".format(*(f"'{address}'" for address in (addresses[0], addresses[49])))
    database.execute(
        "create trigger refuse before update on app.payment_requests for each row"
        f" when (old.address in ('{addresses[0]}', '{addresses[49]}')) execute function refuse()"
    )
    pay(live, *addresses[:25])
    live.mine(1)
    replica = place.start()
    wait_until(lambda: statuses(database) == {"confirmed": 24, "pending": 26}, "the others are seen to", timeout=SOON)
    looked_at = f"select count(*) from app.payment_requests where observed_at is null and {bad}"
    others = f"select count(*) from app.payment_requests where observed_at is null and not {bad}"
    wait_until(lambda: database.execute(others).fetchone() == (0,), "all others have been looked at", timeout=SOON)
    assert database.execute(looked_at).fetchone() == (2,)
    assert database.execute("select count(*) from app.payment_request_settlements").fetchone() == (24,)
    wait_until(lambda: sum(line["errors"] for line in replica.lines("Reconciliation cycle")) >= 2, "it is told of")
    database.execute("drop trigger refuse on app.payment_requests")
    wait_until(lambda: statuses(database)["confirmed"] == 25, "so is that one, once it can be", timeout=SOON)


REQUESTS = count(500, proof=10_000)  # a hundred are claimed at a time


def test_each_of_thousands_of_requests_is_looked_at_again_and_again(
    place: Town, database: psycopg.Connection[Any], live: Anvil
) -> None:
    database.execute(
        "insert into app.payment_requests (chain_id, address, expected_amount, expires_at)"
        " select %s, '0x' || lpad(to_hex(n), 40, '0'), 1000, now() + interval '1 day' from generate_series(1, %s) as n",
        [CHAIN, REQUESTS],
    )
    database.execute(
        "alter table app.payment_requests add column visits int not null default 0;"
        "create function count_visits() returns trigger language plpgsql as $$ begin"
        " new.visits := old.visits + (new.observed_at is distinct from old.observed_at)::int; return new; end $$;"
        "create trigger count_visits before update on app.payment_requests for each row execute function count_visits();"
        "create index on app.payment_requests (visits)"  # so that asking over and over costs little
    )
    for _ in range(2):
        place.start(**{f"{NAME}POLL_INTERVAL_SECONDS": "2", f"{NAME}LEASE_SECONDS": "10"})

    def visits() -> tuple[int, int]:
        """Of the row with the fewest, and of that with the most."""
        row = database.execute("select min(visits), max(visits) from app.payment_requests").fetchone()
        assert row is not None
        return row[0], row[1]

    spread = 0

    def all_seen(times: int) -> bool:
        nonlocal spread
        fewest, most = visits()
        spread = max(spread, most - fewest)
        return fewest >= times

    for times in (1, 2):
        what = f"every request has been looked at {times} times"
        wait_until(lambda: all_seen(times), what, timeout=REVISITED_WITHIN, pause=0.05)  # noqa: B023
    assert spread <= 2, "those that have waited longest come first"
    assert statuses(database) == {"pending": REQUESTS}
