"""What can be configured, from the environment. A bad value stops the start and is named."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import cast

from trueup import ConfigError, Rate
from trueup.durations import parse_duration
from trueup.schedules.yearly import LeapDay

from .planning import Rules


@dataclass(frozen=True)
class Config:
    webhook_url: str
    webhook_secret: str | None
    webhook_allow: tuple[str, ...]
    webhook_timeout: timedelta
    rules: Rules
    every: timedelta
    lease_for: timedelta
    pause_for: timedelta
    retry_over: timedelta
    concurrency: int
    rate: Rate | None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Config:
        """Raises ConfigError naming the variable."""
        read = _Reader(environment)
        return cls(
            webhook_url=read.url("BIRTHDAYS_WEBHOOK_URL"),
            webhook_secret=environment.get("BIRTHDAYS_WEBHOOK_SECRET") or None,
            webhook_allow=tuple(
                filter(None, map(str.strip, environment.get("BIRTHDAYS_WEBHOOK_ALLOW", "").split(",")))
            ),
            webhook_timeout=read.duration("BIRTHDAYS_WEBHOOK_TIMEOUT", "10s", "10ms"),
            rules=read.rules("BIRTHDAYS_SEND_AT", "BIRTHDAYS_LEAP_DAY"),
            every=read.duration("BIRTHDAYS_EVERY", "60s", "100ms"),
            lease_for=read.duration("BIRTHDAYS_LEASE_FOR", "30s", "1s"),
            pause_for=read.duration("BIRTHDAYS_PAUSE_FOR", "30s", "1s"),
            retry_over=read.duration("BIRTHDAYS_RETRY_OVER", "3h", "1s"),
            concurrency=read.whole("BIRTHDAYS_CONCURRENCY", "10", 1, 200),
            rate=read.rate("BIRTHDAYS_RATE"),
        )

    def __repr__(self) -> str:
        return f"<Config rules={self.rules} every={self.every}>"  # without the URL and the secret


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def url(self, name: str) -> str:
        url = self._environment.get(name, "")
        if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", url):
            raise ConfigError(f"{name}: where the messages go is needed, such as https://example.com/hook")
        return url

    def duration(self, name: str, default: str, least: str) -> timedelta:
        try:
            duration = parse_duration(self._environment.get(name, default))
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        if duration < parse_duration(least):
            raise ConfigError(f"{name}={self._environment[name]}: {least} is the least")
        return duration

    def whole(self, name: str, default: str, low: int, high: int) -> int:
        text = self._environment.get(name, default)
        if not re.fullmatch("[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise ConfigError(f"{name}={text!r}: a whole number from {low} to {high} is needed")
        return int(text)

    def rate(self, name: str) -> Rate | None:
        text = self._environment.get(name)
        try:
            return None if not text else Rate.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None

    def rules(self, at: str, leap_day: str) -> Rules:
        rules = Rules(
            self._environment.get(at, Rules.at), cast(LeapDay, self._environment.get(leap_day, Rules.leap_day))
        )
        for name, given in ((at, Rules(rules.at)), (leap_day, Rules(leap_day=rules.leap_day))):
            try:
                given.birthday(date(2000, 1, 1), "UTC")
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from None
        return rules
