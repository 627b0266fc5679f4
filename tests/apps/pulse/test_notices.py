"""Reminders, briefings and the cleanup: each once, in each zone by its own clocks, in batches."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from prometheus_client import REGISTRY
from psycopg import AsyncConnection

from apps.pulse.check import WRONG, check, examine
from apps.pulse.constants import DEFAULT_BRIEFING_HOUR
from apps.pulse.plan import BRIEFING_GENERATION, CHECKPOINT_REMINDER, CONVERSATION_CLEANUP, HEALTH_CHECK, JOBS
from apps.servers.valkey import Valkey
from tests.apps.pulse.office import Office
from tests.integrations.sink import Sink, says
from trueup.integrations.webhooks import verify
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

SECRET = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0"


async def checkpoint(office: Office, days: int) -> None:
    (project,) = await office.projects(1)
    await office.do(
        "insert into checkpoints (project_id, title, due_on) values (%(p)s, 'c', %(day)s)",
        p=project,
        day=office.clock.now().date() + timedelta(days=days),
    )


async def kinds(office: Office) -> list[tuple[str, int]]:
    found = await office.all("select kind, days_left from reminders order by created_at, checkpoint_id, days_left desc")
    return [tuple(row.values()) for row in found]


async def user(office: Office, timezone: str, hour: int | None = None) -> int:
    return int(
        await office.one(
            "insert into users (name, timezone, briefing_hour) values ('Zoë', %(zone)s, coalesce(%(hour)s, 8)) returning id",
            zone=timezone,
            hour=hour,
        )
    )


async def briefed(office: Office) -> list[tuple[int, str]]:
    found = await office.all("select user_id, day::text from briefings order by user_id, day")
    return [tuple(row.values()) for row in found]


# -- reminders --------------------------------------------------------------------------------------------------------


async def test_a_checkpoint_is_reminded_of_three_times_and_each_time_once(office: Office) -> None:
    await checkpoint(office, 5)
    for _ in range(8):
        await office.run(CHECKPOINT_REMINDER)
        await office.run(CHECKPOINT_REMINDER)
        office.clock.advance(days=1)
    assert await kinds(office) == [("THREE_DAYS", 3), ("ONE_DAY", 1), ("DAY_OF", 0)]


async def test_after_a_downtime_the_reminder_is_the_one_that_fits(office: Office) -> None:
    for days in range(-1, 5):
        await checkpoint(office, days)
    await office.run(CHECKPOINT_REMINDER)
    assert sorted(await kinds(office)) == [("DAY_OF", 0), ("ONE_DAY", 1), ("THREE_DAYS", 2), ("THREE_DAYS", 3)]


async def test_what_is_done_or_whose_project_is_not_active_is_not_reminded_of(office: Office) -> None:
    await checkpoint(office, 1)
    await office.do("update checkpoints set done = true")
    await checkpoint(office, 1)
    await office.do("update projects set status = 'PAUSED'")
    await office.run(CHECKPOINT_REMINDER)
    assert await kinds(office) == []


async def test_a_checkpoint_that_is_put_off_is_reminded_of_anew(office: Office) -> None:
    await checkpoint(office, 1)
    await office.run(CHECKPOINT_REMINDER)
    await office.do("update checkpoints set due_on = due_on + 2")
    await office.run(CHECKPOINT_REMINDER)
    assert await kinds(office) == [("ONE_DAY", 1), ("THREE_DAYS", 3)]


# -- briefings --------------------------------------------------------------------------------------------------------


async def test_the_hour_counts_that_the_users_own_clocks_show(office: Office) -> None:
    """On the day on which clocks in Berlin go from 02:00 to 03:00, so that there is no two o'clock."""
    kathmandu, berlin = await user(office, "Asia/Kathmandu"), await user(office, "Europe/Berlin", 2)
    utc, early, los_angeles = (
        await user(office, "UTC"),
        await user(office, "UTC", 5),
        await user(office, "America/Los_Angeles"),
    )
    served: dict[str, list[int]] = {}
    for moment in ("00:45", "01:00", "02:00", "02:15", "04:45", "05:00", "07:45", "08:00", "14:45", "15:00", "23:45"):
        await until_it_is(office, f"2026-03-29T{moment}")
        before = set(await briefed(office))
        await office.run(BRIEFING_GENERATION)
        served[moment] = sorted(user for user, _ in set(await briefed(office)) - before)
    assert {moment: users for moment, users in served.items() if users} == {
        "00:45": [los_angeles],  # it is still yesterday there, and long past eight
        "01:00": [berlin],
        "02:15": [kathmandu],
        "05:00": [early],
        "08:00": [utc],
        "15:00": [los_angeles],
    }


