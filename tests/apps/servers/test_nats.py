"""The server that tests and demos start: it keeps what it was given, and is gone afterwards."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from apps.servers.nats import NatsServer
from apps.servers.server import ServerError
from tests.integrations.broker import asking


def refused(server: NatsServer) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", server.port)) != 0


async def store(server: NatsServer) -> None:
    async with asking(server) as ask:
        await ask("STREAM.CREATE.KEPT", name="KEPT", subjects=["kept"])


async def streams(server: NatsServer) -> int:
    async with asking(server) as ask:
        total: int = (await ask("STREAM.NAMES"))["total"]
        return total


@pytest.mark.parametrize("end", [NatsServer.stop, NatsServer.kill])
def test_what_was_stored_outlives_a_restart_on_the_same_port(end: Callable[[NatsServer], None]) -> None:
    with NatsServer() as server:
        asyncio.run(store(server))
        end(server)
        end(server)
        assert refused(server)
        server.start()
        server.start()
        assert asyncio.run(streams(server)) == 1
        server.restart()
        assert asyncio.run(streams(server)) == 1


def test_a_server_that_hangs_accepts_and_says_nothing() -> None:
    with NatsServer() as server:
        with server.hanging(), socket.create_connection(("127.0.0.1", server.port), 5) as client:
            client.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.recv(1)
        assert asyncio.run(streams(server)) == 0


def test_nothing_is_left_of_it_also_when_the_block_fails_and_it_hangs() -> None:
    with pytest.raises(ZeroDivisionError), NatsServer() as server, server.hanging():
        assert server._process is not None
        pid, directory = server._process.pid, Path(server._directory.name)
        raise ZeroDivisionError
    assert refused(server)
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_two_have_ports_and_streams_of_their_own() -> None:
    with NatsServer() as one, NatsServer() as other:
        asyncio.run(store(one))
        assert (asyncio.run(streams(one)), asyncio.run(streams(other))) == (1, 0)


def test_settings_that_it_does_not_understand_are_told() -> None:
    with pytest.raises(ServerError, match="no_such_setting"), NatsServer("no_such_setting: 1"):
        pass
