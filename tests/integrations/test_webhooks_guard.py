"""Where a webhook may connect to: judged after resolving, and connected to as judged."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from tests.integrations.sink import Sink, says
from trueup import ConfigError
from trueup.integrations.webhooks import DeliveryFailed, DeliveryRefused, TargetRefused, Webhook
from trueup.integrations.webhooks.guard import AddressGuard, kind_of

FORBIDDEN = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254"),
    *("168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1"),
    *("198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "100::1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "2001::1", "2001:db8::1", "2002:7f00:1::"),
    *("2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1"),
    *("ff02::1",),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "168.63.129.17"),
    *("223.255.255.255", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888"),
    *("::ffff:8.8.8.8", "64:ff9b::808:808"),
]


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Names resolve to these, lookup by lookup, the last one for ever. Returns the list of lookups, as it grows."""
    lookups: list[str] = []

    def getaddrinfo(host: str, port: int | None, *_: Any, **__: Any) -> list[Any]:
        answer = answers[min(len(lookups), len(answers) - 1)]
        lookups.append(host)
        if not answer:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in answer
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return lookups


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_of_the_public_network_is_forbidden(address: str) -> None:
    assert kind_of(ip_address(address)) is not None
    assert AddressGuard().fault("example.com", ip_address(address)) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_let_through(address: str) -> None:
    assert AddressGuard().fault("example.com", ip_address(address)) is None


@given(st.ip_addresses())
def test_what_python_calls_special_is_forbidden_too(address: Any) -> None:
    special = address.is_private or address.is_loopback or address.is_link_local or address.is_multicast
    if special or address.is_reserved or address.is_unspecified:
        nat64 = address.version == 6 and address in ip_network("64:ff9b::/96")
        mapped = address.version == 6 and address.ipv4_mapped is not None
        assert nat64 or mapped or kind_of(address) is not None


@pytest.mark.parametrize("address", [address for address in FORBIDDEN if "%" not in address])
def test_a_forbidden_address_in_a_url_is_refused_when_it_is_declared(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(ConfigError, match="allow="):
        Webhook(f"http://{host}/")


@pytest.mark.asyncio
@pytest.mark.parametrize("address", FORBIDDEN)
async def test_a_name_that_resolves_to_a_forbidden_address_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, [address])
    async with Webhook("https://example.com/") as hook:
        with pytest.raises(TargetRefused, match=r"example\.com: the address") as refused:
            await hook.deliver({}, key="k")
    assert isinstance(refused.value, DeliveryRefused)
    assert refused.value.status is None


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0"])
async def test_other_ways_to_write_this_machine_are_refused(host: str) -> None:
    async with Sink() as sink:
        with pytest.raises((ConfigError, TargetRefused)):
            await Webhook(f"http://{host}:{sink.port}/").deliver({}, key="k")
        assert sink.connections == 0


@pytest.mark.asyncio
async def test_one_forbidden_address_among_public_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["1.1.1.1", "2606:4700::1111", "10.0.0.1"])
    async with Webhook("http://example.com/") as hook:
        with pytest.raises(TargetRefused, match=r"10\.0\.0\.1"):
            await hook.deliver({}, key="k")


