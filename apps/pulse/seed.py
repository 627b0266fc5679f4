"""Made-up projects with tasks and members, reports that are due, checkpoints, users all over the world, and old messages."""

from __future__ import annotations

from dataclasses import dataclass

from .database import Tx

ZONES = [
    "Pacific/Kiritimati",
    "Asia/Tokyo",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Europe/Berlin",
    "UTC",
    "America/Sao_Paulo",
    "America/New_York",
    "America/Los_Angeles",
    "Pacific/Marquesas",
]


@dataclass(frozen=True)
class Size:
    projects: int = 250
    reports: int = 120
    users: int = 40


USERS = """
insert into users (name, timezone)
select 'user ' || n, (%(zones)s::text[])[1 + n %% cardinality(%(zones)s::text[])] from generate_series(1, %(users)s) as n
returning id
"""
PROJECTS = """
insert into projects (name) select 'project ' || n from generate_series(1, %(projects)s) as n returning id
"""
MEMBERS = """
insert into members (project_id, user_id, weekly_hours)
select id, (%(user_ids)s::bigint[])[1 + n %% cardinality(%(user_ids)s::bigint[])], 4 + n %% 5
  from unnest(%(project_ids)s::bigint[]) with ordinality as p (id, n)
"""
TASKS = """
insert into tasks (project_id, title, status, due_at, done_at)
select p.id, 'task ' || t, s.status, now() - interval '5 days' + t * interval '1 day',
       case s.status when 'DONE' then now() - interval '6 days' + t * interval '12 hours' end
  from unnest(%(project_ids)s::bigint[]) as p (id), generate_series(1, 10) as t,
       lateral (select (array['DONE', 'DONE', 'DONE', 'OPEN', 'BLOCKED'])[1 + (p.id + t) %% 5] as status) as s
"""
REPORTS = """
insert into report_schedules (project_id, frequency, anchor_day, next_run)
select (%(project_ids)s::bigint[])[1 + n %% cardinality(%(project_ids)s::bigint[])],
       (array['DAILY', 'WEEKLY', 'BIWEEKLY', 'MONTHLY'])[1 + n %% 4], 1 + n %% 31, date_trunc('day', now(), 'UTC')
  from generate_series(1, %(reports)s) as n
"""
CHECKPOINTS = """
insert into checkpoints (project_id, title, due_on)
select id, 'checkpoint of ' || id, (now() at time zone 'UTC')::date + (id %% 6)::int from unnest(%(project_ids)s::bigint[]) as id
"""
CONVERSATIONS = """
with c as (insert into conversations (user_id) select unnest(%(user_ids)s::bigint[]) returning id)
insert into messages (conversation_id, body, created_at)
select c.id, 'message ' || n, now() - n * interval '1 day' from c, generate_series(0, 59) as n
"""


async def fill(tx: Tx, size: Size) -> None:
    params = {"zones": ZONES, "projects": size.projects, "reports": size.reports, "users": size.users}
    user_ids = [row[0] for row in await (await tx.execute(USERS, params)).fetchall()]
    project_ids = [row[0] for row in await (await tx.execute(PROJECTS, params)).fetchall()]
    made = {**params, "user_ids": user_ids, "project_ids": project_ids}
    for statement in (MEMBERS, TASKS, REPORTS, CHECKPOINTS, CONVERSATIONS):
        await tx.execute(statement, made)
