"""A chain that changes its mind: blocks are replaced, transactions dropped or outbid."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from apps.payments.token import transfer
from tests.apps.payments.desk import Desk

pytestmark = pytest.mark.asyncio

OpenDesk = Callable[..., Awaitable[Desk]]


async def test_a_reorganisation_demotes_and_the_payment_mined_again_confirms(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    request = await desk.ask(1000)
    desk.mine(3)
    await desk.pay(request, 1000)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    desk.anvil.call("anvil_reorg", 2, [])
    assert await desk.seen(request) == "reorged"
    (settlement,) = await desk.settlements(request)
    assert settlement.gone
    assert (await desk.row(request))["received_amount"] == 0
    assert "Confirmed payment was taken back by its chain" in caplog.messages
    await desk.pay(request, 1000)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    assert (await desk.row(request))["received_amount"] == 1000


async def test_a_chain_that_was_set_back_demotes_as_soon_as_it_has_come_as_far_again(desk: Desk) -> None:
    request = await desk.ask(1000)
    desk.mine()
    snapshot = desk.anvil.call("evm_snapshot")
    desk.mine()
    await desk.pay(request, 1000)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    assert desk.anvil.call("evm_revert", snapshot)
    assert await desk.seen(request) == "confirmed", "a node that is behind looks the same"
    desk.mine()
    assert await desk.seen(request) == "confirmed", "it has not come as far as the payment"
    desk.mine()
    assert await desk.seen(request) == "reorged"
    await desk.pay(request, 1000)
    desk.mine()
    assert await desk.seen(request) == "confirmed"


async def test_the_same_payment_in_another_block_is_confirmed_anew(open_desk: OpenDesk) -> None:
    desk = await open_desk(EVM_MIN_CONFIRMATIONS="2")
    token = desk.deploy_token()
    request = await desk.ask(1000, token=token, minutes=2)
    address = (await desk.row(request))["address"]
    snapshot = desk.anvil.call("evm_snapshot")
    fee = {"maxFeePerGas": hex(10**10), "maxPriorityFeePerGas": hex(10**9)}
    first = transfer(desk.anvil, desk.payer, token, address, 1000, **fee)
    desk.mine(2)
    assert await desk.seen(request) == "confirmed"
    desk.anvil.call("evm_revert", snapshot)
    desk.clock.advance(minutes=10)  # when its time is over
    desk.mine()
    transfer(desk.anvil, desk.other, token, desk.payer, 7)  # so that its log has another number in the block
    assert transfer(desk.anvil, desk.payer, token, address, 1000, **fee) == first, "the same transaction"
    desk.mine()
    assert await desk.seen(request) == "reorged", "it has one confirmation only"
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    (settlement,) = await desk.settlements(request)
    assert not settlement.late, "it was there in time before"


async def test_a_reorganisation_elsewhere_changes_nothing(open_desk: OpenDesk) -> None:
    desk = await open_desk(EVM_MIN_CONFIRMATIONS="3")
    request = await desk.ask(1000)
    await desk.pay(request, 1000)
    desk.mine(3)
    assert await desk.seen(request) == "confirmed"
    before = await desk.settlements(request)
    desk.anvil.call("anvil_reorg", 2, [])
    assert await desk.seen(request) == "confirmed"
    assert await desk.settlements(request) == before


async def test_a_reorganisation_deeper_than_what_is_read_each_time_is_found(desk: Desk) -> None:
    request = await desk.ask(1000, minutes=600)
    other = await desk.ask(1000, minutes=600)
    snapshot = desk.anvil.call("evm_snapshot")
    await desk.pay(request, 1000)
    desk.mine(100)
    assert await desk.seen(request) == "confirmed"
    assert (await desk.row(request))["scanned_block"] == 36
    desk.anvil.call("evm_revert", snapshot)
    await desk.pay(other, 1000)
    desk.mine(101)
    assert await desk.seen(request) == "reorged"
    assert await desk.status(other) == "confirmed", "although it is in a block that had been read without it"


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("depth", [80, 300])
@pytest.mark.parametrize("age", [0, 190])
async def test_a_deep_reorganisation_leaves_nothing_confirmed_without_money(desk: Desk, depth: int, age: int) -> None:
    """However long ago the requests were made, and whether the payment is lost, in another block, or where none was before."""
    lost, moved, late = [await desk.ask(1000, minutes=600) for _ in range(3)]
    desk.mine_many(age + 2)
    snapshot = desk.anvil.call("evm_snapshot")
    again = {"maxFeePerGas": hex(10**11), "maxPriorityFeePerGas": hex(10**9), "nonce": "0x0"}
    await desk.pay(lost, 1000)
    tx_hash = await desk.pay(moved, 1000, sender=desk.other, **again)
    desk.mine_many(depth)
    await _seen_to_the_end(desk)
    assert [await desk.status(each) for each in (lost, moved, late)] == ["confirmed", "confirmed", "pending"]
    desk.anvil.call("evm_revert", snapshot)
    desk.mine_many(depth // 2)
    assert await desk.pay(moved, 1000, sender=desk.other, **again) == tx_hash, "the same transaction, in another block"
    await desk.pay(late, 1000)
    desk.mine_many(depth // 2 + 1)
    await _seen_to_the_end(desk)
    assert [await desk.status(each) for each in (lost, moved, late)] == ["reorged", "confirmed", "confirmed"]
    assert [(await desk.row(each))["received_amount"] for each in (lost, moved, late)] == [0, 1000, 1000]


async def _seen_to_the_end(desk: Desk) -> None:
    for _ in range(5):
        await desk.look()


async def test_a_deep_reorganisation_to_slower_blocks_is_read_from_the_requests_time(desk: Desk) -> None:
    snapshot = desk.anvil.call("evm_snapshot")
    desk.mine_many(200)
    request = await desk.ask(1000)
    assert await desk.seen(request) == "pending"
    desk.mine_many(80)
    assert await desk.seen(request) == "pending"
    desk.anvil.call("evm_revert", snapshot)
    desk.mine(5)
    await desk.pay(request, 1000)
    desk.mine()
    assert desk.anvil.height() < (await desk.row(request))["first_block"], "far below where its time began before"
    desk.mine_many(300)
    await _seen_to_the_end(desk)
    assert await desk.status(request) == "confirmed"


async def test_a_payment_in_a_block_that_replaces_one_from_before_the_request_counts(desk: Desk) -> None:
    desk.mine(3)
    snapshot = desk.anvil.call("evm_snapshot")
    desk.mine(3)
    desk.clock.advance(minutes=5)
    request = await desk.ask(1000)
    assert await desk.seen(request) == "pending"
    desk.anvil.call("evm_revert", snapshot)
    await desk.pay(request, 1000)
    desk.mine()
    assert desk.anvil.height() == 4, "lower than when it was asked for"
    assert await desk.seen(request) == "confirmed"


async def test_a_payment_that_is_dropped_while_it_waits_makes_the_request_pending_again(desk: Desk) -> None:
    request = await desk.ask(1000)
    waiting = await desk.pay(request, 1000)
    assert await desk.seen(request) == "detected"
    desk.anvil.call("anvil_dropTransaction", waiting)
    assert await desk.seen(request) == "pending"
    desk.mine()
    assert await desk.seen(request) == "pending"


async def test_a_payment_that_is_replaced_counts_as_what_replaced_it(desk: Desk) -> None:
    request, lured_away = await desk.ask(1000), await desk.ask(1000)
    more = {"maxFeePerGas": hex(10**11), "maxPriorityFeePerGas": hex(10**10)}
    await desk.pay(request, 1000, nonce="0x0")
    await desk.pay(lured_away, 1000, nonce="0x1")
    assert await desk.seen(request) == await desk.status(lured_away) == "detected"
    again = await desk.pay(request, 1500, nonce="0x0", **more)  # the same, more of it
    desk.anvil.send(desk.payer, desk.other, 1000, nonce="0x1", **more)  # to somebody else
    assert await desk.seen(request) == "detected"
    assert await desk.status(lured_away) == "pending"
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    there = [each.tx_hash for each in await desk.settlements(request) if not each.gone]
    assert there == [again]
    assert (await desk.row(request))["received_amount"] == 1500
