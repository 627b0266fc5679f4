"""What can be configured, from the environment. A bad value stops the start and is named."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from trueup import ConfigError
from trueup.durations import format_duration, parse_duration
from trueup.integrations.redis import connect

from .constants import LOCK_TTL
from .plan import JOBS, Job, longest_run

WITHOUT_REDIS = {"skip": "closed", "run": "open"}  # and what trueup calls it


@dataclass(frozen=True)
class Config:
    redis_url: str = field(repr=False)  # it may hold a password
    without_redis: str
    lock_ttl: timedelta
    schedules: Mapping[str, str]
    webhook_url: str | None = field(repr=False)
    webhook_secret: str | None = field(repr=False)
    webhook_allow: tuple[str, ...]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Config:
        """Raises ConfigError naming the variable."""
        return cls(
            redis_url=_redis_url(environment, "PULSE_REDIS_URL"),
            without_redis=_one_of(environment, "PULSE_WITHOUT_REDIS", *WITHOUT_REDIS),
            lock_ttl=_duration(environment, "PULSE_LOCK_TTL", LOCK_TTL, timedelta(seconds=1), timedelta(minutes=10)),
            webhook_url=_webhook_url(environment, "PULSE_WEBHOOK_URL"),
            webhook_secret=environment.get("PULSE_WEBHOOK_SECRET") or None,
            webhook_allow=tuple(filter(None, map(str.strip, environment.get("PULSE_WEBHOOK_ALLOW", "").split(",")))),
            schedules={job.name: _schedule(environment, job) for job in JOBS},
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings for trueup."""
        return {"redis_url": self.redis_url, "redis_unavailable": WITHOUT_REDIS[self.without_redis]}


def _redis_url(environment: Mapping[str, str], name: str) -> str:
    """One server, or several separated by commas. None of them is shown: they may hold passwords."""
    url = environment.get(name, "")
    servers = re.split(r",(?=(?:rediss?|unix)://)", url)
    if not all(re.fullmatch(r"(?:rediss?|unix)://\S+", server) for server in servers):
        raise ConfigError(f"{name}: where the locks are kept is needed, such as redis://localhost:6379/0")
    if len(servers) == 2 or len(set(servers)) < len(servers):
        raise ConfigError(f"{name}: one server, or three or more different ones, of which a majority decides")
    if len(servers) > 1 and environment.get("PULSE_WITHOUT_REDIS") == "run":
        raise ConfigError(f"{name}: PULSE_WITHOUT_REDIS=run is for one server; with several, a majority decides")
    for server in servers:
        try:
            connect(server).close()  # only reads it; it connects when it is used
        except ConfigError:
            raise ConfigError(f"{name}: that is no URL of a Redis, such as redis://localhost:6379/0") from None
    return url


def _webhook_url(environment: Mapping[str, str], name: str) -> str | None:
    url = environment.get(name, "")
    if url and not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", url):
        raise ConfigError(f"{name}: where reminders and alerts go is needed, such as https://example.com/hook")
    return url or None


def _one_of(environment: Mapping[str, str], name: str, default: str, *others: str) -> str:
    value = environment.get(name, default)
    if value not in (default, *others):
        raise ConfigError(f"{name}={value!r}: {' or '.join((default, *others))} is needed")
    return value


def _duration(
    environment: Mapping[str, str], name: str, default: timedelta, least: timedelta, most: timedelta
) -> timedelta:
    try:
        duration = parse_duration(environment.get(name, default))
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    if not least <= duration <= most:
        raise ConfigError(f"{name}: from {format_duration(least)} to {format_duration(most)} is possible")
    return duration


def _schedule(environment: Mapping[str, str], job: Job) -> str:
    schedule = environment.get(job.variable, job.schedule)
    try:
        longest_run(schedule)
    except ConfigError as error:
        raise ConfigError(f"{job.variable}: {error}") from None
    return schedule
