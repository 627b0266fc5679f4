"""What follows from an observation. Pure: no clock, no chain, no database; amounts are whole numbers.

    pending -> detected -> confirmed <-> reorged
    pending -> confirmed
    detected -> pending            dropped before it was mined
    pending, detected -> expired

Observed first, judged after: whether a payment came in time is a question to the block it is in, not to when we looked. A request
expires when both the database's clock and the chain have passed the moment: then no block of before can turn up any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from .observe import Observation, Place, Transfer


class Status(StrEnum):
    PENDING = "pending"
    DETECTED = "detected"  # enough is seen, not all of it is final
    CONFIRMED = "confirmed"
    EXPIRED = "expired"
    FAILED = "failed"  # only people set this
    REORGED = "reorged"  # was confirmed, and the chain took it back


MOVES = frozenset(
    {
        (Status.PENDING, Status.DETECTED),
        (Status.PENDING, Status.CONFIRMED),
        (Status.DETECTED, Status.CONFIRMED),
        (Status.DETECTED, Status.PENDING),
        (Status.PENDING, Status.EXPIRED),
        (Status.DETECTED, Status.EXPIRED),
        (Status.CONFIRMED, Status.REORGED),
        (Status.REORGED, Status.CONFIRMED),
    }
)


@dataclass(frozen=True)
class Rules:
    detected_bps: int = 10_000
    confirmed_bps: int = 10_000
    confirmations: int = 1
    grace: timedelta = timedelta(hours=1)  # for what was seen before the expiry and is mined after it
    window: timedelta = timedelta(days=1)  # so long a confirmed or expired request is still looked at


@dataclass(frozen=True)
class Asked:
    """What was asked for, and how it stands."""

    status: Status
    expected: int | None  # None: whatever comes
    expires_at: datetime
    status_changed_at: datetime


@dataclass(frozen=True)
class Settlement:
    """A transfer as it is kept: where it is, and whether it came in time. `place` None and not `gone`: it waits to be mined.

    `confirmations` is counted until there are enough of them.
    """

    tx_hash: str
    index: int
    amount: int
    place: Place | None
    confirmations: int
    first_seen_at: datetime
    first_mined_at: datetime | None  # by the block's own clock: being mined again elsewhere makes nothing late
    late: bool
    gone: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.tx_hash, self.index


@dataclass(frozen=True)
class Alert:
    """For people: something about money that no status says. The text is constant."""

    text: str
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Verdict:
    status: Status
    settlements: Sequence[Settlement]  # those to be written
    received: int  # on the chain now, late or not
    late: int  # of that
    excess: int  # beyond what was asked for
    look_again: bool
    alerts: Sequence[Alert] = ()


def required(expected: int | None, bps: int) -> int:
    """The least that is enough: ceil(expected · bps / 10000), and of whatever comes more than nothing."""
    return 1 if expected is None else max(1, -(-expected * bps // 10_000))


def judge(asked: Asked, known: Collection[Settlement], seen: Observation, now: datetime, rules: Rules) -> Verdict:
    """`now` is the database's."""
    before = {each.key: each for each in known}
    after = {each.key: _settled(each, before.get(each.key), asked, seen, now, rules) for each in seen.transfers}
    for missing in before.keys() - after.keys():
        # What we have not read to the end may still hold it.
        after[missing] = _gone(before[missing]) if seen.complete else before[missing]
    there = [each for each in after.values() if not each.gone]
    status = _status(asked, before, there, seen, now, rules)
    mined = [each for each in there if each.place is not None]
    received, late = _sum(mined), _sum(each for each in mined if each.late)
    excess = 0 if asked.expected is None else max(0, received - asked.expected)
    changed = [each for each in after.values() if each != before.get(each.key)]
    return Verdict(
        status=status,
        settlements=changed,
        received=received,
        late=late,
        excess=excess,
        look_again=not seen.complete or _look_again(asked, status, now, rules),
        alerts=_alerts(asked, status, before, changed, received, late, excess),
    )


