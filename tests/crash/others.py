"""One run of mixed processes: reconcilers in all claim modes, a purge, a scan, webhooks, ticks and leases, with users' own
transactions over the same rows, and the proof of each at the end."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from tests.crash import mixed, mixed_checks, sweeps
from tests.crash import receiver as receiving
from tests.crash.in_hand import EVERY_JOB, LEDGER
from tests.crash.receiver import Receiver
from tests.crash.sweeping import FOLLOWING, WRITTEN
from tests.support import row_invariants, row_recorder
from tests.support.invariants import Violations
from tests.support.journal import read_journals
from tests.support.processes import Fleet
from tests.support.row_invariants import RowHistory
from tests.support.tick_invariants import ticks_fire_once
from trueup import App

SCAN_ITEMS = 200
ATTEMPTS = 100  # as PATIENT has it
FILL = "insert into tasks_{} (id, changed_at) select n, now() - interval '1 day' from generate_series(%s::int, %s::int) as n"
FILL_WALLPAPERS = """
insert into wallpapers (id, user_id, content_hash, upload_state, state_changed_at)
select n::text, n, n::text, 'initiated', now() - interval '1 day' from generate_series(%s::int, %s::int) as n
"""
LEFT = " + ".join(f"(select count(*) from tasks_{mode} where state <> 'done')" for mode in sweeps.MODES)
EVENTS = f"select count(*) from trueup.jobs where kind = '{receiving.KIND}'"
SETTLED = f"select (select count(*) from trueup.rows) + ({EVENTS}) + (select count(*) from wallpapers where upload_state = 'initiated') + {LEFT}"
NOT_SETTLED = """
select reconciler, state, count(*), min(attempt), max(attempt), min(due_at) - now(), max(reason) from trueup.rows group by 1, 2
union all select 'wallpapers', upload_state, count(*), 0, 0, null, null from wallpapers where upload_state = 'initiated' group by 2
union all select kind, state, count(*), min(attempt), max(attempt), min(run_at) - now(), null from trueup.jobs group by 1, 2
union all select name, 'paused', pauses, 0, 0, paused_until - now(), last_error from trueup.reconcilers where paused_until is not null
"""
EVENT_STATES = f"""
select (args -> 'payload' ->> 'event')::int, array_agg(state)
  from (select kind, args, state from trueup.jobs union all select kind, args, state from trueup.history) as every
 where kind = '{receiving.KIND}' group by 1
