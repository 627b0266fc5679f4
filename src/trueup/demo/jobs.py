"""The jobs of a small shop, written as any user of trueup would write them. Most only pretend to be busy for a while."""

from __future__ import annotations

import asyncio
import random
import time

from trueup import App, Context, Retry
from trueup.demo import outside
from trueup.demo.limits import PINGS_PER_SECOND, REPORTS_AT_ONCE

app = App()

SOON = Retry(max_attempts=5, first="200ms", factor=2)


class PictureBusy(Exception):
    """The storage was not ready: worth another attempt."""


@app.job(retry=SOON)
async def charge(order_id: int, amount: int, *, ctx: Context) -> None:
    """An effect in the database: the ledger's row and the job's "done" are one commit, so it happens exactly once."""
    await asyncio.sleep(a_while())
    async with ctx.transaction() as tx:
        await tx.execute(
            "insert into shop.ledger (order_id, amount, job_id, term) values (%s, %s, %s, %s)",
            [order_id, amount, ctx.job.id, ctx.term],
        )


@app.job(retry=SOON)
def send_mail(order_id: int, *, ctx: Context) -> None:
    """An effect outside: at least once, and always with the same key, by which the other side can tell a repetition."""
    time.sleep(a_while() / 2)
    outside.deliver_mail(ctx.idempotency_key, order_id)
    time.sleep(a_while() / 2)  # the provider's answer takes its time; whoever dies now has sent a mail and told nobody


@app.job(retry=SOON)
async def resize(picture: int, *, ctx: Context) -> None:
    """Plain work that sometimes fails at first."""
    await asyncio.sleep(a_while())
    if picture % 10 == 0 and ctx.attempt == 1:
        raise PictureBusy(f"picture {picture} is still being written")


@app.job(limit=REPORTS_AT_ONCE)
def report(number: int, *, ctx: Context) -> None:
    """Heavy for the database, so only a few may run at once in the whole fleet."""
    outside.note_report(ctx.job.id, ctx.attempt)
    time.sleep(a_while())
    with ctx.transaction() as tx:
        tx.execute(
            "update shop.reports set ended_at = clock_timestamp() where job_id = %s and attempt = %s",
            [ctx.job.id, ctx.attempt],
        )


@app.job(rate=f"{PINGS_PER_SECOND}/s")
async def ping(partner: int, *, ctx: Context) -> None:
    """A partner who allows so many calls a second, whoever makes them."""
    async with ctx.transaction() as tx:
        await tx.execute("insert into shop.pings default values")


@app.job(retry=Retry(max_attempts=3, first="200ms", factor=2))
async def import_feed(feed: str) -> None:
    """Cannot succeed: out of attempts it is buried, and blocks nobody."""
    raise ValueError(f"{feed} is not a feed")


@app.job
async def remind(order_id: int) -> None:
    """Meant for later, and cancelled before its time comes."""


def a_while() -> float:
    """Seconds."""
    return random.uniform(0.05, 0.15)  # noqa: S311 - nothing secret about it
