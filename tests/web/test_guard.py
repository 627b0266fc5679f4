"""The guard in front of an application, in a real server: what is refused, and what every answer carries."""

from __future__ import annotations

import importlib
import json
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.support import ports
from tests.support.processes import ROOT
from tests.support.waiting import wait_until
from tests.web.served import LOCKED, RULES
from trueup.errors import ConfigError
from trueup.web.guard import Rules, check_bind, is_loopback, rules_for

TOKEN = str(LOCKED.token)


class Answer:
    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ports.reserve() as reserved:
        port = ports.number(reserved)
        process = subprocess.Popen([sys.executable, "-m", "tests.web.served", str(port)], cwd=ROOT)
        try:
            wait_until(lambda: _answers(port), "the server answers", timeout=30)
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def ask(port: int, method: str = "GET", path: str = "/", *, body: bytes = b"", **headers: str) -> Answer:
    """As written: header names with _ for -, `host` unless another is given."""
    given = {"host": f"127.0.0.1:{port}", "connection": "close"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    if body and "content-length" not in given and "transfer-encoding" not in given:
        given["content-length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value != "-")
    return send(port, f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)


def send(port: int, raw: bytes) -> Answer:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # it was refused before all of it was sent
            connection.sendall(raw)
        answer = b""
        while True:
            try:
                part = connection.recv(65536)
            except ConnectionResetError:
                break
            if not part:
                break
            answer += part
    return Answer(answer)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:80", "LOCALHOST", "[::1]:8080", "shop.example", "Shop.Example.:1"]
)
def test_the_names_of_the_server_are_answered(port: int, host: str) -> None:
    assert ask(port, host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "shop.example@evil", "", "a b", "[::2]"],
)
def test_other_names_are_refused(port: int, host: str) -> None:
    assert ask(port, host=host).status in (400, 421)


def test_a_request_without_a_host_or_with_two_is_refused(port: int) -> None:
    assert send(port, b"GET / HTTP/1.0\r\n\r\n").status in (400, 421)
    assert send(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n").status in (
        400,
        421,
    )


CROSS_SITE: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_fetch_site": "cross-site", "origin": "http://127.0.0.1"},
]


@pytest.mark.parametrize("headers", CROSS_SITE)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "ANYTHING"])
def test_another_sites_page_can_write_nothing(port: int, method: str, headers: dict[str, str]) -> None:
    assert ask(port, method, **headers).status == 403
    assert ask(port, method, body=b"x=1", **headers).status == 403


@pytest.mark.parametrize("headers", CROSS_SITE)
def test_reading_is_not_writing(port: int, headers: dict[str, str]) -> None:
    assert ask(port, "GET", **headers).status == 200


def test_the_servers_own_pages_and_programs_can_write(port: int) -> None:
    for headers in (
        {},
        {"origin": f"http://127.0.0.1:{port}", "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
    ):
        assert ask(port, "POST", **headers).status == 200
        assert json.loads(ask(port, "POST", body=b"x=1", **headers).body)["size"] == 3


def chunked(*parts: bytes) -> bytes:
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


def test_a_body_up_to_the_limit_is_handed_on(port: int) -> None:
    assert json.loads(ask(port, "POST", body=b"x" * RULES.max_body).body)["size"] == RULES.max_body
    sent = ask(port, "POST", body=chunked(b"x" * 5_000, b"y" * 5_000), transfer_encoding="chunked")
    assert json.loads(sent.body)["size"] == RULES.max_body


def test_a_larger_body_is_refused_however_it_is_sent(port: int) -> None:
    assert ask(port, "POST", body=b"x" * (RULES.max_body + 1)).status == 413
    assert ask(port, "POST", body=b"x", content_length="100000000").status == 413
    assert ask(port, "POST", body=chunked(b"x" * 5_000, b"y" * 5_001), transfer_encoding="chunked").status == 413
    assert ask(port, "GET", body=b"x" * (RULES.max_body + 1)).status == 413


def test_a_body_that_does_not_come_is_not_waited_for(port: int) -> None:
    started = time.monotonic()
    assert ask(port, "POST", body=b"x", content_length="100").status == 408
    assert time.monotonic() - started < 15
    assert ask(port).status == 200


def test_a_path_that_is_streamed_bounds_itself(port: int) -> None:
    assert json.loads(ask(port, "PUT", "/streamed", body=b"x" * 1_000_000).body)["size"] == 1_000_000
    assert ask(port, "POST", "/streamed", body=b"x" * 1_000_000).status == 413


@pytest.mark.parametrize("path", ["/", "/cached", "/locked"])
def test_every_answer_has_the_headers_that_keep_a_page_safe(port: int, path: str) -> None:
    for answer in (
        ask(port, path=path),
        ask(port, path=path, host="evil.example"),
        ask(port, "POST", path, origin="null"),
    ):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] in ("no-store", "max-age=60")
    assert ask(port, path="/cached").headers["cache-control"] == "max-age=60"  # the application's own word counts


@pytest.mark.parametrize(
    "authorization",
    [f"Bearer {TOKEN}", f"bearer {TOKEN}", "Basic " + b64encode(f"anybody:{TOKEN}".encode()).decode()],
)
def test_the_token_opens(port: int, authorization: str) -> None:
    assert ask(port, path="/locked", authorization=authorization).status == 200


@pytest.mark.parametrize(
    "authorization",
    [
        "-",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Token {TOKEN}",
        "Basic !",
        "Basic YTpi",
        "\xff",
    ],
)
def test_anything_else_does_not(port: int, authorization: str) -> None:
    answer = ask(port, path="/locked", authorization=authorization)
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Basic")
    assert TOKEN.encode() not in answer.body


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "shop.example", ""])
def test_without_a_token_only_this_machine_may_be_served(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match="HTTP_TOKEN"):
        check_bind(host, Rules())
    assert rules_for(host, {"HTTP_TOKEN": TOKEN, "HTTP_HOSTS": "a.example, b.example"}).hosts == [
        "a.example",
        "b.example",
        host,
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_this_machine_is_served_without_a_token(host: str) -> None:
    check_bind(host, Rules())


@pytest.mark.parametrize("token", ["short", "x" * 15, "é" * 20, "line\nbreak-and-more-text"])
def test_a_token_that_could_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="HTTP_TOKEN") as refused:
        rules_for("127.0.0.1", {"HTTP_TOKEN": token})
    assert token not in str(refused.value)
    assert token not in repr(Rules(token=token))


@pytest.mark.parametrize("app", ["addresses", "birthdays", "payments", "pulse", "wallpapers"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_no_application_serves_other_machines_without_a_token(
    app: str, host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HTTP_TOKEN", raising=False)
    module: Any = importlib.import_module(f"apps.{app}.__main__")
    assert module.main(["serve", "--host", host]) == 2
    assert "HTTP_TOKEN" in capsys.readouterr().err
