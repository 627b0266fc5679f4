"""Brings the schema up to date, one step at a time.

A migration is `NNNN_title.sql`, or a pair: `NNNN_pre_title.sql` adds what the new release needs and the old one can live
with; `NNNN_post_title.sql` removes what only the old one needed, and is for when no old worker runs any more. A step runs
in one transaction together with its own record, so a kill leaves it done or not begun. A step that cannot (an index made
concurrently) says `-- no transaction` in its first line and must be re-runnable. An advisory transaction lock lets one
process migrate at a time; the others wait and then find nothing to do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from psycopg import Connection, errors

from trueup import faults
from trueup.errors import ConfigError, SchemaMismatch
from trueup.events import Events, MigrationApplied
from trueup.store.load import compose

DIRECTORY = files("trueup.store") / "migrations"
NAME = re.compile(r"(\d{4})_(?:(pre|post)_)?(\w+)\.sql")
NO_TRANSACTION = "-- no transaction"
OLDEST_SERVER = 140_000


@dataclass(frozen=True, slots=True, order=True)
class Step:
    number: int
    step: str  # "only", "pre" or "post"
    title: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.number:04}_{self.title}" if self.step == "only" else f"{self.number:04}_{self.step}_{self.title}"

    @property
    def in_transaction(self) -> bool:
        return not self.text.startswith(NO_TRANSACTION)


def all_steps(directory: Traversable = DIRECTORY) -> list[Step]:
    """Every step there is, in the order they are applied."""
    steps = []
    for entry in directory.iterdir():
        if found := NAME.fullmatch(entry.name):
            steps.append(Step(int(found[1]), found[2] or "only", found[3], entry.read_text(encoding="utf-8")))
    return sorted(steps, key=lambda step: (step.number, step.step != "pre", step.step))


class Migrator:
    def __init__(
        self,
        connection: Connection[Any],
        schema: str,
        events: Events | None = None,
        steps: Sequence[Step] | None = None,
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._events = events or Events()
        self.steps = list(steps) if steps is not None else all_steps()

    def applied(self) -> set[tuple[int, str]]:
        try:
            rows = self._connection.execute(
                compose("select number, step from {schema}.migrations", self._schema).encode()
            )
            return {(number, step) for number, step in rows}
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return set()

    def pending(self, *, post: bool = True) -> list[Step]:
        applied = self.applied()
        return [
            step for step in self.steps if (step.number, step.step) not in applied and (post or step.step != "post")
        ]

    def migrate(self, *, post: bool = True) -> list[Step]:
        """Apply what is pending; `post=False` leaves out the steps for which old workers must be gone. Returns what was applied."""
        if self._connection.info.server_version < OLDEST_SERVER:
            raise ConfigError(
                f"PostgreSQL 14 or newer is needed; this server is {self._connection.info.server_version // 10_000}"
            )
        done = []
        for step in self.pending(post=post):
            started = time.perf_counter()
            if self._apply(step):
                done.append(step)
                self._events.emit(
                    MigrationApplied(
                        step.number, step.step, step.title, round((time.perf_counter() - started) * 1000, 1)
                    )
                )
        return done

    def _apply(self, step: Step) -> bool:
        text = compose(step.text, self._schema).encode()
        with self._locked():
            if (step.number, step.step) in self.applied_in_transaction():
                return False
            if step.in_transaction:
                self._connection.execute(text)
            else:
                self._run_outside(text)
            if faults.ARMED:
                faults.hit("mid_migration")
            record = compose("insert into {schema}.migrations (number, step, name) values (%s, %s, %s)", self._schema)
            self._connection.execute(record.encode(), (step.number, step.step, step.title))
        return True

    def applied_in_transaction(self) -> set[tuple[int, str]]:
        """`applied` inside an open transaction, where a missing table must not spoil it."""
        try:
            with self._connection.transaction():
                return {
                    (number, step)
                    for number, step in self._connection.execute(
                        compose("select number, step from {schema}.migrations", self._schema).encode()
                    )
                }
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return set()

    def _run_outside(self, text: bytes) -> None:
        """Statement by statement on a connection of its own; the lock is held by ours meanwhile."""
        info = self._connection.info
        with Connection.connect(info.dsn, password=info.password or None, autocommit=True) as other:
            for statement in text.decode().split(";\n"):
                if statement.strip():
                    other.execute(statement.encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._connection.transaction():
            self._connection.execute(
                "select pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"trueup migrate {self._schema}",)
            )
            yield

    def check(self) -> None:
        """Raise SchemaMismatch unless this release can work with the schema as it is."""
        applied = self.applied()
        missing = [step for step in self.steps if step.step != "post" and (step.number, step.step) not in applied]
        if missing:
            raise SchemaMismatch(
                f"the database's schema {self._schema!r} lacks {', '.join(step.name for step in missing)}; run `trueup migrate` (or `trueup worker --migrate`)"
            )
        newest = max((step.number for step in self.steps), default=0)
        beyond = sorted(number for number, step in applied if number > newest and step in ("only", "post"))
        if beyond:
            raise SchemaMismatch(
                f"the database's schema {self._schema!r} is at {beyond[-1]:04}, beyond what this release knows ({newest:04}); install the newer trueup here"
            )

    def sql(self) -> str:
        """The pending steps as a script for people to read or run themselves."""
        parts = []
        for step in self.pending():
            record = (
                compose("insert into {schema}.migrations (number, step, name) values ", self._schema)
                + f"({step.number}, '{step.step}', '{step.title}');"
            )
            body = compose(step.text, self._schema).strip()
            wrapped = f"begin;\n{body}\n{record}\ncommit;" if step.in_transaction else f"{body}\n{record}"
            parts.append(f"-- {step.name}\n{wrapped}\n")
        return "\n".join(parts)
