"""The proof holds on a day that was made up for, and each way in which it can go wrong fails its own line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from trueup.demo import proof
from trueup.demo.journal import Arrival, Journal
from trueup.demo.proof import Evidence

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

# Six messages: four delivered (3 and 4 by others than who had them first), one refused for good, one of a user who left; and
# one for later. Each has an id that ends with its number.
GOOD_DAY = """
insert into users (first_name, last_name, date_of_birth, timezone)
select 'Ada "{%s}"', 'O''Neill ' || n, '2000-01-01', 'UTC' from generate_series(1, 7) as n;

insert into demo.expected (event_id, user_id, due_at, fate)
select ('00000000-0000-0000-0000-00000000000' || n)::uuid, n,
       case n when 7 then now() + interval '1 day' else timestamptz '2026-01-01 12:00+00' + n * interval '1 h' end,
       case n when 5 then 'dead' when 6 then 'withdrawn' when 7 then 'later' else 'delivered' end
  from generate_series(1, 7) as n;

insert into events (id, user_id, target_year, target_timestamp_utc, status, attempts, executed_at)
select event_id, user_id, 2026, due_at, case fate when 'dead' then 'DEAD' when 'later' then 'PENDING' else 'COMPLETED' end,
       case fate when 'dead' then 1 else 0 end,
       case fate when 'delivered' then timestamptz '2026-01-02 12:00+00' + user_id * interval '1 s' end
  from demo.expected;
insert into events (user_id, target_year, target_timestamp_utc)
select user_id, 2027, due_at + interval '365 days' from demo.expected where fate <> 'later';
delete from users where id = 6;

insert into demo.losses (worker, key, term, lease_until, seen_at) values
  ('B', '00000000-0000-0000-0000-000000000003', 1, '2026-01-02 12:00:02+00', '2026-01-02 12:00:01+00'),
  ('C', '00000000-0000-0000-0000-000000000004', 2, '2026-01-02 12:00:02+00', '2026-01-02 12:00:01+00');
