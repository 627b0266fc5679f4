"""Brings the schema up to date, one step at a time.

A migration is `NNNN_title.sql`, or a pair: `NNNN_pre_title.sql` adds what the new release needs and the old one tolerates;
`NNNN_post_title.sql` removes what only the old one needed, and is for when no old worker runs. A step runs
in one transaction together with its own record, so a kill leaves it done or not begun. A step that cannot (an index made
concurrently) says `-- no transaction` in its first line, ends each statement with `;` at the end of a line, and must be
re-runnable. An advisory transaction lock lets one process migrate at a time; the others wait and then find nothing to do.

A step waits only briefly for the lock on a table: workers and producers queue behind it meanwhile. Then it is rolled back,
and tried again after a pause, until the blocking session is done or `wait` is over.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import takewhile
from threading import Event, Timer
from typing import Any

from psycopg import ClientCursor, Connection, OperationalError, errors
from psycopg.conninfo import conninfo_to_dict

from trueup import faults
from trueup.clock import elapsed
from trueup.config.settings import SETTINGS
from trueup.durations import format_duration
from trueup.errors import ConfigError, MigrationBlocked, SchemaMismatch
from trueup.events import Events, MigrationApplied, MigrationWaits
from trueup.program import typed
from trueup.store.db.connect import PID, abort
from trueup.store.db.load import Statements, compose

DIRECTORY = files("trueup.store") / "migrations"
NAME = re.compile(r"(\d{4})_(?:(pre|post)_)?(\w+)\.sql")
NO_TRANSACTION = "-- no transaction"
OLDEST_SERVER = 140_000
CONCURRENTLY = re.compile(r"\bconcurrently\b", re.IGNORECASE)
TRANSACTION_TIMEOUTS = 170_000  # the first server that has transaction_timeout
ORDER = ("only", "pre", "post")
SEARCH_PATH = "pg_catalog, pg_temp"  # as in migrations/begin.sql
LOCK_WAIT = timedelta(milliseconds=50)  # for one table; other sessions that want it wait as long
PAUSES = (0.2, 2.0)  # seconds between tries: the first, and the longest
WAIT = timedelta(minutes=5)  # in all
TURN = 0.2  # seconds between looks whether another process still migrates
CHECK_CLIENT = timedelta(seconds=1)
SECOND_WITHIN = 10.0  # seconds
NO_SECOND = (
    "this migration needs two connections at the same time, and the pooler has only one to lend; connect directly, or raise the "
    "pooler's pool size"
)
SCRIPT_NOTE = f"""\
-- Stop at the first error (psql -v ON_ERROR_STOP=1). A step that does not get a lock within {format_duration(LOCK_WAIT)} fails and
-- changes nothing, so that workers and producers do not queue up behind it: run the rest again once the table is free.
"""


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    step: str  # "only", "pre" or "post"
    title: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.number:04}_{self.title}" if self.step == "only" else f"{self.number:04}_{self.step}_{self.title}"

    @property
    def key(self) -> tuple[int, str]:
        """How the database remembers it."""
        return self.number, self.step

    @property
    def in_transaction(self) -> bool:
        return not self.text.startswith(NO_TRANSACTION)


def all_steps(directory: Traversable = DIRECTORY) -> list[Step]:
    """Every step there is, in the order they are applied."""
    found = ((NAME.fullmatch(entry.name), entry) for entry in directory.iterdir())
    steps = [Step(int(name[1]), name[2] or "only", name[3], entry.read_text("utf-8")) for name, entry in found if name]
    if len({step.key for step in steps}) < len(steps):  # the second would count as applied, and never be
        raise ValueError(f"two migrations have the same number: {sorted(step.name for step in steps)}")
    return sorted(steps, key=lambda step: (step.number, ORDER.index(step.step)))


class Migrator:
    """Works on one schema through a connection in autocommit mode; each step is a transaction of its own."""

    def __init__(
        self,
        connection: Connection[Any],
        schema: str,
        events: Events | None = None,
        steps: Sequence[Step] | None = None,
    ) -> None:
        self.steps = list(steps) if steps is not None else all_steps()
        self._connection = connection
        self._schema = schema
        self._statements = Statements(schema)
        self._events = events or Events()

    def applied(self) -> set[tuple[int, str]]:
        """The (number, step) pairs the schema has; none when there is no schema yet. May be called in a transaction."""
        try:
            with self._connection.transaction():  # a missing table must not spoil the transaction around this
                rows = self._connection.execute(self._statements["migrations/applied"])
                return {(number, step) for number, step in rows}
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return set()

    def pending(self, *, post: bool = True) -> list[Step]:
        """What `migrate` would apply."""
        applied = self.applied()
        waiting = [step for step in self.steps if step.key not in applied]
        if post or not applied:
            return waiting
        return [step for step in takewhile(lambda step: step.step != "only", waiting) if step.step == "pre"]

    def migrate(self, *, post: bool = True, wait: timedelta = WAIT) -> list[Step]:
        """Apply what is pending; `post=False` leaves out the steps for which old workers must be gone. Returns what was applied.

        Raises ConfigError when the server is too old, and MigrationBlocked, which says by whom, when a table that a step
        changes is in use for all of `wait`. When a step fails, those before it stay and it leaves nothing.
        """
        version = self._connection.info.server_version
        if version < OLDEST_SERVER:
            raise ConfigError(f"PostgreSQL 14 or newer is needed; this server is {version // 10_000}")
        until = elapsed() + wait.total_seconds()
        return [step for step in self.pending(post=post) if self._apply_in_time(step, until)]

    def check(self) -> None:
        """Raise SchemaMismatch unless this release can work with the schema as it is."""
        refusal = self.refusal()
        if refusal is not None:
            raise SchemaMismatch(str(refusal))

    def refusal(self) -> Refusal | None:
        """Why this release cannot work with the schema as it is, and what to do; None when it can."""
        return refusal(self._schema, self.steps, self.applied())

    def sql(self) -> str:
        """The pending steps as a script for people to read or run themselves."""
        scripts = [self._script(step) for step in self.pending()]
        return "\n".join([SCRIPT_NOTE, *scripts]) if scripts else ""

    def _script(self, step: Step) -> str:
        with ClientCursor(self._connection) as cursor:
            record = cursor.mogrify(self._statements["migrations/record"], _row(step)).strip()
        body = f"{compose(step.text, self._schema).strip()}\n{record}"
        if step.in_transaction:
            lock_wait = f"set local lock_timeout = '{_milliseconds(LOCK_WAIT)}ms';"
            body = f"begin;\nset local search_path = {SEARCH_PATH};\n{lock_wait}\n{body}\ncommit;"
        return f"-- {step.name}\n{body}\n"

    def _apply_in_time(self, step: Step, until: float) -> bool:
        """Apply a step, and repeat it while another session has its tables locked."""
        started, pause = elapsed(), PAUSES[0]
        while True:
            try:
                return self._apply(step, until)
            except (errors.LockNotAvailable, errors.DeadlockDetected):
                found = blockers(self._connection, self._statements, LOCK_WAIT)
            who = "; ".join(map(str, found)) or "a session that has ended by now"
            if elapsed() + pause > until:
                raise MigrationBlocked(
                    f"{step.name} got no lock within {format_duration(timedelta(seconds=round(elapsed() - started)))}, and has "
                    f"changed nothing: {who}. End that session or wait for it, then migrate again (--wait waits longer)"
                )
            self._events.emit(MigrationWaits(step.name, who, round(elapsed() - started, 1)))
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            pause = min(2 * pause, PAUSES[1])

    def _apply(self, step: Step, until: float) -> bool:
        """Whether it was applied by us; False when another process was first."""
        started = time.perf_counter()
        text = compose(step.text, self._schema)
        with self._locked(until):
            if step.key in self.applied():
                return False
            if step.in_transaction:
                self._limit(LOCK_WAIT)
                self._connection.execute(text.encode())
            else:
                self._run_outside(text)
            faults.hit("mid_migration")
            self._connection.execute(self._statements["migrations/record"], _row(step))
        took = round((time.perf_counter() - started) * 1000, 1)
        self._events.emit(MigrationApplied(step.number, step.step, step.title, took))
        return True

    def _run_outside(self, text: str) -> None:
        """Statement by statement on a connection of its own, each in a transaction; the lock is held by ours meanwhile."""
        if CONCURRENTLY.search(text):
            self._run_concurrently(text)
            return
        with self._second() as other:
            for statement in _split(text):
                with other.transaction():
                    other.execute(self._statements["migrations/begin"])
                    other.execute(statement)

    def _run_concurrently(self, text: str) -> None:
        """PostgreSQL allows no transaction around these, so settings come with the connection.

        Those of a SET would stay behind in a session that a pooler lends to others.
        """
        info = self._connection.info
        timeouts = [
            "statement_timeout",
            *(["transaction_timeout"] if info.server_version >= TRANSACTION_TIMEOUTS else []),
        ]
        given = conninfo_to_dict(info.dsn).get("options", "")
        options = " ".join(
            [str(given), f"-csearch_path={SEARCH_PATH.replace(' ', '')}", *(f"-c{each}=0" for each in timeouts)]
        )
        try:
            other = self._second(options=options)
        except OperationalError as error:
            if "startup parameter" not in str(error):
                raise
            raise ConfigError(
                f"this migration cannot run through a pooler in transaction mode; connect directly ({error})"
            ) from error
        with other:
            for statement in _split(text):
                other.execute(statement)

    def _second(self, **options: Any) -> Connection[Any]:
        """Raises MigrationBlocked where a pooler has no other connection to lend than ours: it would wait for us, and we for it."""
        info = self._connection.info
        password = info.password or None
        other = Connection.connect(info.dsn, password=password, autocommit=True, prepare_threshold=None, **options)
        late = Event()

        def give_up() -> None:
            late.set()
            abort(other)

        timer = Timer(SECOND_WITHIN, give_up)
        timer.start()
        try:
            other.execute(PID)
        except OperationalError as error:
            other.close()
            if late.is_set():
                raise MigrationBlocked(NO_SECOND) from error
            raise
        finally:
            timer.cancel()
        return other

    def _limit(self, lock: timedelta) -> None:
        self._connection.execute(self._statements["migrations/limit"], {"lock": _milliseconds(lock)})

    @contextmanager
    def _locked(self, until: float) -> Iterator[None]:
        """In a transaction, as the only process that migrates. It waits for the others outside of one: a pooler has few connections to
        lend, and the process that migrates may need a second one. Raises LockNotAvailable if another one migrates for too long."""
        name = {"name": f"trueup migrate {self._schema}"}
        while True:
            with self._connection.transaction():
                self._connection.execute(self._statements["migrations/begin"])
                with suppress(errors.InvalidParameterValue), self._connection.transaction():
                    every = {"every": _milliseconds(CHECK_CLIENT)}
                    self._connection.execute(self._statements["migrations/check_client"], every)
                if self._connection.execute(self._statements["migrations/lock"], name).fetchone() == (True,):
                    yield
                    return
            if elapsed() > until:
                raise errors.LockNotAvailable("another process migrates")
            time.sleep(TURN * random.uniform(0.5, 1))  # noqa: S311


def _split(text: str) -> list[bytes]:
    return [statement.encode() for statement in re.split(r";\s*$", text, flags=re.MULTILINE) if statement.strip()]


@dataclass(frozen=True, slots=True)
class Refusal:
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.advice}"


def refusal(schema: str, steps: Sequence[Step], applied: Collection[tuple[int, str]]) -> Refusal | None:
    """Why a release with these steps cannot work with a schema that has those applied, and what to do; None when it can."""
    missing = [step.name for step in steps if step.step != "post" and step.key not in applied]
    if missing:
        advice = f"run `{_migrate(schema)}` (or `{typed('trueup worker --migrate')}`)"
        if not applied:
            return Refusal(f"the database has no trueup schema {schema!r} yet", advice)
        what = missing[0] if len(missing) == 1 else f"{len(missing)} migrations, {missing[0]} to {missing[-1]}"
        return Refusal(f"the database's schema {schema!r} lacks {what}", advice)
    newest = max((step.number for step in steps), default=0)
    reached = max((number for number, step in applied if step != "pre"), default=0)
    if reached > newest:
        return Refusal(
            f"the database's schema {schema!r} is at {reached:04}, beyond what this release knows ({newest:04})",
            "install the newer trueup here",
        )
    return None


def _migrate(schema: str) -> str:
    """The command as it works wherever the schema was configured, be it in code."""
    command = typed("trueup migrate")
    return command if schema == SETTINGS["schema"].default else f"TRUEUP_SCHEMA={schema} {command}"


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def _row(step: Step) -> dict[str, Any]:
    return {"number": step.number, "step": step.step, "title": step.title}


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session that has tables of the schema locked. The ages are None when this role may not see them. Its statement is not shown: it contains data."""

    pid: int | None
    application: str
    kind: str
    transaction_age_s: float | None
    query_age_s: float | None
    tables: str

    def __str__(self) -> str:
        if self.pid is None:
            return f"a prepared transaction (see pg_prepared_xacts) has locked {self.tables}"
        who = f"pid {self.pid} ({self.application or self.kind})"
        if self.transaction_age_s is None or self.query_age_s is None:
            return f"{who} has locked {self.tables}"
        return (
            f"{who} has locked {self.tables}: its transaction is {_age(self.transaction_age_s)} old, "
            f"its latest query {_age(self.query_age_s)}"
        )


def blockers(connection: Connection[Any], statements: Statements, longer_than: timedelta) -> list[Blocker]:
    """The sessions that have held a lock for longer than this."""
    params = {"schema": statements.schema, "longer_than": longer_than.total_seconds()}
    return [Blocker(*row) for row in connection.execute(statements["migrations/blockers"], params)]


def _age(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(max(seconds, 0.0), 1 if seconds < 10 else 0)))
