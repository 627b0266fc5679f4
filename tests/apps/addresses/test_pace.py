"""Turns at a provider, shared by all."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import psycopg
import pytest

from apps.addresses import books, pace
from apps.addresses.bounded import bounded
from apps.addresses.pace import Turns
from trueup import App, Rate

pytestmark = pytest.mark.asyncio


async def tables(app: App) -> None:
    async with app.transaction() as tx:
        await books.make_tables(tx)


async def test_two_instances_share_one_rate(database_url: str) -> None:
    async with App(database_url) as one, App(database_url) as other:
        await tables(one)
        turns = [Turns(app, Rate.parse("20/s")) for app in (one, other)]
        taken: list[float] = []

        async def take(number: int) -> None:
            await turns[number % 2].wait("node")
            taken.append(time.monotonic())

        await asyncio.gather(*(take(number) for number in range(20)))
        taken.sort()
        assert taken[-1] - taken[0] > 0.9, "nineteen steps of 50 ms, a moment may be lost at either end"


async def test_providers_have_turns_of_their_own(app: App) -> None:
    await tables(app)
    turns = Turns(app, Rate.parse("1/h"))
    started = time.monotonic()
    await turns.wait("one")
    await turns.wait("other")
    assert time.monotonic() - started < 5


async def test_turns_that_nobody_took_are_not_saved_up(app: App) -> None:
    await tables(app)
    turns = Turns(app, Rate.parse("20/s"))
    await turns.wait("node")
    async with app.transaction() as tx:
        await tx.execute("update provider_turns set next_at = now() - interval '1 day'")
    started = time.monotonic()
    for _ in range(11):
        await turns.wait("node")
    assert time.monotonic() - started > 0.45


async def test_an_instance_that_falls_silent_in_the_middle_does_not_keep_the_turns(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tables(app)
    monkeypatch.setattr(pace, "SILENCE", timedelta(milliseconds=200))
    turns = Turns(app, Rate.parse("1000/s"))
    await turns.wait("node")
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        async with bounded(app, pace.SILENCE) as frozen:
            await frozen.execute("select from provider_turns for update")
            await asyncio.wait_for(turns.wait("node"), 10)
            await frozen.execute("select 1")
