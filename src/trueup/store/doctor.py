"""Read-only queries for `trueup doctor`: about the server, this session, and trueup's tables and indexes."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trueup.store.db.migrate import DIRECTORY
from trueup.store.db.repository import Repository


@dataclass(frozen=True, slots=True)
class ServerFacts:
    pid: int  # of the server process; a pooler gives its clients another number
    now: datetime
    standby: bool
    compiles: bool  # just in time
    vacuums: bool
    partitions: bool  # may create those of the history
    role: str  # as SQL writes it


@dataclass(frozen=True, slots=True)
class Connections:
    whose: str
    setting: str  # that limits them
    taken: int
    places: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    ended_by: str  # a statement
    name: str
    role: str  # as SQL writes it
    state: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Slot:
    name: str
    active: bool
    bytes: float


@dataclass(frozen=True, slots=True)
class OurTable:
    """Or a sequence."""

    name: str
    unvacuumed: bool
    dead: float
    live: float
    missing: tuple[str, ...]  # privileges


class Doctor(Repository):
    async def server(self) -> tuple[ServerFacts, bool]:
        """The server, and whether a pooler is in between."""
        async with self._database.transaction() as connection:
            cursor = await connection.execute(self._statements["doctor/server"], {"schema": self._statements.schema})
            row: Any = await cursor.fetchone()
            server = ServerFacts(*row)
            return server, server.pid != connection.info.backend_pid

    async def connections(self) -> list[Connections]:
        return [Connections(*row) for row in await self._fetch("doctor/connections")]

    async def transactions(self, idle: float, busy: float) -> list[OpenTransaction]:
        """Sessions that have been idle, or transactions that have been open, for longer than that many seconds."""
        return [OpenTransaction(*row) for row in await self._fetch("doctor/sessions", idle=idle, busy=busy)]

    async def slots(self, bytes: float) -> list[Slot]:
        return [Slot(*row) for row in await self._fetch("doctor/slots", bytes=bytes)]

    async def tables(self) -> list[OurTable]:
        rows = await self._fetch("doctor/tables", schema=self._statements.schema)
        return [OurTable(row[0], row[1], row[2], row[3], tuple(row[4])) for row in rows]

    async def unusable_indexes(self) -> tuple[dict[str, str], list[str]]:
        """Indexes that are missing, with the statement that creates each, and indexes that are not valid."""
        schema = self._statements.schema
        found: dict[str, bool] = dict(await self._fetch("doctor/indexes", schema=schema))
        missing = {name: made for name, made in sorted(_expected(schema).items()) if name not in found}
        return missing, [name for name, valid in found.items() if not valid]

    async def offsets(self, zones: Collection[str]) -> list[tuple[str, datetime, float]]:
        """The UTC offsets of these zones by the server's time zone data, month by month."""
        rows = await self._fetch("doctor/zones", zones=list(zones)) if zones else []
        return [(zone, moment, seconds) for zone, moment, seconds in rows]


def _expected(schema: str) -> dict[str, str]:
    """The indexes that the migrations together give, and how each is made while workers run."""
    text = (DIRECTORY / "schema.sql").read_text("utf-8").replace("{schema}", schema)
    made, partitioned = {}, set()
    for place, body, divided in re.findall(
        r"^create table (\S+) \($(.*?)^\)( partition by)?", text, re.DOTALL | re.MULTILINE
    ):
        for name, key in re.findall(r"constraint (\w+) (PRIMARY KEY \([^)]*\))", body):
            made[name] = f"ALTER TABLE {place} ADD CONSTRAINT {name} {key}"
        if divided:
            partitioned.add(place)
    for unique, name, place, rest in re.findall(r"^CREATE (UNIQUE )?INDEX (\w+) ON (\S+) (.*);$", text, re.MULTILINE):
        how = "" if place in partitioned else "CONCURRENTLY "  # PostgreSQL refuses that for a partitioned table
        made[name] = f"CREATE {unique}INDEX {how}{name} ON {place} {rest}"
    return made
