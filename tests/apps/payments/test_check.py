"""The independent check: it finds nothing in books that balance, and each thing that can be wrong with others."""

from __future__ import annotations

import re

import psycopg
import pytest

from apps.payments.check import examine
from apps.payments.token import transfer
from tests.apps.payments.desk import CHAIN, Desk

pytestmark = pytest.mark.asyncio

COIN, TOKEN = "token is null and expected_amount = 1000", "token is not null"

MADE_UP = "1 settlements are not on the chain, are doubled, or are elsewhere on it"

# What is planted, and what must be said of it.
PLANTED = {
    f"update app.payment_requests set status = 'pending' where {COIN}": ["is pending, with 1000 of 1000 paid in time"],
    "update app.payment_requests set status = 'confirmed' where expected_amount = 7": [
        "is confirmed, with 0 of 7 paid in time"
    ],
    "update app.payment_requests set status = 'pending' where expected_amount = 7": [
        "is pending, with 0 of 7 paid in time"
    ],
    f"update app.payment_requests set received_amount = 999 where {COIN}": [
        "1 requests do not say what their settlements add up to"
    ],
    f"update app.payment_requests set excess_amount = 1 where {TOKEN}": [
        "1 requests do not say what their settlements add up to"
    ],
    "delete from app.payment_request_settlements where transfer_index >= 0": [
        "1 requests do not say what their settlements add up to",
        "1 payments on the chain are not settled",
    ],
    "update app.payment_request_settlements set amount = amount + 1 where transfer_index = -1": [
        "1 requests do not say what their settlements add up to",
        "1 payments on the chain are not settled",
        MADE_UP,
    ],
    """insert into app.payment_request_settlements select request_id, tx_hash, transfer_index + 1, amount, seen_in, block_number,
       block_hash, block_at, confirmations, first_seen_at, first_mined_at, late from app.payment_request_settlements
       where transfer_index >= 0""": [
        "1 requests do not say what their settlements add up to",
        MADE_UP,
    ],
    f"""insert into app.payment_request_settlements select (select id from app.payment_requests where {TOKEN}), tx_hash,
       transfer_index, amount, seen_in, block_number, block_hash, block_at, confirmations, first_seen_at, first_mined_at, late
       from app.payment_request_settlements where transfer_index = -1""": [
        "1 requests do not say what their settlements add up to",
        "1 transactions settle two requests",
        MADE_UP,
    ],
    "update app.payment_request_settlements set block_number = block_number + 1 where transfer_index = -1": [
        "1 payments on the chain are not settled",
        MADE_UP,
    ],
    f"""with s as (update app.payment_request_settlements set late = true where transfer_index = -1)
       update app.payment_requests set late_amount = 1000 where {COIN}""": [
        "1 payments that came in time are called late"
    ],
    f"update app.payment_requests set status = 'reorged', next_observation_at = null where {COIN}": [
        "1 open requests are no longer looked at",
        "is reorged, with 1000 of 1000 paid in time",
    ],
    """insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts)
       values ('tell_people', 'q', 'q', now(), now(), '{}', 1)""": ["1 alerts reached no one"],
    f"update app.payment_requests set reconcile_lease_owner = 'somebody' where {COIN}": ["1 leases are left"],
}


async def test_the_check_agrees_with_books_that_balance_and_sees_each_thing_that_is_wrong(
    desk: Desk, database_url: str
) -> None:
    token = desk.deploy_token()
    coin, tokens, unpaid = await desk.ask(1000), await desk.ask(500, token=token), await desk.ask(7, minutes=1)
    await desk.pay(coin, 1000)
    transfer(desk.anvil, desk.payer, token, (await desk.row(tokens))["address"], 500)
    desk.mine(10)
    for _ in range(3):
        await desk.look()
    statuses = [(await desk.row(each))["status"] for each in (coin, tokens, unpaid)]
    assert statuses == ["confirmed", "confirmed", "expired"]
    with psycopg.connect(database_url) as connection:
        where = connection, desk.anvil.url, CHAIN
        checked = examine(*where, now=desk.clock.now())
        assert (checked.wrong, checked.settled, checked.received) == ([], 1500, 1500)
        for statement, wrong in PLANTED.items():
            connection.execute(statement.encode())
            found = examine(*where, now=desk.clock.now())
            connection.rollback()
            said = [re.sub("^request [0-9a-f-]{36} ", "", each) for each in found.wrong]
            assert sorted(said) == sorted(wrong), statement
