"""Every check with its limit, and how far its alert has come."""

from __future__ import annotations

import asyncio
import dataclasses

import psycopg
import pytest

from trueup import App
from trueup.config import CHECKS

pytestmark = pytest.mark.asyncio


def raised(url: str, check: str, state: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into trueup.alerts (name, state, since, severity, problem) values (%s, %s, now(), 'error', 'x')"
            " on conflict (name) do update set state = excluded.state",
            (check, state),
        )


async def test_every_check_is_listed_with_what_it_measures_and_may(still: App, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts)"
            " values ('send', 'default', 'default', '2020-01-01', now(), '{}', 3)"
        )
    rules = await still.alerts.list()
    assert {rule.check for rule in rules} == set(CHECKS)
    by_name = {rule.check: rule for rule in rules}
    assert (by_name["workers"].state, by_name["workers"].severity) == ("failing", "error")
    assert by_name["quarantine"].state == "ok"
    assert rules[0].check == "workers"  # what fails comes first
    assert all(rule.advice for rule in rules)
    assert by_name["overdue_jobs"].advice == by_name["workers"].advice  # it follows from that


@pytest.mark.parametrize(
    ("stored", "state", "sent"),
    [
        ("noticed", "failing", False),
        ("raised", "firing", False),
        ("sent", "firing", True),
        ("resolved", "failing", False),
    ],
)
async def test_a_check_fires_once_its_alert_was_raised(
    still: App, database_url: str, stored: str, state: str, sent: bool
) -> None:
    raised(database_url, "workers", stored)
    rule = next(each for each in await still.alerts.list() if each.check == "workers")
    assert (rule.state, rule.sent, rule.since is not None) == (state, sent, True)


async def test_an_alert_of_a_check_that_passes_again_does_not_fire(still: App, database_url: str) -> None:
    raised(database_url, "quarantine", "sent")
    rules = await asyncio.to_thread(still.alerts.list_sync)
    rule = next(each for each in rules if each.check == "quarantine")
    assert (rule.state, rule.since, rule.sent) == ("ok", None, False)


async def test_limits_are_those_of_the_settings(still: App) -> None:
    still.settings = dataclasses.replace(still.settings, check_limits={"workers": None, "quarantine": 5.0})
    rules = {rule.check: rule for rule in await still.alerts.list()}
    assert (rules["workers"].state, rules["workers"].allowed) == ("off", None)
    assert rules["quarantine"].allowed == 5