@pytest.mark.asyncio
async def test_the_address_that_was_judged_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that answers differently each time: the second answer must never be asked for within one connection."""
    async with Sink(host="127.0.0.2") as judged, Sink(port=judged.port) as inside:
        lookups = resolving(monkeypatch, ["127.0.0.2"], ["127.0.0.1"])
        async with Webhook(f"http://rebinding.example:{judged.port}/", allow=["127.0.0.2/32"]) as hook:
            await hook.deliver({}, key="1")
            assert lookups == ["rebinding.example"]
            with pytest.raises(TargetRefused):
                await hook.deliver({}, key="2")
        assert [got.headers["host"] for got in judged.received] == [f"rebinding.example:{judged.port}"]
        assert inside.connections == 0


@pytest.mark.asyncio
async def test_the_next_address_is_tried_when_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Sink() as sink:
        resolving(monkeypatch, ["127.0.0.3", "127.0.0.4", "127.0.0.5", "::1", "127.0.0.1"])
        async with Webhook(f"http://example.com:{sink.port}/", allow=["127.0.0.0/8", "::1"]) as hook:
            with pytest.raises(DeliveryFailed, match="no answer"):
                await hook.deliver({}, key="k")
        resolving(monkeypatch, ["::1", "::1", "127.0.0.1"])
        async with Webhook(f"http://example.com:{sink.port}/", allow=["127.0.0.0/8", "::1"]) as hook:
            await hook.deliver({}, key="k")
        assert sink.connections == 1


@pytest.mark.asyncio
async def test_families_are_tried_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["2606:4700::1", "2606:4700::2", "2606:4700::3", "1.1.1.1", "1.0.0.1"])
    found = await AddressGuard().addresses("example.com")
    assert [str(address) for address in found] == ["2606:4700::1", "1.1.1.1", "2606:4700::2", "1.0.0.1"]


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["nowhere.example", "x" * 64 + ".example"])
async def test_a_name_that_does_not_resolve_is_worth_another_attempt(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if host == "nowhere.example":
        resolving(monkeypatch, [])
    try:
        hook = Webhook(f"http://{host}/")
    except ConfigError:
        assert host != "nowhere.example", "too long a label may be refused right away"
        return
    async with hook:
        with pytest.raises(DeliveryFailed, match="cannot be resolved"):
            await hook.deliver({}, key="k")


@pytest.mark.asyncio
async def test_a_resolver_that_hangs_counts_against_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(10))
    try:
        with pytest.raises(DeliveryFailed, match="within 50ms"):
            await Webhook("http://example.com/", timeout="50ms").deliver({}, key="k")
    finally:
        over.set()


@pytest.mark.parametrize(
    ("allow", "host", "address", "fine"),
    [
        ("10.0.0.0/8", "x", "10.1.2.3", True),
        ("10.0.0.0/8", "x", "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "x", "11.0.0.1", True),
        ("10.0.0.0/8", "x", "127.0.0.1", False),
        ("::1", "x", "::1", True),
        ("::1", "x", "127.0.0.1", False),
        ("Sink.Internal", "sink.internal.", "10.1.2.3", True),
        ("sink.internal", "a.sink.internal", "10.1.2.3", False),
        ("internal", "sink.internal", "10.1.2.3", False),
    ],
)
def test_exceptions_are_made_by_network_by_address_and_by_name(allow: str, host: str, address: str, fine: bool) -> None:
    for allowed in (allow, [allow]):
        assert (AddressGuard(allowed).fault(host, ip_address(address)) is None) == fine


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0.0/33", "", "*.internal", "http://sink", "host:80", 7, None])
def test_an_exception_that_cannot_be_one_is_refused(entry: Any) -> None:
    with pytest.raises(ConfigError, match="allow="):
        AddressGuard([entry])


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate that signs itself, in one file."""
    made = tmp_path / "sink.pem"
    authority = trustme.CA()
    issued = authority.issue_cert("sink.example")
    made.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    authority.cert_pem.write_to_path(str(made), append=True)
    return made


@pytest.mark.asyncio
async def test_tls_is_for_the_name_in_the_url_and_not_for_the_address(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate)
    asked_for: list[str] = []
    serving.sni_callback = lambda _, name, __: asked_for.append(name)
    trusting = ssl.create_default_context(cafile=certificate)
    async with Sink(says(200, b"safe"), tls=serving) as sink:
        resolving(monkeypatch, ["127.0.0.1"])
        allow = ["127.0.0.1"]
        async with Webhook(f"https://sink.example:{sink.port}/", allow=allow, tls=trusting) as hook:
            assert (await hook.deliver({}, key="k")).body_excerpt == "safe"
        assert asked_for == ["sink.example"]
        async with Webhook(f"https://other.example:{sink.port}/", allow=allow, tls=trusting) as hook:
            with pytest.raises(DeliveryFailed, match="certificate"):
                await hook.deliver({}, key="k")
        async with Webhook(f"https://sink.example:{sink.port}/", allow=allow) as hook:
            with pytest.raises(DeliveryFailed, match="certificate"):
                await hook.deliver({}, key="k")
        assert len(sink.received) == 1


@pytest.mark.asyncio
async def test_a_receiver_that_never_shakes_hands_leaves_no_connection_behind() -> None:
    hung_up = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()
        hung_up.set()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        hook = Webhook(f"https://127.0.0.1:{port}/", allow="127.0.0.1", timeout="200ms")
        with pytest.raises(DeliveryFailed, match="within 200ms"):
            await hook.deliver({}, key="k")
        await asyncio.wait_for(hung_up.wait(), 5)
