"""Publishing to a real NATS server from jobs: what arrives, what is refused, and what is left behind."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import trustme
from nats.aio.client import Client

from apps.servers.nats import NatsServer
from tests.integrations.broker import asking, config_of, nats_for, stored, tasks_of_nats
from tests.support.ports import number, reserve
from trueup import App, ConfigError, Finding, JobFailed, Stay, To
from trueup.integrations.nats import Nats, NatsRefused, NatsUnavailable, Stream
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

TOKEN = "opensesame"


@pytest.fixture
def broker() -> Iterator[NatsServer]:
    with NatsServer() as broker:
        yield broker


async def test_a_message_is_published_with_its_id_and_headers(
    still: App, worker: ManualWorker, broker: NatsServer
) -> None:
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        job = await nats.publish.enqueue(
            "orders.paid", {"b": "ü", "a": [1, None]}, message_id="order:17:paid", headers={"X-Kind": "für dich"}
        )
        assert await worker.run_pending() == 1
        assert await job.result() == {"stream": "ORDERS", "seq": 1, "duplicate": False, "message_id": "order:17:paid"}
    (message,) = await stored(broker)
    assert (message.subject, message.data) == ("orders.paid", '{"a":[1,null],"b":"ü"}'.encode())
    assert message.headers == {
        "X-Kind": "für dich",
        "Nats-Msg-Id": "order:17:paid",
        "Nats-Expected-Stream": "ORDERS",
    }
    assert tasks_of_nats() == []


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (None, b"null"),
        ("text", b'"text"'),
        ([], b"[]"),
        ({"at": datetime(2026, 1, 2, tzinfo=UTC), "id": UUID(int=7)}, None),
        ({"large": 2**80, "small": 1e-7, "ten": 10.0}, b'{"large":1208925819614629174706176,"small":1e-07,"ten":10.0}'),
    ],
)
async def test_data_is_whatever_a_job_can_be_given(
    still: App, worker: ManualWorker, broker: NatsServer, data: Any, body: bytes | None
) -> None:
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        await nats.publish.enqueue("orders.paid.münchen", data)
        await worker.run_pending()
    (message,) = await stored(broker)
    assert message.subject == "orders.paid.münchen"
    assert message.data == body or body is None
    if body is None:
        assert message.data == b'{"at":"2026-01-02T00:00:00Z","id":"00000000-0000-0000-0000-000000000007"}'


async def test_two_jobs_with_one_message_id_are_one_message_and_the_second_says_so(
    still: App, worker: ManualWorker, broker: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trueup.nats")
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        jobs = [await nats.publish.enqueue("orders.paid", n, message_id="once") for n in (1, 2)]
        await worker.run_pending()
        assert [(await job.result())["duplicate"] for job in jobs] == [False, True]
    assert [message.data for message in await stored(broker)] == [b"1"]
    (told,) = [record for record in caplog.records if record.message == "NATS had this message already"]
    assert (vars(told)["message_id"], vars(told)["seq"], vars(told)["subject"]) == ("once", 1, "orders.paid")


async def test_a_message_can_be_sent_from_a_job_of_ones_own(still: App, broker: NatsServer) -> None:
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        sent = [await nats.send("orders.paid", {"order": 7}, message_id="order:7") for _ in range(2)]
        assert [(each["seq"], each["duplicate"]) for each in sent] == [(1, False), (1, True)]
        for wrong in ({"subject": "orders.*"}, {"message_id": ""}, {"headers": {"Nats-Rollup": "all"}}):
            with pytest.raises(ConfigError):
                await nats.send(**{"subject": "orders.paid", "data": 1, "message_id": "x", **wrong})
    assert len(await stored(broker)) == 1


async def test_jobs_without_a_message_id_have_one_each(still: App, worker: ManualWorker, broker: NatsServer) -> None:
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        await nats.publish.enqueue_many([("orders.paid", n) for n in range(100)])
        assert await worker.run_pending() == 100
    messages = await stored(broker)
    assert len(messages) == len({message.id for message in messages}) == 100


async def test_a_message_is_there_if_and_only_if_its_transaction_was_committed(
    still: App, worker: ManualWorker, broker: NatsServer
) -> None:
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        with pytest.raises(ZeroDivisionError):
            async with still.transaction() as tx:
                await nats.publish.using(tx=tx).enqueue("orders.paid", "rolled back")
                raise ZeroDivisionError
        assert await worker.run_pending() == 0
        assert await stored(broker) == []
        async with still.transaction() as tx:
            await nats.publish.using(tx=tx).enqueue("orders.paid", "committed")
            assert await worker.run_pending() == 0
        assert await worker.run_pending() == 1
    assert [message.data for message in await stored(broker)] == [b'"committed"']


async def test_a_reconciler_publishes_together_with_what_it_changes(
    still: App, worker: ManualWorker, database_url: str, broker: NatsServer
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "create table orders (id int primary key, state text not null, changed_at timestamptz not null);"
            "insert into orders values (1, 'paid', '2000-01-01'), (2, 'paid', '2000-01-01')"
        )
    orders = still.table("orders", key="id", state="state", changed_at="changed_at")
    async with nats_for(still, broker) as nats:

        @orders.reconcile("paid", stale_for="1m", every="1m")
        async def tell(order: Any) -> Any:
            if order.id == 2:
                return Stay()
            return To("told", then=[nats.publish.call("orders.told", order.id, message_id=f"order:{order.id}:told")])

        await nats.ensure_stream()
        await worker.sweep("tell")
        assert await worker.run_pending() == 1
    assert [message.id for message in await stored(broker)] == ["order:1:told"]


async def test_many_at_once_share_one_connection(
    still: App, broker: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trueup.nats")
    async with nats_for(still, broker) as nats:
        await nats.ensure_stream()
        await nats.aclose()
        await nats.publish.enqueue_many([("orders.paid", n) for n in range(200)])
        async with still.worker(concurrency=50):
            await asyncio.wait_for(_until_done(still, 200), 30)
        async with asking(broker) as ask:
            assert (await ask("STREAM.INFO.ORDERS"))["state"]["messages"] == 200
    assert caplog.messages.count("NATS connected") == 2, "one for the stream, which was closed, and one for all of them"
    assert tasks_of_nats() == []


async def _until_done(app: App, count: int) -> None:
    while True:
        async with app.transaction() as tx:
            cursor = await tx.execute("select count(*) from trueup.history where state = 'done'")
            row = await cursor.fetchone()
        if row == (count,):
            return
        await asyncio.sleep(0.02)


# -- what cannot be published ------------------------------------------------------------------------------------------


async def dead_of(still: App, worker: ManualWorker, nats: Nats, *args: Any, **kwargs: Any) -> str:
    """Why the job is dead after its first attempt."""
    job = await nats.publish.enqueue(*args, **kwargs)
    assert await worker.run_pending() == 1
    with pytest.raises(JobFailed) as raised:
        await job.result(timeout="1s")
    return str(raised.value)


async def test_a_subject_of_another_stream_is_refused_for_good(
    still: App, worker: ManualWorker, broker: NatsServer
) -> None:
    async with asking(broker) as ask:
        await ask("STREAM.CREATE.OTHER", name="OTHER", subjects=["orders.>"])
    async with nats_for(still, broker) as nats:
        why = await dead_of(still, worker, nats, "orders.paid", 1)
        assert "stream ORDERS: expected stream does not match" in why
    assert await stored(broker, "OTHER") == []


async def test_a_job_whose_subject_the_stream_no_longer_takes_is_dead_with_its_reason(
    still: App, worker: ManualWorker, broker: NatsServer, database_url: str
) -> None:
    async with nats_for(still, broker) as nats:
        job = await nats.publish.enqueue("orders.paid", 1)
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("update trueup.jobs set args = jsonb_set(args, '{subject}', '\"invoices.paid\"')")
        assert await worker.run_pending() == 1
        with pytest.raises(JobFailed, match=r"'invoices\.paid' is none of stream ORDERS"):
            await job.result(timeout="1s")


async def test_a_message_larger_than_the_server_takes_is_refused_for_good(
    database_url: str, clock: ManualClock, broker: NatsServer
) -> None:
    app = App(database_url, clock=clock, payload_limit="4MiB")
    worker = ManualWorker(app)
    await worker.begin()
    async with nats_for(app, broker) as nats:
        await nats.ensure_stream()
        room = (1 << 20) - len('""') - len("NATS/1.0\r\nNats-Msg-Id: a\r\nNats-Expected-Stream: ORDERS\r\n\r\n")
        fits = await nats.publish.enqueue("orders.paid", "x" * room, message_id="a")
        await worker.run_pending()
        assert (await fits.result())["seq"] == 1
        why = await dead_of(app, worker, nats, "orders.paid", "x" * (room + 1), message_id="a")
        assert "takes messages of up to 1,048,576 bytes; this one has 1,048,577" in why
        assert (await fits.result())["duplicate"] is False
    await worker.end()
    await app.close()


async def test_a_message_larger_than_the_stream_takes_is_refused_for_good(
    still: App, worker: ManualWorker, broker: NatsServer
) -> None:
    async with asking(broker) as ask:
        await ask("STREAM.CREATE.ORDERS", name="ORDERS", subjects=["orders.>"], max_msg_size=200)
    async with nats_for(still, broker) as nats:
        assert "message size exceeds maximum" in await dead_of(still, worker, nats, "orders.paid", "x" * 200)


async def test_a_full_stream_is_tried_again(
    still: App, worker: ManualWorker, clock: ManualClock, broker: NatsServer
) -> None:
    async with asking(broker) as ask, nats_for(still, broker) as nats:
        await ask("STREAM.CREATE.ORDERS", name="ORDERS", subjects=["orders.>"], max_msgs=1, discard="new")
        jobs = [await nats.publish.enqueue("orders.paid", n) for n in (1, 2)]
        assert await worker.run_pending() == 2
        assert await _error_of(still, jobs[1]) == "NatsUnavailable: stream ORDERS: maximum messages exceeded"
        await ask("STREAM.PURGE.ORDERS")
        clock.advance(seconds=1)
        assert await worker.run_pending() == 1
        assert (await jobs[1].result())["seq"] == 2


async def _error_of(app: App, job: int) -> str:
    """What its last attempt ended with."""
    async with app.transaction() as tx:
        cursor = await tx.execute("select errors -> -1 from trueup.jobs where id = %s", [int(job)])
        row = await cursor.fetchone()
    assert row is not None
    return f"{row[0]['type'].rpartition('.')[2]}: {row[0]['message']}"


async def retried_after(still: App, worker: ManualWorker, nats: Nats, *args: Any) -> str:
    """What the first attempt ended with; the job is queued again."""
    job = await nats.publish.enqueue(*args)
    assert await worker.run_pending() == 1
    return await _error_of(still, job)


async def test_a_missing_stream_is_tried_again_and_says_what_to_do(
    still: App, worker: ManualWorker, clock: ManualClock, broker: NatsServer
) -> None:
    async with nats_for(still, broker) as nats:
        job = await nats.publish.enqueue("orders.paid", 1)
        assert await worker.run_pending() == 1
        said = await _error_of(still, job)
        assert "no stream takes 'orders.paid'; does ORDERS exist? ensure_stream() creates it" in said
        await nats.ensure_stream()
        clock.advance(seconds=1)
        assert await worker.run_pending() == 1
        assert (await job.result())["seq"] == 1


async def test_somebody_else_who_answers_is_not_taken_for_the_stream(
    still: App, worker: ManualWorker, broker: NatsServer
) -> None:
    for answer in (b"", b"[1]", b"thanks", b'{"stream":"OTHER","seq":1}', b'{"seq":1}'):
        service = Client()
        await service.connect(broker.url)

        async def reply(request: Any, answer: bytes = answer) -> None:
            await request.respond(answer)

        await service.subscribe("orders.*", cb=reply)
        await service.flush()
        async with nats_for(still, broker, name=f"publish-{answer.hex()}") as nats:
            job = await nats.publish.enqueue("orders.paid", 1)
            assert await worker.run_pending() == 1
            assert "another subscriber of 'orders.paid' answered, not the stream" in await _error_of(still, job)
        await service.close()


# -- logging in --------------------------------------------------------------------------------------------------------


async def test_a_token_opens_the_door_and_is_in_no_log(
    still: App, worker: ManualWorker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with NatsServer(f"authorization {{ token: {TOKEN} }}") as broker:
        url = broker.url.replace("://", f"://{TOKEN}@")
        for name, options in {"a": {"servers": url}, "b": {"connect": {"token": TOKEN}}}.items():
            async with nats_for(still, broker, name=name, **options) as nats:
                await nats.ensure_stream()
                job = await nats.publish.enqueue("orders.paid", 1)
                await worker.run_pending()
                assert (await job.result())["duplicate"] is False
                assert TOKEN not in repr(nats)
        assert len(await stored(broker, token=TOKEN)) == 2
    assert "NATS connected" in caplog.messages
    assert TOKEN not in caplog.text + "".join(str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize("url", ["nats://wrongsesame@", "nats://u:wrongsesame@", "nats://"])
async def test_a_login_that_is_refused_is_tried_again_and_is_in_no_log(
    still: App, worker: ManualWorker, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with NatsServer(f"authorization {{ token: {TOKEN} }}") as broker:
        async with nats_for(still, broker, servers=broker.url.replace("nats://", url)) as nats:
            with pytest.raises(NatsRefused, match="refused the login") as raised:
                await nats.ensure_stream()
            why = await retried_after(still, worker, nats, "orders.paid", 1)
            assert f"{broker.url} refused the login" in why
        assert "sesame" not in str(raised.value) + why + caplog.text
    assert tasks_of_nats() == []


async def test_a_password_with_signs_in_it_is_decoded(still: App, worker: ManualWorker) -> None:
    with NatsServer('authorization { user: "u@x", password: "p/:@%" }') as broker:
        url = broker.url.replace("://", "://u%40x:p%2F%3A%40%25@")
        async with nats_for(still, broker, servers=url) as nats:
            await nats.ensure_stream()


PERMISSIONS = """
authorization { users = [
  { user: all, password: p }
  { user: deaf, password: p, permissions { subscribe: "_INBOX_deaf.>" } }
  { user: some, password: p, permissions { publish: ["$JS.API.STREAM.INFO.ORDERS", "orders.allowed"] } }
] }
"""


async def test_what_is_not_permitted_is_refused_at_once_and_tried_again(still: App, worker: ManualWorker) -> None:
    with NatsServer(PERMISSIONS) as broker:
        async with nats_for(still, broker, connect={"user": "all", "password": "p"}, name="all") as nats:
            await nats.ensure_stream()
        async with nats_for(still, broker, connect={"user": "some", "password": "p"}, timeout="30s") as nats:
            await nats.ensure_stream()
            job = await nats.publish.enqueue("orders.allowed", 1)
            await worker.run_pending()
            assert (await job.result())["seq"] == 1
            async with asyncio.timeout(10):
                why = await retried_after(still, worker, nats, "orders.Forbidden", 1)
            assert "does not permit the user to publish to 'orders.Forbidden'" in why
            other = nats_for(
                still,
                broker,
                connect={"user": "some", "password": "p"},
                name="other",
                stream=Stream("OTHER", ["others.>"], "10m"),
            )
            with pytest.raises(NatsRefused, match=r"INFO\.OTHER"):
                await other.ensure_stream()
            await other.aclose()


async def test_who_may_not_hear_the_answers_is_told_so(still: App, worker: ManualWorker) -> None:
    with NatsServer(PERMISSIONS) as broker:
        login = {"user": "deaf", "password": "p"}
        async with nats_for(still, broker, connect=login, timeout="30s") as nats, asyncio.timeout(10):
            with pytest.raises(NatsRefused, match="does not permit the user to subscribe to its inbox"):
                await nats.ensure_stream()
            why = await retried_after(still, worker, nats, "orders.paid", 1)  # on the same connection
            assert "does not permit the user to subscribe to its inbox" in why
        own = login | {"inbox_prefix": "_INBOX_deaf"}
        async with nats_for(still, broker, connect=own, name="hears") as nats:
            await nats.ensure_stream()


async def test_a_connection_can_be_encrypted(still: App, worker: ManualWorker, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    files = f'cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.pem"'
    with NatsServer(f"tls {{ {files} }}") as broker:
        url = broker.url.replace("nats://", "tls://")
        async with nats_for(still, broker, servers=url, name="distrustful") as nats:
            with pytest.raises(NatsUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await nats.ensure_stream()
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        async with nats_for(still, broker, servers=url, connect={"tls": trusting}) as nats:
            await nats.ensure_stream()
            job = await nats.publish.enqueue("orders.paid", 1)
            await worker.run_pending()
            assert (await job.result())["seq"] == 1
    assert tasks_of_nats() == []


async def test_a_key_given_in_place_of_its_file_is_not_shown(still: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def read(nonce: str) -> bytes:
        return Path(f"SU{TOKEN}").read_bytes()

    user = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
    with NatsServer(f"authorization {{ users = [ {{ nkey: {user} }} ] }}") as strict:
        options = {"signature_cb": read, "user_jwt_cb": lambda: b"", "token": "unused"}
        async with nats_for(still, strict, connect=options) as nats:
            with pytest.raises(
                NatsUnavailable, match="No such file or directory: a file that connect= names"
            ) as raised:
                await nats.ensure_stream()
    assert TOKEN not in str(raised.value) + caplog.text + "".join(str(vars(record)) for record in caplog.records)


# -- loops and ends ----------------------------------------------------------------------------------------------------


async def test_each_event_loop_has_a_connection_of_its_own(still: App, broker: NatsServer) -> None:
    nats = nats_for(still, broker)
    await nats.ensure_stream()

    def elsewhere() -> None:
        async def look() -> None:
            await nats.ensure_stream()
            await nats.aclose()
            assert tasks_of_nats() == []

        asyncio.run(look())

    for _ in range(2):
        await asyncio.to_thread(elsewhere)
    await nats.ensure_stream()
    assert len(nats._connections._open) == 1
    await nats.aclose()
    assert tasks_of_nats() == []


async def test_it_can_be_closed_before_it_was_used_twice_and_used_again(still: App, broker: NatsServer) -> None:
    nats = nats_for(still, broker)
    for _ in range(2):
        await nats.aclose()
        await nats.aclose()
        await nats.ensure_stream()
    await nats.aclose()
    assert tasks_of_nats() == []


async def test_closing_the_app_closes_the_connection(database_url: str, broker: NatsServer) -> None:
    app = App(database_url)
    nats = nats_for(app, broker)
    await nats.ensure_stream()
    assert tasks_of_nats() != []
    await app.close()
    assert tasks_of_nats() == []


async def test_another_server_is_used_when_one_is_away(still: App, broker: NatsServer) -> None:
    with NatsServer() as other:
        other.kill()
        for n in range(4):  # in any order
            async with nats_for(still, broker, servers=[other.url, broker.url], name=f"publish{n}") as nats:
                await nats.ensure_stream()


# -- what the doctor finds ----------------------------------------------------------------------------------------------


async def examined(app: App, nats: Nats) -> list[Finding]:
    found = [each for each in await app.examine() if each.check == "nats"]
    await nats.aclose()
    assert tasks_of_nats() == []
    return found


@pytest.mark.parametrize("others", [0, 1], ids=["all away", "one of two away"])
async def test_the_doctor_names_a_server_that_cannot_be_reached(app: App, broker: NatsServer, others: int) -> None:
    with reserve() as nobody:
        away = f"127.0.0.1:{number(nobody)}"
        nats = nats_for(app, broker, servers=[f"nats://:{TOKEN}@{away}", *[broker.url][:others]])
        if others:
            await nats.ensure_stream()
        (finding,) = await examined(app, nats)
    assert finding.severity == ("warning" if others else "error")
    assert f"nats://{away} cannot be reached" in finding.problem
    assert "start it, or check the servers" in finding.advice
    assert ("'publish' are retried" in finding.advice) == (others == 0)
    assert TOKEN not in str(finding)


async def test_the_doctor_says_that_a_login_is_refused(app: App) -> None:
    with NatsServer(f"authorization {{ token: {TOKEN} }}") as broker:
        (finding,) = await examined(app, nats_for(app, broker, connect={"token": "wrong-token"}))
    assert (finding.severity, "refused the login" in finding.problem) == ("error", True)
    assert "token" in finding.advice
    assert "wrong-token" not in str(finding)


WITHOUT = {
    "server": NatsServer(jetstream=False),
    "account": NatsServer("accounts { SHOP { users: [ { user: shop, password: shop } ] } }"),
}


@pytest.mark.parametrize("what", WITHOUT)
async def test_the_doctor_says_that_the_server_or_the_account_has_no_jetstream(app: App, what: str) -> None:
    login = {"user": "shop", "password": "shop"} if what == "account" else {}
    with WITHOUT[what] as broker:
        (finding,) = await examined(app, nats_for(app, broker, connect=login))
    assert finding.severity == "error"
    assert finding.problem.startswith("NATS: JetStream does not answer: ")
    assert ("not enabled for account" in finding.problem) == (what == "account")
    assert "enable JetStream on the server (nats-server -js) and for this account" in finding.advice


async def test_the_doctor_looks_at_the_stream_and_leaves_it_as_it_is(app: App, broker: NatsServer) -> None:
    nats = nats_for(app, broker)
    (missing,) = await examined(app, nats)
    assert (missing.severity, missing.problem) == ("error", "NATS stream ORDERS does not exist")
    assert "ensure_stream()" in missing.advice
    async with asking(broker) as ask:
        await ask("STREAM.CREATE.ORDERS", name="ORDERS", subjects=["orders.>"], duplicate_window=10**9)
    before = await config_of(broker)
    (short,) = await examined(app, nats)
    assert (short.severity, "duplicate window" in short.problem) == ("warning", True)
    assert await config_of(broker) == before
    async with asking(broker) as ask:
        await ask("STREAM.UPDATE.ORDERS", name="ORDERS", subjects=["orders.paid"], duplicate_window=10**9)
    (lacking,) = await examined(app, nats)
    assert (lacking.severity, "orders.>" in lacking.problem) == ("error", True)
    assert "ensure_stream(update=True)" in lacking.advice
    await nats.ensure_stream(update=True)
    assert await examined(app, nats) == []
