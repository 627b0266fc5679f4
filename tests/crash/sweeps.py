"""A worker process that sweeps users' tables, as the crash tests run it: `python -m tests.crash.sweeps`.

`SWEEPS` names what it declares. One reconciler for each way of claiming, over a table of its own, whose rows end as "done":
in a transaction of the handler's, or by what it returns, with an effect that commits with it either way. And the sweeps of an
upload service, over `wallpapers`. `TABLES` is what they work on.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from tests.crash.working import restarted, work
from tests.support.journal import VARIABLE, Journal
from trueup import App, Context, Retry, Row, To
from trueup.events import (
    DatabaseLost,
    DatabaseRestored,
    Event,
    RowClaimLost,
    RowConflict,
    RowQuarantined,
    RowReleased,
    RowsClaimed,
    ServiceFailed,
    SweepCompleted,
    WorkerLeaseLost,
    WorkerStarted,
)

MODES = ("lease", "claimed_as", "lease_columns", "row_lock")
ATTEMPTS = 3
BATCH = 100
POISON = 50  # the row whose handler kills its process, where there is one
OPTIONS = "SWEEP_OPTIONS"

TASKS = """
create table tasks_{mode} (
  id bigint primary key, state text not null default 'pending' constraint known_state check (state in ('pending', 'working', 'done')),
  changed_at timestamptz not null default now() - interval '1 h', leased_by text, leased_until timestamptz
);
create index on tasks_{mode} (state, changed_at, id);
"""
TABLES = """
create schema effects;
create table effects.written (reconciler text not null, key text not null, term bigint not null, process int not null);
create table wallpapers (
  id text primary key, user_id int not null, content_hash text not null, upload_attempts int not null default 0, processing_error text,
  upload_state text not null constraint known_state
    check (upload_state in ('initiated', 'uploading', 'stored', 'processing', 'completed', 'failed')),
  state_changed_at timestamptz not null
);
create unique index on wallpapers (user_id, content_hash) where upload_state in ('stored', 'processing', 'completed');
create index on wallpapers (upload_state, state_changed_at, id);
""" + "".join(TASKS.format(mode=mode) for mode in MODES)
WRITE = "insert into effects.written (reconciler, key, term, process) values (%s, %s, %s, %s)"

# What the tests ask about. Not row.changed: a line on the disk for each of ten thousand rows would be most of the work.
TOLD: tuple[type[Event], ...] = (
    *(RowClaimLost, RowConflict, RowQuarantined, RowReleased, RowsClaimed, SweepCompleted),
    *(WorkerStarted, WorkerLeaseLost, ServiceFailed, DatabaseLost, DatabaseRestored),
)

# Rows fail once by themselves, and are left alone briefly; attempts suffice for that and no more.
RETRY = Retry(max_attempts=ATTEMPTS, first="50ms", factor=1.5, cap="500ms")


class Sweeps:
    """Declares what is asked for by name: `lease`, `claimed_as`, `lease_columns`, `row_lock`, `uploads`, `events`, `intents`,
    `poison`, `plain`."""

    def __init__(self, app: App, journal: Journal | None = None, **options: Any) -> None:
        self._app = app
        self._journal = journal
        self._options: dict[str, Any] = {
            "every": "500ms",
            "run_at_start": True,
            "lease_for": "2s",
            "batch": BATCH,
            "concurrency": 10,
            "retry": RETRY,
            **options,
        }

        @app.job
        async def followed(reconciler: str, key: str) -> None: ...

        self.followed = followed

    def declare(self, names: list[str]) -> None:
        for name in names:
            getattr(self, name)()

    # -- one for each way of claiming ---------------------------------------------------------------------------------

    def lease(self) -> None:
        self._tasks("lease", self._by_parity)

    def claimed_as(self) -> None:
        self._tasks("claimed_as", self._by_parity, claimed_as="working")

    def lease_columns(self) -> None:
        columns = ("leased_by", "leased_until")
        self._tasks("lease_columns", self._by_parity, lease_columns=columns)

    def row_lock(self) -> None:
        async def handle(task: Row, *, ctx: Context, tx: AsyncConnection[Any]) -> To:
            self._begin(task, ctx)
            await tx.execute(WRITE, ["row_lock", str(task.id), ctx.term, os.getpid()])
            return To("done")

        self._tasks("row_lock", handle, claim="row_lock")

    def poison(self) -> None:
        """As `lease`, and one row is the end of every process that begins it."""

        async def handle(task: Row, ctx: Context) -> To | None:
            if task.id == POISON:
                os._exit(1)
            return await self._by_parity(task, ctx)

        self._tasks("lease", handle)

    def transactions(self) -> None:
        """As `lease`, each row done in a transaction of its handler's."""

        async def handle(task: Row, ctx: Context) -> None:
            self._begin(task, ctx, fails=False)
            await self._in_transaction("lease", task, ctx)

        self._tasks("lease", handle)

    def plain(self) -> None:
        """As `lease`, and nothing is done but what is returned."""

        async def handle(task: Row) -> To:
            return To("done")

        self._tasks("lease", handle)

    def _tasks(
        self,
        mode: str,
        handle: Callable[..., Awaitable[Any]],
        *,
        lease_columns: tuple[str, str] | None = None,
        **options: Any,
    ) -> None:
        table = self._app.table(
            f"tasks_{mode}", key="id", state="state", changed_at="changed_at", lease_columns=lease_columns
        )
        table.reconcile("pending", stale_for="10m", name=mode, **{**self._options, **options})(handle)

    def _begin(self, task: Row, ctx: Context, *, fails: bool = True) -> None:
        assert self._journal is not None
        self._journal.effect(job=task.id, term=ctx.term, key=ctx.idempotency_key, content=f"task {task.id}")
        if fails and task.id % 10 == 0 and ctx.attempt == 1:
            raise ConnectionError("every tenth fails the first time")

    async def _by_parity(self, task: Row, ctx: Context) -> To | None:
        self._begin(task, ctx)
        reconciler, key, _ = ctx.idempotency_key.split(":")
        if task.id % 2:
            return To("done", then=[self.followed.call(reconciler, key)])
        await self._in_transaction(reconciler, task, ctx)
        return None

    async def _in_transaction(self, reconciler: str, task: Row, ctx: Context) -> None:
        async with ctx.transaction(To("done")) as tx:
            await tx.execute(WRITE, [reconciler, str(task.id), ctx.term, os.getpid()])

    # -- those of an upload service -----------------------------------------------------------------------------------

    def uploads(self) -> None:
        async def recover(upload: Row, ctx: Context) -> To:
            assert self._journal is not None
            self._journal.effect(job=0, term=ctx.term, key=ctx.idempotency_key, content=upload.id)
            return To("stored")

        self._wallpapers("uploading", "10m", "uploads", recover)

    def events(self) -> None:
        async def publish(upload: Row, ctx: Context) -> To:
            assert self._journal is not None
            self._journal.effect(job=0, term=ctx.term, key=ctx.idempotency_key, content=upload.id)
            return To("processing", then=[self.followed.call("events", upload.id)])

        self._wallpapers("stored", "5m", "events", publish)

    def _wallpapers(self, state: str, stale_for: str, name: str, handle: Callable[..., Awaitable[To]]) -> None:
        options = {**self._options, "every": "5m", "batch": 5, "concurrency": 3}
        self._uploaded().reconcile(state, stale_for=stale_for, name=name, **options)(handle)

    def intents(self, every: str = "5m") -> None:
        self._uploaded().delete("initiated", stale_for="1h", name="intents", every=every, batch=4, run_at_start=True)

    def intents_often(self) -> None:
        self.intents("1s")

    def _uploaded(self) -> Any:
        return self._app.table("wallpapers", key="id", state="upload_state", changed_at="state_changed_at")


async def run(app: App, journal: Journal) -> None:
    await work(app, app.worker(), journal, *TOLD)


def main() -> None:
    journal = Journal(Path(os.environ[VARIABLE]))
    app = App()
    options = dict(each.split("=") for each in os.environ.get(OPTIONS, "").split(",") if each)
    typed = {name: int(value) if value.isdigit() else value for name, value in options.items()}
    Sweeps(app, journal, **typed).declare(os.environ["SWEEPS"].split(","))
    restarted(lambda: run(app, journal))
    journal.close()


if __name__ == "__main__":
    main()
