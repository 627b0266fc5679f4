"""Asking a node: a real one, one behind a bad line, and something that answers in its place."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from apps.chain.anvil import Anvil
from apps.chain.rpc import ChainError, ChainRefused, ChainUnavailable, Rpc, number, quantity
from tests.support import ports
from tests.support.proxy import Proxy

pytestmark = pytest.mark.asyncio

SOON = timedelta(milliseconds=300)


@pytest.fixture(scope="module")
def node() -> Iterator[Anvil]:
    with Anvil() as node:
        node.mine(3)
        yield node


@pytest_asyncio.fixture
async def rpc(node: Anvil) -> AsyncIterator[Rpc]:
    async with Rpc(node.url) as rpc:
        yield rpc


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest_asyncio.fixture
async def answering() -> AsyncIterator[Callable[[Answer], Awaitable[str]]]:
    """Starts something that answers in this way; its URL."""
    servers: list[asyncio.Server] = []

    async def answering(answer: Answer) -> str:
        async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await answer(reader, writer)
            finally:
                writer.close()

        servers.append(await asyncio.start_server(each, ports.LOOPBACK, 0))
        return f"http://{ports.LOOPBACK}:{servers[-1].sockets[0].getsockname()[1]}"

    yield answering
    for server in servers:
        server.close()


def says(body: bytes, status: str = "200 OK", *headers: str) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers])
        writer.write(f"{head}\r\n\r\n".encode() + body)
        await writer.drain()

    return answer


async def test_a_node_is_asked(rpc: Rpc) -> None:
    assert number(await rpc.call("eth_blockNumber")) == 3


async def test_a_batch_is_answered_in_its_own_order(rpc: Rpc) -> None:
    blocks = await rpc.batch([("eth_getBlockByNumber", [quantity(each), False]) for each in (3, 1, 2)])
    assert [number(block["number"]) for block in blocks] == [3, 1, 2]


async def test_an_empty_batch_asks_nobody() -> None:
    async with Rpc("http://127.0.0.1:1") as rpc:
        assert await rpc.batch([]) == []


async def test_answers_in_another_order_are_told_apart(answering: Callable[[Answer], Awaitable[str]]) -> None:
    body = json.dumps([{"id": 2, "result": "0x2"}, {"id": 1, "result": "0x1"}]).encode()
    async with Rpc(await answering(says(body))) as rpc:
        assert await rpc.batch([("a", []), ("b", [])]) == ["0x1", "0x2"]


async def test_a_refusal_has_the_nodes_code_and_words(rpc: Rpc) -> None:
    with pytest.raises(ChainRefused, match="eth_nonsense: Method not found") as refused:
        await rpc.call("eth_nonsense")
    assert refused.value.code == -32601


async def test_one_refusal_refuses_the_batch(rpc: Rpc) -> None:
    with pytest.raises(ChainRefused):
        await rpc.batch([("eth_blockNumber", []), ("eth_nonsense", [])])


async def test_a_node_that_is_down_is_unavailable() -> None:
    with ports.reserve() as nobody:
        async with Rpc(f"http://127.0.0.1:{ports.number(nobody)}") as rpc:
            with pytest.raises(ChainUnavailable, match="could not be asked: ConnectError"):
                await rpc.call("eth_blockNumber")


async def test_a_node_that_hangs_is_unavailable_in_time(node: Anvil) -> None:
    async with Rpc(node.url, timeout=SOON) as rpc:
        with node.hanging(), pytest.raises(ChainUnavailable, match="did not answer eth_blockNumber in time"):
            await rpc.call("eth_blockNumber")
        assert number(await rpc.call("eth_blockNumber")) == 3


async def test_a_line_that_is_cut_is_unavailable_until_it_is_healed(node: Anvil) -> None:
    with Proxy((ports.LOOPBACK, node.port)) as way:
        async with Rpc(f"http://127.0.0.1:{way.port}", timeout=SOON) as rpc:
            assert number(await rpc.call("eth_blockNumber")) == 3
            way.cut()
            with pytest.raises(ChainUnavailable):
                await rpc.call("eth_blockNumber")
            way.heal()
            way.black_hole()
            with pytest.raises(ChainUnavailable, match="in time"):
                await rpc.call("eth_blockNumber")
            way.heal()
            assert number(await rpc.call("eth_blockNumber")) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"7",
        b'"text"',
        b"<html>",
        b"\xff\xfe",
        b'{"id": 1}',
        b'{"id": 1, "result"',
        b'{"id": 2, "result": "0x1"}',
        b'{"id": null, "result": "0x1"}',
        b'{"id": [1], "result": "0x1"}',
        b'[[{"id": 1, "result": "0x1"}]]',
        b'{"id": 1, "error": "text"}',
        b'{"id": 1, "error": "rate limit", "result": null}',
        b'{"id": 1, "error": 429, "result": "0x1"}',
        b'{"id": "1", "result": "0x1"}',
        b'[{"id": 1, "result": "0x1"}, {"id": 1, "result": null}]',
        b"[" * 100_000,
    ],
)
async def test_what_is_no_answer_is_unavailable(answering: Callable[[Answer], Awaitable[str]], body: bytes) -> None:
    async with Rpc(await answering(says(body))) as rpc:
        with pytest.raises(ChainUnavailable):
            await rpc.call("eth_blockNumber")


@pytest.mark.parametrize("code", ["null", '"many"', "[1]", "-32005"])
async def test_a_refusal_may_have_any_code(answering: Callable[[Answer], Awaitable[str]], code: str) -> None:
    body = f'{{"id": 1, "error": {{"code": {code}, "message": "{"x" * 5000}"}}}}'.encode()
    async with Rpc(await answering(says(body))) as rpc:
        with pytest.raises(ChainRefused) as refused:
            await rpc.call("eth_blockNumber")
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("status", ["301 Moved", "401 No", "429 Slower", "500 Broken", "503 Away"])
async def test_another_status_than_200_is_unavailable(
    answering: Callable[[Answer], Awaitable[str]], status: str
) -> None:
    async with Rpc(await answering(says(b'{"id": 1, "result": "0x1"}', status))) as rpc:
        with pytest.raises(ChainUnavailable, match=f"HTTP {status[:3]}"):
            await rpc.call("eth_blockNumber")


async def test_an_answer_may_be_packed(answering: Callable[[Answer], Awaitable[str]]) -> None:
    packed = gzip.compress(b'{"id": 1, "result": "0x1"}')
    async with Rpc(await answering(says(packed, "200 OK", "content-encoding: gzip"))) as rpc:
        assert await rpc.call("eth_blockNumber") == "0x1"


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"not packed at all"),
        ("gzip", gzip.compress(b'{"id": 1, "result": "0x1"}')[:-15]),
        ("br", b'{"id": 1, "result": "0x1"}'),
        ("gzip, gzip", gzip.compress(gzip.compress(b'{"id": 1, "result": "0x1"}'))),
    ],
    ids=["not packed", "in half", "another way", "twice"],
)
async def test_what_cannot_be_unpacked_is_unavailable(
    answering: Callable[[Answer], Awaitable[str]], encoding: str, body: bytes
) -> None:
    async with Rpc(await answering(says(body, "200 OK", f"content-encoding: {encoding}"))) as rpc:
        with pytest.raises(ChainUnavailable):
            await rpc.call("eth_blockNumber")


async def test_an_answer_that_breaks_off_is_unavailable(answering: Callable[[Answer], Awaitable[str]]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"id": 1')
        await writer.drain()
        writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async with Rpc(await answering(answer)) as rpc:
        with pytest.raises(ChainUnavailable):
            await rpc.call("eth_blockNumber")


async def test_a_key_in_the_url_is_in_no_error() -> None:
    with ports.reserve() as nobody:
        async with Rpc(f"http://127.0.0.1:{ports.number(nobody)}/v3/hunter2") as rpc:
            with pytest.raises(ChainError) as error:
                await rpc.call("eth_blockNumber")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "said", [None, "", "0x", "0xg", "1f", 31, "31", "0x_1", "0x1 ", "0x-1", "0x1" + "0" * 512, [], {}]
)
async def test_what_is_no_number_is_unavailable(said: Any) -> None:
    with pytest.raises(ChainUnavailable):
        number(said)


async def test_numbers_are_written_as_nodes_do() -> None:
    assert [quantity(0), quantity(31)] == ["0x0", "0x1f"]
    assert number("0x1f") == number("0x1F") == 31
