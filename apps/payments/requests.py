"""Payment requests and their settlements in the database. Everything here runs in a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from .judge import Asked, Settlement, Status
from .observe import Place, Subject, Transfer

Tx = AsyncConnection[Any]


@dataclass(frozen=True)
class Request:
    """A row as a reconciler gets it."""

    id: UUID
    chain_id: str
    address: str
    token: str | None
    expected_amount: Decimal | None
    status: str
    expires_at: datetime
    created_at: datetime
    status_changed_at: datetime
    settlement_count: int
    first_block: int | None
    scanned_block: int | None
    scanned_hash: str | None

    @property
    def asked(self) -> Asked:
        expected = None if self.expected_amount is None else int(self.expected_amount)
        return Asked(Status(self.status), expected, self.expires_at, self.status_changed_at)

    def subject(self, known: Sequence[Settlement]) -> Subject:
        scanned = None
        if self.scanned_block is not None and self.scanned_hash is not None:
            scanned = (self.scanned_block, self.scanned_hash)
        there = [Transfer(each.tx_hash, each.index, each.amount, each.place) for each in known if not each.gone]
        return Subject(self.address, self.token, self.created_at, self.first_block, scanned, there)


async def create(
    tx: Tx,
    chain_id: str,
    address: str,
    token: str | None,
    expected: int | None,
    expires_at: datetime,
    *,
    now: datetime | None = None,
) -> dict[str, Any] | None:
    """None when this address is another request's already. Without `now` the database's clock is asked."""
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "insert into app.payment_requests (chain_id, address, token, expected_amount, expires_at,"
            " created_at, status_changed_at, next_observation_at)"
            " select %s, %s, %s, %s, %s, at, at, at from (select coalesce(%s::timestamptz, now())) as clock(at)"
            " on conflict do nothing returning *",
            [chain_id, address, token, expected, expires_at, now],
        )
        return await cursor.fetchone()


async def get(tx: Tx, request_id: UUID) -> dict[str, Any] | None:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute("select * from app.payment_requests where id = %s", [request_id])
        return await cursor.fetchone()


async def every(
    tx: Tx,
    *,
    status: str | None = None,
    chain_id: str | None = None,
    address: str | None = None,
    after: UUID | None = None,
    most: int = 100,
) -> list[dict[str, Any]]:
    """In the order in which they were made; `after` is the last of the page before."""
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "select * from app.payment_requests"
            " where (%(status)s::text is null or status = %(status)s)"
            " and (%(chain_id)s::text is null or chain_id = %(chain_id)s)"
            " and (%(address)s::text is null or address = %(address)s)"
            " and (%(after)s::uuid is null or"
            " (created_at, id) > (select created_at, id from app.payment_requests where id = %(after)s))"
            " order by created_at, id limit %(most)s",
            {"status": status, "chain_id": chain_id, "address": address, "after": after, "most": most},
        )
        return await cursor.fetchall()


# -- settlements ------------------------------------------------------------------------------------------------------


async def settlements(tx: Tx, request_id: UUID) -> list[Settlement]:
    cursor = await tx.execute(
        "select tx_hash, transfer_index, amount, block_number, block_hash, block_at, confirmations, first_seen_at,"
        " first_mined_at, late, seen_in from app.payment_request_settlements where request_id = %s"
        " order by first_seen_at, tx_hash, transfer_index",
        [request_id],
    )
    return [
        Settlement(
            tx_hash=tx_hash,
            index=index,
            amount=int(amount),
            place=Place(number, block_hash, block_at) if seen_in == "block" else None,
            confirmations=confirmations,
            first_seen_at=first_seen_at,
            first_mined_at=first_mined_at,
            late=late,
            gone=seen_in == "nowhere",
        )
        async for (
            tx_hash,
            index,
            amount,
            number,
            block_hash,
            block_at,
            confirmations,
            first_seen_at,
            first_mined_at,
            late,
            seen_in,
        ) in cursor
    ]


async def put_settlements(tx: Tx, request_id: UUID, settlements: Sequence[Settlement]) -> None:
    async with tx.cursor() as cursor:
        await cursor.executemany(
            "insert into app.payment_request_settlements (request_id, tx_hash, transfer_index, amount, seen_in,"
            " block_number, block_hash, block_at, confirmations, first_seen_at, first_mined_at, late)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
            " on conflict (request_id, tx_hash, transfer_index) do update set amount = excluded.amount,"
            " seen_in = excluded.seen_in, block_number = excluded.block_number, block_hash = excluded.block_hash,"
            " block_at = excluded.block_at, confirmations = excluded.confirmations,"
            " first_mined_at = excluded.first_mined_at, late = excluded.late",
            [[request_id, *_columns(each)] for each in settlements],
        )


def _columns(settlement: Settlement) -> list[Any]:
    place = settlement.place
    seen_in = "nowhere" if settlement.gone else "mempool" if place is None else "block"
    where = [None, None, None] if place is None else [place.number, place.hash, place.at]
    facts = [settlement.confirmations, settlement.first_seen_at, settlement.first_mined_at, settlement.late]
    return [settlement.tx_hash, settlement.index, settlement.amount, seen_in, *where, *facts]
