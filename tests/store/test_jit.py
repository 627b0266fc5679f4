"""On a server with just-in-time compilation, as Debian ships it, no statement of ours is compiled.

A node that was switched off costs 1e10 up to PostgreSQL 17, which makes every steered plan look worth compiling: a claim then
takes 200 ms instead of one.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from bench.jit import claims, database, drained, picked_up
from tests.support import round_trips
from tests.support.debian_server import DebianServer
from trueup import App
from trueup.store.db.load import source

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

# They must have been among those that were looked at, or the test has proved nothing.
HOT = (
    "jobs/claim",
    "jobs/complete",
    "jobs/retry",
    "jobs/bury",
    "jobs/rescue",
    "lanes/claim",
    "lanes/turns",
    "rows/claim_fresh",
    "rows/claim_again",
    "rows/change",
    "rows/rest",
    "rows/lock",
    "rows/move",
    "rows/delete",
    "rows/forget",
)


def said_first(name: str) -> str:
    """The line that a statement opens with, which goes to the server with it."""
    return source(name).splitlines()[0]


async def test_nothing_that_a_worker_sends_is_compiled(debian: DebianServer) -> None:
    with debian.explained() as (url, plans):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(round_trips.TABLES)
            assert connection.execute("select pg_jit_available() and current_setting('jit')::boolean").fetchone() == (
                True,
            )
        try:
            await round_trips.everything(url)
        finally:  # when it takes too long, too
            seen = [(plan["Query Text"], "JIT" in plan) for plan in plans()]
            assert {text for text, compiled in seen if compiled} == set()
    assert [name for name in HOT if not any(said_first(name) in text for text, _ in seen)] == []


# With what another process may take away meanwhile, in seconds. Compilation took 0.35 s, 5 s and 0.9 s more here.
@pytest.mark.parametrize(("measure", "slack"), [(claims, 0.05), (drained, 1.5), (picked_up, 0.1)])
async def test_compilation_costs_nothing(debian: DebianServer, measure: Any, slack: float) -> None:
    took = {}
    for jit in ("off", "on"):
        with database(debian, jit) as url:
            async with App(url) as app:
                took[jit] = await measure(app)
    assert took["on"] < 1.3 * took["off"] + slack, took


@pytest.mark.parametrize("jit", ["on", "off"])
async def test_the_doctor_tells_of_compilation_and_how_to_switch_it_off(debian: DebianServer, jit: str) -> None:
    with database(debian, jit) as url:
        async with App(url) as app:
            found = [each for each in await app.examine() if each.check == "jit"]
    assert [each.severity for each in found] == (["warning"] if jit == "on" else [])
    assert all("set jit = off" in each.advice for each in found)
