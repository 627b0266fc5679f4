"""A node that answers wrongly instead of not at all: requests stay as they are until it has recovered, and the log says why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from uuid import UUID

import pytest

from apps.chain.anvil import Anvil
from apps.chain.hostile import Hostile, Lie, TwoNodes, headers_dated, hostile_to, pending, syncing
from apps.chain.rpc import MAX_ANSWER
from apps.payments.token import transfer
from tests.apps.payments.desk import Desk

pytestmark = pytest.mark.asyncio

OpenDesk = Callable[..., Awaitable[Desk]]

# How it misbehaves, and what the log must say about it.
MODES = {
    "empty logs": "a logs bloom that its logs do not fit",
    "some logs": "a logs bloom that its logs do not fit",
    "empty logs and blooms": "does not show all of them",
    "empty blocks": "the block's transactionsRoot says otherwise",
    "one transaction fewer": "used less gas than the block",
    "wrong roots": "the block's transactionsRoot says otherwise",
    "lagging index": "the node has 0 receipts of the 1 transactions of block 1",
    "no receipts": "the node has no receipts of block",
    "another chain": "is one of chain 4711, not 31337",
    "one in the middle left out": "are not numbered from the first to the last",
    "receipts of another block": "are of another block of that height",
    "another block": "where 1 was asked for",
    "another parent": "while it was being read",
    "a tip that is not there": "the node has no block",
    "transactions of another block": "are of another block of that height",
    "bomb in a bomb": "is packed as 'gzip, gzip'",
    "drip": "in time",
    "endless body": f"longer than {MAX_ANSWER} bytes",
}


@pytest.fixture
def hostile(anvil: Anvil) -> Iterator[Hostile]:
    with hostile_to(anvil.url) as hostile:
        yield hostile


async def paid_and_unpaid(desk: Desk, token: str) -> list[UUID]:
    """One that is confirmed; two that were paid in time, in native coin and in a token; one that was not paid. All of them are
    over, and only the first has been looked at since."""
    desk.mine(2)
    confirmed = await desk.ask(1000, minutes=5)
    await desk.pay(confirmed, 1000)
    transfer(desk.anvil, desk.other, token, desk.payer, 1)
    desk.mine()
    await seen_as(desk, [confirmed], ["confirmed"])
    natively, in_token = await desk.ask(1000, minutes=5), await desk.ask(1000, token=token, minutes=5)
    unpaid = await desk.ask(1000, minutes=5)
    await desk.pay(natively, 1000)
    transfer(desk.anvil, desk.other, token, (await desk.row(in_token))["address"], 1000)
    desk.mine()
    desk.clock.advance(minutes=10)
    desk.mine()
    return [confirmed, natively, in_token, unpaid]


async def seen_as(desk: Desk, requests: list[UUID], expected: list[str]) -> None:
    """After some looks: on a busy machine one of them may not be over in time."""
    for _ in range(20):
        await desk.look()
        if await statuses(desk, requests) == expected:
            return
    assert await statuses(desk, requests) == expected


async def statuses(desk: Desk, requests: list[UUID]) -> list[str]:
    return [await desk.status(each) for each in requests]


@pytest.mark.parametrize("mode", ["empty logs", "no receipts", "another chain", "drip"])
async def test_a_node_that_answers_wrongly_moves_nothing_and_nothing_is_lost(
    open_desk: OpenDesk, hostile: Hostile, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    await nothing_moves(open_desk, hostile, caplog, mode)


@pytest.mark.proof(beside="tests/apps/chain/test_reader.py::test_a_lie_is_an_error")
@pytest.mark.parametrize("mode", MODES)
async def test_no_wrong_answer_moves_anything(
    open_desk: OpenDesk, hostile: Hostile, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    await nothing_moves(open_desk, hostile, caplog, mode)


async def nothing_moves(open_desk: OpenDesk, hostile: Hostile, caplog: pytest.LogCaptureFixture, mode: str) -> None:
    desk = await open_desk(hostile.url, OBSERVER_TIMEOUT_SECONDS="1" if mode == "drip" else "20")
    requests = await paid_and_unpaid(desk, desk.deploy_token())
    hostile.mode = mode
    desk.service.observers["eip155:31337"]._blocks.clear()  # type: ignore[attr-defined]  # as after a restart
    for _ in range(2):
        await desk.look()
        assert await statuses(desk, requests) == ["confirmed", "pending", "pending", "pending"]
    assert [each.gone for each in await desk.settlements(requests[0])] == [False]
    said = {getattr(record, "error", "") for record in caplog.records if record.message == "Observation failed"}
    assert any(MODES[mode] in each for each in said), said
    assert hostile.sent < 3 * MAX_ANSWER, "what is read of an answer is bounded"
    hostile.mode = None
    await seen_as(desk, requests, ["confirmed", "confirmed", "confirmed", "expired"])


async def test_a_known_payment_is_queried_by_hash_before_it_counts_as_gone(
    open_desk: OpenDesk, hostile: Hostile, caplog: pytest.LogCaptureFixture
) -> None:
    desk = await open_desk(hostile.url)
    request = await desk.ask(1000)
    await desk.pay(request, 1000)
    desk.mine()
    await seen_as(desk, [request], ["confirmed"])
    hostile.mode = "contradiction"
    desk.service.observers["eip155:31337"]._blocks.clear()  # type: ignore[attr-defined]
    for _ in range(3):
        assert await desk.seen(request) == "confirmed"
    errors = [str(getattr(record, "error", "")) for record in caplog.records]
    assert any("in block 1, and shows block 1 without it" in each for each in errors)
    assert [each.gone for each in await desk.settlements(request)] == [False]
    hostile.mode = None
    errors_before = len(errors)
    assert await desk.seen(request) == "confirmed"
    assert len([record for record in caplog.records if hasattr(record, "error")]) <= errors_before, (
        "and it is seen again"
    )


@pytest.mark.parametrize("hash_", [None, "pending", "0x12"])
async def test_what_waits_without_a_name_is_not_kept(open_desk: OpenDesk, hostile: Hostile, hash_: str | None) -> None:
    """The node would be asked for it by that name, again and again."""
    desk = await open_desk(hostile.url)
    request = await desk.ask(1000)
    await desk.pay(request, 1000)
    hostile.mode = pending(lambda told: {**told, "hash": hash_})
    assert await desk.seen(request) == "pending"
    assert await desk.settlements(request) == []
    hostile.mode = None
    assert await desk.seen(request) == "detected"
    desk.mine()
    assert await desk.seen(request) == "confirmed"


@pytest.mark.parametrize("behind", [1, 5, 100])
async def test_of_two_nodes_that_take_turns_the_one_that_lags_takes_nothing_back(
    open_desk: OpenDesk, hostile: Hostile, caplog: pytest.LogCaptureFixture, behind: int
) -> None:
    desk = await open_desk(hostile.url)
    desk.mine_many(120)
    lagging = desk.anvil.height() - behind
    paid = await desk.ask(1000)
    await desk.pay(paid, 1000)
    desk.mine()
    await seen_as(desk, [paid], ["confirmed"])
    unpaid, later = await desk.ask(1000), await desk.ask(1000)
    await desk.pay(later, 1000)
    desk.mine()
    hostile.mode = TwoNodes(desk.anvil.call("eth_getBlockByNumber", hex(lagging), True))
    for _ in range(8):
        await desk.look()
        assert await statuses(desk, [paid, unpaid]) == ["confirmed", "pending"]
        assert await desk.status(later) in ("pending", "confirmed")
    hostile.mode = None
    await seen_as(desk, [paid, unpaid, later], ["confirmed", "pending", "confirmed"])
    assert not [record for record in caplog.records if "taken back" in record.message]


async def test_a_height_that_a_node_only_named_holds_up_nothing(open_desk: OpenDesk, hostile: Hostile) -> None:
    """Also when no further block comes for a while."""
    desk = await open_desk(hostile.url)
    desk.mine(2)
    request = await desk.ask(1000)
    assert await desk.seen(request) == "pending"
    await desk.pay(request, 1000)
    hostile.mode = "a tip that is not there"
    assert await desk.seen(request) == "pending"
    hostile.mode = None
    assert await desk.seen(request) == "detected"


LIES_ABOUT_TIME: dict[str, Callable[[Desk], Lie]] = {
    "no time": lambda desk: headers_dated(0),
    "the future": lambda desk: headers_dated(2**33),
    "syncing": lambda desk: syncing(desk.anvil.call("eth_getBlockByNumber", "0x0", True)),
}


@pytest.mark.parametrize("lie", LIES_ABOUT_TIME)
async def test_a_request_begins_where_its_time_does_whatever_the_node_says_at_first(
    open_desk: OpenDesk, hostile: Hostile, lie: str
) -> None:
    """Not beyond its payment, which would never be seen; nor at the first block, which would take days of a real chain."""
    desk = await open_desk(hostile.url)
    desk.mine_many(300)
    request = await desk.ask(1000)
    await desk.pay(request, 1000)
    desk.mine_many(100)
    hostile.mode = LIES_ABOUT_TIME[lie](desk)
    assert await desk.seen(request) == "pending"
    hostile.mode = None
    await seen_as(desk, [request], ["confirmed"])
    assert 200 < (await desk.row(request))["first_block"] < 300


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["batch limit", "slow"])
async def test_a_node_that_answers_only_little_at_a_time_is_asked_for_little(
    open_desk: OpenDesk, hostile: Hostile, mode: str
) -> None:
    """Also by a replica that has just started: it does not ask for ever for more than the node can answer in time."""
    desk = await open_desk(hostile.url, OBSERVER_TIMEOUT_SECONDS="1" if mode == "slow" else "20")
    requests = await paid_and_unpaid(desk, desk.deploy_token())
    desk.mine(40)
    desk.service.observers["eip155:31337"]._blocks.clear()  # type: ignore[attr-defined]
    hostile.mode = mode
    await seen_as(desk, requests, ["confirmed", "confirmed", "confirmed", "expired"])
