"""The HTTP API: what it does, and that bad input is told what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio

from apps.payments.api import make_api
from tests.apps.payments.desk import CHAIN, Desk, new_address

pytestmark = pytest.mark.asyncio

CHECKED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"  # an example of EIP-55's own


@pytest_asyncio.fixture
async def api(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_api(desk.service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        yield client


def new(desk: Desk, **fields: Any) -> dict[str, Any]:
    expires_at = (desk.clock.now() + timedelta(hours=1)).isoformat()
    return {"chain_id": CHAIN, "address": new_address(), "expected_amount": "1000", "expires_at": expires_at, **fields}


async def test_a_request_is_made_read_and_listed(api: httpx.AsyncClient, desk: Desk) -> None:
    body = new(desk, expected_amount=str(2**256 - 1), token=CHECKED)
    made = await api.post("/payment-requests", json=body)
    assert made.status_code == 201, made.text
    request = made.json()
    assert (request["status"], request["expected_amount"]) == ("pending", str(2**256 - 1))
    assert request["token"] == CHECKED.lower()
    read = (await api.get(f"/payment-requests/{request['id']}")).json()
    assert read == {**request, "settlements": []}
    assert (await api.get("/payment-requests")).json() == [request]


async def test_what_was_paid_is_shown(api: httpx.AsyncClient, desk: Desk) -> None:
    request = (await api.post("/payment-requests", json=new(desk))).json()
    desk.anvil.send(desk.payer, request["address"], 1500)
    desk.mine()
    await desk.look()
    read = (await api.get(f"/payment-requests/{request['id']}")).json()
    assert (read["status"], read["received_amount"], read["excess_amount"]) == ("confirmed", "1500", "500")
    (settlement,) = read["settlements"]
    assert (settlement["amount"], settlement["seen_in"], settlement["late"]) == ("1500", "block", False)


async def test_requests_are_filtered_and_come_a_page_at_a_time(api: httpx.AsyncClient, desk: Desk) -> None:
    made = []
    for _ in range(5):
        made.append((await api.post("/payment-requests", json=new(desk))).json())
        desk.clock.advance(seconds=1)
    await desk.do("update app.payment_requests set status = 'failed' where id = %s", [made[0]["id"]])

    async def ids(**params: Any) -> list[str]:
        return [each["id"] for each in (await api.get("/payment-requests", params=params)).json()]

    every = [each["id"] for each in made]
    assert await ids(status="failed") == every[:1]
    assert await ids(status="pending") == every[1:]
    assert await ids(address=made[2]["address"].upper().replace("X", "x")) == [every[2]]
    assert await ids(chain_id="eip155:1") == []
    assert await ids(most=3) + await ids(most=3, after=every[2]) == every


async def test_an_address_is_for_one_request_and_coin(api: httpx.AsyncClient, desk: Desk) -> None:
    body = new(desk)
    assert (await api.post("/payment-requests", json=body)).status_code == 201
    assert (await api.post("/payment-requests", json=body)).status_code == 409, "a second click"
    assert (await api.post("/payment-requests", json={**body, "token": new_address()})).status_code == 201


async def test_a_mistyped_address_is_refused(api: httpx.AsyncClient, desk: Desk) -> None:
    assert (await api.post("/payment-requests", json=new(desk, address=CHECKED))).status_code == 201
    mistyped = CHECKED.replace("5aAeb", "5aAEb")
    for field in ("address", "token"):
        refused = await api.post("/payment-requests", json=new(desk, **{field: mistyped}))
        assert (refused.status_code, refused.json()["detail"].partition(":")[0]) == (422, field)
    with desk.anvil.hanging():  # the node is not needed for it
        assert (await api.post("/payment-requests", json=new(desk, address=mistyped))).status_code == 422


CHAINS = ["bip122:000000000019d6689c085ae165831e93", "eip155:1", "x", "\ud800", "\0", "🎂", "", "x" * 101, None, 1]


async def test_a_chain_that_nobody_looks_at_is_refused(api: httpx.AsyncClient, desk: Desk) -> None:
    for chain_id in CHAINS:
        body = json.dumps(new(desk, chain_id=chain_id)).encode()
        refused = await api.post("/payment-requests", content=body, headers={"content-type": "application/json"})
        assert refused.status_code in (400, 422), refused.text
    assert (await api.get("/payment-requests")).json() == []


BAD: dict[str, list[Any]] = {
    "address": ["", "0x12", CHECKED[2:], "0x" + "٣" * 40, "0x" + "g" * 40, f"{CHECKED}\n", "0X" + "a" * 40, None, 5],
    "token": ["", "usdt", 5],
    "expected_amount": [1000, "0", "-1", "1.5", "1e3", " 1", "²", "NaN", str(2**256), "9" * 5000, "", True],
    "expires_at": ["2026-06-01T12:00:00Z", "2031-01-01T00:00:00", "9999-12-31T23:59:59Z", 1924992000, "soon", None],
    "more": [1],
}


async def test_a_bad_field_is_named(api: httpx.AsyncClient, desk: Desk) -> None:
    for field, values in BAD.items():
        for value in values:
            refused = await api.post("/payment-requests", json=new(desk, **{field: value}))
            assert refused.status_code == 422, (field, value)
            assert field in refused.text
    assert (await api.get("/payment-requests")).json() == []


async def test_a_body_that_is_none_is_refused(api: httpx.AsyncClient) -> None:
    for body in (b"", b"[]", b"{", b"null", b'"x"', b"\xff", b"[" * 10_000):
        refused = await api.post("/payment-requests", content=body, headers={"content-type": "application/json"})
        assert 400 <= refused.status_code < 500


PATHS = [
    "/abc",
    "/'",
    "/00000000-0000-0000-0000-000000000000",
    "?status=paid",
    "?most=0",
    "?most=1000000000000000000",
    "?most=-1",
    "?after=1",
    "?chain_id=%00",
    "?address='%20or%201=1",
]


async def test_what_cannot_be_asked_for_is_refused(api: httpx.AsyncClient) -> None:
    for path in PATHS:
        assert (await api.get(f"/payment-requests{path}")).status_code in (404, 422)


async def test_a_page_after_a_request_that_is_not_there_is_empty(api: httpx.AsyncClient, desk: Desk) -> None:
    await api.post("/payment-requests", json=new(desk))
    nobody = "00000000-0000-0000-0000-000000000000"
    assert (await api.get("/payment-requests", params={"after": nobody})).json() == []


async def test_the_description_is_a_page(api: httpx.AsyncClient) -> None:
    page = await api.get("/docs")
    assert page.status_code == 200
    assert "/payment-requests/{request_id}" in page.text
