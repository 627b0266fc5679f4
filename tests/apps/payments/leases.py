"""Who held which row when: written down by the database itself, and checked afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

RECORDER = """
create table held (n bigint generated always as identity, at timestamptz, id uuid, owner text, until timestamptz);
create function record_lease() returns trigger language plpgsql as $$
begin
  if (new.reconcile_lease_owner, new.reconcile_lease_until) is distinct from
     (old.reconcile_lease_owner, old.reconcile_lease_until) then
    insert into held (at, id, owner, until)
    values (clock_timestamp(), new.id, new.reconcile_lease_owner, new.reconcile_lease_until);
  end if;
  return new;
end $$;
create trigger record_lease before update on app.payment_requests for each row execute function record_lease();
"""


@dataclass(frozen=True)
class Held:
    """What was written into a row's lease columns, and when; without an owner it was given up."""

    at: datetime
    id: Any
    owner: str | None
    until: datetime | None


def history(database: psycopg.Connection[Any]) -> list[Held]:
    """In the order in which it happened: the changes of one row wait for one another."""
    return [Held(*row) for row in database.execute("select at, id, owner, until from held order by n")]


def shared(history: Iterable[Held]) -> list[tuple[Held, Held]]:
    """Every time somebody took a row whose holder had neither given it up nor run out of time."""
    last: dict[Any, Held] = {}
    found = []
    for held in history:
        before = last.get(held.id)
        if (
            before is not None
            and before.until is not None
            and held.owner not in (None, before.owner)
            and held.at < before.until
        ):
            found.append((before, held))
        last[held.id] = held
    return found


def owners(history: Iterable[Held]) -> dict[str, set[Any]]:
    """The rows that each process (host:pid) has held."""
    rows: dict[str, set[Any]] = defaultdict(set)
    for held in history:
        if held.owner is not None:
            rows[held.owner.rpartition("/")[0]].add(held.id)
    return rows
