"""Whether what was done is what was to be done: from the database and from Redis, and not from what a process remembers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trueup import App

from . import briefings, database
from .database import Tx
from .dates import clocks, reminder
from .plan import JOBS

MAX_TICKS = 10_000

TWICE = "select job, tick from runs where ended_at is not null group by 1, 2 having count(*) > 1"
OVERLAPPING = """
select a.job, a.tick, b.tick as other from runs as a join runs as b on b.job = a.job and b.term > a.term and b.began_at < a.ended_at
"""
CHECKED_TWICE = "select project_id, tick from health_checks group by 1, 2 having count(*) > 1"
COUNTS = """
select (select count(*) from projects where status = 'ACTIVE')::int as projects,
       (select count(*) from projects as p where status = 'ACTIVE' and not exists (select from health_checks where project_id = p.id)
       )::int as unchecked,
       (select count(*) from health_checks)::int as checks,
       (select count(*) from reports)::int as reports,
       (select coalesce(sum(version - failures), 0) from report_schedules)::int as reports_counted,
       (select count(*) from report_schedules where active and next_run <= now())::int as reports_due,
       (select count(*) from reminders)::int as reminders,
       (select count(*) from briefings)::int as briefings,
       (select count(*) from messages where created_at < now() - interval '30 days 1 minute')::int as old_messages,
       (select count(*) from runs where ended_at is null)::int as cut_off
"""
CHECKPOINTS = "select id, due_on, (now() at time zone 'UTC')::date as today from checkpoints where not done"
REMINDERS = "select checkpoint_id, due_on, kind from reminders where created_at >= date_trunc('day', now(), 'UTC')"


@dataclass
class Books:
    """`wrong` is empty when they balance."""

    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def check(self, right: bool, what: str) -> None:
        if not right:
            self.wrong.append(what)

    @property
    def line(self) -> str:
        if self.wrong:
            return f"THE BOOKS DO NOT BALANCE: {'; '.join(self.wrong)}"
        return (
            "The books balance: {fired} ticks fired, each run to its end once and none beside another ({skipped} skipped, with the"
            " reason; {cut_off} runs cut off and resumed); {projects} projects, every one checked; {reports} reports,"
            " {reminders} reminders and {briefings} briefings, each once."
        ).format(**self.counts)


async def balance(app: App, redis_keys: list[str]) -> Books:
    """When nothing runs any more."""
    books = Books()
    async with app.transaction() as tx:
        counts = await database.one(tx, COUNTS)
        assert counts is not None
        books.counts = dict(counts)
        for statement, what in (
            (TWICE, "ticks run twice"),
            (OVERLAPPING, "runs side by side"),
            (CHECKED_TWICE, "projects checked twice in a tick"),
        ):
            found = await database.rows(tx, statement)
            books.check(not found, f"{what}: {found[:3]}")
        await _check_each_once(books, tx)
    await _check_ticks(books, app)
    books.check(not counts["unchecked"], f"{counts['unchecked']} projects were never checked")
    books.check(not counts["reports_due"], f"{counts['reports_due']} reports are due and were not made")
    books.check(
        counts["reports"] == counts["reports_counted"],
        f"{counts['reports']} reports, although {counts['reports_counted']} were counted",
    )
    books.check(not counts["old_messages"], f"{counts['old_messages']} old messages are left")
    books.check(not redis_keys, f"locks are left in Redis: {redis_keys}")
    return books


async def _check_each_once(books: Books, tx: Tx) -> None:
    wanted = {
        (row["id"], row["due_on"], reminder(row["due_on"], row["today"]))
        for row in await database.rows(tx, CHECKPOINTS)
    }
    wanted = {each for each in wanted if each[2] is not None}
    sent = {(row["checkpoint_id"], row["due_on"], row["kind"]) for row in await database.rows(tx, REMINDERS)}
    books.check(wanted <= sent, f"{len(wanted - sent)} reminders are missing")
    now = await database.one(tx, "select now() as now")
    assert now is not None
    shown, _ = clocks(await briefings.zones(tx), now["now"])
    missing = await briefings.due(tx, shown, 10)
    books.check(not missing, f"briefings are missing: {[row['id'] for row in missing]}")


async def _check_ticks(books: Books, app: App) -> None:
    fired = skipped = 0
    for job in JOBS:
        ticks: list[dict[str, Any]] = (await app.schedules.show(job.name, ticks=MAX_TICKS))["ticks"]
        run = {tick["due_at"] for tick in ticks if tick["outcome"] == "fired"}
        async with app.transaction() as tx:
            done = await database.rows(
                tx, "select distinct tick from runs where job = %(job)s and ended_at is not null", {"job": job.name}
            )
        ended = {row["tick"] for row in done}
        books.check(
            run == ended, f"{job.name}: {len(run - ended)} ticks were fired and not run, {len(ended - run)} not fired"
        )
        without_reason = [tick for tick in ticks if tick["outcome"] != "fired" and not tick["reason"]]
        books.check(not without_reason, f"{job.name}: {len(without_reason)} ticks were skipped without a reason")
        fired, skipped = fired + len(run), skipped + len(ticks) - len(run)
    books.counts |= {"fired": fired, "skipped": skipped}
