"""Every page and every answer of the API over what real operations leave behind: nothing at all, scans, moves, released leases, …"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from itertools import combinations
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from tests.web.dashboard.test_who_may import OPERATOR, TOKENS, client
from trueup import App, Retry, Row, To
from trueup.jobs.records import JobError
from trueup.schedules.when import Once
from trueup.store.flow import SweptSpan
from trueup.testing.worker import ManualWorker
from trueup.web import dashboard
from trueup.web.dashboard.api.endpoints import ENDPOINTS
from trueup.web.dashboard.pages.overview import by_kind
from trueup.web.dashboard.pages.reconcilers import Waiting, _measured, _rate, _story
from trueup.web.dashboard.visit import Visit

pytestmark = pytest.mark.asyncio

PAGES = (
    "",
    "?window=24h",
    "/jobs",
    "/reconcilers",
    "/schedules",
    "/fleet",
    "/recovery",
    "/queues",
    "/alerts",
    "/audit",
)
ANSWERS = tuple(each.path for each in ENDPOINTS if each.method == "GET" and "{" not in each.path)
RECONCILERS = ("drop", "forward", "proposed", "objects")
TABLES = """
create table papers (id int primary key, state text not null, made_at timestamptz default now() - interval '1 hour');
insert into papers select n, 'new' from generate_series(1, 3) as n;
"""
# What an older release, a person with psql or a crash may leave.
MOMENTS = """do $$ declare each record; begin
  for each in select c.relname, a.attname from pg_class as c join pg_attribute as a on a.attrelid = c.oid
               where c.relnamespace = 'trueup'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
                 and a.atttypid = 'timestamptz'::regtype and a.attnum > 0 and not a.attisdropped
  loop
    begin
      execute format('update trueup.%I set %I = %L where %I is not null', each.relname, each.attname, '{}', each.attname);
    exception when check_violation or unique_violation then null;  -- the database guards this one itself
    end;
  end loop; end $$"""
ODD = '{"n": 1000000000000000000000000000000, "x": 1e400}'
ODD_ERRORS = (
    "{}",
    '"text"',
    "null",
    "[null]",
    '[1, "x", [], {"type": 5, "message": {"a": 1}, "at": "nonsense", "attempt": "x", "traceback": 7}]',
    '[{"at": 99999999999999, "attempt": 1e400, "pid": {"a": 1}, "host": 7, "term": [1000000000000000000000000000000]}]',
    '[{"at": "20000-01-01T00:00:00Z", "attempt": 1000000000000000000000000000000}]',
)
REMAINS = (
    "delete from trueup.workers",
    "update trueup.scans set underway = true, started_at = now(), error = 'no answer', failures = 2",
    "update trueup.rows set errors = '[{}]', state = 'quarantined', due_at = 'infinity'",
    "update trueup.history set errors = '[{}]', holder = null, claimed_at = null",
    *(f"update trueup.{table} set args = '{ODD}', progress = '{ODD}', meta = '{ODD}'" for table in ("jobs", "history")),
    f"update trueup.history set result = '{ODD}'",
    f"update trueup.schedules set args = '{ODD}', meta = '{ODD}'",
)


async def refused(app: App, pages: Iterable[str], answers: Iterable[str]) -> list[tuple[str, int, str]]:
    """Those that are not answered well."""
    paths = [*(f"/trueup{page}" for page in pages), *(f"/api/v1/trueup{answer}" for answer in answers)]
    async with client(dashboard.asgi(app, TOKENS), headers={"authorization": f"Bearer {OPERATOR}"}) as operator:
        answered = [(path, await operator.get(path)) for path in paths]
    return [(path, answer.status_code, answer.text[-200:]) for path, answer in answered if answer.status_code != 200]


async def test_every_page_is_there_before_anything_has_happened(app: App) -> None:
    assert await refused(app, PAGES, ANSWERS) == []


@pytest.mark.parametrize("trouble", ["where", "refused", "locked", "column", "table"])
async def test_rows_that_cannot_be_counted_hide_neither_their_reconciler_nor_the_others(
    database_url: str, trouble: str
) -> None:
    """It is on these pages that the trouble is looked for."""
    where = {"where": "1 / (id - 1) > 0", "refused": "refused(id)"}.get(trouble)
    after = {
        "locked": "begin; lock table sheets in access exclusive mode",
        "column": "alter table sheets drop column made_at",
        "table": "drop table sheets",
    }
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES + TABLES.replace("papers", "sheets"))  # type: ignore[arg-type]
        connection.execute(
            "create function refused(int) returns bool language plpgsql"
            " as $$ begin raise insufficient_privilege; end $$"
        )
        async with App(database_url, statement_timeout="300ms") as app:
            papers = app.table("papers", key="id", state="state", changed_at="made_at")
            sheets = app.table("sheets", key="id", state="state", changed_at="made_at", where=where)
            papers.move("new", to="seen", name="well", stale_for="1m")
            sheets.move("new", to="seen", name="unwell", stale_for="1m")
            assert await app.reconcilers.waiting("well") == 3
            connection.execute(after.get(trouble, ""))
            assert await refused(app, ["/reconcilers/unwell"], ["/reconcilers/unwell"]) == []
            assert await refused(app, PAGES, ANSWERS) == []
            async with client(dashboard.asgi(app, TOKENS), headers={"authorization": f"Bearer {OPERATOR}"}) as operator:
                listed = (await operator.get("/api/v1/trueup/reconcilers")).json()["reconcilers"]
                page = (await operator.get("/trueup/reconcilers/unwell")).text
    assert {each["name"]: each["waiting"] for each in listed} == {"well": 3, "unwell": None}
    why = {"where": "division by zero", "refused": "SQLSTATE 42501", "locked": "took longer than"}
    assert why.get(trouble, "sheets") in page


async def test_a_page_does_not_wait_for_a_lock_on_a_users_table_and_shows_the_count_later(
    app: App, database_url: str
) -> None:
    app.table("papers", key="id", state="state", changed_at="made_at").move(
        "new", to="seen", name="locked", stale_for="1m"
    )
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute("begin")
        connection.execute("lock table papers in access exclusive mode")
        async with client(dashboard.asgi(app, TOKENS), headers={"authorization": f"Bearer {OPERATOR}"}) as operator:
            page = (await operator.get("/trueup/reconcilers/locked")).text
            assert "Waiting rows are not counted: counting takes longer than 1 s." in page
            connection.execute("rollback")
            (found,) = (await operator.get("/api/v1/trueup/reconcilers")).json()["reconcilers"]
    assert (found["waiting"], found["uncounted"]) == (3, "")


@pytest.mark.slow
async def test_every_page_is_there_whatever_has_happened(app: App, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)
    papers = app.table("papers", key="id", state="state", changed_at="made_at")
    papers.delete("old", name="drop", stale_for="1m")
    papers.move("new", to="seen", name="forward", stale_for="1m")

    @papers.reconcile("new", mode="shadow", every="1h")
    async def proposed(row: Row) -> None: ...

    @app.scan("objects", every="1h")
    async def objects(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        yield 1, 1

    @objects.each
    async def handle(item: int) -> None:
        raise ValueError("no such object")

    @app.every("1h")
    async def hourly() -> None: ...

    @app.job(retry=Retry(max_attempts=1))
    async def fail(x: int) -> None:
        raise ValueError("boom")

    @app.job
    async def succeed() -> dict[str, Any]:
        return {"a": 1}

    await app.open()
    jobs = [await fail.enqueue(x=1), await succeed.enqueue()]
    worker = ManualWorker(app)
    await worker.begin()
    await worker.run_pending()
    for name in ("proposed", "forward", "drop", "objects"):
        await app.reconcilers.run(name)
    async with app.lease("released"):
        pass
    jobs.append(await succeed.using(delay="1h").enqueue())
    await app.schedules.create("once", Once(datetime.now(UTC) + timedelta(hours=1)), succeed.call())
    await app.jobs.pause(queue="default")
    each = [*(f"/jobs/{job.id}" for job in jobs), *(f"/reconcilers/{name}" for name in RECONCILERS)]
    each.append("/schedules/once")
    pages = [*PAGES, *each, "/reconcilers/forward/row", *(f"/reconcilers/{name}/row?key=1" for name in RECONCILERS)]
    assert await refused(app, pages, [*ANSWERS, *each]) == []
    await worker.end()
    with psycopg.connect(database_url, autocommit=True) as connection:
        for remains in REMAINS:
            connection.execute(remains.encode())
    assert await refused(app, pages, [*ANSWERS, *each]) == []
    for moment in ("infinity", "-infinity", "20000-01-01"):
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(MOMENTS.format(moment).encode())
        assert await refused(app, pages, [*ANSWERS, *each]) == [], moment
    job = f"/jobs/{jobs[0].id}"
    with_errors = ["/jobs", job, "/reconcilers/proposed", "/reconcilers/proposed/row?key=1"]
    for errors in ODD_ERRORS:
        with psycopg.connect(database_url, autocommit=True) as connection:
            for table in ("jobs", "history", "rows"):
                connection.execute(f"update trueup.{table} set errors = %s".encode(), [errors])
        assert await refused(app, with_errors, ["/jobs", job]) == [], errors
    async with App(database_url) as other:  # that declares nothing of it
        assert await refused(other, pages, [*ANSWERS, *each]) == []


MANY = """
insert into trueup.declarations (digest, service, queues, kinds, lanes, schedules, reconcilers, living_since, started_at, seen_at)
select 'one', 'shop', '{default}', array(select 'kind_' || n from generate_series(1, 200) as n), '{}', '{}', '{}', now(), now(), now();
insert into trueup.workers (holder, host, pid, release, queues, concurrency, started_at, renewed_at, lease_until, declaration)
select gen_random_uuid(), 'pod-' || n, n, 'r' || n % 2, '{default}', 4, now(), now(),
       now() + make_interval(hours => case when n = 390 then -1 else 1 end), 'one' from generate_series(1, 400) as n;
insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts)
select 'kind_' || n, 'queue_' || n, 'queue_' || n, now() - make_interval(secs => case when n = 777 then 600 else 1 end), now(), '{}', 3
  from generate_series(1, 1000) as n;
insert into trueup.leases (name, holder, label, term, lease_until, acquired_at, renewed_at)
select 'lease_' || n, gen_random_uuid(), 'pod-' || n, n, now() + interval '1 hour', now(), now() from generate_series(1, 500) as n;
insert into trueup.reconcilers (name, place, declared, declared_at)
select 'reconciler_' || n, 'orders', '{"what": "reconcile", "every": "30s", "mode": "live", "rows": "rows of orders"}', now() from generate_series(1, 500) as n;
insert into trueup.schedules (name, origin, state, spec, policy, kind, queue, lane, max_attempts, next_due_at, decided_until, created_at, changed_at)
select 'schedule_' || to_char(n, 'fm000'), 'code', case when n = 400 then 'paused' else 'active' end, '{"kind": "every", "interval": "5m", "anchor": "2026-01-01T00:00:00+00:00"}',
       '{}', 'kind_1', 'default', 'default', 3, now(), now(), now(), now() from generate_series(1, 500) as n;
insert into trueup.schedule_refusals select name, version, 'too long', 1, now(), now() from trueup.schedules where name = 'schedule_400';
update trueup.reconcilers set last_error = 'no such relation', last_failed_at = now(), failures = 3 where name = 'reconciler_400';
insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at, reason, errors)
select 'reconciler_1', n::text, 'quarantined', now(), n, 5, now(), now(), 'out of attempts', '[]' from generate_series(1, 500) as n;
"""


async def test_a_large_fleet_with_many_kinds_has_pages_that_can_be_sent_every_two_seconds(
    app: App, database_url: str
) -> None:
    """What is urgent is shown, and how much is not, which a person can ask for."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(MANY.encode())
    await app.open()
    await app.jobs.pause(queue="queue_5")
    pages = (*PAGES, "/reconcilers/reconciler_1", "/schedules/schedule_001")
    async with client(dashboard.asgi(app)) as here:
        texts = {page: (await here.get(f"/trueup{page}")).text for page in pages}
        (more,) = re.findall(r'href="(/trueup/schedules\?most=[^"]*)"', texts["/schedules"])
        all_of_them = (await here.get(more)).text
        listed = (await here.get("/api/v1/trueup/reconcilers")).json()["reconcilers"]
    assert {page: len(text) for page, text in texts.items() if len(text) > 250_000} == {}
    assert "kind_777" in texts[""]
    assert "queue_777" in texts["/queues"]
    assert "queue_5<" in texts["/queues"]
    assert "pod-390:390" in texts["/fleet"]
    assert "schedule_400<" in texts["/schedules"], "the one that is refused comes first"
    assert "reconciler_400<" in texts["/reconcilers"], "and so does the one that fails"
    assert texts["/fleet"].count("kind_77<") == 1, "what all of them declare is listed once"
    hidden = (("", 900), ("/queues", 900), ("/fleet", 300), ("/schedules", 400), ("/reconcilers", 400))
    assert {page: f"and {number} more" in texts[page] for page, number in hidden} == dict.fromkeys(dict(hidden), True)
    assert "schedule_333<" in all_of_them
    assert re.findall(r"and \d+ more", all_of_them) == []
    assert len(listed) == 500


