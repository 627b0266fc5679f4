"""Real replicas and a real API on a real database and a real chain."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apps.chain.anvil import Anvil
from tests.apps.payments.desk import CHAIN, new_address
from tests.apps.payments.fleet import MODULE, NAME, SOON, leased, pay, requested, statuses, tables
from tests.apps.payments.relay import Relay
from tests.apps.processes import Town, ask, town
from tests.support import ports
from tests.support.faketime import faketime_env, remove_leftovers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_payment_is_seen_through_by_real_replicas_and_all_of_it_is_told(
    place: Town, database: psycopg.Connection[Any], live: Anvil
) -> None:
    (address,) = requested(database)
    replicas = [place.start(**{f"{NAME}EVM_MIN_CONFIRMATIONS": "2", f"{NAME}WORKER_ID": f"w{n}"}) for n in range(3)]
    snapshot = live.call("evm_snapshot")
    pay(live, address)
    wait_until(lambda: statuses(database)["detected"], "it is detected while it waits", timeout=SOON)
    live.mine(1)
    live.mine(1)
    wait_until(lambda: statuses(database)["confirmed"], "it is confirmed", timeout=SOON)
    live.call("evm_revert", snapshot)
    live.mine(2)
    wait_until(lambda: statuses(database)["reorged"], "it is taken back", timeout=SOON)
    pay(live, address)
    live.mine(2)
    wait_until(lambda: statuses(database)["confirmed"], "it is confirmed again", timeout=SOON)

    def moves() -> list[tuple[str, str]]:
        lines = [line for each in replicas for line in each.lines("Payment request moved")]
        return [(line["from"], line["to"]) for line in sorted(lines, key=lambda line: line["time"])]

    wait_until(lambda: len(moves()) >= 4, "it is told of")
    assert moves() == [
        ("pending", "detected"),
        ("detected", "confirmed"),
        ("confirmed", "reorged"),
        ("reorged", "confirmed"),
    ]
    assert [each.stop() for each in replicas] == [0, 0, 0]
    for n, each in enumerate(replicas):
        for text in ("Reconciler started", "Reconciler stopped"):
            (line,) = each.lines(text)
            assert (line["worker_id"], line["poll_interval"], line["lease_duration"]) == (f"w{n}", 0.2, 2.0)
        for line in each.lines("Reconciliation cycle"):
            fields = ["claimed", "scanned", "confirmed", "detected", "expired", "skipped", "errors", "latency_ms"]
            assert all(isinstance(line[field], int) for field in fields)
            assert line["worker_id"] == f"w{n}"
    cycles = [line for each in replicas for line in each.lines("Reconciliation cycle")]
    assert [sum(line[field] for line in cycles) for field in ("detected", "confirmed", "expired")] == [1, 2, 0]
    assert leased(database) == 0, "nothing is held by those who are gone"


def test_a_replica_listens_on_no_port(place: Town, database: psycopg.Connection[Any]) -> None:
    replica = place.start()
    wait_until(lambda: replica.lines("Reconciler started"), "it has started", timeout=SOON)
    inodes = set()
    for link in Path(f"/proc/{replica.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if found := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink())):
                inodes.add(found[1])
    listening = {
        line.split()[9]
        for family in ("tcp", "tcp6")
        for line in Path(f"/proc/{replica.pid}/net/{family}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    assert inodes, "it talks to the database"
    assert not inodes & listening


def test_a_replica_whose_clock_is_wrong_judges_by_the_database_s(
    place: Town, database: psycopg.Connection[Any], live: Anvil
) -> None:
    paid, unpaid = requested(database, 2)
    replica = place.start(**faketime_env("+2h", base={}))
    pay(live, paid)
    live.mine(1)
    wait_until(lambda: statuses(database)["confirmed"], "the paid one is confirmed", timeout=SOON)
    wait_until(lambda: seen_after_payment(database, unpaid), "the other one was looked at, too", timeout=SOON)
    assert statuses(database) == {"confirmed": 1, "pending": 1}
    wait_until(lambda: replica.lines("Payment request moved"), "it has told of it", timeout=SOON)
    assert replica.lines("Payment request moved")[0]["time"] > (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert replica.stop() == 0
    remove_leftovers()


def seen_after_payment(database: psycopg.Connection[Any], address: str) -> bool:
    row = database.execute(
        "select observed_at > (select min(status_changed_at) from app.payment_requests where status = 'confirmed')"
        " from app.payment_requests where address = %s",
        [address],
    ).fetchone()
    return bool(row and row[0])


def test_an_alert_is_told_by_whoever_is_there_and_a_node_s_key_by_nobody(
    place: Town, database: psycopg.Connection[Any], live: Anvil, live_relay: Relay
) -> None:
    (address,) = requested(database)
    pay(live, address, amount=1200)
    live.mine(1)
    replica = place.start(PAYMENT_REQUEST_CHAINS=f"{CHAIN}={live_relay.url}/hunter2", TRUEUP_LOG_LEVEL="debug")
    wait_until(lambda: replica.lines("Payment request overpaid"), "somebody is told", timeout=SOON)
    (alert,) = replica.lines("Payment request overpaid")
    assert (alert["excess"], alert["chain_id"], alert["level"]) == ("200", CHAIN, "error")
    live_relay.raw = b"nonsense"
    wait_until(lambda: replica.lines("Observation failed"), "a failure is told of", timeout=SOON)
    wait_until(lambda: any(line["errors"] for line in replica.lines("Reconciliation cycle")), "and counted")
    assert replica.stop() == 0
    assert "hunter2" not in replica.said


def test_rows_from_before_the_migration_are_claimed_at_once(place: Town, database_url: str, live: Anvil) -> None:
    asyncio.run(tables(database_url, 1))
    with psycopg.connect(database_url, autocommit=True) as database:
        addresses = requested(database, 5)
        pay(live, *addresses)
        live.mine(1)
        place.start()
        place.start()  # both migrate
        wait_until(lambda: statuses(database)["confirmed"] == 5, "all are confirmed", timeout=SOON)


def test_the_api_and_a_replica_see_a_payment_through(
    place: Town, database: psycopg.Connection[Any], live: Anvil
) -> None:
    api = Town("apps.payments", place.environment, place._directory, place._stack)
    _, base = api.serve("serve")
    made = ask(f"{base}/payment-requests", "POST", new_request())
    assert made["status"] == "pending"
    pay(live, made["address"])
    live.mine(1)
    assert statuses(database) == {"pending": 1}
    place.start()
    wait_until(
        lambda: ask(f"{base}/payment-requests/{made['id']}")["status"] == "confirmed", "it is paid", timeout=SOON
    )
    (settlement,) = ask(f"{base}/payment-requests/{made['id']}")["settlements"]
    assert (settlement["amount"], settlement["seen_in"], settlement["confirmations"]) == ("1000", "block", 1)


def test_the_api_reconciles_itself_only_when_it_is_told_to(
    place: Town, database: psycopg.Connection[Any], live: Anvil
) -> None:
    api = Town("apps.payments", place.environment, place._directory, place._stack)
    _, base = api.serve("serve")
    process, _ = api.serve("serve", **{f"{NAME}ENABLED": "true"})
    made = ask(f"{base}/payment-requests", "POST", new_request())
    pay(live, made["address"])
    live.mine(1)
    wait_until(
        lambda: ask(f"{base}/payment-requests/{made['id']}")["status"] == "confirmed", "it is paid", timeout=SOON
    )
    assert (ask(f"{base}/healthz"), ask(f"{base}/readyz")) == ({"alive": True}, {"ready": True, "down": []})
    assert process.said.count("payments: listening on http://127.0.0.1:") == 1
    assert process.stop() == 0
    assert process.lines("Reconciler stopped")
    assert "Traceback" not in process.said
    assert not api.started[0].lines("Reconciler started")


def test_a_database_that_was_not_prepared_is_told_of_with_2(empty_database_url: str, tmp_path: Path) -> None:
    variables = {"TRUEUP_DATABASE_URL": empty_database_url, "PAYMENT_REQUEST_CHAINS": f"{CHAIN}=http://127.0.0.1:1"}
    with town(MODULE, variables, tmp_path) as place:
        process = place.start()
        assert process.ended() == 2
        assert "trueup migrate" in process.said
        assert "Traceback" not in process.said


def test_a_database_that_cannot_be_reached_is_told_of_with_1(tmp_path: Path) -> None:
    with ports.reserve() as nobody:
        url = f"postgresql://user:hunter2@127.0.0.1:{ports.number(nobody)}/payments"
        variables = {"TRUEUP_DATABASE_URL": url, "PAYMENT_REQUEST_CHAINS": f"{CHAIN}=http://127.0.0.1:1"}
        with town(MODULE, variables, tmp_path) as place:
            process = place.start()
            assert process.ended() == 1
            assert process.said.startswith("payments: cannot connect to ")
            assert "hunter2" not in process.said


def new_request() -> dict[str, str]:
    expires_at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    return {"chain_id": CHAIN, "address": new_address(), "expected_amount": "1000", "expires_at": expires_at}