async def until_it_is(office: Office, moment: str) -> None:
    """Set the clock."""
    office.clock.advance(seconds=(datetime.fromisoformat(f"{moment}+00:00") - office.clock.now()).total_seconds())


async def test_a_user_is_briefed_once_a_day(office: Office) -> None:
    for zone in ("Asia/Kathmandu", "America/New_York", "Pacific/Marquesas"):
        await user(office, zone)
    for _ in range(12):
        await office.run(BRIEFING_GENERATION)
        office.clock.advance(hours=6)
    days = await briefed(office)
    assert len(days) == len(set(days))
    assert len(days) in (9, 10), "three days; where it was past eight at the beginning, a fourth"


async def test_the_usual_hour_is_that_of_the_constants(office: Office) -> None:
    hour = await office.one("insert into users (name) values ('u') returning briefing_hour")
    assert hour == DEFAULT_BRIEFING_HOUR


async def test_an_hour_that_comes_twice_is_one_briefing(office: Office) -> None:
    ada = await user(office, "Europe/Berlin", 2)
    await until_it_is(office, "2026-10-25T00:00")
    for _ in range(12):
        await office.run(BRIEFING_GENERATION)
        office.clock.advance(minutes=15)
    assert await briefed(office) == [(ada, "2026-10-25")]


async def test_more_users_than_a_batch_are_all_briefed_in_one_run(office: Office) -> None:
    await office.do("insert into users (name) select 'u' || n from generate_series(1, 250) as n")
    await office.run(BRIEFING_GENERATION)
    assert len(await briefed(office)) == 250
    assert await office.one("select succeeded from runs") == 250