async def test_the_timeline_of_a_row_has_the_failure_before_what_followed_from_it() -> None:
    at = datetime(2031, 1, 1, tzinfo=UTC)
    row = {"state": "quarantined", "claimed_at": at, "changed_at": at, "due_at": None, "attempt": 1, "reason": "no"}
    told = _story(row, [JobError(1, "ValueError", "boom", at)])
    assert [each.headline for each in reversed(told)] == ["Last claimed", "Attempt 1 failed", "Set aside"]
    assert "running" not in {each.word for each in told}


@pytest.mark.parametrize(
    ("minutes", "rows", "rate"), [(1, [0, 0, 600], 600 / 660), (4, [300, 300, 0], 600 / 840), (2, [120], 1.0)]
)
async def test_the_rate_of_a_reconciler_is_of_the_last_minutes_up_to_now(
    minutes: int, rows: list[int], rate: float
) -> None:
    """Work that has just begun, and work that has just stopped, shows at once."""
    last = datetime(2026, 11, 18, 12, tzinfo=UTC)
    step = timedelta(minutes=5)
    spans = [SweptSpan(last - step * ago, changed=changed) for ago, changed in enumerate(reversed(rows))][::-1]
    assert _rate(spans, last + timedelta(minutes=minutes)) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("state", "last_error", "attended", "eta"),
    [
        ("active", None, True, 4.0),
        ("active", None, False, None),
        ("paused", None, True, None),
        ("active", "x", True, None),
    ],
)
async def test_what_is_not_worked_on_has_no_time_when_it_will_be_done(
    state: str, last_error: str | None, attended: bool, eta: float | None
) -> None:
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)
    record = {"name": "ship", "state": state, "last_error": last_error}
    spans = [SweptSpan(now - timedelta(seconds=10), changed=50)]
    visit = cast(Visit, SimpleNamespace(now=now))
    assert _measured(visit, record, Waiting(20), spans, attended=attended)["eta_s"] == eta


