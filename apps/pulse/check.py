"""An independent check of the books: plain SQL over the tables, Redis as any client sees it, and what the receiver of reminders and
alerts has taken. No code of the application's.

What must be is said a second time here, in another language, so that a mistake in the application is not its own proof.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import Connection

from apps.checking import counted, told

# Each counts what is wrong.
WRONG = {
    "ticks were run to their end twice": """
select count(*) from (select from runs where ended_at is not null group by job, tick having count(*) > 1) as d""",
    "runs of one job were side by side": """
select count(*) from runs as a join runs as b on b.job = a.job and b.term > a.term and b.began_at < a.ended_at""",
    "projects were checked twice in one tick": """
select count(*) from (select from health_checks group by project_id, tick having count(*) > 1) as d""",
    "active projects were never checked": """
select count(*) from projects as p where status = 'ACTIVE' and not exists (select from health_checks as h where h.project_id = p.id)""",
    "checks were written under a term that was not the newest": """
select count(*) from health_checks as h
 where exists (select from runs as r where r.job = 'health-check' and r.term > h.term and r.began_at < h.ended_at)""",
    "falls of level have no alert": """
select count(*) from (
  select id, level, lag(level) over (partition by project_id order by id) as before from health_checks
) as c where array_position(array['EXCELLENT', 'GOOD', 'WARNING', 'CRITICAL'], level)
           > array_position(array['EXCELLENT', 'GOOD', 'WARNING', 'CRITICAL'], before)
         and not exists (select from alerts as a where a.health_check_id = c.id)""",
    "alerts are of no fall of level": """
select count(*) from alerts as a join (
  select id, level, lag(level) over (partition by project_id order by id) as before from health_checks
) as c on c.id = a.health_check_id
 where coalesce(array_position(array['EXCELLENT', 'GOOD', 'WARNING', 'CRITICAL'], level)
                <= array_position(array['EXCELLENT', 'GOOD', 'WARNING', 'CRITICAL'], before), true)""",
    "levels do not fit their scores": """
select count(*) from health_checks where level <>
  case when score >= 85 then 'EXCELLENT' when score >= 70 then 'GOOD' when score >= 50 then 'WARNING' else 'CRITICAL' end""",
    "projects do not say what their last check found": """
select count(*) from projects as p join lateral (
  select score, level from health_checks as h where h.project_id = p.id order by id desc limit 1
) as h on (p.health_score, p.health_level) is distinct from (h.score, h.level)""",
    "reports are due and were not made": "select count(*) from report_schedules where active and next_run <= now()",
    "checkpoints were not reminded of": """
select count(*) from checkpoints as c join projects as p on p.id = c.project_id and p.status = 'ACTIVE'
 where not done and due_on - (now() at time zone 'UTC')::date between 0 and 3
   and not exists (select from reminders as r where r.checkpoint_id = c.id and r.due_on = c.due_on and r.kind =
     case due_on - (now() at time zone 'UTC')::date when 0 then 'DAY_OF' when 1 then 'ONE_DAY' else 'THREE_DAYS' end)""",
    "users were not briefed": """
select count(*) from users as u, lateral (select now() at time zone timezone as now, (now() - interval '75 s') at time zone timezone as then) as c
 where extract(hour from c.then) >= briefing_hour and c.now::date = c.then::date
   and not exists (select from briefings as b where b.user_id = u.id and b.day = c.now::date)""",
    "old messages are left": "select count(*) from messages where created_at < now() - interval '30 days 1 minute'",
    "old conversations without messages are left": """
select count(*) from conversations as c
 where created_at < now() - interval '30 days 1 minute' and not exists (select from messages as m where m.conversation_id = c.id)""",
    "jobs are left": "select count(*) from {trueup}.jobs where kind not like 'trueup%%'",
}
NOTICES = """
select 'reminder:' || checkpoint_id || ':' || due_on || ':' || kind from reminders union all select 'alert:' || health_check_id from alerts
"""

Taken = Mapping[str, Collection[bytes]]  # by key: the different bodies that the receiver took under it


def check(database: str, redis_url: str, taken: Taken | None = None, *, schema: str = "trueup") -> list[str]:
    """What is wrong; nothing when nothing was lost or doubled and nothing is stuck. `schema` has trueup's tables, and `taken` is
    what a receiver of reminders and alerts got, if there is one."""
    with psycopg.connect(database) as connection:
        return examine(connection, redis_url, taken, schema=schema)


def examine(
    connection: Connection[Any], redis_url: str, taken: Taken | None = None, *, schema: str = "trueup"
) -> list[str]:
    found = {**counted(connection, WRONG, schema=schema), "locks are left in Redis": _keys(redis_url)}
    if taken is not None:
        notices = {key for (key,) in connection.execute(NOTICES)}
        found |= {
            "reminders and alerts never reached the receiver": len(notices - taken.keys()),
            "notices at the receiver are of no reminder or alert": len(taken.keys() - notices),
            "notices came under one key and differ": sum(len(bodies) > 1 for bodies in taken.values()),
        }
    return told(found)


def _keys(redis_url: str) -> int:
    """How many keys there are, asked in Redis's own protocol."""
    where = urlsplit(redis_url)
    with socket.create_connection((where.hostname or "127.0.0.1", where.port or 6379), 5) as connection:
        connection.sendall(b"*1\r\n$6\r\nDBSIZE\r\n")
        answer = connection.recv(100)
    if not answer.startswith(b":"):
        raise RuntimeError(f"Redis answered {answer!r}")
    return int(answer[1:])