def _settled(
    found: Transfer, before: Settlement | None, asked: Asked, seen: Observation, now: datetime, rules: Rules
) -> Settlement:
    first_seen_at = now if before is None else before.first_seen_at
    mined_at = before.first_mined_at if before is not None else None
    if found.place is not None and mined_at is None:
        mined_at = found.place.at
    deadline = asked.expires_at + (rules.grace if first_seen_at <= asked.expires_at else timedelta())
    confirmations = 0 if found.place is None else seen.tip.number - found.place.number + 1
    if before is not None and before.place == found.place and before.confirmations >= rules.confirmations:
        confirmations = before.confirmations
    late = (mined_at if mined_at is not None else _clock(seen, now)) > deadline
    return Settlement(
        found.tx_hash, found.index, found.amount, found.place, confirmations, first_seen_at, mined_at, late
    )


def _gone(settlement: Settlement) -> Settlement:
    return replace(settlement, gone=True, place=None, confirmations=0)


def _clock(seen: Observation, now: datetime) -> datetime:
    """What has certainly passed: no block of before this moment can still turn up, except by a reorganisation."""
    return min(now, seen.tip.at)


def _status(
    asked: Asked,
    before: Mapping[tuple[str, int], Settlement],
    there: Collection[Settlement],
    seen: Observation,
    now: datetime,
    rules: Rules,
) -> Status:
    if not seen.complete:  # what follows may take back what was read, or bring what is missing
        return asked.status
    in_time = [each for each in there if not each.late]
    final = _sum(each for each in in_time if each.place is not None and each.confirmations >= rules.confirmations)
    enough, noticed = required(asked.expected, rules.confirmed_bps), required(asked.expected, rules.detected_bps)
    match asked.status:
        case Status.PENDING | Status.DETECTED if final >= enough:
            return Status.CONFIRMED
        case Status.PENDING | Status.DETECTED if _sum(in_time) >= noticed:
            return Status.DETECTED
        case Status.PENDING | Status.DETECTED:
            waits = _sum(in_time) >= enough  # enough of it, although too little to be noticed by the rules
            return Status.EXPIRED if _clock(seen, now) > asked.expires_at and not waits else Status.PENDING
        case Status.CONFIRMED if _nothing_lost(before, in_time, rules):
            return Status.CONFIRMED  # also by stricter rules than those that it was confirmed by
        case Status.CONFIRMED | Status.REORGED:
            return Status.CONFIRMED if final >= enough else Status.REORGED
        case _:
            return asked.status


def _nothing_lost(before: Mapping[tuple[str, int], Settlement], in_time: Collection[Settlement], rules: Rules) -> bool:
    """Whether the chain still has all that it ever had: where it was, or elsewhere with enough confirmations."""
    had = _sum(each for each in before.values() if not each.gone and not each.late and each.first_mined_at is not None)
    has = _sum(
        each
        for each in in_time
        if each.place is not None
        and (each.confirmations >= rules.confirmations or _place(before.get(each.key)) == each.place)
    )
    return has >= had > 0


def _place(settlement: Settlement | None) -> Place | None:
    return None if settlement is None else settlement.place


def _look_again(asked: Asked, status: Status, now: datetime, rules: Rules) -> bool:
    if status in (Status.CONFIRMED, Status.EXPIRED) and status is asked.status:
        return now < asked.status_changed_at + rules.window
    return status is not Status.FAILED


def _alerts(
    asked: Asked,
    status: Status,
    before: Mapping[tuple[str, int], Settlement],
    changed: Collection[Settlement],
    received: int,
    late: int,
    excess: int,
) -> list[Alert]:
    alerts = []
    for each in changed:
        earlier = before.get(each.key)
        newly_mined = each.place is not None and (earlier is None or earlier.first_mined_at is None)
        if newly_mined and (each.late or asked.status is Status.EXPIRED):
            # A reorganisation can date a block before an expiry that was already decided.
            text = "Payment came too late" if each.late else "Payment in time found after the request expired"
            alerts.append(Alert(text, {"tx_hash": each.tx_hash, "amount": str(each.amount)}))
    if status is Status.EXPIRED and asked.status is not Status.EXPIRED and received > late:
        alerts.append(Alert("Payment request expired with a part paid", {"received": str(received - late)}))
    had = _sum(each for each in before.values() if each.place is not None)
    if status is Status.CONFIRMED and excess and (asked.status is not Status.CONFIRMED or received > had):
        alerts.append(Alert("Payment request overpaid", {"excess": str(excess)}))
    if status is Status.REORGED and asked.status is not Status.REORGED:
        alerts.append(Alert("Confirmed payment was taken back by its chain", {"received": str(received)}))
    return alerts


def _sum(settlements: Iterable[Settlement]) -> int:
    return sum(each.amount for each in settlements)