async def test_schedules_whose_last_run_died_come_first_and_lead_to_it(app: App) -> None:
    """That its tick was fired says nothing about its run."""

    @app.every("1d", retry=Retry(max_attempts=1))
    async def works() -> None: ...

    @app.every("2d", retry=Retry(max_attempts=1))
    async def zealous() -> None:
        raise ValueError("boom")

    await app.open()
    worker = ManualWorker(app)
    await worker.begin()
    for name in ("works", "zealous"):
        await app.schedules.trigger(name)
    assert {each["name"]: each["last_run"] for each in await app.schedules.list()} == {
        "works": "queued",
        "zealous": "queued",
    }
    await worker.run_pending()
    await worker.end()
    assert {each["name"]: each["last_run"] for each in await app.schedules.list()} == {
        "works": "done",
        "zealous": "dead",
    }
    async with client(dashboard.asgi(app, TOKENS), headers={"authorization": f"Bearer {OPERATOR}"}) as operator:
        listed = (await operator.get("/api/v1/trueup/schedules")).json()["schedules"]
        page = (await operator.get("/trueup/schedules")).text
    job = next(each["last_job_id"] for each in listed if each["last_run"] == "dead")
    assert re.search(f'href="/trueup/jobs/{job}"><span class="state bad">', page)
    assert re.findall('data-key="(works|zealous)"', page) == ["zealous", "works"]


async def test_the_list_of_jobs_shows_their_arguments_live_and_ended_unless_they_are_large(app: App) -> None:
    @app.job(retry=Retry(max_attempts=1))
    async def mail(to: str, order: int, remarks: str = "") -> None:
        if order == 2:
            raise ValueError("bad address")

    await app.open()
    for order, note in ((1, ""), (2, ""), (3, "".join(map(chr, range(65, 10_000))))):
        await mail.enqueue("ann@example.org", order, note)
    worker = ManualWorker(app)
    await worker.begin()
    await worker.run_pending()
    await worker.end()
    await mail.using(delay="1h").enqueue("<b>", 4, "x" * 500)
    async with client(dashboard.asgi(app, TOKENS), headers={"authorization": f"Bearer {OPERATOR}"}) as operator:
        page = (await operator.get("/trueup/jobs")).text
    assert re.findall(r'class="clip args">to=&#34;(.*?)&#34;, order=(\d)', page) == [
        ("&lt;b&gt;", "4"),
        ("ann@example.org", "2"),
        ("ann@example.org", "1"),
    ]
    assert "xxx…" in page
    assert "x" * 200 not in page


