"""Turns: so many requests to a provider in each second, whoever sends them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from trueup import App, Rate

from .bounded import bounded

SILENCE = timedelta(seconds=5)


class Turns:
    """Turns are given by the database, by its clock, evenly spaced. One that nobody uses is not saved up."""

    def __init__(self, app: App, rate: Rate) -> None:
        self._app = app
        self._spacing = rate.spacing

    async def wait(self, provider: str) -> None:
        """Until it is our turn. Whoever goes away meanwhile has had it."""
        async with bounded(self._app, SILENCE) as tx:  # everybody waits for this row
            cursor = await tx.execute(
                "insert into provider_turns as t (provider, next_at) values (%(provider)s, clock_timestamp() + %(spacing)s)"
                " on conflict (provider) do update set next_at = greatest(t.next_at, clock_timestamp()) + %(spacing)s"
                " returning extract(epoch from next_at - %(spacing)s - clock_timestamp())::float8",
                {"provider": provider, "spacing": self._spacing},
            )
            row = await cursor.fetchone()
        assert row is not None
        await asyncio.sleep(max(0.0, row[0]))
