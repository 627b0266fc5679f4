"""What can be configured, from the environment. A bad value stops the start and is named."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from trueup import ConfigError, Rate
from trueup.durations import parse_duration
from trueup.schedules import Cron

from .chains import CHAINS, known

DAILY_AT_TWO = "0 2 * * *"


@dataclass(frozen=True)
class Config:
    scheduler_enabled: bool
    worker_enabled: bool
    cron: str
    polling_interval: timedelta
    providers: Mapping[str, str]  # a node's URL by chain
    provider_rate: Rate
    provider_timeout: timedelta
    page_blocks: int
    tip_fresh_for: timedelta
    concurrency: int
    lease_for: timedelta
    pause_for: timedelta
    turn_for: timedelta
    keep_jobs_for: timedelta
    keep_audit_for: timedelta

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Config:
        """Raises ConfigError naming the variable."""
        read = _Reader(environment)
        return cls(
            # Only this word, and no other that might mean it: nothing is started by accident.
            scheduler_enabled=environment.get("RECONCILIATION_SCHEDULER_ENABLED") == "true",
            worker_enabled=environment.get("RECONCILIATION_WORKER_ENABLED") == "true",
            cron=read.cron("RECONCILIATION_CRON_SCHEDULE"),
            polling_interval=timedelta(
                milliseconds=read.whole("RECONCILIATION_POLLING_INTERVAL_MS", "5000", 100, 3_600_000)
            ),
            providers=read.providers("RECONCILIATION_PROVIDERS"),
            provider_rate=read.rate("RECONCILIATION_PROVIDER_RATE", "1/s"),
            provider_timeout=read.duration("RECONCILIATION_PROVIDER_TIMEOUT", "10s", "10ms"),
            page_blocks=read.whole("RECONCILIATION_PAGE_BLOCKS", "25", 1, 1000),
            tip_fresh_for=read.duration("RECONCILIATION_TIP_FRESH_FOR", "10s", "0s"),
            concurrency=read.whole("RECONCILIATION_CONCURRENCY", "5", 1, 200),
            lease_for=read.duration("RECONCILIATION_LEASE_FOR", "30s", "1s"),
            pause_for=read.duration("RECONCILIATION_PAUSE_FOR", "30s", "1s"),
            turn_for=read.duration("RECONCILIATION_TURN_FOR", "4m", "1s"),
            keep_jobs_for=read.duration("RECONCILIATION_KEEP_JOBS_FOR", "90d", "1d"),
            keep_audit_for=read.duration("RECONCILIATION_KEEP_AUDIT_FOR", "400d", "1d"),
        )

    def __repr__(self) -> str:
        # The URLs often carry keys.
        return f"<Config cron={self.cron!r} scheduler={self.scheduler_enabled} worker={self.worker_enabled}>"


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def cron(self, name: str) -> str:
        expression = self._environment.get(name, DAILY_AT_TWO)
        try:
            Cron(expression, "UTC")
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        return expression

    def providers(self, name: str) -> dict[str, str]:
        """`ethereum=https://node.example/key, polygon=https://…`"""
        providers: dict[str, str] = {}
        for number, part in enumerate(filter(None, map(str.strip, self._environment.get(name, "").split(","))), 1):
            chain, _, url = part.partition("=")
            # Without what was given: it may have a key in it.
            if not re.fullmatch("[a-z0-9-]{1,32}", chain) or not re.fullmatch(r"https?://[^\s/]+(/\S*)?", url):
                raise ConfigError(f"{name}: part {number} is not a chain and its node, such as ethereum=https://host/")
            if known(chain).chain_id is None:
                names = ", ".join(each for each in CHAINS if known(each).chain_id is not None)
                raise ConfigError(f"{name}: part {number} names no EVM chain: there are {names}, and eip155-<chain id>")
            if chain in providers:
                raise ConfigError(f"{name}: {chain} is there twice")
            providers[chain] = url
        return providers

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

    def rate(self, name: str, default: str) -> Rate:
        try:
            return Rate.parse(self._environment.get(name, default))
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