UNREADABLE = (
    *("attempts=three", "attempts=-1", "older=yesterday", "older=1+day+or+so", "state=deadd", "state=dead&state=x"),
    *(
        "arg=order",
        "arg=%3D7",
        f"arg=a%3D{'9' * 40}&arg=a%3D1",
        "arg=a%3D1&arg=a%3D2",
        "arg=a%3D1&arg=a.b%3D2",
        "arg=a.b%3D2&arg=a%3D1",
    ),
    *(f"error={'x' * 201}", "kind=%00", "queue=a%00b", "&".join(f"arg=a{number}%3D1" for number in range(51))),
)


@pytest.mark.parametrize("filters", UNREADABLE, ids=lambda filters: filters[:30])
async def test_a_filter_that_cannot_be_read_matches_nothing_and_nothing_is_acted_on(app: App, filters: str) -> None:
    """ "Discard all" of a page that ignored it would discard the others, too."""

    @app.job
    async def send(order: int) -> None: ...

    await send.enqueue(7)
    site = dashboard.asgi(app, undo_for=0.0)
    async with client(site) as here:
        assert (await here.get(f"/trueup/jobs?{filters}")).status_code == 400
        page = (await here.get("/trueup/jobs")).text
        (csrf,) = set(re.findall(r'name="csrf" value="([^"]+)"', page))
        form = {"csrf": csrf, "back": "/trueup/jobs"}
        await here.post(f"/trueup/jobs-matching/cancel?{filters}", data=form)
        answer = await here.get("/trueup/jobs")
    assert 'class="said wrong"' in answer.text
    assert "run-line" not in answer.text
    assert (await app.jobs.count(state="queued")).number == 1


@pytest.mark.parametrize("filters", ["via=x", "job=x", "within=x", "what=x", "before=x", f"actor={'x' * 201}"])
async def test_a_filter_of_the_audit_log_that_cannot_be_read_is_refused(app: App, filters: str) -> None:
    await app.open()
    async with client(dashboard.asgi(app)) as here:
        answer = await here.get(f"/trueup/audit?{filters}")
    assert answer.status_code == 400
    assert filters.partition("=")[0] in answer.text.lower()


async def test_a_kind_keeps_its_place_on_the_overview_while_its_jobs_come_and_go() -> None:
    """A page on a second screen does not jump whenever a short job begins or ends. The dashboard may not know the App's kinds."""
    live = [
        {"kind": kind, "queue": queue, "queued": 1, "due": 1, "running": 0, "oldest_due_s": 1.0}
        for queue, kind in (("a", "z"), ("b", "a"), ("b", "m"))
    ]
    ended = [{"kind": kind, "state": "done", "count": 3} for kind in "zam"]
    for declared in ({}, {"z": "a", "a": "b", "m": "b"}):
        for some in (*combinations(live, 0), *combinations(live, 1), *combinations(live, 2), tuple(live)):
            assert [row["key"] for row in by_kind(list(some), ended, declared)] == ["a", "m", "z"]
    rows = by_kind([*live, {**live[2], "queue": "c"}], ended, {"z": "a"})
    assert [(row["key"], row["queue"]) for row in rows] == [("a", "b"), ("m", "b"), ("m c", "c"), ("z", "a")]
    assert by_kind([], ended, {"z": "a"})[2]["queue"] == "a"


async def test_rows_without_a_time_at_which_they_were_due_count_as_handled(app: App, database_url: str) -> None:
    """Without stale_for= and due_at= no row is late; the recovery page and `trueup recovery` say the same of it."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)  # type: ignore[arg-type]

    @app.table("papers", key="id", state="state", changed_at="made_at").reconcile("new", every="1h")
    async def file(row: Row) -> To:
        return To("filed")

    worker = ManualWorker(app)
    await worker.begin()
    await worker.sweep("file")
    await worker.end()
    (known,) = (await app.recovery("1h")).reconcilers
    assert (known.counts.claimed, known.lateness.count) == (3, 0)
    async with client(dashboard.asgi(app)) as here:
        (shown,) = re.findall(r'<tr data-key="file">.*?</tr>', (await here.get("/trueup/recovery")).text, re.DOTALL)
    assert '<td class="num">3</td>' in shown
    assert "3 on time" in shown
