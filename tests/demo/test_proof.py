"""The proof holds on a day that went well, and each way in which a day can go wrong fails its own line."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from trueup.demo import proof

LOST = "00000000-0000-0000-0000-00000000000b"

# Two orders, both charged and mailed; a picture that failed at first; a feed that is dead; a reminder that was cancelled;
# two reports, one begun by a worker that was killed; pings; and that worker's loss.
GOOD_DAY = f"""
insert into shop.orders (amount) values (100), (200);
insert into shop.asked (kind, ending, jobs) values
  ('charge', 'done', 2), ('send_mail', 'done', 2), ('resize', 'done', 1), ('report', 'done', 3),
  ('import_feed', 'dead', 1), ('remind', 'cancelled', 1);

insert into trueup.history (id, kind, queue, lane, key, state, priority, run_at, args, attempt, max_attempts, crashes,
                            term, holder, enqueued_at, claimed_at, finished_at, errors)
select id, kind, 'default', 'default', '', state, 0, t, '{{}}', attempt, 5, 0,
       attempt, holder::uuid, t, t, t + seconds * interval '1 s', errors::jsonb
  from (values
    (1, 'charge', 'done', 1, '00000000-0000-0000-0000-00000000000a', 1, '[]'),
    (2, 'charge', 'done', 2, '00000000-0000-0000-0000-00000000000a', 8,
        '[{{"type": "WorkerLost", "attempt": 1, "at": "2030-01-01 12:00:05+00", "message": "the lease of its worker passed (h, pid 12)"}}]'),
    (3, 'send_mail', 'done', 1, '{LOST}', 1, '[]'),
    (4, 'send_mail', 'done', 1, '00000000-0000-0000-0000-00000000000a', 1, '[]'),
    (5, 'resize', 'done', 2, '00000000-0000-0000-0000-00000000000a', 1,
        '[{{"type": "trueup.demo.jobs.PictureBusy", "attempt": 1, "at": "2030-01-01 12:00:00+00", "message": ""}}]'),
    (6, 'report', 'done', 1, '00000000-0000-0000-0000-00000000000a', 3, '[]'),
    (7, 'report', 'done', 2, '00000000-0000-0000-0000-00000000000a', 8,
        '[{{"type": "WorkerLost", "attempt": 1, "at": "2030-01-01 12:00:05+00", "message": "the lease of its worker passed (h, pid 12)"}}]'),
    (8, 'report', 'done', 1, '00000000-0000-0000-0000-00000000000a', 8, '[]'),
    (9, 'import_feed', 'dead', 3, '00000000-0000-0000-0000-00000000000a', 1, '[]'),
    (10, 'remind', 'cancelled', 0, null, 1, '[]')
  ) as rows (id, kind, state, attempt, holder, seconds, errors),
  (select timestamptz '2030-01-01 12:00:00+00' as t) as noon;

insert into shop.ledger (order_id, amount, job_id, term) values (1, 100, 1, 1), (2, 200, 2, 2);
insert into shop.mails (key, order_id, deliveries) values ('send_mail:3', 1, 1), ('send_mail:4', 2, 2);
insert into shop.reports (job_id, attempt, started_at, ended_at) values
  (6, 1, '2030-01-01 12:00:01+00', '2030-01-01 12:00:03+00'),
  (7, 1, '2030-01-01 12:00:02+00', null),
  (7, 2, '2030-01-01 12:00:06+00', '2030-01-01 12:00:08+00'),
  (8, 1, '2030-01-01 12:00:07+00', '2030-01-01 12:00:08+00');
insert into shop.pings (at) select timestamptz '2030-01-01 12:00:00+00' + n * interval '50 ms' from generate_series(0, 99) as n;
insert into shop.losses (worker, pid, holder, seen_at) values ('B', 12, '{LOST}', '2030-01-01 12:00:06+00');
"""


@pytest.fixture
def day(shop: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    shop.execute(GOOD_DAY.encode())
    return shop


def broken(connection: psycopg.Connection[Any], *, refused: int = 1) -> list[str]:
    return [check.claim for check in proof.examine(connection, refused=refused) if not check.holds]


def test_the_proof_of_a_day_that_went_well_holds(day: psycopg.Connection[Any]) -> None:
    assert broken(day) == []
    assert proof.pace(day) == proof.Pace(jobs=10, seconds=8.0)


ALL_ENDED = "every job ended as it was meant to"
CHARGED = "every order was charged exactly once"
BY_THE_LAST_CLAIM = "and by the claim that finished the job"
MAILED = "every order has its mail, under one key"
STILL_QUEUED = """
insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts)
values ('charge', 'default', 'default', now(), now(), '{}', 5)
"""
LEASE_LEFT = """
insert into trueup.workers (holder, host, pid, queues, concurrency, started_at, renewed_at, lease_until)
values (gen_random_uuid(), 'h', 1, '{default}', 1, now(), now(), now())
"""


@pytest.mark.parametrize(
    ("tampering", "claims"),
    [
        ("delete from trueup.history where id = 5", [ALL_ENDED]),
        ("update trueup.history set state = 'dead' where id = 4", [ALL_ENDED]),
        ("update trueup.history set state = 'done' where id = 9", [ALL_ENDED]),
        (STILL_QUEUED, ["none was lost on the way"]),
        ("insert into trueup.history select * from trueup.history where id = 4", [ALL_ENDED, "none ended twice"]),
        ("update trueup.history set id = 3 where id = 4", ["none ended twice"]),
        ("delete from shop.ledger where order_id = 1", [CHARGED]),
        ("insert into shop.ledger select * from shop.ledger where order_id = 1", [CHARGED]),
        ("update shop.ledger set amount = 1 where order_id = 1", [CHARGED]),
        ("update shop.ledger set order_id = 99 where order_id = 1", [CHARGED]),
        ("update shop.ledger set term = 1 where order_id = 2", [BY_THE_LAST_CLAIM]),
        ("delete from shop.mails where order_id = 1", [MAILED]),
        ("insert into shop.mails (key, order_id) values ('another', 1)", [MAILED]),
        ("update shop.mails set order_id = 2", [MAILED]),
        ("update trueup.history set attempt = 1 where id = 5", ["what failed at first was tried again"]),
        ("update trueup.history set errors = '[]' where kind = 'charge'; delete from shop.losses", ["others took over from the lost workers"]),
        ("update shop.losses set pid = 2", ["others took over from the lost workers"]),
        (f"update trueup.history set holder = '{LOST}' where id = 2", ["late finishes changed nothing"]),
        ("update shop.reports set ended_at = '2030-01-01 12:00:08+00' where job_id = 6", ["at most 2 reports ran at once"]),
        ("update trueup.history set errors = '[]' where id = 7", ["at most 2 reports ran at once"]),
        ("update shop.pings set at = at - 0.2 * (at - timestamptz '2030-01-01 12:00:00+00')", ["at most 20 pings a second"]),
        (LEASE_LEFT, ["no lease is left behind"]),
    ],
)  # fmt: skip
def test_the_proof_fails_on_the_line_that_was_tampered_with(
    day: psycopg.Connection[Any], tampering: str, claims: list[str]
) -> None:
    day.execute(tampering.encode())
    assert broken(day) == claims


def test_the_proof_fails_when_no_late_finish_was_refused(day: psycopg.Connection[Any]) -> None:
    assert broken(day, refused=0) == ["late finishes changed nothing"]


def test_the_proof_of_a_day_on_which_nothing_happened_does_not_hold(shop: psycopg.Connection[Any]) -> None:
    assert {ALL_ENDED, CHARGED, BY_THE_LAST_CLAIM, MAILED} <= set(broken(shop))
