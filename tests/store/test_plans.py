"""Each statement uses the index its own header names, on a table large enough for a bad plan to hurt."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from tests.jobs.claimed import claimed
from tests.store.desk import failure
from tests.support.database import TestServer
from trueup.jobs.exhausted import Exhausting
from trueup.jobs.limits import Controls, Limit
from trueup.store.db.load import Statements, names, source
from trueup.store.db.message import Fetched
from trueup.store.db.own_connection import Record
from trueup.store.declarations import Declarations
from trueup.store.jobs import Jobs
from trueup.store.lanes import Lanes
from trueup.store.recovery import RecoveryViews
from trueup.store.rows.compose import steering
from trueup.store.rows.quarantine import Quarantine
from trueup.store.views import Views
from trueup.store.workers import Workers

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

HOLDER = UUID(int=1)
TODAY = "greatest(now() - n * interval '1 s', date_trunc('day', now(), 'UTC') + n * interval '1 us')"
"""The n-th moment before now, and never yesterday: two halves in two partitions would be too small for an index to pay."""

LARGE = """
insert into trueup.workers
select ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid, 'host', n, null, '{default}', 10, now(), now(),
       now() + case when n <= 5 then interval '-1 hour' else interval '1 hour' end
  from generate_series(1, 50) as n;
insert into trueup.jobs (kind, queue, lane, key, state, run_at, rank, args, unique_key, max_attempts, holder, cancel_requested_at)
select 'send', 'default', case when n % 10 = 0 then '@send' else 'default' end, 'tenant ' || n % 100,
       case when n % 200 = 0 then 'running' else 'queued' end, now() - n * interval '1 s', now() - n * interval '1 s', '{}',
       case when n % 3 = 0 then 'key ' || n end, 20,
       case when n % 200 = 0 then ('00000000-0000-0000-0000-' || lpad(to_hex(1 + n / 200 % 50), 12, '0'))::uuid end,
       case when n % 20000 = 0 then now() end
  from generate_series(1, 100000) as n;
insert into trueup.lanes values ('@send');
insert into trueup.history (id, kind, queue, lane, key, state, priority, run_at, args, attempt, max_attempts, crashes, term,
                            holder, enqueued_at, finished_at, errors)
select 200000 + n, 'send', 'default', 'default', '', case when n % 10 = 0 then 'dead' else 'done' end, 0, now(), '{}', 1, 1, 0, 1,
       '00000000-0000-0000-0000-000000000001', now(), {today}, '[]'
  from generate_series(1, 20000) as n;
insert into trueup.schedules (name, origin, spec, policy, kind, queue, lane, max_attempts, next_due_at, decided_until, created_at, changed_at)
select 'nightly ' || n, 'code', '{"kind": "every", "interval": "1h"}', '{}', 'send', 'default', 'default', 4,
       now() + (n - 100) * interval '1 min', now(), now(), now() from generate_series(1, 10000) as n;
insert into trueup.schedule_versions select name, version, now() - interval '1 h', state, spec from trueup.schedules;
insert into trueup.ticks (schedule, due_at, last_due_at, outcome, job_id, version, decided_at)
select 'nightly ' || n % 100, {today}, {today}, 'fired', 200000 + n, 1, now()
  from generate_series(1, 20000) as n;
insert into trueup.declarations
select 'digest ' || n, null, null, '{default}', '{send}', '{@send}', array['nightly ' || n, 'nightly ' || n + 1], '{}', now(), now(), now()
  from generate_series(1, 50) as n;
insert into trueup.sweeps (reconciler, holder, started_at, ended_at, claimed, changed, unchanged, conflict, retry, quarantined, lost,
                           late, worst_lateness_s, total_lateness_s, lateness)
select 'observe ' || n % 10, '00000000-0000-0000-0000-000000000001', now() - n * interval '15 min', now() - n * interval '15 min',
       1, 1, 0, 0, 0, 0, 0, 0, 0, 0, '{1,0,0,0,0,0,0,0,0}'
  from generate_series(1, 20000) as n;
insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)
select 'observe ' || n % 10, n::text, case when n % 20 < 10 then 'quarantined' else 'resting' end, now() + interval '1 h', n, 1, now(),
       now() - n * interval '1 s'
  from generate_series(1, 50000) as n;
