"""One bad job never blocks the others: stage by stage, poison by poison.

In every cell twenty good jobs run beside a culprit. All of them finish within ten seconds, and the culprit ends as the table says,
with its true reason, where people look: among the dead letters, in its own record, or in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest

from tests.support.watching import Watched, until
from trueup import App, Discard, GiveUp, Retry, Snooze
from trueup.clock import elapsed
from trueup.errors import InvalidArguments, LostClaim
from trueup.events import JobFinishRefused, JobResultDropped, ScanCompleted, ServiceFailed
from trueup.schedules import Every
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker
from trueup.web import dashboard

pytestmark = pytest.mark.asyncio

GOOD = 20
WITHIN = 10.0  # seconds for all the others; a cell takes less than one on a quiet machine
TWICE = Retry(max_attempts=2, first="10ms")


@dataclass
class Cell:
    """A culprit: what its handler does, what is done to its row, and how it has to end."""

    handler: Callable[[], Any] = lambda: None
    state: str = "dead"
    reason: str = ""
    said: str = ""  # by its last error
    sync: bool = False  # it runs in a thread
    meddle: str | None = None  # SQL over the culprit's row once it is queued
    before: str | None = None  # SQL before anything runs


class NamelessType(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise RuntimeError("it has no name")
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=NamelessType): ...


class Untouchable(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"it has no {name}")


class Moody(Snooze):
    @property
    def after(self) -> Any:
        raise RuntimeError("not decided yet")

    @after.setter
    def after(self, value: Any) -> None: ...


class Mapped(dict[str, Any]):
    """A result whose own code raises when it is read."""

    def __iter__(self) -> Any:
        raise self["error"]


@dataclass
class Fielded:
    n: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "n":
            raise ZeroDivisionError("boom")
        return super().__getattribute__(name)


class Panic(BaseException): ...


def with_causes(count: int) -> BaseException:
    """What a loop leaves that raises from its last error."""
    error = ValueError("the last one")
    for n in range(count):
        error, error.__context__ = ValueError(f"number {n}"), error
    return error


def raising(error: Callable[[], BaseException]) -> Callable[[], Any]:
    def handler() -> None:
        raise error()

    return handler


def refusing(sqlstate: str, of: str = "new.kind = 'culprit'", at: str = "insert on trueup.history") -> str:
    """PostgreSQL refuses every record of the culprit in the history, in its own words."""
    return f"""
        create function refuse() returns trigger language plpgsql as $$
        begin
          if {of} then raise exception 'not this one' using errcode = '{sqlstate}'; end if;
          return new;
        end $$;
        create trigger refuse before {at} for each row execute function refuse();
    """


def refusing_claims(sqlstate: str, of: str) -> str:
    return refusing(sqlstate, f"new.state = 'running' and {of}", "update on trueup.jobs")


LOAD = {
    "arguments of another shape": Cell(meddle="""set args = '{"unheard_of": 1}'""", reason="arguments do not fit"),
    "a list instead of arguments": Cell(meddle="set args = '[1]'", reason="arguments do not fit"),
    "null instead of arguments": Cell(meddle="set args = 'null'", reason="arguments do not fit"),
    "a number instead of arguments": Cell(meddle="set args = '7'", reason="arguments do not fit"),
    "a lane of another release": Cell(meddle="set lane = '@culprit'", state="done"),
}
WRITE = {
    "give up with a lone surrogate": Cell(raising(lambda: GiveUp("no \ud800 use")), reason="no \\ud800 use"),
    "give up with a NUL": Cell(raising(lambda: GiveUp("no \x00 use")), reason="no \\0 use"),
    "give up with 5 MB": Cell(raising(lambda: GiveUp("u" * 5_000_000)), reason="left out"),
    "discard with a lone surrogate": Cell(raising(lambda: Discard("\udfff")), state="cancelled", reason="\\udfff"),
    "discard with no text at all": Cell(raising(lambda: Discard(7)), state="cancelled", reason="7"),  # type: ignore[arg-type]
    "an error with a lone surrogate": Cell(raising(lambda: ValueError("\ud800")), reason="out of attempts"),
    "an error whose type has no name": Cell(raising(Nameless), reason="out of attempts", said="raised Nameless"),
    "an error that may not be touched": Cell(raising(Untouchable), reason="out of attempts", said="raised Untouchable"),
    "one in a thread": Cell(raising(Untouchable), reason="out of attempts", said="raised Untouchable", sync=True),
    "a lost claim that is not its own": Cell(
        raising(lambda: LostClaim("of another job")), reason="out of", said="of another"
    ),
    "a snooze of unknown length": Cell(raising(lambda: Moody("1s")), reason="out of attempts", said="not decided yet"),
    "an error with 100,000 causes": Cell(raising(lambda: with_causes(100_000)), reason="out of", said="number 99999"),
    "a result with a lone surrogate": Cell(lambda: "\ud800", state="done"),
    "a result with a NUL": Cell(lambda: {"a": "\x00"}, state="done"),
    "a result that is not JSON": Cell(lambda: float("nan"), state="done"),
    "a result that raises when it is read": Cell(Fielded, state="done"),
    "a result that exits when it is read": Cell(lambda: Mapped(error=SystemExit(3)), state="done"),
    "a result that panics when it is read": Cell(lambda: Mapped(error=Panic("boom")), state="done"),
    "an InvalidArguments of its own": Cell(
        raising(lambda: InvalidArguments("of another job")), reason="out of attempts", said="of another job"
    ),
    "a result of 20 MB": Cell(lambda: "r" * 20_000_000, state="done"),
}
REFUSED = {
    sqlstate: Cell(before=refusing(sqlstate), state="running")
    for sqlstate in (
        "22001",
        "23505",
        "23P01",
        "25006",
        "40001",
        "40P01",
        "42501",
        "53100",
        "54000",
        "55P03",
        "57014",
        "P0001",
        "XX000",
    )
}


@asynccontextmanager
async def beside_twenty(url: str, cell: Cell) -> AsyncIterator[tuple[App, Watched, int]]:
    """The culprit and its neighbours, in one worker; all neighbours have finished in time."""
    app = App(url, statement_timeout="2s")
    watched = Watched(app)

    async def on_the_loop() -> Any:
        return cell.handler()

    culprit = app.job(name="culprit", retry=TWICE)(cell.handler if cell.sync else on_the_loop)

    @app.job
    async def good(n: int) -> int:
        return n

    async with app:
        if cell.before:
            await app.store.pool.fetch(cell.before.encode())
        job_id = int(await culprit.enqueue())
        await good.enqueue_many((n,) for n in range(GOOD))
        if cell.meddle:
            await app.store.pool.fetch(f"update trueup.jobs {cell.meddle} where id = {job_id}".encode())
        began = elapsed()
        async with app.worker(concurrency=5):
            await until(lambda: len(done(watched)) >= GOOD, WITHIN)
            assert elapsed() - began < WITHIN
            yield app, watched, job_id


def done(watched: Watched) -> list[Any]:
    return [event for event in list(watched.events) if event.name == "job.completed" and event.kind == "good"]


async def ends(app: App, job_id: int, state: str) -> dict[str, Any]:
    async with asyncio.timeout(WITHIN):
        while True:
            row = await app.store.views.job(job_id)
            assert row is not None
            if row["state"] == state:
                return row
            await asyncio.sleep(0.01)


async def is_told(app: App, job_id: int, cell: Cell) -> None:
    """A job that is dead is among the dead letters with its reason, and `status --check` counts it."""
    dead = await app.jobs.list(state="dead")
    found = [each.problem for each in (await app.check()).findings if each.check == "dead_letters"]
    if cell.state == "dead":
        assert [each.id for each in dead] == [job_id]
        assert cell.reason in ((await app.jobs.get(job_id)).reason or "")
        assert found == ["died in the last hour: 1 culprit"]
    else:
        assert (list(dead), found) == ([], [])


async def is_shown(app: App, job_id: int, move: str, said: str = "not this one") -> None:
    """The culprit is where people look, with what PostgreSQL says: in `jobs show` and `list`, and in `status --check`."""
    async with asyncio.timeout(WITHIN):
        while not (found := [each for each in (await app.check()).findings if each.check == "refused_jobs"]):
            await asyncio.sleep(0.01)
    assert f" {job_id} ({move}): {said}" in found[0].problem
    shown = await app.jobs.get(job_id)
    (listed,) = [each for each in await app.jobs.list() if each.id == job_id]
    for error in (shown.errors[-1], listed.error):
        assert error is not None
        assert error.type == "refused by PostgreSQL"
        assert error.message.startswith(f"{move}: {said}")


@pytest.mark.parametrize("poison", LOAD)
async def test_load(database_url: str, poison: str) -> None:
    cell = LOAD[poison]
    async with beside_twenty(database_url, cell) as (app, _, job_id):
        row = await ends(app, job_id, cell.state)
        await is_told(app, job_id, cell)
    assert cell.reason in (row["reason"] or "")


@pytest.mark.parametrize("poison", WRITE)
async def test_write(database_url: str, poison: str) -> None:
    cell = WRITE[poison]
    async with beside_twenty(database_url, cell) as (app, watched, job_id):
        row = await ends(app, job_id, cell.state)
        await is_told(app, job_id, cell)
    assert cell.reason in (row["reason"] or "")
    assert cell.said in str((row["errors"] or [""])[-1])
    if cell.state == "done":
        assert row["result"] is None
        assert len(watched.of(JobResultDropped, job_id=job_id)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("sqlstate", REFUSED)
async def test_write_refused_by_postgresql(database_url: str, sqlstate: str) -> None:
    """It stays in hand, visibly, and is written as soon as PostgreSQL takes it: the handler does not run again."""
    cell = REFUSED[sqlstate]
    async with beside_twenty(database_url, cell) as (app, watched, job_id):
        refused = await watched.seen(JobFinishRefused, job_id=job_id)
        assert "not this one" in refused[0].error
        await is_shown(app, job_id, "complete")
        await app.store.pool.fetch(b"drop trigger refuse on trueup.history")
        row = await ends(app, job_id, "done")
    assert row["attempt"] == 1


@pytest.mark.slow
async def test_a_finish_that_ends_its_connection(database_url: str) -> None:
    """As if the database had gone away, whenever it is sent: it goes alone, and is said to be refused."""
    hangs_up = "perform pg_terminate_backend(pg_backend_pid());"
    cell = Cell(before=refusing("P0001").replace("raise exception 'not this one' using errcode = 'P0001';", hangs_up))
    async with beside_twenty(database_url, cell) as (app, watched, job_id):
        refused = await watched.seen(JobFinishRefused, job_id=job_id)
        assert "the connection to PostgreSQL ended whenever this was written" in refused[0].error
        await is_shown(app, job_id, "complete", "the connection to PostgreSQL ended")
        await app.store.pool.fetch(b"drop trigger refuse on trueup.history")
        row = await ends(app, job_id, "done")
    assert row["attempt"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before the claim", "at its end"])
async def test_a_row_that_somebody_has_locked(database_url: str, where: str) -> None:
    locked = await psycopg.AsyncConnection.connect(database_url)
    begun, go_on = asyncio.Event(), asyncio.Event()
    app = App(database_url)
    watched = Watched(app)

    @app.job(name="culprit")
    async def culprit() -> None:
        begun.set()
        await go_on.wait()

    @app.job
    async def good(n: int) -> int:
        return n

    async with locked, app:
        job_id = int(await culprit.enqueue())
        if where == "before the claim":
            await locked.execute("select from trueup.jobs where id = %s for update", [job_id])
            go_on.set()
        async with app.worker(concurrency=5):
            if where == "at its end":
                await asyncio.wait_for(begun.wait(), WITHIN)
                await locked.execute("select from trueup.jobs where id = %s for update", [job_id])
                go_on.set()
            await good.enqueue_many((n,) for n in range(GOOD))
            await until(lambda: len(done(watched)) >= GOOD, WITHIN)
            await locked.rollback()
            assert (await ends(app, job_id, "done"))["attempt"] == 1


SCANS: dict[str, Callable[[], Any]] = {
    "a cursor with a lone surrogate": lambda: (1, "\ud800"),
    "a cursor with a NUL": lambda: (1, "\x00"),
    "a cursor that is not JSON": lambda: (1, object()),
    "a cursor of 20 MB": lambda: (1, "c" * 20_000_000),
    "no pair at all": lambda: 7,
}


@pytest.mark.parametrize("poison", SCANS)
async def test_scan(database_url: str, poison: str) -> None:
    app = App(database_url)
    watched = Watched(app)
    handled: list[int] = []

    @app.scan("culprit", every="1h", run_at_start=True)
    async def culprit(cursor: Any) -> AsyncIterator[Any]:
        yield SCANS[poison]()

    @culprit.each
    async def ignore(item: Any) -> None: ...

    @app.scan("good", every="1h", run_at_start=True)
    async def good(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for n in range(5):
            yield n, n

    @good.each
    async def handle(n: int) -> None:
        handled.append(n)

    async with app, app.worker():
        await until(lambda: len(handled) == 5, WITHIN)
        await until(lambda: [event for event in watched.events if event.name == "service.failed"], WITHIN)
        (failed, *_) = [event for event in watched.events if event.name == "service.failed"]
        assert getattr(failed, "service", "") == "scan culprit"
        async with asyncio.timeout(WITHIN):  # the event comes before the record
            while not (found := [each for each in (await app.check()).findings if each.check == "sweeps"]):
                await asyncio.sleep(0.01)
        assert [each.problem.startswith("scan culprit (") for each in found] == [True]


LANES: dict[str, dict[str, Any]] = {
    "queue": {},
    "limit": {"limit": 5},
    "rate": {"rate": "1000/s"},
    "fair": {"limit": 5, "fair_by": "tenant"},
}


@pytest.mark.matrix
@pytest.mark.parametrize("sqlstate", ["P0001", "23505", "25006", "40001", "53100", "57014", "XX000"])
@pytest.mark.parametrize("lane", LANES)
async def test_claim(database_url: str, monkeypatch: pytest.MonkeyPatch, lane: str, sqlstate: str) -> None:
    """PostgreSQL refuses to hand out one job, the first of its lane: the others run, and so does that one as soon as it may."""
    monkeypatch.setattr("trueup.work.jobs.refusals.PASSED_FOR", 0.2)
    monkeypatch.setattr("trueup.work.jobs.refusals.PASSED_BRIEFLY_FOR", 0.2)
    app = App(database_url, statement_timeout="2s", poll_every="200ms")
    watched = Watched(app)

    @app.job(**LANES[lane])
    async def good(n: int, tenant: str = "same") -> int:
        return n

    async with app:
        culprit = await good.enqueue(-1)
        await app.store.pool.fetch(refusing_claims(sqlstate, "new.args ->> 'n' = '-1'").encode())
        await good.enqueue_many((n,) for n in range(GOOD))
        async with app.worker(concurrency=5):
            await until(lambda: len(done(watched)) >= GOOD, WITHIN)
            await until(lambda: watched.of(JobFinishRefused), WITHIN)
            said = watched.of(JobFinishRefused)[0]
            assert (said.job_id, said.move) == (culprit.id, "claim")
            assert "not this one" in said.error
            assert (await ends(app, culprit.id, "queued"))["attempt"] == 0
            await is_shown(app, culprit.id, "claim")
            await app.store.pool.fetch(b"drop trigger refuse on trueup.jobs")
            assert (await ends(app, culprit.id, "done"))["attempt"] == 1
            assert [each.check for each in (await app.check()).findings if each.check == "refused_jobs"] == []


async def test_a_refusal_of_an_earlier_claim_is_not_shown(app: App) -> None:
    @app.job
    async def good() -> None: ...

    job_id = (await good.enqueue()).id
    await app.store.jobs.refused(job_id, "claim", "not this one")
    assert [error.message for error in (await app.jobs.get(job_id)).errors] == ["claim: not this one"]
    await app.store.pool.fetch(b"update trueup.jobs set term = term + 1")
    assert (await app.jobs.get(job_id)).errors == ()
    assert [each.check for each in (await app.check()).findings if each.check == "refused_jobs"] == []


async def test_claim_when_all_are_refused(database_url: str) -> None:
    """Then none of them is to blame."""
    app = App(database_url)
    watched = Watched(app)

    @app.job
    async def good(n: int) -> None: ...

    async with app:
        await good.enqueue_many((n,) for n in range(GOOD))
        await app.store.pool.fetch(refusing_claims("P0001", "true").encode())
        async with app.worker():
            await until(lambda: watched.of(ServiceFailed), WITHIN)
        assert watched.of(JobFinishRefused) == []


@pytest.mark.parametrize("when", ["it goes back to the queue", "it is buried"])
async def test_rescue(database_url: str, clock: ManualClock, when: str) -> None:
    """PostgreSQL refuses to take over one job of a worker that died: the others are run elsewhere."""
    app = App(database_url, clock=clock)
    watched = Watched(app)

    @app.job
    async def good(n: int) -> None: ...

    @app.job(retry=Retry(max_attempts=1 if when == "it is buried" else 9))
    async def culprit() -> None: ...

    dying, other = ManualWorker(app, concurrency=GOOD + 1), ManualWorker(app)
    await dying.begin()
    job = await culprit.enqueue()
    await good.enqueue_many((n,) for n in range(GOOD))
    assert len(await dying.claim()) == GOOD + 1
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(refusing("23514").encode())
        connection.execute("create trigger refuse before update on trueup.jobs for each row execute function refuse()")
        clock.advance(hours=1)
        await other.begin()
        assert len(await other.rescue()) == GOOD
    (said,) = watched.of(JobFinishRefused)
    assert (said.job_id, said.kind, said.move) == (job.id, "culprit", "rescue")
    assert "not this one" in said.error
    (finding,) = (each for each in (await app.check()).findings if each.check == "stranded_jobs")
    assert finding.problem.startswith(f"culprit {job.id} (the lease of its worker ended ")
    await is_shown(app, job.id, "rescue")
    for worker in (dying, other):
        await worker.end()
    await app.close()


SCAN_STAGES = {
    "begin": "new.underway and not old.underway",
    "save": "new.cursor is not null and not old.items = new.items",
    "finish": "old.underway and not new.underway",
}


@pytest.mark.matrix
@pytest.mark.parametrize("sqlstate", ["P0001", "23505", "25006", "40001", "42501", "53100", "55P03", "57014", "XX000"])
@pytest.mark.parametrize("stage", SCAN_STAGES)
async def test_scan_refused_by_postgresql(
    database_url: str, monkeypatch: pytest.MonkeyPatch, stage: str, sqlstate: str
) -> None:
    """Of what is written about a scan. Its items are handled again, and people see why."""
    monkeypatch.setattr("trueup.work.scans.scanner.LOOK", 0.1)
    monkeypatch.setattr("trueup.work.scans.scanner.AGAIN", 0.05)
    app = App(database_url)
    watched = Watched(app)
    handled: list[int] = []
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            refusing(sqlstate, f"new.name = 'culprit' and {SCAN_STAGES[stage]}", "update on trueup.scans").encode()
        )

    @app.scan("culprit", every="1h", run_at_start=True)
    async def culprit(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for n in range(cursor or 0, 150):
            yield n, n
        if stage == "save":
            raise ValueError("so that its place is kept")

    @culprit.each
    async def ignore(item: int) -> None: ...

    @app.scan("good", every="1h", run_at_start=True)
    async def good(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for n in range(5):
            yield n, n

    @good.each
    async def handle(n: int) -> None:
        handled.append(n)

    async def shown(wanted: bool) -> None:
        async with asyncio.timeout(WITHIN):
            while wanted != any(
                each.check == "sweeps" and each.problem.startswith("scan culprit (") and "not this one" in each.problem
                for each in (await app.check()).findings
            ):
                await asyncio.sleep(0.05)

    async with app, app.worker():
        await until(lambda: len(handled) == 5, WITHIN)
        await shown(True)
        assert any(event.service == "scan culprit" for event in watched.of(ServiceFailed))
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("drop trigger refuse on trueup.scans")
        if stage != "save":
            await watched.seen(ScanCompleted, scan="culprit")
            await shown(False)


UNREADABLE = """
update trueup.lanes set next_start_at = 'infinity' where lane = '@paced';
update trueup.jobs set priority = 2147483647, rank = '-infinity' where kind = 'culprit';
update trueup.jobs set args = ('{"a": ' || repeat('9', 6000) || '}')::jsonb where run_at > now();
update trueup.schedules set decided_until = '-infinity' where name = 'bad-0';
update trueup.schedules set decided_until = 'infinity' where name = 'bad-1';
update trueup.schedules set spec = ('{"a": ' || repeat('9', 6000) || '}')::jsonb where name = 'bad-2';
update trueup.schedules set spec = (repeat('[', 3000) || repeat(']', 3000))::jsonb where name = 'bad-3';
update trueup.schedules set policy = (repeat('[', 3000) || repeat(']', 3000))::jsonb where name = 'bad-4';
update trueup.schedules set args = ('{"a": ' || repeat('9', 6000) || '}')::jsonb where name = 'bad-5';
"""


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "made at run time"])
async def test_values_that_python_cannot_read_stop_no_part_of_a_worker(database_url: str, declared: bool) -> None:
    """Moments without end and JSON beyond all bounds in rows of ours: a statement by hand may leave them, or a wrong clock."""
    app = App(database_url, poll_every="100ms")
    watched, ran = Watched(app), set[str]()

    @app.job
    async def culprit() -> None:
        ran.add("culprit")

    @app.job
    async def plain() -> None:
        ran.add("plain")

    @app.job(rate="1000/s")
    async def paced() -> None:
        ran.add("paced")

    @app.every("1s")
    async def ticking() -> None:
        ran.add("ticking")

    async def hourly() -> None: ...

    for n in range(6) if declared else ():
        app.every("1h", name=f"bad-{n}")(hourly)
    async with app.worker():
        pass
    for n in () if declared else range(6):
        await app.schedules.create(f"bad-{n}", Every("1h"), plain.call())
    await culprit.enqueue()
    later = await plain.using(delay="1h").enqueue()
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(UNREADABLE)
    async with app.worker():
        await paced.enqueue()
        await plain.enqueue()
        await until(lambda: ran == {"culprit", "plain", "paced", "ticking"}, WITHIN)
    assert {(each.service, each.error) for each in watched.of(ServiceFailed)} == set()
    shown = ("", "/jobs", f"/jobs/{later.id}", "/schedules", "/schedules/bad-1", "/schedules/bad-3", "/schedules/bad-5")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(dashboard.asgi(app)), base_url="http://127.0.0.1") as me:
        pages = {page: (await me.get(f"/trueup{page}")).status_code for page in shown}
    assert pages == dict.fromkeys(shown, 200)
    await app.close()


async def test_a_log_that_cannot_be_written_stops_no_part_of_a_worker(database_url: str) -> None:
    """A full disk, a closed stream, a log server that is away: handlers of logging may raise."""

    class Full(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("no space left on device")

    logging.getLogger("trueup").addHandler(Full())
    app, ran = App(database_url, poll_every="100ms"), list[int]()

    @app.job(retry=TWICE)
    async def fail(n: int) -> None:
        ran.append(n)
        raise ValueError("boom")

    async with app.worker() as worker:
        for service in worker._services:
            service._failed(ValueError("this is logged"))
        await fail.enqueue_many([(n,) for n in range(GOOD)])
        await until(lambda: len(ran) == 2 * GOOD, WITHIN)
        await until(lambda: not worker.hand.running and not worker.finisher.pending)
    assert await app.workers.list() == ()
    assert int(await app.jobs.count(state="dead")) == GOOD
    await app.close()


@pytest.mark.parametrize("options", [{"limit": 2}, {"rate": "1000/s"}, {"limit": 2, "fair_by": "n"}], ids=str)
async def test_a_job_renamed_by_hand_leaves_the_lane_of_its_old_kind(database_url: str, options: Any) -> None:
    """Its lane is claimed by workers that do not know the new name."""
    app = App(database_url, poll_every="100ms")
    ran = list[int]()

    @app.job(name="before", **options)
    async def before(n: int) -> None:
        ran.append(n)

    for n in range(4):
        await before.enqueue(n)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update trueup.jobs set kind = 'after' where args->>'n' in ('0', '1')")
        async with app.worker() as worker:
            await until(lambda: sorted(ran) == [2, 3], WITHIN)
            await until(lambda: not worker.hand.running and not worker.finisher.pending)
        left = connection.execute("select kind, state, attempt, lane from trueup.jobs").fetchall()
    assert left == [("after", "queued", 0, "default")] * 2
    await app.close()
    async with App(database_url, poll_every="100ms") as new:

        @new.job(name="after")
        async def after(n: int) -> None:
            ran.append(n)

        async with new.worker():
            await until(lambda: sorted(ran) == [0, 1, 2, 3], WITHIN)
