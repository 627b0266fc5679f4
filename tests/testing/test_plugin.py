"""The pytest plugin, as a project of a user's has it: pytest in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.database import TestServer

SHOP = """
from trueup import App, Context, Row, Tick, To

app = App("postgresql://nobody@127.0.0.1:1/production")
sent, ticks, paid, charged, parcels = [], [], {}, [], []

@app.job
async def send(to: str) -> None:
    sent.append(to)

@app.job
def pay(ctx: Context, order: int) -> None:
    paid[ctx.idempotency_key] = order

@app.job
async def charge(ctx: Context, order: int) -> None:
    async with ctx.transaction() as tx:
        await tx.execute("update orders set state = 'paid' where id = %s", [order])
        charged.append(ctx.idempotency_key)

@app.table("orders", key="id", state="state").reconcile("paid")
async def ship(order: Row, *, ctx: Context) -> To:
    parcels.append(ctx.idempotency_key)
    return To("shipped")

@app.cron("30 2 * * *", tz="Europe/Berlin")
async def nightly(tick: Tick) -> None:
    ticks.append(tick.due_at.isoformat())
    await send.enqueue("boss")
"""

TESTS = """
from datetime import UTC, datetime

import psycopg
import pytest
import shop
from trueup.testing.harness import due_between

@pytest.fixture(autouse=True)
def empty():
    for made in (shop.sent, shop.ticks, shop.paid, shop.charged, shop.parcels):
        made.clear()

def test_sync(trueup_sync):
    shop.send.enqueue_sync("ada")
    trueup_sync.assert_enqueued(shop.send, to="ada", times=1)
    trueup_sync.assert_enqueued("send", times=0, to="bob")
    with pytest.raises(AssertionError, match="pay: at least one expected, 0 enqueued"):
        trueup_sync.assert_enqueued(shop.pay)
    assert trueup_sync.drain() == 1
    assert shop.sent == ["ada"]

def test_each_test_has_a_database_of_its_own(trueup_sync):
    assert trueup_sync.enqueued() == []

def test_time_travel_fires_every_tick_at_its_moment(trueup_sync):
    trueup_sync.drain()
    assert trueup_sync.advance(days=3) == 6
    assert shop.ticks == [f"2026-06-0{day}T00:30:00+00:00" for day in (2, 3, 4)]
    assert shop.sent == ["boss"] * 3

def test_the_week_of_the_change():
    week = due_between(shop.app, datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC))
    assert [(due.strftime("%d %H:%M"), name) for due, name in week] == [
        ("27 01:30", "nightly"), ("28 01:30", "nightly"), ("29 01:00", "nightly"), ("30 00:30", "nightly"),
    ]

EXAMPLES = {"pay": (1,), "send": {"to": "x"}, "charge": (1,)}

@pytest.fixture
def orders(trueup_database_url):
    with psycopg.connect(trueup_database_url, autocommit=True) as connection:
        connection.execute("create table orders (id int primary key, state text not null)")
        connection.execute("insert into orders values (1, 'placed')")

def test_idempotency(trueup_sync, orders):
    trueup_sync.assert_idempotent(EXAMPLES, lambda: (len(shop.paid), set(shop.charged), set(shop.parcels)))
    assert len(shop.charged) == 3, "two deaths before the commit, and a run to the end"
    assert len(shop.parcels) == 2
    assert [len(set(given)) for given in (shop.ticks, shop.charged, shop.parcels)] == [1, 1, 1]
    with pytest.raises(AssertionError, match="no example for pay, charge"):
        trueup_sync.assert_idempotent({"send": ("x",)}, lambda: 0)

@pytest.mark.parametrize(("name", "effect"), [
    ("send", "sent"), ("charge", "charged"), ("nightly", "ticks"), ("ship", "parcels"),
])
def test_each_handler_that_repeats_its_effect_is_named(trueup_sync, orders, name, effect):
    with pytest.raises(AssertionError, match=f"{name} is not idempotent: before [01], after one run [12], after a repetition [23]"):
        trueup_sync.assert_idempotent(EXAMPLES, lambda: len(getattr(shop, effect)))

def test_a_reconciler_needs_a_row(trueup_sync, orders, trueup_database_url):
    with psycopg.connect(trueup_database_url, autocommit=True) as connection:
        connection.execute("delete from orders")
    with pytest.raises(AssertionError, match="no row is due for ship"):
        trueup_sync.assert_idempotent(EXAMPLES, lambda: 0)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_async(trueup_async, trueup_clock):
    await shop.send.using(delay="1h").enqueue("eve")
    assert await trueup_async.drain() == 0
    assert await trueup_async.advance(hours=1) == 1
    assert shop.sent == ["eve"]

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_coroutine_test_that_takes_the_other_fixture(trueup_sync):
    with pytest.raises(RuntimeError, match="a coroutine test takes trueup_async"):
        trueup_sync.drain()

def test_the_app_is_as_it_was():
    assert "production" in shop.app.settings.database_url.reveal()
"""

# Plugins that are found, and that the project does not use: importing them takes longer than its tests.
# The coroutine tests run under anyio, as FastAPI's own documentation has them; those of examples/fastapi_shop under pytest-asyncio.
WITHOUT = ("xdist", "xdist.looponfail", "schemathesis", "hypothesispytest", "valkey", "asyncio")


@pytest.mark.slow
def test_the_fixtures_serve_the_app_of_a_project(tmp_path: Path, server: TestServer) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrueup_app = shop:app\nfilterwarnings = error\n")
    installed = any(each.name == "trueup" for each in entry_points(group="pytest11"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRUEUP_", "PYTEST_"))}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *(f"-pno:{name}" for name in WITHOUT),
            *([] if installed else ["-p", "trueup.testing.plugin"]),
        ],
        cwd=tmp_path,
        env={**environment, "TRUEUP_TEST_DATABASE_URL": server.cluster.url()},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "13 passed" in done.stdout


def test_the_plugin_imports_nothing_of_trueup_before_it_is_used() -> None:
    code = "import sys, trueup.testing.plugin; print([n for n in sys.modules if n in ('psycopg', 'pydantic', 'trueup.app')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
