"""The shop: stores orders, and enqueues their jobs in the same transactions. `python -m trueup.demo.shop morning 1500`."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

from psycopg import AsyncConnection

from trueup import Handle
from trueup.demo.jobs import app, charge, import_feed, ping, remind, report, resize, send_mail

JOBS_AT_A_TIME = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """How many of each; an order makes two jobs."""

    orders: int
    pictures: int
    reports: int
    pings: int = 0
    feeds: int = 0
    reminders: int = 0

    @property
    def jobs(self) -> int:
        return self.orders + sum(map(int, astuple(self)))

    def slices(self, count: int) -> Iterator[Plan]:
        """The same in so many nearly equal parts."""
        for number in range(count):
            yield Plan(*(total * (number + 1) // count - total * number // count for total in astuple(self)))


def morning(jobs: int) -> Plan:
    """So many jobs of every kind; at least 50."""
    return _filled(jobs, reports=jobs // 50 + 2, pings=jobs // 20 + 5, feeds=3, reminders=2)


def afternoon(jobs: int) -> Plan:
    """So many jobs of the kinds that come all day; at least 50."""
    return _filled(jobs, reports=jobs // 50 + 2)


PARTS = {"morning": morning, "afternoon": afternoon}


def _filled(jobs: int, **some: int) -> Plan:
    rest = jobs - sum(some.values())
    orders = rest // 3
    return Plan(orders=orders, pictures=rest - 2 * orders, **some)


async def trade(plan: Plan) -> None:
    """Take the orders of a plan, many at a time: each time the orders and all their jobs are stored, or nothing is."""
    assert app.settings.database_url is not None
    reminders: list[int] = []
    async with await AsyncConnection.connect(app.settings.database_url.reveal(), autocommit=True) as connection:
        for some in plan.slices(max(1, plan.jobs // JOBS_AT_A_TIME)):
            async with connection.transaction():
                reminders += await _take_orders(connection, some)
                await _note(connection, some)
    if reminders:
        await app.operations.cancel(reminders, "the customers changed their minds")


async def _take_orders(tx: AsyncConnection[Any], plan: Plan) -> list[int]:
    """Returns the ids of the reminders."""
    amounts = [random.randint(100, 9999) for _ in range(plan.orders)]  # noqa: S311 - nothing secret about it
    cursor = await tx.execute(
        "insert into shop.orders (amount) select unnest(%s::int[]) returning id, amount", [amounts]
    )
    orders: list[tuple[int, int]] = await cursor.fetchall()
    await charge.using(tx=tx).enqueue_many(orders)
    await send_mail.using(tx=tx).enqueue_many((order_id,) for order_id, _ in orders)
    await resize.using(tx=tx).enqueue_many((number,) for number in range(plan.pictures))
    await report.using(tx=tx).enqueue_many((number,) for number in range(plan.reports))
    await ping.using(tx=tx).enqueue_many((number,) for number in range(plan.pings))
    await import_feed.using(tx=tx).enqueue_many((f"feed {number}",) for number in range(plan.feeds))
    later = remind.using(delay="1h", tx=tx)
    reminders: list[Handle[None]] = [await later.enqueue(order_id) for order_id, _ in orders[: plan.reminders]]
    return [reminder.id for reminder in reminders]


async def _note(tx: AsyncConnection[Any], plan: Plan) -> None:
    asked = [
        ("charge", "done", plan.orders),
        ("send_mail", "done", plan.orders),
        ("resize", "done", plan.pictures),
        ("report", "done", plan.reports),
        ("ping", "done", plan.pings),
        ("import_feed", "dead", plan.feeds),
        ("remind", "cancelled", plan.reminders),
    ]
    async with tx.cursor() as cursor:
        await cursor.executemany(
            "insert into shop.asked (kind, ending, jobs) values (%s, %s, %s)", [row for row in asked if row[2]]
        )


async def main(part: str, jobs: int) -> None:
    async with app:
        await trade(PARTS[part](jobs))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
