"""An independent check of requests and settlements: plain SQL, and the node as any client sees it. No code of the application's.

What a request ought to be is reckoned from the chain alone; neither the observer nor the judge is asked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row

from apps.checking import Chain, counted, party, told

# Each counts what is wrong.
WRONG = {
    "requests do not say what their settlements add up to": """
select count(*) from app.payment_requests as r cross join lateral (
  select coalesce(sum(amount), 0) as received, coalesce(sum(amount) filter (where late), 0) as late
    from app.payment_request_settlements as s where s.request_id = r.id and seen_in = 'block'
) as s where received_amount <> received or late_amount <> s.late
          or excess_amount <> case when expected_amount is null then 0 else greatest(0, received - expected_amount) end""",
    "transactions settle two requests": """
select count(*) from (select from app.payment_request_settlements
 where transfer_index = -1 and seen_in = 'block' group by tx_hash having count(*) > 1) as d""",
    "open requests are no longer looked at": """
select count(*) from app.payment_requests where status in ('pending', 'detected', 'reorged') and next_observation_at is null""",
}
# Only when every replica has stopped in order.
LEFT = {
    "leases are left": """
select count(*) from app.payment_requests where reconcile_lease_owner is not null or reconcile_lease_until is not null""",
    "claims are left": "select count(*) from {trueup}.rows where state = 'held'",
    "alerts reached no one": "select count(*) from {trueup}.jobs where kind not like 'trueup%%'",
}

REQUESTS = """
select id, token, address, expected_amount, status, expires_at, coalesce(%s, now()) > expires_at as expired from app.payment_requests
 where chain_id = %s
"""
SETTLED = """
select r.token, r.address, tx_hash, amount, block_number, late and block_at <= expires_at from app.payment_request_settlements as s join app.payment_requests as r on r.id = request_id
 where seen_in = 'block' and chain_id = %s
"""

Payment = tuple[str | None, str, str, int, int]  # token, address, transaction, amount, block


@dataclass(frozen=True)
class Checked:
    """`settled` and `received` are sums, here and on the chain. `wrong` is empty when no money is lost, doubled or made up."""

    statuses: Counter[str]
    settled: int
    received: int
    wrong: list[str]


def check(database: str, node: str, chain: str, *, stopped: bool = True, schema: str = "trueup") -> Checked:
    """`stopped`: no replica runs any more, so none may hold anything. `schema` has trueup's tables."""
    with psycopg.connect(database) as connection:
        return examine(connection, node, chain, stopped=stopped, schema=schema)


def examine(
    connection: Connection[Any],
    node: str,
    chain: str,
    *,
    stopped: bool = True,
    now: datetime | None = None,
    schema: str = "trueup",
) -> Checked:
    found = counted(connection, {**WRONG, **(LEFT if stopped else {})}, schema=schema)
    with connection.cursor(row_factory=dict_row) as cursor:
        requests = cursor.execute(REQUESTS, [now, chain]).fetchall()
    settled = connection.execute(SETTLED, [chain]).fetchall()
    here = Counter[Payment]((*row[:3], int(row[3]), row[4]) for row in settled)
    asked = {(request["token"], request["address"]) for request in requests}
    paid = [(payment, at) for payment, at in _paid(Chain(node)) if payment[:2] in asked]
    there = Counter(payment for payment, _ in paid)
    found["payments on the chain are not settled"] = (there - here).total()
    found["settlements are not on the chain, are doubled, or are elsewhere on it"] = (here - there).total()
    found["payments that came in time are called late"] = sum(row[5] for row in settled)
    came: defaultdict[tuple[str | None, str], list[tuple[datetime, int]]] = defaultdict(list)
    for (token, address, _, amount, _), at in paid:
        came[token, address].append((at, amount))
    wrong = told(found)
    for request in requests:
        payments = came[request["token"], request["address"]]
        in_time = sum(amount for at, amount in payments if at <= request["expires_at"])
        if request["status"] not in _right(request, in_time):
            expected = "anything" if request["expected_amount"] is None else request["expected_amount"]
            wrong.append(f"request {request['id']} is {request['status']}, with {in_time} of {expected} paid in time")
    statuses = Counter(request["status"] for request in requests)
    return Checked(statuses, _sum(here), _sum(there), wrong)


def _sum(payments: Counter[Payment]) -> int:
    return sum(amount for _, _, _, amount, _ in payments.elements())


def _right(request: dict[str, Any], in_time: int) -> set[str]:
    """The statuses that a request may have. Taken back or never there: the chain alone does not tell."""
    expected = request["expected_amount"]
    if in_time >= (1 if expected is None else expected):
        return {"confirmed"}
    return {"expired" if request["expired"] else "pending", "reorged"}


def _paid(chain: Chain) -> list[tuple[Payment, datetime]]:
    """Every payment in every block, and when the block says it was made."""
    dated: dict[str, datetime] = {}
    coins: list[Any] = []
    for block in chain.blocks():
        dated[block["number"]] = datetime.fromtimestamp(int(block["timestamp"], 16), UTC)
        coins += [each for each in block["transactions"] if each["to"] and int(each["value"], 16)]
    receipts = chain.receipts([each["hash"] for each in coins])
    paid: list[tuple[Payment, datetime]] = [
        (
            (None, each["to"], each["hash"], int(each["value"], 16), int(each["blockNumber"], 16)),
            dated[each["blockNumber"]],
        )
        for each, receipt in zip(coins, receipts, strict=True)
        if receipt["status"] == "0x1"
    ]
    for log in chain.transfers():
        receiver, amount, block = party(log["topics"][2]), int(log["data"], 16), int(log["blockNumber"], 16)
        paid.append(((log["address"], receiver, log["transactionHash"], amount, block), dated[log["blockNumber"]]))
    return paid
