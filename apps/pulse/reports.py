"""Reports in the database. Everything here runs in a transaction of the caller's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from . import database
from .database import Tx
from .health import UnusableFacts
from .runs import Run

CONTENT = """
select p.name, p.status, p.health_score as score, p.health_level as level, p.health_trend as trend,
       (select count(*)::int from tasks as t where t.project_id = p.id and t.done_at > %(since)s) as done,
       (select count(*)::int from tasks as t where t.project_id = p.id and t.status <> 'DONE') as open,
       (select count(*)::int from tasks as t where t.project_id = p.id and t.status = 'BLOCKED') as blocked,
       (select count(*)::int from alerts as a where a.project_id = p.id and a.created_at > %(since)s) as alerts,
       (select coalesce(sum(m.weekly_hours), 0)::float8 from members as m where m.project_id = p.id) as weekly_hours
  from projects as p where p.id = %(project)s
"""
INSERT = """
insert into reports (schedule_id, due_at, project_id, content, term, began_at)
values (%(schedule)s, %(due_at)s, %(project)s, %(content)s, %(term)s, %(began_at)s)
"""
WAITING = "select count(*)::int as waiting from report_schedules where active and next_run <= %(now)s"
LATEST = """
select r.schedule_id, r.due_at, r.project_id, s.frequency, r.content, r.ended_at as made_at
  from reports as r join report_schedules as s on s.id = r.schedule_id
 where %(project)s::bigint is null or r.project_id = %(project)s
 order by r.ended_at desc limit %(most)s
"""


@dataclass(frozen=True)
class ReportSchedule:
    id: int
    project_id: int
    frequency: str
    anchor_day: int
    next_run: datetime
    failures: int


async def content(tx: Tx, schedule: ReportSchedule, since: datetime, missed: int) -> dict[str, Any]:
    """Raises UnusableFacts when the numbers cannot be."""
    found = await database.one(tx, CONTENT, {"project": schedule.project_id, "since": since})
    if found is None:
        raise UnusableFacts(f"project {schedule.project_id} is gone")
    if not 0 <= found["weekly_hours"] < float("inf"):  # nor is NaN
        raise UnusableFacts(f"weekly hours that cannot be: {found['weekly_hours']}")
    return {**found, "frequency": schedule.frequency, "since": since.isoformat(), "missed": missed}


async def record(tx: Tx, schedule: ReportSchedule, content: dict[str, Any], run: Run, began_at: datetime) -> None:
    params = {
        "schedule": schedule.id,
        "due_at": schedule.next_run,
        "project": schedule.project_id,
        "content": Jsonb(content),
        "term": run.lease.term,
        "began_at": began_at,
    }
    await tx.execute(INSERT, params)


async def waiting(tx: Tx, now: datetime) -> int:
    """How many are due."""
    found = await database.one(tx, WAITING, {"now": now})
    assert found is not None
    return int(found["waiting"])


async def latest(tx: Tx, *, project_id: int | None, most: int) -> list[dict[str, Any]]:
    return await database.rows(tx, LATEST, {"project": project_id, "most": most})
