"""Requests that are paid on a real chain: noticed, confirmed, paid in parts, too much, too late, or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from apps.payments.token import transfer
from tests.apps.payments.desk import Desk

pytestmark = pytest.mark.asyncio

OpenDesk = Callable[..., Awaitable[Desk]]


async def test_a_payment_is_detected_while_it_waits_and_confirmed_when_it_is_mined(desk: Desk) -> None:
    request = await desk.ask(1000)
    assert await desk.seen(request) == "pending"
    await desk.pay(request, 1000)
    assert await desk.seen(request) == "detected"
    (waiting,) = await desk.settlements(request)
    assert (waiting.amount, waiting.place, waiting.confirmations) == (1000, None, 0)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    (mined,) = await desk.settlements(request)
    assert mined.place is not None
    assert (mined.place.number, mined.confirmations, mined.late) == (desk.anvil.height(), 1, False)


async def test_it_is_confirmed_at_the_nth_confirmation_and_not_before(open_desk: OpenDesk) -> None:
    desk = await open_desk(EVM_MIN_CONFIRMATIONS="3")
    request = await desk.ask(1000)
    await desk.pay(request, 1000)
    found = []
    for _ in range(3):
        desk.mine()
        found.append((await desk.seen(request), (await desk.settlements(request))[0].confirmations))
    assert found == [("detected", 1), ("detected", 2), ("confirmed", 3)]
    assert (await desk.row(request))["received_amount"] == 1000


@pytest.mark.parametrize(("seconds", "then"), [(10, "confirmed"), (20, "pending")])
async def test_money_that_came_before_the_request_does_not_count(desk: Desk, seconds: int, then: str) -> None:
    """A block may be dated a slot too early, and no more than that."""
    desk.mine()
    request = await desk.ask(1000)
    await desk.pay(request, 1000)
    desk.mine()
    created = desk.clock.now() + timedelta(seconds=seconds)
    await desk.do("update app.payment_requests set created_at = %s", [created])
    desk.clock.advance(minutes=1)
    assert await desk.seen(request) == then


async def test_a_confirmed_request_is_looked_at_ever_more_rarely(desk: Desk) -> None:
    confirmed, open_ = await desk.ask(1000, minutes=9999), await desk.ask(1000, minutes=9999)
    await desk.pay(confirmed, 1000)
    desk.mine()
    assert await desk.seen(confirmed) == "confirmed"
    for hours, looks in [(0, 10), (1, 1), (20, 1)]:
        desk.clock.advance(hours=hours)
        desk.mine()
        claimed = [(await desk.look()).claimed for _ in range(10)]
        assert sum(claimed) == 10 + looks, "the one that is open each time"
    assert await desk.status(open_) == "pending"


async def test_a_token_is_seen_by_its_logs(desk: Desk) -> None:
    token, other = desk.deploy_token(), desk.deploy_token()
    request = await desk.ask(2**255, token=token)
    address = (await desk.row(request))["address"]
    transfer(desk.anvil, desk.payer, other, address, 2**255)  # of another token
    await desk.pay(request, 5, gas=hex(50_000))  # and native coin
    desk.mine()
    assert await desk.seen(request) == "pending"
    transfer(desk.anvil, desk.payer, token, address, 2**255)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    (settlement,) = await desk.settlements(request)
    assert (settlement.amount, settlement.index) == (2**255, 0)


async def test_an_underpaid_request_stays_pending_and_a_second_part_confirms_it(desk: Desk) -> None:
    request = await desk.ask(1000)
    await desk.pay(request, 400)
    desk.mine(3)
    assert await desk.seen(request) == "pending"
    assert (await desk.row(request))["received_amount"] == 400
    await desk.pay(request, 600)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    assert sorted(each.amount for each in await desk.settlements(request)) == [400, 600]


async def test_a_threshold_is_rounded_up(open_desk: OpenDesk) -> None:
    desk = await open_desk(CONFIRMED_THRESHOLD_BPS="9999", DETECTED_THRESHOLD_BPS="5000")
    request = await desk.ask(1001)  # 1000.8999 would do
    await desk.pay(request, 500)  # 500.5 would be noticed
    desk.mine()
    assert await desk.seen(request) == "pending"
    await desk.pay(request, 1)
    desk.mine()
    assert await desk.seen(request) == "detected"
    await desk.pay(request, 499)
    desk.mine()
    assert await desk.seen(request) == "detected"
    await desk.pay(request, 1)
    desk.mine()
    assert await desk.seen(request) == "confirmed"


async def test_without_an_amount_anything_will_do(desk: Desk) -> None:
    request = await desk.ask(None)
    assert await desk.seen(request) == "pending"
    await desk.pay(request, 1)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    assert (await desk.row(request))["excess_amount"] == 0


async def test_an_overpaid_request_is_confirmed_and_the_excess_recorded(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    request = await desk.ask(1000)
    await desk.pay(request, 1200)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    assert (await desk.row(request))["excess_amount"] == 200
    await desk.pay(request, 50)  # and once more by mistake
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    row = await desk.row(request)
    assert (row["received_amount"], row["excess_amount"]) == (1250, 250)
    alerts = [record.excess for record in caplog.records if record.message == "Payment request overpaid"]  # type: ignore[attr-defined]
    assert alerts == ["200", "250"]


async def test_money_that_is_moved_on_was_paid_all_the_same(desk: Desk) -> None:
    request = await desk.ask(10**18)
    address = (await desk.row(request))["address"]
    await desk.pay(request, 10**18)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    desk.anvil.call("anvil_impersonateAccount", address)
    desk.anvil.send(address, desk.other, 10**17)
    desk.anvil.send(address, address, 10**17)  # and some of it to itself, which is no payment
    desk.mine(2)
    before = await desk.row(request)
    assert await desk.seen(request) == "confirmed"
    assert before["received_amount"] == (await desk.row(request))["received_amount"] == 10**18


async def test_a_transaction_that_was_reverted_pays_nothing(desk: Desk) -> None:
    request = await desk.ask(1000)
    address = (await desk.row(request))["address"]
    desk.anvil.call("anvil_setCode", address, "0x5f5ffd")  # PUSH0, PUSH0, REVERT
    await desk.pay(request, 1000, gas=hex(100_000))
    assert await desk.seen(request) == "detected", "as long as it waits, nobody can know"
    desk.mine()
    assert await desk.seen(request) == "pending"
    (settlement,) = await desk.settlements(request)
    assert settlement.gone


async def test_a_request_that_is_not_paid_expires(desk: Desk) -> None:
    request = await desk.ask(1000, minutes=10)
    assert await desk.seen(request) == "pending"
    desk.clock.advance(minutes=10)
    assert await desk.seen(request) == "pending", "the chain has not come so far"
    desk.mine()
    assert await desk.seen(request) == "expired"


async def test_what_was_paid_in_time_and_seen_later_is_not_expired(desk: Desk) -> None:
    request = await desk.ask(1000, minutes=10)
    await desk.pay(request, 1000)
    desk.mine()
    desk.clock.advance(hours=20)  # nobody looked
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    assert [each.late for each in await desk.settlements(request)] == [False]


async def test_what_waits_at_the_expiry_gets_grace(open_desk: OpenDesk) -> None:
    desk = await open_desk(EXPIRY_GRACE_SECONDS="600", EVM_MIN_CONFIRMATIONS="2")
    in_time, never = await desk.ask(1000, minutes=10), await desk.ask(1000, minutes=10)
    await desk.pay(in_time, 1000)
    waits = await desk.pay(never, 1000)
    assert await desk.seen(in_time) == await desk.status(never) == "detected"
    desk.anvil.call("anvil_dropTransaction", waits)
    desk.clock.advance(minutes=12)
    desk.mine()  # one confirmation, two minutes after the expiry
    assert await desk.seen(in_time) == "detected"
    assert await desk.status(never) == "expired", "dropped, and there is no time left"
    desk.mine()
    assert await desk.seen(in_time) == "confirmed"


async def test_grace_ends(open_desk: OpenDesk) -> None:
    desk = await open_desk(EXPIRY_GRACE_SECONDS="600")
    request = await desk.ask(1000, minutes=10)
    await desk.pay(request, 1000)
    assert await desk.seen(request) == "detected"
    desk.clock.advance(minutes=25)
    desk.mine()
    assert await desk.seen(request) == "expired", "mined when the grace was over"
    assert [each.late for each in await desk.settlements(request)] == [True]


async def test_a_late_payment_is_recorded_and_somebody_is_told(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    unseen, expired = await desk.ask(1000, minutes=10), await desk.ask(1000, minutes=1)
    await desk.pay(expired, 300)
    desk.mine(6)
    assert await desk.seen(expired) == "expired"
    desk.clock.advance(minutes=10)
    await desk.pay(unseen, 1000)  # after its expiry, of which nobody has taken notice yet
    await desk.pay(expired, 700)
    desk.mine()
    assert await desk.seen(unseen) == await desk.status(expired) == "expired"
    for request, received, late in ((unseen, 1000, 1000), (expired, 1000, 700)):
        row = await desk.row(request)
        assert (row["received_amount"], row["late_amount"]) == (received, late)
    told = {
        (record.message, record.request_id, getattr(record, "amount", None))  # type: ignore[attr-defined]
        for record in caplog.records
        if record.name == "payments" and record.levelname == "ERROR"
    }
    assert told == {
        ("Payment request expired with a part paid", str(expired), None),
        ("Payment came too late", str(unseen), "1000"),
        ("Payment came too late", str(expired), "700"),
    }


async def test_a_request_is_looked_at_no_more_when_its_window_is_over(open_desk: OpenDesk) -> None:
    desk = await open_desk(REORG_OBSERVE_WINDOW_SECONDS="3600")
    request = await desk.ask(1000)
    await desk.pay(request, 1000)
    desk.mine()
    assert await desk.seen(request) == "confirmed"
    assert (await desk.look()).claimed == 1
    assert (await desk.look(3600)).claimed == 1
    assert (await desk.row(request))["next_observation_at"] is None
    assert (await desk.look(3600)).claimed == 0