insert into trueup.downtimes (since, until) values ('2026-01-01 12:00+00', '2026-01-02 12:00+00');
"""


def key(number: int) -> str:
    return f"00000000-0000-0000-0000-00000000000{number}"


def arrived(number: int, at: float | None = None, *, message: str | None = None, digest: str = "") -> Arrival:
    text = message or f"Hey, Ada \"{{%s}}\" O'Neill {number} it's your birthday"
    return Arrival(key(number), NOON.timestamp() + (number if at is None else at), digest, text, number == 5)


def received(*more: Arrival, without: int = 0) -> list[Arrival]:
    return [*(arrived(number) for number in (1, 2, 3, 4, 5) if number != without), *more]


Examine = Callable[..., list[str]]


@pytest.fixture
def broken(books: psycopg.Connection[Any]) -> Examine:
    """The claims that do not hold, after the database was tampered with."""
    books.execute(GOOD_DAY.encode())

    def examine(tampering: str = "", arrivals: list[Arrival] | None = None, *, refused: int = 1) -> list[str]:
        if tampering:
            books.execute(tampering.encode())
        journal = Journal(Path("nowhere"))
        for arrival in received() if arrivals is None else arrivals:
            journal._add(arrival)
        evidence = Evidence(books, journal, workers=3, rate=60, refused=refused)
        return [check.claim for check in proof.examine(evidence) if not check.holds]

    return examine


ENDED = "due messages that ended"
LEFT = "waiting, stuck or failed"
AT_RECEIVER = "sent, and at the receiver"
DUPLICATES = "duplicates taken for new"
NAMES = "names intact, quotes and 🎂"
TO_WHO_LEFT = "sent to who had left"
DEAD = "dead: refused by receiver"
LATER = "not due yet, left alone"
NEXT_YEAR = "next year's planned, once"
TAKEN_OVER = "taken over from the lost"
REFUSED = "late finishes refused"
OVERTAKEN = "overtaken by a later one"
LATENESS = "worst lateness"
PER_SECOND = "a second, 60 allowed"
LEASES = "leases and claims left"

LEASE_LEFT = """
insert into trueup.workers (holder, host, pid, queues, concurrency, started_at, renewed_at, lease_until)
values (gen_random_uuid(), 'h', 1, '{default}', 1, now(), now(), now())
"""
CLAIM_LEFT = """
insert into trueup.rows (reconciler, key, state, due_at, holder, term, attempt, claimed_at, changed_at)
values ('send_birthday_message', 'k', 'held', now(), gen_random_uuid(), 1, 1, now(), now())
"""


def test_the_proof_of_a_day_that_was_made_up_for_holds(broken: Examine) -> None:
    assert broken() == []


def test_a_message_that_was_sent_again_under_its_key_is_no_duplicate(broken: Examine) -> None:
    assert broken(arrivals=received(arrived(3, at=9))) == []


@pytest.mark.parametrize(
    ("tampering", "claims"),
    [
        (f"update events set status = 'PROCESSING' where id = '{key(2)}'", [ENDED, LEFT, AT_RECEIVER]),
        (f"update events set status = 'PENDING' where id = '{key(2)}'", [ENDED, LEFT, AT_RECEIVER]),
        (f"update events set status = 'FAILED' where id = '{key(2)}'", [ENDED, LEFT, AT_RECEIVER]),
        (f"update events set status = 'DEAD' where id = '{key(2)}'", [ENDED, AT_RECEIVER, DEAD]),
        ("update events set status = 'COMPLETED' where status = 'DEAD'", [ENDED, AT_RECEIVER, NAMES, DEAD]),
        ("update users set last_name = 'O' where id = 1", [NAMES]),
        ("update events set version = 1 where user_id = 7", [LATER]),
        ("delete from events where user_id = 7", [LATER]),
        ("delete from events where user_id = 5 and target_year = 2027", [NEXT_YEAR]),
        ("insert into events (user_id, target_year, target_timestamp_utc) values (1, 2028, now() + interval '1 day')", [NEXT_YEAR]),
        ("delete from demo.losses where worker = 'B'", [TAKEN_OVER]),
        ("update demo.losses set key = 'gone' where worker = 'B'", [TAKEN_OVER]),
        ("update demo.losses set seen_at = '2026-01-02 12:00:03.5+00' where worker = 'B'", [REFUSED]),
        ("delete from trueup.downtimes", [LATENESS]),
        ("update trueup.downtimes set since = '2026-01-02 11:00+00'", [LATENESS]),
        ("update events set executed_at = target_timestamp_utc where status = 'COMPLETED'", [REFUSED, LATENESS]),
        (LEASE_LEFT, [LEASES]),
        (CLAIM_LEFT, [LEASES]),
    ],
)  # fmt: skip
def test_the_proof_fails_on_the_line_of_the_database_that_was_tampered_with(
    broken: Examine, tampering: str, claims: list[str]
) -> None:
    assert broken(tampering) == claims


@pytest.mark.parametrize(
    ("arrivals", "claims"),
    [
        (received(without=2), [AT_RECEIVER, NAMES]),
        (received(arrived(8)), [AT_RECEIVER]),
        (received(arrived(2, digest="other")), [DUPLICATES]),
        (received(arrived(2, message="Hey, you"), without=2), [NAMES]),
        (received(arrived(6)), [AT_RECEIVER, TO_WHO_LEFT]),
        (received(arrived(7)), [AT_RECEIVER, LATER]),
        (received(without=5), [DEAD]),
        (received(*(arrived(1, at=5 + n / 70) for n in range(700))), [PER_SECOND]),
    ],
)
def test_the_proof_fails_on_the_line_of_the_receiver_that_was_tampered_with(
    broken: Examine, arrivals: list[Arrival], claims: list[str]
) -> None:
    assert broken(arrivals=arrivals) == claims


def test_the_proof_fails_when_no_late_finish_was_refused(broken: Examine) -> None:
    assert broken(refused=0) == [REFUSED]


def test_the_proof_fails_when_too_many_were_overtaken(broken: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "IN_HAND", 0)
    assert broken() == []
    assert broken(arrivals=[arrived(number) for number in (4, 1, 2, 3, 5)]) == [OVERTAKEN]


def test_the_proof_of_a_day_on_which_nothing_happened_does_not_hold(books: psycopg.Connection[Any]) -> None:
    evidence = Evidence(books, Journal(Path("nowhere")), workers=3, rate=60, refused=0)
    holding = [check.claim for check in proof.examine(evidence) if check.holds]
    assert holding == [LEFT, LEASES]
