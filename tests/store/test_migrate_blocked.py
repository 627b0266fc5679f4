"""Migrating while others have the tables open: a pg_dump, a forgotten session, a prepared transaction."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from tests.support.waiting import wait_until
from trueup.errors import MigrationBlocked, SchemaMismatch
from trueup.events import Event, Events, MigrationWaits
from trueup.store.db.migrate import Migrator, Step, all_steps

OURS = all_steps()
NEXT = OURS[-1].number + 1
ADD = Step(
    NEXT,
    "pre",
    "add_tags",
    "alter table {schema}.jobs add column tag text;\nalter table {schema}.history add column tag text;",
)
SLEEP = Step(NEXT, "pre", "sleep", "alter table {schema}.jobs add column tag text;\nselect pg_sleep(60);")

MIGRATE = """
import sys, psycopg
from trueup.store.db.migrate import Migrator, Step, all_steps
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    Migrator(connection, "trueup", steps=[*all_steps(), eval(sys.argv[2])]).migrate()
"""
SECRET = "select 'a secret' from trueup.jobs, trueup.history limit 0"


class Producer:
    """Writes to `jobs` again and again, and notes the longest that one statement took."""

    def __init__(self, url: str) -> None:
        self.longest = 0.0
        self.count = 0
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stop.is_set():
                started = time.monotonic()
                connection.execute("delete from trueup.jobs where false")
                connection.execute("delete from trueup.history where false")
                self.longest = max(self.longest, time.monotonic() - started)
                self.count += 1


class Migrating:
    """A thread that migrates to the step after ours."""

    def __init__(self, url: str, wait: timedelta = timedelta(seconds=60)) -> None:
        self.waits: list[MigrationWaits] = []
        self.applied: list[Step] | None = None
        self._url, self._wait = url, wait
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        events = Events()
        events.subscribe(self._note, MigrationWaits)
        with psycopg.connect(self._url, autocommit=True) as connection:
            self.applied = Migrator(connection, "trueup", events, [*OURS, ADD]).migrate(wait=self._wait)

    def _note(self, event: Event) -> None:
        assert isinstance(event, MigrationWaits)
        self.waits.append(event)

    def join(self) -> None:
        self._thread.join(30)


@contextmanager
def reading(url: str) -> Iterator[psycopg.Connection]:
    """A transaction that has read jobs and history, as a pg_dump has."""
    with psycopg.connect(make_conninfo(url, application_name="pg_dump")) as connection:
        connection.execute(SECRET)
        yield connection


@pytest.mark.slow
def test_nobody_waits_for_a_migration_that_waits_for_a_reader(database_url: str) -> None:
    with reading(database_url) as reader, Producer(database_url) as producer:
        pid = reader.info.backend_pid
        wait_until(lambda: producer.count > 10, "the producer works")
        migrating = Migrating(database_url)
        wait_until(lambda: len(migrating.waits) >= 4, "it was refused four times")
        assert migrating.applied is None
        reader.rollback()
        migrating.join()
    assert migrating.applied == [ADD]
    # Each of the two tables is waited for up to 50 ms; the machine may be busy. Without a limit it is as long as the reader likes.
    assert producer.longest < 0.5
    said = migrating.waits[0].blockers
    assert f"pid {pid} (pg_dump) has locked history" in said
    assert "secret" not in said


def test_a_migration_that_stays_blocked_changes_nothing_and_names_the_blocker(database_url: str) -> None:
    with reading(database_url) as reader, psycopg.connect(database_url, autocommit=True) as connection:
        migrator = Migrator(connection, "trueup", steps=[*OURS, ADD])
        with pytest.raises(MigrationBlocked, match=rf"add_tags got no lock.*pid {reader.info.backend_pid} \(pg_dump\)"):
            migrator.migrate(wait=timedelta(milliseconds=500))
        assert migrator.pending() == [ADD]


def test_a_printed_script_does_not_wait_for_a_reader_either(database_url: str) -> None:
    with reading(database_url), psycopg.connect(database_url, autocommit=True) as connection:
        script = Migrator(connection, "trueup", steps=[*OURS, ADD]).sql()
        started = time.monotonic()
        with pytest.raises(errors.LockNotAvailable):
            connection.execute(script.encode())
        assert time.monotonic() - started < 5
        connection.rollback()
        assert Migrator(connection, "trueup", steps=[*OURS, ADD]).pending() == [ADD]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_locks_of_a_migration_that_is_killed_go_with_it(database_url: str, number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", MIGRATE, database_url, repr(SLEEP)], stderr=subprocess.DEVNULL)
    held = "select from pg_locks where relation = 'trueup.jobs'::regclass and mode = 'AccessExclusiveLock' and granted"
    with psycopg.connect(database_url, autocommit=True) as connection:
        try:
            wait_until(lambda: connection.execute(held).fetchall(), "it has the table locked")
        finally:
            process.send_signal(number)
            process.wait()
        wait_until(lambda: not connection.execute(held).fetchall(), "its lock is gone")


def test_another_process_that_migrates_is_waited_for_in_bounded_time(database_url: str) -> None:
    with psycopg.connect(database_url) as other, psycopg.connect(database_url, autocommit=True) as connection:
        lock = b"select pg_advisory_xact_lock(hashtextextended('trueup migrate trueup', 0))"
        other.execute(lock)
        with pytest.raises(MigrationBlocked):
            Migrator(connection, "trueup", steps=[*OURS, ADD]).migrate(wait=timedelta(milliseconds=300))


def test_the_check_before_work_and_the_one_that_people_ask_for_are_the_same(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("insert into trueup.migrations (number, step, name) values (9999, 'only', 'of_tomorrow')")
        migrator = Migrator(connection, "trueup")
        assert migrator.pending() == []
        refusal = migrator.refusal()
        assert refusal is not None
        assert "install the newer trueup" in refusal.advice
        with pytest.raises(SchemaMismatch):
            migrator.check()
