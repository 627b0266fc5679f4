"""The five jobs: when they run, under which lock, and for how long. Pure.

The lock in Redis lasts a minute and is renewed, so that a holder that died does not block a day. What a lock's TTL used to
bound, one run, is bounded by `longest_run`: a little less than the interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trueup import ConfigError
from trueup.schedules import Cron

MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)  # some Monday: intervals are the same from any


@dataclass(frozen=True)
class Job:
    """`schedule` is in UTC."""

    name: str
    title: str
    schedule: str

    @property
    def lock_key(self) -> str:
        return f"cron:{self.name}"

    @property
    def variable(self) -> str:
        """Which variable says otherwise about its schedule."""
        return f"PULSE_{self.name.replace('-', '_').upper()}_SCHEDULE"


HEALTH_CHECK = Job("health-check", "HealthCheckCron", "*/15 * * * *")
SCHEDULED_REPORT = Job("scheduled-report", "ScheduledReportCron", "0 0 * * *")
CHECKPOINT_REMINDER = Job("checkpoint-reminder", "CheckpointReminderCron", "0 8 * * *")
# Eight o'clock comes at another moment in each zone, and every zone is some quarters of an hour away from UTC.
BRIEFING_GENERATION = Job("briefing-generation", "BriefingGenerationCron", "*/15 * * * *")
CONVERSATION_CLEANUP = Job("conversation-cleanup", "ConversationCleanupCron", "0 3 * * *")

JOBS = (HEALTH_CHECK, SCHEDULED_REPORT, CHECKPOINT_REMINDER, BRIEFING_GENERATION, CONVERSATION_CLEANUP)


def longest_run(schedule: str) -> timedelta:
    """A little less than the time between two ticks: 14 minutes of 15, 23 hours of a day, 9 seconds of 10.

    Raises ConfigError for what is no cron expression, or comes more often than every two seconds.
    """
    cron = Cron(schedule)
    first = cron.next_after(MIDNIGHT)
    second = None if first is None else cron.next_after(first)
    if first is None or second is None:
        raise ConfigError(f"{schedule!r} comes to an end")
    interval = second - first
    if interval < timedelta(seconds=2):
        raise ConfigError(f"{schedule!r} comes too often; every two seconds is the most")
    return interval - max(interval / 24, min(timedelta(minutes=1), interval / 10))


def last_start(schedule: str) -> timedelta:
    """For how long a run begins with further projects or reports, so that those it has begun end within it."""
    return longest_run(schedule) * 0.8
