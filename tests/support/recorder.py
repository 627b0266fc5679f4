"""The history PostgreSQL keeps itself, in test databases only: every change of a job or of a worker's lease, written by
triggers in the transaction that makes the change. What rolled back is not in it; what committed cannot be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row

# Rows of one job are in the order of their changes, because each change holds the job's row lock until it commits.
INSTALL = """
create schema recorded;
create table recorded.changes (
  seq bigint generated always as identity primary key,
  place text not null, op text not null, job bigint not null, kind text not null, lane text not null,
  old_state text, new_state text, old_holder uuid, new_holder uuid, old_term bigint, new_term bigint,
  old_attempt int, new_attempt int, max_attempts int not null, old_crashes int, new_crashes int,
  unique_key text, args text not null, reason text,
  at timestamptz not null default clock_timestamp(), tx xid8 not null default pg_current_xact_id()
);
create table recorded.leases (
  seq bigint generated always as identity primary key,
  op text not null, holder uuid not null, pid int not null, concurrency int not null,
  lease_until timestamptz not null, rescued_at timestamptz,
  at timestamptz not null default clock_timestamp(), tx xid8 not null default pg_current_xact_id()
);
create function recorded.note_job() returns trigger language plpgsql as $$
declare
  o jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
  n jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
  any_row jsonb := coalesce(n, o);
begin
  insert into recorded.changes (place, op, job, kind, lane, old_state, new_state, old_holder, new_holder, old_term, new_term,
                                old_attempt, new_attempt, max_attempts, old_crashes, new_crashes, unique_key, args, reason)
  values (tg_argv[0], lower(tg_op), (any_row ->> 'id')::bigint, any_row ->> 'kind', any_row ->> 'lane',
          o ->> 'state', n ->> 'state', (o ->> 'holder')::uuid, (n ->> 'holder')::uuid, (o ->> 'term')::bigint, (n ->> 'term')::bigint,
          (o ->> 'attempt')::int, (n ->> 'attempt')::int, (any_row ->> 'max_attempts')::int,
          (o ->> 'crashes')::int, (n ->> 'crashes')::int, any_row ->> 'unique_key', any_row ->> 'args', n ->> 'reason');
  return null;
end $$;
create function recorded.note_lease() returns trigger language plpgsql as $$
declare r trueup.workers;
begin
  if tg_op = 'DELETE' then r := old; else r := new; end if;
  insert into recorded.leases (op, holder, pid, concurrency, lease_until, rescued_at)
  values (lower(tg_op), r.holder, r.pid, r.concurrency, r.lease_until, r.rescued_at);
  return null;
end $$;
create trigger recorded after insert or update or delete on trueup.jobs for each row execute function recorded.note_job('jobs');
create trigger recorded after insert or update or delete on trueup.history for each row execute function recorded.note_job('history');
create trigger recorded after insert or update or delete on trueup.workers for each row execute function recorded.note_lease();
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One row of one table, before and after."""

    seq: int
    place: str
    op: str
    job: int
    kind: str
    lane: str
    old_state: str | None
    new_state: str | None
    old_holder: UUID | None
    new_holder: UUID | None
    old_term: int | None
    new_term: int | None
    old_attempt: int | None
    new_attempt: int | None
    max_attempts: int
    old_crashes: int | None
    new_crashes: int | None
    unique_key: str | None
    args: str
    reason: str | None
    at: datetime
    tx: str


@dataclass(frozen=True, slots=True)
class Move:
    """A job from one state to another in one transaction; `before` is None when it was made, `after` when it vanished.

    `holder`, `term` and `attempt` are those of the claim that the move makes or ends; `counted` is how many attempts count as
    spent afterwards.
    """

    seq: int
    job: int
    kind: str
    before: str | None
    after: str | None
    holder: UUID | None
    term: int
    attempt: int
    counted: int
    max_attempts: int
    args: str
    at: datetime
    tx: str
    rescued: bool = False
    unique_key: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseChange:
    """A worker's row after a change, or as it was when it was deleted."""

    seq: int
    op: str
    holder: UUID
    pid: int
    concurrency: int
    lease_until: datetime
    rescued_at: datetime | None
    at: datetime
    tx: str


def install(url: str) -> None:
    """Record everything in this database from now on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INSTALL)


def read_moves(url: str) -> list[Move]:
    """Every move recorded so far, in the order of the changes."""
    with (
        psycopg.connect(url, autocommit=True) as connection,
        connection.cursor(row_factory=class_row(Change)) as cursor,
    ):
        changes = cursor.execute("select * from recorded.changes order by job, seq").fetchall()
    moves = [move for _, group in groupby(changes, lambda c: c.job) for move in _moves_of_one_job(list(group))]
    return sorted(moves, key=lambda move: move.seq)


def read_leases(url: str) -> list[LeaseChange]:
    with (
        psycopg.connect(url, autocommit=True) as connection,
        connection.cursor(row_factory=class_row(LeaseChange)) as cursor,
    ):
        return cursor.execute("select * from recorded.leases order by seq").fetchall()


def _moves_of_one_job(changes: list[Change]) -> Iterator[Move]:
    for _, group in groupby(changes, lambda change: change.tx):
        left: Change | None = None
        entered: Change | None = None
        for change in group:
            if change.op == "update":
                if change.old_state != change.new_state or change.old_term != change.new_term:
                    yield _move(change, change)
            elif change.op == "delete":
                left = change
            else:
                entered = change
        if left is not None or entered is not None:
            yield _move(left, entered)


def _move(left: Change | None, entered: Change | None) -> Move:
    """The move made of a row that left its place (or its old half) and one that entered (or its new half)."""
    some: Any = entered or left
    after = entered.new_state if entered else None
    claimed = after == "running"
    holder, term, attempt = (
        (entered.new_holder, entered.new_term, entered.new_attempt)
        if entered is not None and (claimed or left is None)
        else (left.old_holder, left.old_term, left.old_attempt)  # type: ignore[union-attr]
    )
    crashed = left is not None and entered is not None and (entered.new_crashes or 0) > (left.old_crashes or 0)
    buried = entered is not None and entered.reason == "its worker died at the last attempt"
    return Move(
        seq=some.seq,
        job=some.job,
        kind=some.kind,
        before=left.old_state if left else None,
        after=after,
        holder=holder,
        term=term or 0,
        attempt=attempt or 0,
        counted=(entered.new_attempt if entered else attempt) or 0,
        max_attempts=some.max_attempts,
        args=some.args,
        at=some.at,
        tx=some.tx,
        rescued=crashed or buried,
        unique_key=some.unique_key,
    )