insert into trueup.actions (at, actor, via, host, action, what, name, count, keys)
select now() - (20000 - n) * interval '15 min', 'ada', 'cli', 'host', 'retry', 'job', null, 1, array[n::text] from generate_series(1, 20000) as n;
insert into trueup.unique_windows select 'send', 'w ' || n, n, now() + (n - 100) * interval '1 min' from generate_series(1, 5000) as n;
"""


@pytest.fixture(scope="module")
def large_database_url(server: TestServer) -> Iterator[str]:
    with server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(LARGE.replace("{today}", TODAY))
            connection.execute("vacuum analyze")
        yield url


class Explainer:
    """Explains each statement instead of running it, and remembers the plans by the statement's name."""

    def __init__(self, connection: AsyncConnection[Any], statements: Statements) -> None:
        self._connection = connection
        fixed = [
            name
            for name in names()
            if not re.search(r"\{(day|rest|table|milliseconds|branches|values)\}", source(name))
        ]
        self._names = {statements[name]: name for name in fixed}
        self.plans: dict[str, dict[str, Any]] = {}

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        cursor = await self._connection.execute(b"explain (format json) " + query, params)
        row = await cursor.fetchone()
        assert row is not None
        self.plans[self._names[query]] = row[0][0]["Plan"]
        return []

    async def now(self) -> datetime:
        row = await (await self._connection.execute("select now()")).fetchone()
        assert row is not None
        return row[0]  # type: ignore[no-any-return]

    async def fetch_records(self, query: bytes, params: Mapping[str, Any]) -> list[Record]:
        await self.fetch(query, params)
        return []

    async def fetch_kept(self, query: bytes, params: Mapping[str, Any]) -> Fetched:
        return await self.fetch(query, params)

    async def fetch_steered(self, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Fetched:
        async with self._connection.transaction():
            await self._connection.execute(steer)
            return await self.fetch(query, params)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._connection.transaction():
            yield self._connection


@pytest_asyncio.fixture
async def explainer(large_database_url: str) -> AsyncIterator[Explainer]:
    async with await AsyncConnection.connect(large_database_url, autocommit=True) as connection:
        yield Explainer(connection, Statements("trueup"))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def sentence(name: str) -> str:
    """The header's "Index: …" sentence; empty without one."""
    header = "\n".join(line for line in source(name).splitlines() if line.startswith("--"))
    said = re.search(r"Index: (.*?)(?:\.\s|\.$|$)", header, re.DOTALL)
    return said[1] if said else ""


def lacking(name: str, indexes: set[str]) -> set[str]:
    """Those the header names that are not among these; of alternatives ("a or b") one is enough."""
    named = set(
        re.findall(
            r"\b(?:jobs|history|unique_windows|schedules|schedule_versions|ticks|sweeps|rows|actions)_\w+\b",
            sentence(name),
        )
    )
    return set() if " or " in sentence(name) and named & indexes else named - indexes


async def used(explainer: Explainer, plan: dict[str, Any]) -> set[str]:
    """The indexes a plan uses; those of partitions by the name of the index they belong to."""
    found = {node["Index Name"] for node in nodes(plan) if "Index Name" in node}
    found |= {node["Conflict Arbiter Indexes"][0] for node in nodes(plan) if node.get("Conflict Arbiter Indexes")}
    query = (
        "select r.oid::regclass from pg_class as c, pg_partition_ancestors(c.oid) as r(oid) where c.relname = any(%s)"
    )
    cursor = await explainer._connection.execute(query, [list(found)])
    return found | {str(name).removeprefix("trueup.") for (name,) in await cursor.fetchall()}


ACTIONS = {
    **dict.fromkeys(("now", "actor", "via", "action", "what", "name", "key", "within")),
    "before": 2**62,
    "limit": 100,
}


async def explain_everything(explainer: Explainer) -> None:
    """Send every statement that has an index to name, with the parameters production gives it."""
    aging = timedelta(seconds=60)
    statements = Statements("trueup", aging=aging)
    jobs = Jobs(explainer, statements)
    mine = [claimed(id=n, holder=HOLDER) for n in range(1, 21)]
    ids = [job.id for job in mine]
    await jobs.claim(HOLDER, "default", 100, ["send"])
    await jobs.held_terms(HOLDER)
    await jobs.held(HOLDER, ids)
    await jobs.complete(HOLDER, mine, [None] * 20)
    await jobs.retry(HOLDER, mine, [aging] * 20, [failure()] * 20)
    await jobs.defer(HOLDER, mine, [aging] * 20, [Exhausting("why", "", "")] * 20, [[failure()]] * 20)
    await jobs.snooze(HOLDER, mine, [aging] * 20)
    await jobs.release(HOLDER, mine, ["default"] * 20, [""] * 20)
    await jobs.bury(HOLDER, mine, [""] * 20, [failure()] * 20)
    await jobs.drop(HOLDER, mine, [""] * 20)
    await jobs.drop(HOLDER, mine, [""] * 20, ["elsewhere"] * 20)
    await jobs.ended_as_mine(HOLDER, mine)
    await jobs.rescue()
    await jobs.rescuable(100)
    await jobs.claimable("default", ["send"], 100, [7])
    await jobs.refused(7, "claim", "not this one")
    await jobs.stopping(HOLDER)
    await jobs.cancel(ids, "why")
    await jobs.request_stop(ids)
    await jobs.revive(ids)
    await jobs.discard(ids, "why")
    await jobs.hurry(ids)
    await jobs.outcome(7)
    await jobs.adopt(["@send", "@other"])
    await Views(explainer, statements).unserved()
    declarations = Declarations(explainer, statements, aging)
    await declarations.look("digest 7", ["@send"], 15)
    await declarations.rows("digest 7")
    workers = Workers(explainer, statements)
    await workers.forget()
    await explainer.fetch(statements["workers/leave"], {"now": None, "holder": HOLDER})
    await explain_lanes(explainer, statements)
    key = {"now": None, "kind": "send", "unique_key": "key 3"}
    await explainer.fetch(statements["jobs/find_unique"], key)
    replacing = {"args": "{}", "queue": "q", "lane": "q", "key": "", "priority": 0, "at": None, "delay": 0.0}
    await explainer.fetch(
        statements["jobs/replace"], {**key, **replacing, "max_attempts": 3, "meta": None, "aging": 60.0}
    )
    await explainer.fetch(statements["history/expire_windows"], {"now": None})
    await explainer.fetch(statements["history/expire_sweeps"], {"now": None, "keep": 30 * 86_400.0})
    await explainer.fetch(statements["history/expire_actions"], {"now": None, "keep": 90 * 86_400.0})
    await explainer.fetch(statements["actions/list"], ACTIONS)
    await explainer.fetch(statements["views/job"], {"id": 7})
    await explain_schedules(explainer, statements)
    await explain_recovery(explainer, statements)
    await explain_quarantine(explainer, statements)
    await explain_reconcilers(explainer, statements)


async def explain_lanes(explainer: Explainer, statements: Statements) -> None:
    place = {
        "lane": "@send",
        "last_key": "tenant 5",
        "keys": 500,
        "total": 50,
        "now": None,
        "bytes": 1_000_000,
        "only": None,
    }
    claim = {**place, "holder": HOLDER, "most": 10, "per_key": 5, "queue": "default", "kind": "limited"}
    for statement in ("lanes/claim", "lanes/turns"):
        await explainer.fetch_steered(statements["session/steer"], statements[statement], claim)
    await Lanes(explainer, statements).waiting({"default": None, "@send": Controls(Limit(total=50))})


async def explain_schedules(explainer: Explainer, statements: Statements) -> None:
    now = await explainer.now()
    nothing = {"unreadable_names": [], "unreadable_versions": []}
    name = {"name": "nightly 7"}
    parameters: dict[str, dict[str, Any]] = {
        "schedules/next": {"now": None, **nothing},
        "schedules/due": {"now": now, "names": None, "most": 1_000, **nothing},
        "schedules/hold": name,
        "schedules/stop_runs": {"now": None, "names": ["nightly 7"], "channel": "c"},
        "schedules/failing": {"names": ["nightly 7"], "mosts": [3]},
        "schedules/ticks": {**name, "limit": 10},
        "schedules/ledger": {**name, "since": now - timedelta(hours=1), "until": now},
        "schedules/versions": {"since": now},
        "schedules/list": {},
        "schedules/names": {},
    }
    for statement, given in parameters.items():
        await explainer.fetch(statements[statement], given)


async def explain_recovery(explainer: Explainer, statements: Statements) -> None:
    now = await explainer.now()
    views = RecoveryViews(explainer, statements)
    await views.downtimes(now - timedelta(hours=1), now)
    await views.unfinished({"nightly 7": timedelta(minutes=5)})
    await views.swept(now - timedelta(hours=1), now)


async def explain_quarantine(explainer: Explainer, statements: Statements) -> None:
    name, keys = "observe 7", [str(n) for n in range(7, 207, 10)]
    quarantine = Quarantine(explainer, statements)
    await quarantine.listed(name, 50)
    await quarantine.show(name, keys)
    await quarantine.keys(name, await explainer.now(), 500)
    await quarantine.release(name, keys)
    await quarantine.discard(name, keys)
    await explainer.fetch(statements["quarantine/count"], {"now": None, "reconciler": name})


async def explain_reconcilers(explainer: Explainer, statements: Statements) -> None:
    """What is asked about rows without asking their table; the rest is in test_plans_of_rows.py."""
    keys, terms = [str(n) for n in range(7, 2007, 10)], list(range(7, 2007, 10))
    known = {"reconciler": "observe 7", "now": None}
    held = {**known, "holder": HOLDER, "keys": keys, "terms": terms}
    quiet: dict[str, list[Any]] = {
        "state": ["resting"],
        "delay": [1.0],
        "attempt": [1],
        "error": [None],
        "reason": [None],
        "proposed": [None],
        "ongoing": [False],
    }
    quiet = {"key": keys, "term": terms, **{name: value * len(keys) for name, value in quiet.items()}}
    parameters: dict[str, dict[str, Any]] = {
        "rows/in_order": held,
        "rows/rest": {**held, **quiet, "most_errors": 20},
        "rows/renew": {**held, "lease_for": 30.0, "started": [True] * len(keys)},
        "rows/refund": held,
        "rows/drop": {**known, "key": keys, "term": terms},
        "rows/next_due": known,
        "rows/any_known": known,
    }
    for statement, given in parameters.items():
        await explainer.fetch(statements[statement], given)
    again = {"cut_off": None, "after_due": "-infinity", "after_key": "", "set_aside": True, "after": None}
    await explainer.fetch_steered(
        steering(statements, timedelta(seconds=5)),
        statements["rows/candidates_again"],
        {**known, **again, "after_set_aside": "", "window": 1_000},
    )


NOT_EXPLAINED = {
    "declarations/declare",  # their index arbitrates inserts
    "rows/refused",
    "rows/probe",  # composed: with the plans of rows
    "jobs/enqueue",
    "jobs/enqueue_one",
    "health/checks",  # a call of a function, whose plan is not part of the statement's
}


async def test_every_statement_uses_the_indexes_its_header_names(explainer: Explainer) -> None:
    await explain_everything(explainer)
    elsewhere = ("views/", "leases/", "reconcilers/", "scans/", "rates/")  # for people; one row by its key
    told = {
        name for name in names() if sentence(name) and not name.startswith(elsewhere) and "{table}" not in source(name)
    }
    missing = told - explainer.plans.keys() - NOT_EXPLAINED
    assert missing == set(), "statements with an index in their header that are not explained here"
    found = {name: lacking(name, await used(explainer, plan)) for name, plan in explainer.plans.items()}
    assert {name: indexes for name, indexes in found.items() if indexes} == {}


async def test_what_was_done_to_one_job_is_found_by_its_id(explainer: Explainer) -> None:
    await explainer.fetch(Statements("trueup")["actions/list"], {**ACTIONS, "key": "777"})
    assert await used(explainer, explainer.plans["actions/list"]) == {"actions_keys"}


async def test_no_statement_of_the_hot_path_reads_the_whole_table(explainer: Explainer) -> None:
    await explain_everything(explainer)
    scans = {
        name
        for name, plan in explainer.plans.items()
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in ("jobs", "unique_windows")
    }
    assert scans == set()


async def test_a_claim_passes_once_over_what_claimed_jobs_have_left_in_the_index(explainer: Explainer) -> None:
    """Until it is vacuumed. The walks begin at the first job of their priority, which another walk has found."""
    await Jobs(explainer, Statements("trueup")).claim(HOLDER, "default", 100, ["send"])
    await explain_lanes(explainer, Statements("trueup"))
    for name, walks in (("jobs/claim", 3), ("lanes/claim", 1)):
        conditions = [
            node["Index Cond"]
            for node in nodes(explainer.plans[name])
            if node["Node Type"] == "Index Scan" and node["Index Name"] == "jobs_due"
        ]
        assert len(conditions) == walks, name
        assert all(") >= ROW(" in condition for condition in conditions), conditions


async def test_claims_and_looks_keep_their_plan_with_statistics_of_an_empty_table(explainer: Explainer) -> None:
    statements = Statements("trueup")
    async with explainer.transaction() as connection:
        await connection.execute("delete from pg_statistic where starelid = 'trueup.jobs'::regclass")
        await connection.execute("update pg_class set reltuples = 0, relpages = 0 where oid = 'trueup.jobs'::regclass")
        await Jobs(explainer, statements).claim(HOLDER, "default", 100, ["send"])
        await explain_lanes(explainer, statements)
        for name in ("jobs/claim", "lanes/claim", "lanes/turns", "lanes/waiting"):
            scans = [node for node in nodes(explainer.plans[name]) if node.get("Relation Name") == "jobs"]
            queued = [node["Index Name"] for node in scans if "Index Name" in node and "due" in node["Index Name"]]
            assert queued, name
            assert {node["Node Type"] for node in scans} <= {
                "Index Scan",
                "Index Only Scan",
                "Tid Scan",
                "ModifyTable",
            }, name
            assert lacking(name, await used(explainer, explainer.plans[name])) == set(), name
        raise psycopg.Rollback
