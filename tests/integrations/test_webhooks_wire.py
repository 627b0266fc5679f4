"""What receivers do on the wire: more answers than requests, and answers before the request has been read."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import httpx
import pytest
import trustme

from trueup.clock import elapsed
from trueup.integrations.webhooks import DeliveryFailed, DeliveryPostponed, DeliveryRefused, Webhook

pytestmark = pytest.mark.asyncio

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
FAILED = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
LARGE = {"x": "y" * (16 << 20)}  # more than all buffers between sender and receiver hold


@asynccontextmanager
async def receiver(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that talks to each connection as it likes. Gives its port."""
    open_ones: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_ones.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await talk(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones)


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def request(reader: asyncio.StreamReader) -> None:
    head = await head_of(reader)
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))


async def until_hung_up(reader: asyncio.StreamReader) -> None:
    await reader.read()


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([OK + OK], id="a second answer at once"),
        pytest.param([OK, OK], id="a second answer a moment later"),
        pytest.param([OK + OK * 50], id="many answers"),
        pytest.param([OK + b"HTTP/1.1 200 OK\r\nContent-Le"], id="the beginning of an answer"),
        pytest.param([OK + b"\r\n\r\n"], id="empty lines"),
        pytest.param([OK + b"\x00garbage" * 100], id="garbage"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nlong body\n" + OK], id="body longer than announced"
        ),
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n" + OK], id="204 with a body"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n" + OK + OK], id="informational, then two"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: 1\r\n\r\n" + OK],
            id="after a trailer",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\njunk\r\n" + OK], id="junk after the chunks"
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", OK], id="keep-alive"
        ),
        pytest.param([b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n" + OK], id="HTTP/1.0"),
    ],
)
@pytest.mark.parametrize("own_client", [False, True])
async def test_what_a_receiver_sends_beyond_its_answer_never_acknowledges_the_next_message(
    first: list[bytes], own_client: bool
) -> None:
    """The first message is taken, with something more. All others are refused, and must be known to be."""
    requests = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        while True:  # whatever the request says about the connection
            await request(reader)
            requests += 1
            for part in first if requests == 1 else [FAILED]:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)

    async with receiver(talk) as port, httpx.AsyncClient(trust_env=False) as client:
        url = f"http://127.0.0.1:{port}/"
        hook = Webhook(url, client=client) if own_client else Webhook(url, allow=["127.0.0.1"])
        assert (await hook.deliver({}, key="1")).status in (200, 204)
        for key in ("2", "3"):
            with pytest.raises(DeliveryFailed) as failed:
                await hook.deliver({}, key=key)
            assert failed.value.status == 500
    assert requests == 3


async def test_an_answer_that_comes_after_the_first_was_read_acknowledges_nothing() -> None:
    """It arrives while nothing is under way, or just as the next request is being sent."""
    taken = asyncio.Event()
    first = True

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        await request(reader)
        if not first:
            writer.write(FAILED)
            await writer.drain()
            return
        first = False
        writer.write(OK)
        await writer.drain()
        await taken.wait()
        while True:
            writer.write(OK)
            await writer.drain()
            await asyncio.sleep(0.001)

    async with receiver(talk) as port, Webhook(f"http://127.0.0.1:{port}/", allow=["127.0.0.1"]) as hook:
        await hook.deliver({}, key="1")
        taken.set()
        with pytest.raises(DeliveryFailed, match="500"):
            await hook.deliver({}, key="2")


def early(answer: bytes, *, hangs_up: bool) -> Talk:
    """Answers when it has seen the head, and reads no further."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(answer)
        await writer.drain()
        if not hangs_up:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.Event().wait()

    return talk


REFUSALS = [
    (b"HTTP/1.1 401 No\r\nContent-Length: 7\r\n\r\nwho are", DeliveryRefused, 401),
    (b"HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", DeliveryRefused, 413),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", DeliveryRefused, 403),
    (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nRetry-After: 7\r\n\r\n", DeliveryPostponed, 503),
    (b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", DeliveryFailed, 500),
    (b"HTTP/1.1 302 Away\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", DeliveryFailed, 302),
]


@pytest.fixture(scope="module")
def tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the server, and for those who trust it."""
    authority = trustme.CA()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return serving, trusting


@pytest.mark.parametrize("hangs_up", [False, True])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(("answer", "error", "status"), REFUSALS)
async def test_a_refusal_before_the_message_was_read_is_that_refusal(
    answer: bytes,
    error: type[DeliveryRefused | DeliveryPostponed | DeliveryFailed],
    status: int,
    scheme: str,
    hangs_up: bool,
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    serving, trusting = tls if scheme == "https" else (None, None)
    async with receiver(early(answer, hangs_up=hangs_up), serving) as port:
        hook = Webhook(f"{scheme}://127.0.0.1:{port}/", allow=["127.0.0.1"], tls=trusting, timeout="60s")
        with pytest.raises(error) as raised:
            await asyncio.wait_for(hook.deliver(LARGE, key="k"), 30)
    assert raised.value.status == status


async def test_an_acceptance_before_the_message_was_read_counts_once_all_of_it_is_sent() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(OK)
        await until_hung_up(reader)

    async with receiver(talk) as port, Webhook(f"http://127.0.0.1:{port}/", allow=["127.0.0.1"]) as hook:
        assert (await hook.deliver(LARGE, key="k")).status == 200


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_an_acceptance_of_a_message_that_could_not_be_sent_is_none(hangs_up: bool) -> None:
    async with receiver(early(OK, hangs_up=hangs_up)) as port:
        hook = Webhook(f"http://127.0.0.1:{port}/", allow=["127.0.0.1"], timeout=timedelta(seconds=1))
        with pytest.raises(DeliveryFailed) as failed:
            await hook.deliver(LARGE, key="k")
    assert failed.value.status is None


async def test_informational_answers_without_end_do_not_stop_the_event_loop() -> None:
    """Whatever a receiver sends is read in time that grows with its length: all handlers of the worker share this thread."""
    many = b"HTTP/1.1 100 Continue\r\n\r\n" * 27  # of an exponential time, a minute
    async with receiver(early(many, hangs_up=False)) as port:
        hook = Webhook(f"http://127.0.0.1:{port}/", allow=["127.0.0.1"], timeout="500ms")
        began = elapsed()
        with pytest.raises(DeliveryFailed, match="within 500ms"):
            await hook.deliver(LARGE, key="k")
    assert elapsed() - began < 5
