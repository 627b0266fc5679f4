"""A server that is down, killed, restarted or silent, a connection that breaks: still one message each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

import pytest

from apps.servers.nats import NatsServer
from tests.integrations.broker import asking, nats_for, stored, tasks_of_nats
from tests.support.proxy import Proxy
from trueup import App
from trueup.integrations.nats import Nats, NatsUnavailable
from trueup.integrations.nats.connection import Connection
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

SHORT = "1s"  # long enough on loopback, also on a busy machine; short beside the test's own limit


@pytest.fixture
def broker() -> Iterator[NatsServer]:
    with NatsServer() as broker:
        yield broker


async def errors_of(app: App, job: int) -> list[str]:
    async with app.transaction() as tx:
        statement = "select errors from trueup.{} where id = %s"
        for table in ("jobs", "history"):
            cursor = await tx.execute(statement.format(table).encode(), [int(job)])
            if row := await cursor.fetchone():
                return [error["message"] for error in row[0]]
    raise AssertionError(f"there is no job {job}")


async def until_stored(broker: NatsServer, count: int) -> None:
    async with asking(broker) as ask, asyncio.timeout(10):
        while (await ask("STREAM.INFO.ORDERS"))["state"]["messages"] < count:
            await asyncio.sleep(0.01)


def here(nats: Nats) -> Connection:
    """Its connection on this event loop."""
    return nats._connections._open[asyncio.get_running_loop()]


async def test_a_server_that_is_down_costs_attempts_and_no_message(
    still: App, worker: ManualWorker, clock: ManualClock, broker: NatsServer
) -> None:
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        broker.kill()
        job = await nats.publish.enqueue("orders.paid", {"order": 17})
        for _ in range(2):
            assert await worker.run_pending() == 1
            clock.advance(seconds=1)
        said = await errors_of(still, job)
        assert len(said) == 2
        assert all(f"{broker.url} cannot be reached: [Errno" in error for error in said)
        broker.start()
        assert await worker.run_pending() == 1
        assert (await job.result())["duplicate"] is False
    assert [message.data for message in await stored(broker)] == [b'{"order":17}']


@pytest.mark.parametrize("end", [NatsServer.kill, NatsServer.stop])
async def test_a_server_that_ends_between_the_ack_and_the_end_of_the_job_has_one_message(
    still: App, worker: ManualWorker, clock: ManualClock, broker: NatsServer, end: Callable[[NatsServer], None]
) -> None:
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        job = await nats.publish.enqueue("orders.paid", 1)
        await worker.claim()
        await worker.run_one()  # acknowledged, and not written down
        end(broker)
        broker.start()
        clock.advance(minutes=1)
        assert [rescued.job_id for rescued in await worker.rescue()] == [job]
        assert await worker.run_pending() == 1
        result = await job.result()
        assert (result["seq"], result["duplicate"]) == (1, True)
    (message,) = await stored(broker)
    assert message.id == result["message_id"]
    assert tasks_of_nats() == []


async def test_an_ack_that_comes_too_late_is_made_up_for_by_the_next_attempt(
    still: App, worker: ManualWorker, clock: ManualClock, broker: NatsServer
) -> None:
    async with nats_for(still, broker, timeout=SHORT) as nats:
        await nats.ensure_stream()
        job = await nats.publish.enqueue("orders.paid", 1)
        with broker.hanging():
            assert await worker.run_pending() == 1
            assert await errors_of(still, job) == [f"{broker.url} has not answered within 1s"]
        await until_stored(broker, 1)  # it was under way
        clock.advance(seconds=1)
        assert await worker.run_pending() == 1
        assert (await job.result())["duplicate"] is True
    assert len(await stored(broker)) == 1


async def test_an_ack_that_is_lost_with_the_connection_is_made_up_for_by_the_next_attempt(
    still: App, worker: ManualWorker, clock: ManualClock, broker: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy(("127.0.0.1", broker.port)) as proxy:
        async with nats_for(still, broker, servers=f"nats://127.0.0.1:{proxy.port}", timeout="30s") as nats:
            await nats.ensure_stream()
            job = await nats.publish.enqueue("orders.paid", 1)
            await worker.claim()
            proxy.delay(0.5)
            running = asyncio.create_task(worker.run_one())
            await until_stored(broker, 1)
            assert not running.done(), "the ack is still under way"
            proxy.cut()
            await running
            await worker.finish()
            (said,) = await errors_of(still, job)
            assert said.endswith("the connection was lost before the answer arrived")
            assert "NATS connection lost" in caplog.messages
            proxy.heal()
            clock.advance(seconds=1)
            assert await worker.run_pending() == 1
            assert (await job.result())["duplicate"] is True
    assert tasks_of_nats() == []
    assert len(await stored(broker)) == 1


async def test_a_connection_that_has_gone_silent_is_replaced(
    still: App, worker: ManualWorker, clock: ManualClock, broker: NatsServer
) -> None:
    """Half-open: nobody says that it is gone. Pings find out."""
    with Proxy(("127.0.0.1", broker.port)) as proxy:
        url = f"nats://127.0.0.1:{proxy.port}"
        often = {"ping_interval": 0.05, "max_outstanding_pings": 1}
        async with nats_for(still, broker, servers=url, timeout=SHORT, connect=often) as nats:
            await nats.ensure_stream()
            silent = here(nats)
            proxy.black_hole()
            job = await nats.publish.enqueue("orders.paid", 1)
            assert await worker.run_pending() == 1
            async with asyncio.timeout(10):
                while silent.usable:
                    await asyncio.sleep(0.01)
            proxy.cut()
            proxy.heal()
            clock.advance(seconds=1)
            assert await worker.run_pending() == 1
            assert (await job.result())["stream"] == "ORDERS"
    assert len(await stored(broker)) == 1


async def test_a_failed_attempt_is_not_sent_later(still: App, worker: ManualWorker, broker: NatsServer) -> None:
    """As a client would that reconnects by itself and keeps what was published meanwhile."""
    async with nats_for(still, broker, timeout=SHORT) as nats:
        await nats.ensure_stream()
        broker.kill()
        job = await nats.publish.enqueue("orders.paid", 1)
        assert await worker.run_pending() == 1
        broker.start()
        await still.jobs.cancel([job])
        await nats.ensure_stream()  # connected again, and everything that waited would have been sent
        assert await stored(broker) == []


async def test_who_waits_for_a_connection_is_not_held_up_by_another_who_gives_up(
    still: App, broker: NatsServer
) -> None:
    nats = nats_for(still, broker, timeout="5s")
    with broker.hanging():
        waiting = [asyncio.create_task(nats.ensure_stream()) for _ in range(3)]
        async with asyncio.timeout(5):
            while not nats._connections._opening:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
    await asyncio.gather(*waiting[1:])
    await nats.aclose()
    assert tasks_of_nats() == []


async def test_closing_ends_whoever_waits_for_a_connection(still: App, broker: NatsServer) -> None:
    nats = nats_for(still, broker, timeout="30s")
    with broker.hanging():
        waiting = asyncio.create_task(nats.ensure_stream())
        async with asyncio.timeout(5):
            while not nats._connections._opening:
                await asyncio.sleep(0)
            await nats.aclose()
            with pytest.raises(NatsUnavailable, match="it was closed"):
                await waiting
    assert tasks_of_nats() == []


async def test_a_server_that_does_not_read_does_not_hold_up_closing(
    database_url: str, clock: ManualClock, broker: NatsServer
) -> None:
    """Ten megabytes are more than the kernel takes for it."""
    async with App(database_url, clock=clock, payload_limit="4MiB") as app:
        worker = ManualWorker(app)
        await worker.begin()
        nats = nats_for(app, broker, timeout=SHORT)
        await nats.ensure_stream()
        await nats.publish.enqueue_many([("orders.paid", "x" * 1_000_000) for _ in range(10)])
        await worker.claim()
        with broker.hanging():
            await asyncio.gather(*(worker.run_one() for _ in range(10)))
            began = time.monotonic()
            await nats.aclose()
            assert time.monotonic() - began < 5
            assert tasks_of_nats() == []
        await worker.end()


async def test_a_connection_that_breaks_while_much_is_under_way_leaves_nothing_behind(
    database_url: str, clock: ManualClock, broker: NatsServer
) -> None:
    async with App(database_url, clock=clock, payload_limit="4MiB") as app:
        worker = ManualWorker(app)
        await worker.begin()
        nats = nats_for(app, broker, timeout="30s")
        await nats.ensure_stream()
        await nats.publish.enqueue_many([("orders.paid", "x" * 1_000_000) for _ in range(10)])
        await worker.claim()
        with broker.hanging():
            running = [asyncio.create_task(worker.run_one()) for _ in range(10)]
            async with asyncio.timeout(5):
                while len(here(nats)._waiting) < 10:
                    await asyncio.sleep(0)
            broker.kill()
        async with asyncio.timeout(5):
            await asyncio.gather(*running)
        await worker.finish()
        assert tasks_of_nats() == []
        broker.start()
        clock.advance(seconds=1)
        assert await worker.run_pending() == 10
        await worker.end()
    assert len(await stored(broker)) == 10


async def test_what_the_client_reports_is_in_our_log_and_not_in_its_own(
    still: App, broker: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        connection = here(nats)
        broker.kill()
        async with asyncio.timeout(10):
            while connection.usable:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
    (lost,) = [record for record in caplog.records if record.message == "NATS connection lost"]
    assert (lost.name, lost.levelname, vars(lost)["server"]) == ("trueup.nats", "WARNING", broker.url)
    assert vars(lost)["error"] == "nats: unexpected EOF"
    assert [record.name for record in caplog.records if record.name.startswith("nats")] == []
