"""What follows from an observation, for every observation there can be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.payments.judge import MOVES, Asked, Rules, Settlement, Status, judge, required
from apps.payments.observe import Observation, Place, Transfer

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
EXPIRY = NOON + timedelta(hours=1)
MINUTE = timedelta(minutes=1)
RULES = Rules(confirmations=3, grace=timedelta(minutes=30))


def place(number: int, at: datetime = NOON, fork: str = "a") -> Place:
    return Place(number, f"0x{fork}{number}", at)


def asked(status: Status = Status.PENDING, expected: int | None = 1000) -> Asked:
    return Asked(status, expected, EXPIRY, NOON)


def seen(*transfers: Transfer, tip: int = 100, at: datetime = NOON, complete: bool = True) -> Observation:
    return Observation(place(tip, at), transfers, complete, 0, None)


def paid(amount: int, number: int | None, at: datetime = NOON, tx: str = "t") -> Transfer:
    return Transfer(tx, -1, amount, None if number is None else place(number, at))


def kept(transfer: Transfer, first_seen_at: datetime = NOON, **more: object) -> Settlement:
    mined_at = None if transfer.place is None else transfer.place.at
    made = Settlement(
        transfer.tx_hash, transfer.index, transfer.amount, transfer.place, 0, first_seen_at, mined_at, late=False
    )
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expected", "bps", "enough"),
    [
        (None, 10_000, 1),
        (1, 1, 1),
        (1000, 10_000, 1000),
        (1001, 9_999, 1001),
        (10_001, 5_000, 5_001),
        (10**78 - 1, 10_000, 10**78 - 1),
        (10**78 - 1, 9_999, -(-(10**78 - 1) * 9_999 // 10_000)),
    ],
)
def test_what_is_enough_is_rounded_up(expected: int | None, bps: int, enough: int) -> None:
    assert required(expected, bps) == enough


LATER, MUCH_LATER = EXPIRY + 10 * MINUTE, EXPIRY + 40 * MINUTE


@pytest.mark.parametrize(
    ("status", "known", "observation", "now", "then"),
    [
        ("pending", [], seen(), NOON, "pending"),
        ("pending", [], seen(paid(1000, None)), NOON, "detected"),
        ("pending", [], seen(paid(1000, 99)), NOON, "detected"),
        ("pending", [], seen(paid(1000, 98)), NOON, "confirmed"),
        ("pending", [], seen(paid(999, 98)), NOON, "pending"),
        ("pending", [], seen(paid(999, 98), paid(1, None, tx="u")), NOON, "detected"),
        ("pending", [], seen(paid(400, 90), paid(600, 91, tx="u")), NOON, "confirmed"),
        ("detected", [kept(paid(1000, None))], seen(), NOON, "pending"),
        ("detected", [kept(paid(1000, None))], seen(paid(1000, 98)), NOON, "confirmed"),
        # expiry: only when the database's clock and the chain have both passed it
        ("pending", [], seen(at=EXPIRY), LATER, "pending"),
        ("pending", [], seen(at=LATER), EXPIRY, "pending"),
        ("pending", [], seen(at=LATER), LATER, "expired"),
        ("pending", [], seen(paid(999, 90), at=LATER), LATER, "expired"),
        ("pending", [], seen(at=LATER, complete=False), LATER, "pending"),
        # paid in time, seen later
        ("pending", [], seen(paid(1000, 90, EXPIRY), at=LATER), LATER, "confirmed"),
        ("pending", [], seen(paid(1000, 99, EXPIRY), at=MUCH_LATER), MUCH_LATER, "detected"),
        # paid too late, and seen before or not
        ("pending", [], seen(paid(1000, 90, EXPIRY + MINUTE), at=LATER), LATER, "expired"),
        ("pending", [], seen(paid(1000, None), at=LATER), LATER, "expired"),
        ("detected", [kept(paid(1000, None))], seen(paid(1000, None), at=LATER), LATER, "detected"),
        ("detected", [kept(paid(1000, None))], seen(paid(1000, 90, LATER), at=LATER), LATER, "confirmed"),
        ("detected", [kept(paid(1000, None))], seen(paid(1000, None), at=MUCH_LATER), MUCH_LATER, "expired"),
        ("detected", [kept(paid(1000, None))], seen(at=LATER), LATER, "expired"),
        # taken back, and back again
        ("confirmed", [kept(paid(1000, 90), confirmations=3)], seen(), NOON, "reorged"),
        ("confirmed", [kept(paid(1000, 90), confirmations=3)], seen(complete=False), NOON, "confirmed"),
        ("confirmed", [kept(paid(1000, 90), confirmations=3)], seen(paid(1000, 99)), NOON, "reorged"),
        ("confirmed", [kept(paid(1000, 99), confirmations=3)], seen(paid(1000, 99)), NOON, "confirmed"),
        ("confirmed", [kept(paid(1000, 90), confirmations=3)], seen(paid(1000, 90), at=LATER), LATER, "confirmed"),
        ("reorged", [kept(paid(1000, None), gone=True)], seen(), MUCH_LATER, "reorged"),
        ("reorged", [kept(paid(1000, 90), gone=True)], seen(paid(1000, 95, LATER), at=LATER), LATER, "confirmed"),
        # where nothing leads out
        ("expired", [], seen(paid(1000, 90), at=LATER), LATER, "expired"),
        ("failed", [], seen(paid(1000, 90)), NOON, "failed"),
    ],
)
def test_status(status: Status, known: list[Settlement], observation: Observation, now: datetime, then: str) -> None:
    assert judge(asked(Status(status)), known, observation, now, RULES).status == then


@pytest.mark.parametrize(
    ("mined_at", "text"),
    [
        (EXPIRY + MINUTE, "Payment came too late"),
        (EXPIRY - MINUTE, "Payment in time found after the request expired"),
    ],
)
def test_a_payment_to_an_expired_request_raises_an_alert_that_says_when_it_came(mined_at: datetime, text: str) -> None:
    verdict = judge(asked(Status.EXPIRED), [], seen(paid(1000, 90, mined_at), at=LATER), LATER, RULES)
    assert (verdict.status, [alert.text for alert in verdict.alerts]) == ("expired", [text])


@pytest.mark.parametrize(
    "rules",
    [replace(RULES, confirmations=50), replace(RULES, confirmed_bps=10_000, detected_bps=10_000)],
    ids=["confirmations", "threshold"],
)
def test_stricter_rules_take_nothing_back_that_was_confirmed(rules: Rules) -> None:
    before = [kept(paid(950, 90), confirmations=3)]
    verdict = judge(asked(Status.CONFIRMED), before, seen(paid(950, 90)), NOON, rules)
    assert (verdict.status, verdict.alerts) == ("confirmed", [])
    assert judge(asked(Status.CONFIRMED), before, seen(), NOON, rules).status == "reorged", "the chain still does"
    moved = judge(asked(Status.CONFIRMED), before, seen(paid(950, 99)), NOON, rules)
    assert moved.status == "reorged", "mined again, and not final by today's rules"


def test_a_sufficient_part_that_the_rules_do_not_notice_does_not_expire() -> None:
    rules = replace(RULES, detected_bps=10_000, confirmed_bps=9_000)
    verdict = judge(asked(), [], seen(paid(950, 99), at=LATER), LATER, rules)
    assert verdict.status == "pending"
    assert judge(asked(), [], seen(paid(950, 98), at=LATER), LATER, rules).status == "confirmed"


def test_nothing_is_written_twice() -> None:
    first = judge(asked(), [], seen(paid(1000, 98)), NOON, RULES)
    again = judge(asked(Status.CONFIRMED), first.settlements, seen(paid(1000, 98), tip=200), LATER, RULES)
    assert again.settlements == []
    assert again.alerts == []


def test_amounts() -> None:
    verdict = judge(
        asked(),
        [],
        seen(paid(900, 90), paid(300, 91, tx="u"), paid(50, 95, LATER, tx="v"), paid(7, None, tx="w"), at=LATER),
        LATER,
        RULES,
    )
    assert (verdict.status, verdict.received, verdict.late, verdict.excess) == ("confirmed", 1250, 50, 250)


def test_it_is_looked_at_until_the_window_is_over_and_the_chain_read() -> None:
    confirmed, there = asked(Status.CONFIRMED), seen(paid(1000, 90), at=LATER)
    known = [kept(paid(1000, 90), confirmations=3)]
    assert judge(confirmed, known, there, NOON + timedelta(hours=23), RULES).look_again
    assert not judge(confirmed, known, there, NOON + timedelta(hours=24), RULES).look_again
    assert judge(confirmed, known, replace(there, complete=False), NOON + timedelta(hours=24), RULES).look_again
    assert judge(confirmed, known, seen(at=LATER), NOON + timedelta(hours=24), RULES).look_again, "now it is reorged"


# -- whatever is seen -------------------------------------------------------------------------------------------------

amounts = st.integers(1, 2**256 - 1) | st.integers(1, 3000)
moments = st.integers(-120, 240).map(lambda minutes: NOON + minutes * MINUTE)
places = st.none() | st.builds(place, st.integers(1, 100), moments, st.sampled_from("ab"))
hashes = st.sampled_from("tuvw")
transfers = st.lists(
    st.builds(Transfer, hashes, st.just(-1), amounts, places), unique_by=lambda each: each.key, max_size=4
)
known_ones = st.lists(
    st.builds(
        Settlement,
        hashes,
        st.just(-1),
        amounts,
        places,
        st.integers(0, 9),
        moments,
        st.none() | moments,
        st.booleans(),
        st.just(False),
    ),
    unique_by=lambda each: each.key,
    max_size=4,
)
rules = st.builds(
    Rules,
    st.integers(1, 10_000),
    st.integers(1, 10_000),
    st.integers(1, 8),
    st.integers(0, 90).map(lambda minutes: minutes * MINUTE),
)
requests = st.builds(Asked, st.sampled_from(Status), st.none() | amounts, moments, moments)
observations = st.builds(
    Observation, st.builds(place, st.just(100), moments), transfers, st.booleans(), st.just(0), st.none()
)


@given(requests, known_ones, observations, moments, rules)
def test_what_always_holds(
    request: Asked, known: list[Settlement], observation: Observation, now: datetime, rules: Rules
) -> None:
    verdict = judge(request, known, observation, now, rules)
    moved = (request.status, verdict.status)
    assert request.status is verdict.status or moved in MOVES
    after = {each.key: each for each in known} | {each.key: each for each in verdict.settlements}
    in_time = [each for each in after.values() if not each.late and not each.gone]
    final = [each for each in in_time if each.place is not None and each.confirmations >= rules.confirmations]
    enough = required(request.expected, rules.confirmed_bps)
    if request.status is not verdict.status:
        assert observation.complete
    if verdict.status is Status.CONFIRMED and observation.complete:
        stayed = request.status is Status.CONFIRMED and any(each.place is not None for each in in_time)
        assert stayed or sum(each.amount for each in final) >= enough
    if verdict.status is Status.EXPIRED and request.status is not Status.EXPIRED:
        assert min(now, observation.tip.at) > request.expires_at
        mined = [
            each.amount
            for each in observation.transfers
            if each.place is not None and each.place.at <= request.expires_at
        ]
        fresh = {each.tx_hash for each in observation.transfers} - {each.tx_hash for each in known}
        if fresh == {each.tx_hash for each in observation.transfers}:  # nothing is known that says otherwise
            assert sum(mined) < enough
    there = [each.amount for each in observation.transfers if each.place is not None]
    if observation.complete:
        assert verdict.received == sum(there)
    assert 0 <= verdict.late <= verdict.received
    if request.expected is not None:
        assert verdict.excess == max(0, verdict.received - request.expected)


@given(requests, known_ones, observations, moments, rules)
def test_judging_the_same_once_more_changes_nothing(
    request: Asked, known: list[Settlement], observation: Observation, now: datetime, rules: Rules
) -> None:
    first = judge(request, known, observation, now, rules)
    after = {each.key: each for each in known} | {each.key: each for each in first.settlements}
    again = judge(replace(request, status=first.status), list(after.values()), observation, now, rules)
    assert again.settlements == []
    assert again.status == first.status or not observation.complete
