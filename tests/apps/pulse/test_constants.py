"""The numbers and the five jobs, as they were ordered."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.pulse import constants
from apps.pulse.config import Config
from apps.pulse.plan import JOBS, last_start, longest_run
from trueup import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEALTH_CHECK_BATCH_SIZE", 100),
        ("HEALTH_CHECK_CONCURRENCY", 5),
        ("HEALTH_CHECK_STALE_MINUTES", 10),
        ("REPORT_GENERATION_BATCH_SIZE", 50),
        ("REPORT_GENERATION_CONCURRENCY", 3),
        ("MAX_RETRIES", 3),
        ("BASE_DELAY_MS", 1000),
        ("BACKOFF_MULTIPLIER", 2),
        ("MAX_DELAY_MS", 10000),
        ("LOCK_TTL", timedelta(seconds=60)),
        ("MESSAGES_KEPT_DAYS", 30),
        ("DEFAULT_BRIEFING_HOUR", 8),
    ],
)
def test_a_constant_is_what_it_should_be(name: str, value: object) -> None:
    assert getattr(constants, name) == value


def test_the_jobs_have_their_schedules_locks_and_longest_runs() -> None:
    """A briefing is due at eight o'clock on the user's own clocks, which comes at some quarter of an hour in UTC."""
    schedules = Config.from_environment({"PULSE_REDIS_URL": "redis://localhost"}).schedules
    assert [(job.lock_key, schedules[job.name], longest_run(schedules[job.name])) for job in JOBS] == [
        ("cron:health-check", "*/15 * * * *", timedelta(minutes=14)),
        ("cron:scheduled-report", "0 0 * * *", timedelta(hours=23)),
        ("cron:checkpoint-reminder", "0 8 * * *", timedelta(hours=23)),
        ("cron:briefing-generation", "*/15 * * * *", timedelta(minutes=14)),
        ("cron:conversation-cleanup", "0 3 * * *", timedelta(hours=23)),
    ]


@pytest.mark.parametrize(
    "schedule", ["*/2 * * * * *", "*/10 * * * * *", "* * * * *", "0 * * * *", "0 0 * * 1", "@yearly"]
)
def test_a_run_is_over_before_the_next_tick_whatever_the_schedule(schedule: str) -> None:
    longest, last = longest_run(schedule), last_start(schedule)
    assert timedelta(seconds=1) <= last < longest


@pytest.mark.parametrize("schedule", ["* * * * * *", "0 0 30 2 *", "often", ""])
def test_a_schedule_that_cannot_be_is_refused(schedule: str) -> None:
    with pytest.raises(ConfigError):
        longest_run(schedule)