"""
PASSES = "select distinct on (started_at) started_at, at from effects.saves where not underway order by started_at, at"
THERE = " union all ".join(f"select 'tasks_{mode}', id from tasks_{mode}" for mode in sweeps.MODES)


class Users(threading.Thread):
    """They delete rows, lock them for a while, touch them and move them on, in transactions of their own."""

    def __init__(self, url: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.deleted: list[tuple[str, int]] = []
        self.moved: list[str] = []
        self.transactions = 0
        self._url = url
        self._rng = rng
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(self._rng.uniform(0.05, 0.3)):
            with suppress(psycopg.Error):
                with psycopg.connect(self._url) as connection:
                    connection.execute("insert into effects.own default values")
                    done = self._act(connection)
                done()
                self.transactions += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)

    def _act(self, connection: psycopg.Connection[Any]) -> Any:
        """What is to be noted when it is committed."""
        table = f"tasks_{self._rng.choice(sweeps.MODES)}"
        some = f"(select id from {table} where state = 'pending' order by random() limit 1)"
        match self._rng.randrange(4):
            case 0:
                rows = connection.execute(f"delete from {table} where id in {some} returning id".encode()).fetchall()
                return lambda: self.deleted.extend((table, row[0]) for row in rows)
            case 1:
                connection.execute(f"select from {table} where id in {some} for update".encode())
                self._stopping.wait(self._rng.uniform(0, 0.3))
            case 2:
                touch = f"update {table} set changed_at = changed_at - interval '1 s' where id in {some}"
                connection.execute(touch.encode())
            case _:
                move = "update wallpapers set upload_state = 'uploading', state_changed_at = now() where id in"
                any_upload = "(select id from wallpapers where upload_state = 'initiated' order by random() limit 1)"
                rows = connection.execute(f"{move} {any_upload} returning id".encode()).fetchall()
                return lambda: self.moved.extend(row[0] for row in rows)
        return lambda: None


class Others:
    def __init__(self, url: str, workers: Fleet, rng: random.Random, receiver: Receiver) -> None:
        self.url = url
        self.workers = workers
        self.app = App(url)
        self._receiver = receiver
        self._notify = receiving.declare(self.app, receiver.url)
        self.users = Users(url, rng)
        self._rng = rng
        self._filled = 0

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), params).fetchall()

    def more(self) -> None:
        """More rows for each way of claiming, and for the purge, and an event for each."""
        first, last = self._filled + 1, self._filled + self._rng.randint(3, 12)
        with psycopg.connect(self.url) as connection:
            for mode in sweeps.MODES:
                connection.execute(FILL.format(mode).encode(), [first, last])
            connection.execute(FILL_WALLPAPERS, [first, last])
        self._filled = last
        self._notify.enqueue_many_sync([({"event": n},) for n in range(first, last + 1)])

    def left(self) -> int:
        """Rows and events that are not settled."""
        return int(self.query(SETTLED)[0][0])

    def not_settled(self) -> list[tuple[Any, ...]]:
        """What is the matter with them."""
        return self.query(NOT_SETTLED)

    # -- the proof, by noun: how many facts were looked at, and the violations ----------------------------------------

    def of_rows(self) -> tuple[int, Violations]:
        history = self._history()
        return len(history.known), row_invariants.check(history)

    def of_ticks(self) -> tuple[int, Violations]:
        ledger = self.query(LEDGER)
        runs = Counter(row[0] for row in self.query(f"select due_at from {EVERY_JOB} where schedule is not null"))
        return sum(row[2] for row in ledger), ticks_fire_once(ledger, runs)  # type: ignore[arg-type]

    def of_leases(self) -> tuple[int, Violations]:
        writes = self.query("select name, term, process from effects.fenced order by seq")
        unused = {f"chaos-{backend}" for backend in mixed.BACKENDS} - {row[0] for row in writes}
        found = mixed_checks.fenced_terms_grow(writes)  # type: ignore[arg-type]
        return len(writes), found + [f"I8: nothing was written behind lease {name}" for name in sorted(unused)]

    def of_purges(self) -> tuple[int, Violations]:
        own = {row[0] for row in self.query("select tx from effects.own")}
        deleted = [
            (each.key, each.before)
            for each in row_recorder.read_users(self.url)
            if each.place == "wallpapers" and each.after is None and each.tx not in own
        ]
        there = {row[0] for row in self.query("select id from wallpapers")}
        left = [row[0] for row in self.query("select id from wallpapers where upload_state = 'initiated'")]
        gone = [key for key in self.users.moved if key not in there]
        return len(deleted), mixed_checks.purges_take_what_they_may(deleted, left, gone)

    def of_scans(self) -> tuple[int, Violations]:
        ended: dict[int, list[datetime]] = defaultdict(list)
        for item, moment in self.query("select item, ended from effects.items where ended is not null"):
            ended[item].append(moment)
        journal = read_journals(self.workers.journals)
        failed = {int(line["item"]) for line in journal if line.get("event") == "scan.item_failed"}
        passes = self.query(PASSES)
        return len(passes), mixed_checks.passes_cover_everything(passes, ended, SCAN_ITEMS, failed)  # type: ignore[arg-type]

    def of_webhooks(self) -> tuple[int, Violations]:
        states = dict(self.query(EVENT_STATES))
        received = self._receiver.received
        return len(received), mixed_checks.events_are_delivered(states, received, receiving.event_of)

    def of_users(self) -> tuple[int, Violations]:
        there = set(self.query(THERE))
        return self.users.transactions, mixed_checks.deletions_last(self.users.deleted, there)  # type: ignore[arg-type]

    def _history(self) -> RowHistory:
        read = row_invariants.read_history(self.url, self.workers.journals, killed=self.workers.killed)
        own = {row[0] for row in self.query("select tx from effects.own")}
        effects = [*self.query(WRITTEN), *self.query(FOLLOWING)]
        return replace(
            read,
            known=[each for each in read.known if each.reconciler in sweeps.MODES],
            users=[each for each in read.users if each.tx not in own],
            places={mode: f"tasks_{mode}" for mode in sweeps.MODES},
            effects=Counter({(name, key): count for name, key, count in effects}),
            written=self.query("select reconciler, key, term from effects.written"),  # type: ignore[arg-type]
            max_attempts=dict.fromkeys(sweeps.MODES, ATTEMPTS),
            batch=dict.fromkeys(sweeps.MODES, sweeps.BATCH),
        )


@contextmanager
def others(
    url: str, directory: Path, rng: random.Random, receiver: Receiver, *, workers_url: str, **settings: str
) -> Iterator[Others]:
    """On this migrated database, which is recorded from here on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(mixed.TABLES)
    places = [(f"tasks_{mode}", "id", "state") for mode in sweeps.MODES]
    row_recorder.install(url, *places, ("wallpapers", "id", "upload_state"))
    settings = {"SCAN_ITEMS": str(SCAN_ITEMS), "SCAN_EVERY": "5s", receiving.VARIABLE: receiver.url, **settings}
    with Fleet("tests.crash.mixed", workers_url, directory, **settings) as workers:
        this = Others(url, workers, rng, receiver)
        this.users.start()
        try:
            yield this
        finally:
            this.users.stop()
            this.app.close_sync()
