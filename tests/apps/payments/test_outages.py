"""A node that is down, hangs, lags, lies or talks nonsense: nothing follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from tests.apps.payments.desk import Desk
from tests.apps.payments.relay import Relay

OpenDesk = Callable[..., Awaitable[Desk]]


async def one_of_each(desk: Desk) -> list[UUID]:
    """Requests of every status, which all change as soon as the chain is looked at again."""
    confirmed = await desk.ask(1000, minutes=1)
    desk.mine()
    await desk.pay(confirmed, 1000)
    desk.mine()
    assert await desk.seen(confirmed) == "confirmed"
    detected = await desk.ask(1000, minutes=10)
    waiting = await desk.pay(detected, 1000, sender=desk.other)
    assert await desk.seen(detected) == "detected"
    paid = await desk.ask(1000, minutes=2)
    await desk.pay(paid, 1000)
    unpaid = await desk.ask(1000, minutes=2)
    desk.anvil.call("anvil_dropTransaction", waiting)
    desk.mine()
    desk.clock.advance(minutes=20)
    desk.mine()
    return [confirmed, detected, paid, unpaid]


async def statuses(desk: Desk, requests: list[UUID]) -> list[str]:
    return [await desk.status(each) for each in requests]


UNTOUCHED = ["confirmed", "detected", "pending", "pending"]
JUDGED = ["confirmed", "expired", "confirmed", "expired"]


@pytest.mark.asyncio
async def test_while_the_node_is_away_nothing_moves_and_afterwards_everything_does(
    open_desk: OpenDesk, caplog: pytest.LogCaptureFixture
) -> None:
    desk = await open_desk(OBSERVER_TIMEOUT_SECONDS="0.5")
    requests = await one_of_each(desk)
    rows = [await desk.row(each) for each in requests]
    with desk.anvil.hanging():
        for _ in range(3):
            assert (await desk.look()).claimed == 4
    assert await statuses(desk, requests) == UNTOUCHED
    assert [await desk.row(each) for each in requests] == rows, "not a column of theirs was written"
    assert [record.message for record in caplog.records].count("Observation failed") >= 1
    assert "quarantined" not in caplog.text
    await desk.look()
    assert await statuses(desk, requests) == JUDGED


NONSENSE = [
    b"",
    b"null",
    b"[]",
    b"{",
    b'"0x1"',
    b"<html>busy</html>",
    b'{"error":{"code":-1,"message":"busy"}}',
    b"\xff",
]


@pytest.mark.asyncio
async def test_nonsense_moves_nothing(open_desk: OpenDesk, relay: Relay) -> None:
    desk = await open_desk(relay.url)
    request = await desk.ask(1000, minutes=1)
    await desk.pay(request, 1000)
    desk.mine(10)
    for relay.raw in NONSENSE:
        assert await desk.seen(request) == "pending"
    relay.raw = None
    assert await desk.seen(request) == "confirmed"


Params = list[Any]


def _without_block(method: str, params: Params, result: Any) -> Any:
    return None if method == "eth_getBlockByNumber" and params[1] and params[0] != "pending" else result


def _without_transactions(method: str, params: Params, result: Any) -> Any:
    return {**result, "transactions": None} if method == "eth_getBlockByNumber" and params[1] else result


def _without_receipts(method: str, params: Params, result: Any) -> Any:
    return None if method == "eth_getBlockReceipts" else result


def _other_chain(method: str, params: Params, result: Any) -> Any:
    return "0x1" if method == "eth_chainId" else result


def _other_parent(method: str, params: Params, result: Any) -> Any:
    whole = method == "eth_getBlockByNumber" and params[1]
    return {**result, "parentHash": "0x" + "1" * 64} if whole else result


def _other_number(method: str, params: Params, result: Any) -> Any:
    return {**result, "number": "0x1"} if method == "eth_getBlockByNumber" and params[1] else result


def _no_time(method: str, params: Params, result: Any) -> Any:
    return {**result, "timestamp": "0x" + "f" * 30} if method == "eth_getBlockByNumber" else result


HALVES = [
    _without_block,
    _without_transactions,
    _without_receipts,
    _other_chain,
    _other_parent,
    _other_number,
    _no_time,
]


@pytest.mark.asyncio
async def test_half_an_answer_moves_nothing(
    open_desk: OpenDesk, relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    desk = await open_desk(relay.url)
    for change in HALVES:
        request = await desk.ask(1000, minutes=1)
        await desk.pay(request, 1000)
        desk.mine(10)
        caplog.clear()
        relay.change = change
        assert await desk.seen(request) == "pending", change.__name__
        assert "Observation failed" in caplog.messages
        relay.change = lambda method, params, result: result
        assert await desk.seen(request) == "confirmed", change.__name__


@pytest.mark.asyncio
async def test_a_node_that_lags_behind_takes_nothing_back(open_desk: OpenDesk, relay: Relay) -> None:
    """Neither for a process that has seen more, nor for one that has just started."""
    desk = await open_desk(relay.url)
    request = await desk.ask(1000)
    desk.mine(2)
    await desk.pay(request, 1000)
    desk.mine()
    assert await desk.seen(request) == "confirmed"

    def behind(method: str, params: list[Any], result: Any) -> Any:
        latest = method == "eth_getBlockByNumber" and params[0] == "latest"
        return desk.anvil.call(method, "0x2", False) if latest else result

    relay.change = behind
    assert await desk.seen(request) == "confirmed"
    for observer in desk.service.observers.values():
        observer._highest = None  # type: ignore[attr-defined]
        observer._blocks.clear()  # type: ignore[attr-defined]
    assert await desk.seen(request) == "confirmed"
    assert [each.gone for each in await desk.settlements(request)] == [False]


@pytest.mark.asyncio
async def test_a_node_that_shows_nothing_of_what_waits_makes_nothing_of_it(open_desk: OpenDesk, relay: Relay) -> None:
    desk = await open_desk(relay.url)
    request = await desk.ask(1000)
    await desk.pay(request, 1000)
    assert await desk.seen(request) == "detected"
    relay.change = lambda method, params, result: None if params[:1] == ["pending"] else result
    assert await desk.seen(request) == "detected", "it is asked for by name"
    desk.mine()
    assert await desk.seen(request) == "confirmed"


@pytest.mark.asyncio
async def test_what_is_in_a_block_does_not_wait_although_the_node_still_shows_it_so(
    open_desk: OpenDesk, relay: Relay
) -> None:
    """Many nodes give the newest block for the one to come: also what failed in it, or was paid before the request was made."""
    desk = await open_desk(relay.url)
    request = await desk.ask(1000)
    desk.anvil.call("anvil_setCode", (await desk.row(request))["address"], "0x5f5ffd")  # PUSH0, PUSH0, REVERT
    await desk.pay(request, 1000, gas=hex(100_000))
    desk.mine()
    newest = desk.anvil.call("eth_getBlockByNumber", "latest", True)
    relay.change = lambda method, params, result: newest if params[:1] == ["pending"] else result
    assert await desk.seen(request) == "pending"
    assert await desk.settlements(request) == []


@pytest.mark.asyncio
async def test_a_chain_without_a_node_is_an_error_and_the_row_stays(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    strange = await desk.ask(1000, minutes=1, chain="bip122:000000000019d6689c085ae165831e93")
    request = await desk.ask(1000)
    await desk.pay(request, 1000)
    desk.mine(10)
    assert await desk.seen(request) == "confirmed"
    assert await desk.status(strange) == "pending"
    errors = [getattr(record, "error", "") for record in caplog.records]
    assert (
        errors.count(
            "there is no node for chain bip122:000000000019d6689c085ae165831e93: PAYMENT_REQUEST_CHAINS names the nodes"
        )
        == 1
    )


@pytest.mark.asyncio
async def test_an_outage_is_told_every_minute_for_as_long_as_it_lasts(
    open_desk: OpenDesk, relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    desk = await open_desk(relay.url)
    for _ in range(3):
        await desk.ask(1000)
    relay.raw = b"<html>busy</html>"
    for _ in range(20):
        await desk.look()
    told = [record for record in caplog.records if record.message == "Observation failed"]
    assert len(told) == 5, "in five minutes, for three requests"


@pytest.mark.asyncio
async def test_ten_requests_cost_no_more_questions_than_one(open_desk: OpenDesk, relay: Relay) -> None:
    desk = await open_desk(relay.url)
    requests = [await desk.ask(1000) for _ in range(10)]
    desk.mine(20)
    await desk.look()
    relay.asked.clear()
    desk.mine(3)
    await desk.look()
    methods = Counter(relay.asked)
    assert methods.pop("eth_chainId") == 3, "of the tip, of what waits, of the new blocks"
    assert methods == {"eth_getBlockByNumber": 2 + 3, "eth_getBlockReceipts": 3}
    assert [await desk.status(each) for each in requests] == ["pending"] * 10


@pytest.mark.asyncio
async def test_after_a_long_time_away_the_chain_is_read_part_by_part(desk: Desk) -> None:
    request = await desk.ask(1000, minutes=30)
    desk.mine(140)  # its time is over after 150
    await desk.pay(request, 1000)
    desk.mine()
    desk.clock.advance(hours=1)
    desk.mine(150)
    assert await desk.seen(request) == "pending", "200 blocks are read, and there may be more further on"
    assert (await desk.row(request))["scanned_block"] == 200
    assert await desk.seen(request) == "confirmed"


@pytest.mark.asyncio
async def test_a_slow_look_dates_a_payment_by_when_it_saw_it_not_by_the_claim(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what was paid after the expiry counts as seen before it, and gets the grace of such payments."""
    desk.mine()
    request = await desk.ask(1000, minutes=18 / 60)
    (observer,) = desk.service.observers.values()
    original = observer.observe

    async def slowly(subject: Any) -> Any:
        desk.clock.advance(seconds=5)  # within the lease
        await desk.pay(request, 1000)
        desk.mine()
        return await original(subject)

    monkeypatch.setattr(observer, "observe", slowly)
    await desk.look()
    monkeypatch.undo()
    assert await desk.seen(request) == "expired"
    row = await desk.row(request)
    assert (row["received_amount"], row["late_amount"]) == (1000, 1000)
