"""What callers of the Python API are told when the database cannot do what they ask: one error of trueup's, whatever they called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from inspect import isawaitable, signature
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.support.watching import until_beside
from trueup import App, DatabaseUnavailable, SchemaMismatch, TrueupError
from trueup.dsn import mask
from trueup.operate.jobs import Matching
from trueup.operate.operating import Operating
from trueup.schedules.when import Every
from trueup.work.leases import hold

pytestmark = pytest.mark.asyncio

Call = Callable[[], Any]

AT = datetime(2026, 11, 1, tzinfo=UTC)
BETWEEN = ("tick", AT, AT)
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "jobs.get": (1,),
    **dict.fromkeys(("jobs.cancel", "jobs.retry", "jobs.hurry", "jobs.revive", "jobs.discard"), ([1],)),
    **dict.fromkeys(("reconcilers.release", "reconcilers.discard"), ("sums", ["1"])),
    "reconcilers.quarantined_row": ("sums", "1"),
    **dict.fromkeys(("schedules.preview_backfill", "schedules.ticks_between", "schedules.backfill"), BETWEEN),
    "schedules.preview": ("tick", 2026),
}
NAMED = {"schedules": "tick", "reconcilers": "sums"}  # the first argument of most
WITHOUT = {"list", "summary", "quarantined", "attention", "audit"}


def declaring(url: str) -> App:
    app = App(url)

    @app.job(name="send")
    async def send(n: int = 0) -> None: ...

    @app.every("1h", name="tick")
    async def tick() -> None: ...

    @app.table("sums", key="id", state="state", changed_at="changed_at").reconcile("new", every="1m")
    async def sums(row: dict[str, Any]) -> None: ...

    return app


def calls(app: App) -> Iterator[tuple[str, Call]]:
    """Everything public that asks the database, and its twin for code without an event loop."""
    send = app.named("send")
    yield "app.open", app.open
    yield "enqueue", send.enqueue
    yield "enqueue_sync", send.enqueue_sync
    yield "enqueue_many", lambda: send.enqueue_many([(1,)])
    yield "enqueue_many_sync", lambda: send.enqueue_many_sync([(1,)])
    yield "app.now", app.now
    yield "app.now_sync", app.now_sync
    yield "app.rate", lambda: app.rate("calls", "1/s")
    yield "app.rate_sync", lambda: app.rate_sync("calls", "1/s")
    yield "app.recovery", app.recovery
    yield "app.examine", app.examine
    yield "handle.status", lambda: app.status_of(1)
    yield "handle.status_sync", lambda: app.status_of_sync(1)
    yield "handle.result", lambda: app.wait_for_result(1, "1s")
    yield "handle.result_sync", lambda: app.wait_for_result_sync(1, "1s")
    yield "app.transaction", lambda: in_transaction(app)
    yield "app.lease", lambda: leased(app)
    yield "app.lease_sync", lambda: leased_sync(app)
    for group in ("jobs", "schedules", "reconcilers", "workers", "alerts", "actions"):
        operations = getattr(app, group)
        assert isinstance(operations, Operating)
        for name in sorted(set(dir(operations)) - {"blocking"}):
            if not name.startswith("_") and callable(getattr(operations, name)):
                yield f"{group}.{name}", lambda group=group, name=name: called(app, group, name)
    assert len(Operating.__subclasses__()) == 7  # these, and what handles ask for results


def called(app: App, group: str, name: str) -> Any:
    method, plain = getattr(getattr(app, group), name), name.removesuffix("_sync")
    if group == "jobs" and plain in ("pause", "resume"):
        return method(queue="default")
    if (group, plain) == ("schedules", "create"):
        return method("other", Every("1h"), app.named("send").call())
    named = () if group not in NAMED or plain in WITHOUT else (NAMED[group],)
    return method(*ARGUMENTS.get(f"{group}.{plain}", named))


async def in_transaction(app: App) -> None:
    async with app.transaction():
        pass


async def leased(app: App) -> None:
    async with app.lease("one"):
        pass


async def leased_sync(app: App) -> None:
    with app.lease("one"):
        pass


async def answers(url: str) -> dict[str, Exception | None]:
    """By what was called, each on an App that has asked nothing before."""
    found: dict[str, Exception | None] = {}
    app = declaring(url)
    for place, call in calls(app):
        try:
            asked = call()
            if isawaitable(asked):
                await asyncio.wait_for(asked, 30)
            found[place] = None
        except Exception as error:
            found[place] = error
        await app.close()
    return found


def caused_by(error: BaseException) -> BaseException:
    """What it all began with."""
    seen = [error]
    while error.__cause__ is not None:
        error = error.__cause__
        assert error not in seen, "an error is its own cause"
        seen.append(error)
    return error


@pytest.fixture(autouse=True)
def leases_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "RETRY_DELAYS", ())


@pytest.mark.parametrize(
    ("parts", "advice"),
    [
        ({"netloc": "ada:s3cr3t-word@127.0.0.1:1", "query": ""}, "start the server"),
        ({"path": "/no_such_database"}, "createdb"),
        ({"netloc": "no_such_role"}, "createuser"),
    ],
)
async def test_a_database_that_cannot_be_reached_is_one_error_whatever_is_called(
    database_url: str, parts: dict[str, str], advice: str
) -> None:
    given = urlsplit(database_url)
    if parts.get("netloc") == "no_such_role":
        parts = {"netloc": f"no_such_role@{given.netloc.rpartition('@')[2]}"}
    url = urlunsplit(given._replace(**parts))
    found = await answers(url)
    assert len(found) > 80
    assert found.pop("app.examine") is None, "that is a finding"
    for place, error in found.items():
        assert isinstance(error, DatabaseUnavailable), (place, error)
        assert f"cannot connect to {mask(url)}: " in str(error), (place, error)
        assert advice in str(error), (place, error)
        assert isinstance(caused_by(error), psycopg.OperationalError), place
        assert "s3cr3t" not in f"{error} {caused_by(error)}"


READ = (
    "get",
    "list",
    "count",
    "queues",
    "show",
    "status",
    "summary",
    "audit",
    "preview",
    "ticks",
    "quarantined",
    "attention",
)


async def test_a_server_that_takes_no_writes_is_one_error_for_whatever_writes(database_url: str) -> None:
    """As a standby, or a provider whose disk is almost full."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table sums (id int primary key, state text, changed_at timestamptz)")
        name = connection.info.dbname
        connection.execute(f'alter database "{name}" set default_transaction_read_only = on'.encode())
    written = 0
    for place, error in (await answers(database_url)).items():
        if isinstance(error, DatabaseUnavailable):
            written += 1
            assert "is read-only" in str(error), (place, error)
            assert mask(database_url) in str(error) or place.startswith("app.lease"), (place, error)
            assert "primary" in str(error), (place, error)
            assert isinstance(caused_by(error), psycopg.errors.ReadOnlySqlTransaction), place
            assert not place.partition(".")[2].startswith(READ), (place, error)
        else:
            assert not isinstance(error, psycopg.Error), (place, error)
    assert written > 30