async def test_a_zone_that_is_none_costs_nobody_else_their_briefing(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    await user(office, "Mars/Olympus")
    ada = await user(office, "UTC")
    with caplog.at_level(logging.ERROR, "pulse"):
        await office.run(BRIEFING_GENERATION)
    assert await briefed(office) == [(ada, "2026-06-01")]
    (record,) = caplog.records
    assert (record.getMessage(), record.__dict__["timezones"]) == ("Unknown time zones", ["Mars/Olympus"])
    assert await office.one("select failed from runs") == 1


async def test_a_briefing_says_how_the_users_own_projects_are(office: Office) -> None:
    ada = await user(office, "UTC")
    mine, _ = await office.projects(2)
    await office.do("insert into members (project_id, user_id) values (%(p)s, %(u)s)", p=mine, u=ada)
    await office.do("update projects set health_level = 'CRITICAL'")
    await office.do(
        "insert into tasks (project_id, title, status) select id, 't', 'BLOCKED' from projects, generate_series(1, 3)"
    )
    await office.run(BRIEFING_GENERATION)
    assert await office.one("select text from briefings") == (
        "Good morning, Zoë. Monday 01 June: 1 active projects, 1 of them not well; 3 open tasks, 3 of them blocked."
    )


# -- cleanup ----------------------------------------------------------------------------------------------------------


async def test_messages_older_than_thirty_days_are_deleted_in_batches_and_no_others(office: Office) -> None:
    ada = await user(office, "UTC")
    await office.do(
        "with c as (insert into conversations (user_id) values (%(u)s) returning id)"
        " insert into messages (conversation_id, body, created_at)"
        " select c.id, 'm', %(now)s - interval '30 days' - n * interval '1 us' from c, generate_series(0, 2500) as n",
        u=ada,
        now=office.clock.now(),
    )
    await office.run(CONVERSATION_CLEANUP)
    assert await office.one("select count(*)::int from messages") == 1, "the one that is exactly thirty days old"
    assert await office.one("select succeeded from runs") == 2500
    assert await office.one("select count(*)::int from conversations") == 1


async def test_a_message_that_somebody_has_in_hand_is_left_for_the_next_time(office: Office) -> None:
    ada = await user(office, "UTC")
    await office.do(
        "with c as (insert into conversations (user_id) values (%(u)s) returning id)"
        " insert into messages (conversation_id, body, created_at) select c.id, 'm', '2020-01-01' from c, generate_series(1, 3)",
        u=ada,
    )
    async with office.app.transaction() as tx:
        await tx.execute("select from messages order by id limit 1 for update")
        await office.run(CONVERSATION_CLEANUP)
    assert await office.one("select count(*)::int from messages") == 1


async def test_old_conversations_without_messages_are_removed_and_others_stay(office: Office) -> None:
    ada, now = await user(office, "UTC"), office.clock.now()

    async def conversation(days: int, message_days: int | None = None) -> int:
        made = await office.one(
            "insert into conversations (user_id, created_at) values (%(u)s, %(at)s) returning id",
            u=ada,
            at=now - timedelta(days=days),
        )
        if message_days is not None:
            await office.do(
                "insert into messages (conversation_id, body, created_at) values (%(c)s, 'm', %(at)s)",
                c=made,
                at=now - timedelta(days=message_days),
            )
        return int(made)

    await conversation(31)
    await conversation(90, 40)
    young, alive = await conversation(29), await conversation(90, 1)
    await office.run(CONVERSATION_CLEANUP)
    assert [row["id"] for row in await office.all("select id from conversations order by id")] == [young, alive]
    assert await office.one("select succeeded from runs") == 3, "a message, and two conversations"


async def test_a_conversation_that_is_just_being_written_to_is_not_removed(office: Office, database_url: str) -> None:
    """The message is there before the conversation is locked, and cannot be seen when it was chosen."""
    ada = await user(office, "UTC")
    empty = await office.one(
        "insert into conversations (user_id, created_at) values (%(u)s, '2020-01-01') returning id", u=ada
    )
    async with await AsyncConnection.connect(database_url) as writer:
        await writer.execute("insert into messages (conversation_id, body) values (%s, 'at last')", [empty])
        await office.run(CONVERSATION_CLEANUP)
        await writer.commit()
    await office.run(CONVERSATION_CLEANUP)
    assert await office.one("select count(*)::int from messages") == 1


# -- sent to people ---------------------------------------------------------------------------------------------------


async def test_reminders_and_alerts_are_sent_signed_and_each_under_a_key_of_its_own(
    database_url: str, clock: ManualClock, redis: Valkey
) -> None:
    async with Sink(says(500), says(200)) as sink:
        webhook = {"PULSE_WEBHOOK_URL": sink.url, "PULSE_WEBHOOK_SECRET": SECRET, "PULSE_WEBHOOK_ALLOW": "127.0.0.1"}
        office = Office(database_url, clock, redis, **webhook)
        await office.begin()
        await checkpoint(office, 1)
        for _ in range(2):
            await office.run(CHECKPOINT_REMINDER)
            clock.advance(minutes=1)
        await office.run(HEALTH_CHECK)
        await office.do("update projects set health_level = 'EXCELLENT', last_health_check = null")
        await office.run(HEALTH_CHECK)
        await office.end()
    first, again, alert = [(each.headers["idempotency-key"], json.loads(each.body)) for each in sink.received]
    for each in sink.received:
        verify(each.headers, each.body, SECRET, now=clock.now())
    assert first == again, "the same after the receiver's error"
    day = str(office.clock.now().date() + timedelta(days=1))
    assert first[0] == f"reminder:1:{day}:ONE_DAY"
    assert first[1] == {
        "event": "checkpoint.reminder",
        "checkpoint_id": 1,
        "title": "c",
        "due_on": day,
        "kind": "ONE_DAY",
        "days_left": 1,
    }
    assert (alert[1]["event"], alert[1]["level_before"], alert[1]["level_after"]) == (
        "project.alert",
        "EXCELLENT",
        "GOOD",
    )
    assert alert[0] == "alert:2"


# -- numbers ----------------------------------------------------------------------------------------------------------


async def test_every_job_says_what_it_has_found_and_counts_what_it_has_done(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    before = {job.name: counted(job.name) for job in JOBS}
    await office.do("insert into users (name, briefing_hour) values ('Zoë', 0)")
    await checkpoint(office, 1)
    await office.report("DAILY", office.clock.now())
    await office.do("insert into conversations (user_id, created_at) select id, '2020-01-01' from users")
    with caplog.at_level(logging.INFO, "pulse"):
        for job in JOBS:
            await office.run(job)
    found = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Found ")]
    assert found == [
        "Found 2 active projects needing health checks",
        "Found 1 reports due",
        "Found 1 checkpoints to remind of",
        "Found 1 users to brief",
        "Found 0 old messages and 1 empty conversations",
    ]
    assert [counted(job.name) - before[job.name] for job in JOBS] == [2, 1, 1, 1, 1]


def counted(job: str) -> float:
    return REGISTRY.get_sample_value("pulse_items_total", {"job": job, "outcome": "succeeded"}) or 0.0


# -- the independent check --------------------------------------------------------------------------------------------

# What is planted, and what must be said of it.
PLANTED = {
    "insert into runs select job, tick, attempt, term + 1, instance, began_at, ended_at from runs where job = 'health-check'":
        "ticks were run to their end twice",
    "insert into runs select job, tick + interval '1 s', attempt, term + 1, instance, began_at - interval '1 s', null from runs"
    " where job = 'scheduled-report'":
        "runs of one job were side by side",
    "insert into health_checks (project_id, tick, term, score, level, trend, risks, parts, began_at)"
    " select project_id, tick, term, score, level, trend, risks, parts, began_at from health_checks limit 1":
        "projects were checked twice in one tick",
    "insert into projects (name) values ('forgotten')":
        "active projects were never checked",
    "insert into runs select job, tick + interval '1 s', attempt, term + 1, instance, began_at - interval '1 s', null from runs"
    " where job = 'health-check'":
        "checks were written under a term that was not the newest",
    "insert into health_checks (project_id, tick, term, score, level, trend, risks, parts, began_at)"
    " select project_id, tick + interval '1 s', term, 0, 'CRITICAL', trend, risks, parts, began_at from health_checks limit 1":
        "falls of level have no alert",
    "insert into alerts (health_check_id, project_id, level_before, level_after) select id, project_id, 'GOOD', level from health_checks"
    " limit 1":
        "alerts are of no fall of level",
    "update health_checks set level = 'CRITICAL'":
        "levels do not fit their scores",
    "update projects set health_score = 1":
        "projects do not say what their last check found",
    "insert into report_schedules (project_id, frequency, anchor_day, next_run) select id, 'DAILY', 1, '2020-01-01' from projects"
    " limit 1":
        "reports are due and were not made",
    "delete from reminders": "checkpoints were not reminded of",
    "delete from briefings": "users were not briefed",
    "insert into messages (conversation_id, body, created_at) select id, 'm', '2020-01-01' from conversations":
        "old messages are left",
    "update conversations set created_at = '2020-01-01'": "old conversations without messages are left",
    "insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts) values ('k', 'q', 'q', now(), now(), '{}', 1)": "jobs are left",
}  # fmt: skip


async def test_the_independent_check_sees_each_thing_that_is_wrong(
    office: Office, database_url: str, redis: Valkey
) -> None:
    office.clock.advance(seconds=(datetime.now(UTC) - office.clock.now()).total_seconds())
    await office.do("insert into users (name, briefing_hour) values ('Zoë', 0)")
    await office.do("insert into conversations (user_id) select id from users")
    await checkpoint(office, 1)
    for job in JOBS:
        await office.run(job)
    assert await asyncio.to_thread(check, database_url, redis.url) == []
    assert len(PLANTED) == len(WRONG), "each has its own"
    with psycopg.connect(database_url) as connection:
        for statement, wrong in PLANTED.items():
            connection.execute(statement.encode())
            assert any(wrong in each for each in examine(connection, redis.url)), statement
            connection.rollback()
    (day,) = {str(row["due_on"]) for row in await office.all("select due_on from reminders")}
    right = {f"reminder:1:{day}:ONE_DAY": {b"{}"}}
    for taken, wrong in (
        (right, []),
        ({}, ["1 reminders and alerts never reached the receiver"]),
        ({**right, "alert:7": {b"{}"}}, ["1 notices at the receiver are of no reminder or alert"]),
        ({key: {b"{}", b"[]"} for key in right}, ["1 notices came under one key and differ"]),
    ):
        assert await asyncio.to_thread(check, database_url, redis.url, taken) == wrong
    with closing(redis.client()) as client:
        client.set("cron:health-check", "left")
    assert await asyncio.to_thread(check, database_url, redis.url) == ["1 locks are left in Redis"]
