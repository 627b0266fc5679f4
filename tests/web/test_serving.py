"""Probes in front of an application: answered before the guard, which would refuse them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from trueup.web import serving
from trueup.web.guard import Guard, Receive, Rules, Scope, Send
from trueup.web.serving import ProbeAnswers, Server

pytestmark = pytest.mark.asyncio


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def asked(path: str, ready: Any, method: str = "GET") -> httpx.Response:
    guarded = Guard(application, Rules(token="a secret of sixteen or more"))
    transport = httpx.ASGITransport(ProbeAnswers(guarded, ready))
    async with httpx.AsyncClient(transport=transport, base_url="http://10.0.0.7:8080") as client:
        return await client.request(method, path)


async def down(**what: str) -> dict[str, str]:
    return what


async def test_probes_need_neither_a_token_nor_a_known_name() -> None:
    assert (await asked("/healthz", down)).json() == {"alive": True}
    assert (await asked("/readyz", down)).json() == {"ready": True, "down": []}
    assert (await asked("/", down)).status_code == 421, "the rest is guarded"
    assert (await asked("/healthz", down, "POST")).status_code == 421


async def test_what_is_down_is_named_and_why_is_not() -> None:
    answer = await asked("/readyz", lambda: down(nats="refused by 10.0.0.9", database="no password"))
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "down": ["database", "nats"]})


async def test_a_check_that_hangs_or_fails_is_no_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "READY_WITHIN", 0.05)
    assert (await asked("/readyz", lambda: asyncio.sleep(60))).status_code == 503
    assert (await asked("/readyz", lambda: 1 / 0)).status_code == 503
    assert (await asked("/healthz", lambda: 1 / 0)).status_code == 200


async def served(host: str, port: int) -> int:
    return await Server("shop", application, down, Rules(), host, port).run_until_stopped()


async def test_a_port_that_is_taken_is_one_line_that_names_it_and_the_way_out(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert await served("127.0.0.1", port) == 1
    told = capfd.readouterr().err
    assert told == (
        f"shop: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another port (--port; 0 picks a free one), or stop what listens there\n"
    )
    assert caplog.records == []


@pytest.mark.parametrize("host", ["nowhere.invalid", "192.0.2.1"])
async def test_an_address_of_another_machine_is_one_line_too(host: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert await served(host, 0) == 1
    told = capfd.readouterr().err
    assert told.startswith(f"shop: cannot listen on {host}:0: ")
    assert told.endswith("; give --host an address of this machine\n")