NEED_NO_SCHEMA = {"app.open", "app.transaction", "app.now", "app.now_sync", "app.examine"}


async def test_a_database_without_the_schema_is_one_error_whatever_is_called(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("create table sums (id int primary key, state text, changed_at timestamptz)")
    for place, error in (await answers(empty_database_url)).items():
        if place in NEED_NO_SCHEMA:
            assert error is None, (place, error)
            continue
        assert isinstance(error, SchemaMismatch), (place, error)
        assert str(error).startswith(
            f"database {mask(empty_database_url)}: the database has no trueup schema 'trueup' yet; run "
        ), place
        assert isinstance(error.__cause__, psycopg.Error), place


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "delete from trueup.migrations where number >= 16",
            r"lacks \d+ migrations, 0016_\w+ to \d{4}_\w+; run `trueup migrate`",
        ),
        (
            "insert into trueup.migrations (number, step, name) values (9999, 'post', 'later')",
            "is at 9999, beyond .* install the newer",
        ),
    ],
)
@pytest.mark.parametrize("how", ["async", "sync"])
async def test_something_of_ours_that_is_missing_is_explained_by_the_migrations(
    app: App, database_url: str, change: str, told: str, how: str
) -> None:
    """As releases before and after this one leave it: a function is gone, a column has another name."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("drop view trueup.health; drop function trueup.health_at")
        connection.execute("alter table trueup.jobs rename column progress to advance")
        connection.execute(change.encode())
    for ask, ask_sync in ((app.alerts.list, app.alerts.list_sync), (app.jobs.list, app.jobs.list_sync)):
        with pytest.raises(SchemaMismatch, match=told) as raised:
            await ask() if how == "async" else ask_sync()
        assert isinstance(raised.value.__cause__, psycopg.ProgrammingError)


async def test_something_that_is_missing_from_a_schema_that_fits_stays_the_drivers_error(
    app: App, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("alter table trueup.jobs rename column progress to advance")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        await app.jobs.list()


async def test_a_broken_connection_is_explained_except_in_the_callers_transaction(app: App, database_url: str) -> None:
    end = """select pg_terminate_backend(pid) from pg_stat_activity
              where datname = current_database() and wait_event_type = 'Lock'"""
    with psycopg.connect(database_url) as blocker, psycopg.connect(database_url, autocommit=True) as other:
        blocker.execute("lock table trueup.workers in access exclusive mode")
        asked = asyncio.create_task(app.workers.list())
        await until_beside(lambda: other.execute(end).fetchone())
        with pytest.raises(DatabaseUnavailable, match="closed the connection") as raised:
            await asked
        assert isinstance(raised.value.__cause__, psycopg.errors.AdminShutdown)
    with pytest.raises(psycopg.errors.AdminShutdown):
        async with app.transaction() as tx:
            await tx.execute("select pg_terminate_backend(pg_backend_pid())")


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", 2**70])
async def test_a_value_that_postgresql_cannot_hold_is_an_error_of_ours(database_url: str, value: Any) -> None:
    """Wherever it is given: as a name, a key, a reason, a filter or an id."""
    tried, passed_on = 0, dict[str, Exception]()
    async with declaring(database_url) as app:
        for group in ("jobs", "schedules", "reconcilers", "workers", "alerts", "actions"):
            operations = getattr(app, group)
            for name in sorted(set(dir(operations)) - {"blocking", "create"}):
                if name.startswith("_") or name.endswith("_sync") or not callable(getattr(operations, name)):
                    continue
                for given in with_value(group, name, getattr(operations, name), value):
                    tried += 1
                    try:
                        await getattr(operations, name)(**given)
                    except Exception as error:
                        if not isinstance(error, TrueupError | TypeError) or not str(error).isprintable():
                            passed_on[f"{group}.{name} {given}"] = error
    assert tried > 30
    assert passed_on == {}


def with_value(group: str, name: str, method: Any, value: Any) -> Iterator[dict[str, Any]]:
    """The arguments of a method with the value in place of one of them, for each of them that is of its type."""
    named = {} if group not in NAMED or name in WITHOUT else {0: NAMED[group]}
    usual = ARGUMENTS.get(f"{group}.{name}") or tuple(named.values())
    parameters = {key: str(each.annotation) for key, each in signature(method).parameters.items()}
    if parameters.pop("matching", None):
        parameters |= {key: str(each) for key, each in Matching.__annotations__.items()} | {
            "arguments": "Mapping str int"
        }
    given = dict(zip(parameters, usual, strict=False))
    for key, annotation in parameters.items():
        if type(value).__name__ in annotation:
            many = annotation.startswith(("Sequence", "Iterable", "Collection"))
            yield given | {key: {"tenant": value} if key == "arguments" else [value] if many else value}
