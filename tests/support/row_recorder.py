"""The history PostgreSQL keeps of reconciled rows, in test databases only: every change of what trueup knows about a row,
and of the users' rows themselves, written by triggers in the transaction that makes the change.

`began` is the time by which that transaction judged leases (its `now()`), `at` when the change was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import class_row

T = TypeVar("T")

# Changes of one row are in their order, because each holds the row's lock until it commits.
INSTALL = """
create schema recorded_rows;
create table recorded_rows.known (
  seq bigint generated always as identity primary key,
  reconciler text not null, key text not null, before text, after text,
  old_holder uuid, new_holder uuid, old_term bigint, new_term bigint, old_attempt int, new_attempt int,
  old_alone boolean, old_started boolean, old_due_at timestamptz, new_due_at timestamptz,
  began timestamptz not null default now(), at timestamptz not null default clock_timestamp(), tx xid8 not null default pg_current_xact_id()
);
create table recorded_rows.users (
  seq bigint generated always as identity primary key,
  place text not null, key text not null, before text, after text,
  began timestamptz not null default now(), at timestamptz not null default clock_timestamp(), tx xid8 not null default pg_current_xact_id()
);
create function recorded_rows.note_known() returns trigger language plpgsql as $$
declare o trueup.rows; n trueup.rows;
begin
  if tg_op <> 'INSERT' then o := old; end if;
  if tg_op <> 'DELETE' then n := new; end if;
  insert into recorded_rows.known (reconciler, key, before, after, old_holder, new_holder, old_term, new_term, old_attempt, new_attempt,
                                   old_alone, old_started, old_due_at, new_due_at)
  values (coalesce(n.reconciler, o.reconciler), coalesce(n.key, o.key), o.state, n.state, o.holder, n.holder, o.term, n.term,
          o.attempt, n.attempt, o.alone, o.started, nullif(o.due_at, 'infinity'), nullif(n.due_at, 'infinity'));
  return null;
end $$;
create function recorded_rows.note_user() returns trigger language plpgsql as $$
declare
  o jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
  n jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
begin
  insert into recorded_rows.users (place, key, before, after)
  values (tg_table_name, coalesce(n, o) ->> tg_argv[0], o ->> tg_argv[1], n ->> tg_argv[1]);
  return null;
end $$;
create trigger recorded after insert or update or delete on trueup.rows for each row execute function recorded_rows.note_known();
"""
RECORD_USERS = """
create trigger recorded after update or delete on {} for each row execute function recorded_rows.note_user({}, {})
"""


@dataclass(frozen=True, slots=True)
class Known:
    """A change of what is known about a row. `before` is None when nothing was, `after` when nothing is."""

    seq: int
    reconciler: str
    key: str
    before: str | None
    after: str | None
    old_holder: UUID | None
    new_holder: UUID | None
    old_term: int | None
    new_term: int | None
    old_attempt: int | None
    new_attempt: int | None
    old_alone: bool | None
    old_started: bool | None  # the database had been told that a handler was at work on it
    old_due_at: datetime | None
    new_due_at: datetime | None
    began: datetime
    at: datetime
    tx: str

    @property
    def claims(self) -> bool:
        """Whether somebody holds it from here on who did not before."""
        return self.after == "held" and (self.before != "held" or self.new_term != self.old_term)

    @property
    def renews(self) -> bool:
        return self.before == self.after == "held" and self.new_term == self.old_term

    @property
    def settles(self) -> bool:
        """Whether its holder says here what became of it, while it may."""
        return self.in_time and self.after != "held"

    @property
    def in_time(self) -> bool:
        """Whether the lease that it finds had not passed."""
        return self.before == "held" and self.old_due_at is not None and self.began < self.old_due_at


@dataclass(frozen=True, slots=True)
class UserChange:
    """A user's row from one state to another; `after` is None when it was deleted."""

    seq: int
    place: str
    key: str
    before: str | None
    after: str | None
    began: datetime
    at: datetime
    tx: str


def install(url: str, *places: tuple[str, str, str]) -> None:
    """Record everything from now on; of users' tables, those of these (table, key column, state column)."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INSTALL)
        for table, key, state in places:
            trigger = sql.SQL(RECORD_USERS).format(sql.Identifier(table), sql.Literal(key), sql.Literal(state))
            connection.execute(trigger)


def read_known(url: str) -> list[Known]:
    return _read(url, Known, "known")


def read_users(url: str) -> list[UserChange]:
    return _read(url, UserChange, "users")


def _read(url: str, kind: type[T], table: str) -> list[T]:
    query = sql.SQL("select * from recorded_rows.{} order by seq").format(sql.Identifier(table))
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor(row_factory=class_row(kind)) as cursor:
        return cursor.execute(query).fetchall()


def by_row(changes: Iterable[Known]) -> dict[tuple[str, str], list[Known]]:
    """The changes of each row, in their order."""
    rows: dict[tuple[str, str], list[Known]] = {}
    for change in changes:
        rows.setdefault((change.reconciler, change.key), []).append(change)
    return rows
