"""What can be configured, from the environment. A bad value stops the start and is named."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from trueup import ConfigError
from trueup.durations import parse_duration

from .storage import Place

BUCKET = "wallpapers"
A_YEAR_MS = 366 * 86_400_000


@dataclass(frozen=True)
class Config:
    storage: Place
    nats_url: str
    stream: str
    every: timedelta
    cleanup_every: timedelta
    stuck_after: timedelta
    missing_after: timedelta
    intent_for: timedelta
    processing_for: timedelta
    grace: timedelta
    max_fraction: float
    few: int
    max_wallpapers: int
    max_intents: int
    lease_for: timedelta
    pause_for: timedelta

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, *, bucket: str | None = None) -> Config:
        """Raises ConfigError naming the variable. `bucket` goes before S3_BUCKET."""
        read = _Reader(environment)
        return cls(
            storage=Place(
                endpoint=read.url("S3_ENDPOINT_URL", r"https?://[^\s/@]+(/\S*)?", "http://127.0.0.1:8333"),
                access_key=read.needed("S3_ACCESS_KEY_ID"),
                secret_key=read.needed("S3_SECRET_ACCESS_KEY"),
                bucket=read.bucket("S3_BUCKET", bucket),
                region=environment.get("S3_REGION") or "us-east-1",
                timeout=read.duration("S3_TIMEOUT", "10s", "10ms"),
            ),
            nats_url=read.url("NATS_URL", r"(nats|tls)://\S+", "nats://127.0.0.1:4222"),
            stream=read.stream("NATS_STREAM", "WALLPAPERS"),
            every=read.milliseconds("RECONCILIATION_INTERVAL_MS", 300_000),
            cleanup_every=read.milliseconds("MINIO_CLEANUP_INTERVAL_MS", 86_400_000, least=1000),
            stuck_after=read.duration("WALLPAPERS_STUCK_AFTER", "10m", "1s"),
            missing_after=read.duration("WALLPAPERS_MISSING_AFTER", "5m", "1s"),
            intent_for=read.duration("WALLPAPERS_INTENT_FOR", "1h", "1s"),
            processing_for=read.duration("WALLPAPERS_PROCESSING_FOR", "1h", "1s"),
            grace=read.duration("WALLPAPERS_ORPHAN_GRACE", "24h", "1s"),
            max_fraction=read.fraction("WALLPAPERS_ORPHAN_MAX_FRACTION", "0.2"),
            few=read.whole("WALLPAPERS_ORPHAN_FEW", 5, 0),
            max_wallpapers=read.whole("WALLPAPERS_MAX_PER_USER", 10_000, 1),
            max_intents=read.whole("WALLPAPERS_MAX_INTENTS_PER_USER", 100, 1),
            lease_for=read.duration("WALLPAPERS_LEASE_FOR", "30s", "1s"),
            pause_for=read.duration("WALLPAPERS_PAUSE_FOR", "30s", "1s"),
        )

    def __repr__(self) -> str:
        return f"<Config bucket={self.storage.bucket} every={self.every}>"  # without keys and URLs


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def needed(self, name: str) -> str:
        value = self._environment.get(name, "")
        if not value.strip():
            raise ConfigError(f"{name}: it is needed")
        return value

    def url(self, name: str, pattern: str, example: str) -> str:
        url = self._environment.get(name, "")
        if not re.fullmatch(pattern, url):
            raise ConfigError(f"{name}: a URL is needed, such as {example}")
        return url

    def bucket(self, name: str, given: str | None) -> str:
        where, bucket = ("bucket", given) if given is not None else (name, self._environment.get(name) or BUCKET)
        if not re.fullmatch(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]", bucket, re.ASCII):
            raise ConfigError(f"{where}={bucket!r}: S3 has no such bucket names")
        return bucket

    def stream(self, name: str, default: str) -> str:
        stream = self._environment.get(name, default)
        if not re.fullmatch(r"[A-Za-z0-9_\-]{1,32}", stream, re.ASCII):
            raise ConfigError(f"{name}={stream!r}: letters, digits, _ and - are allowed")
        return stream

    def duration(self, name: str, default: str, least: str) -> timedelta:
        try:
            duration = parse_duration(self._environment.get(name, default))
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        if duration < parse_duration(least):
            raise ConfigError(f"{name}={self._environment[name]}: {least} is the least")
        return duration

    def milliseconds(self, name: str, default: int, least: int = 100) -> timedelta:
        text = self._environment.get(name, str(default))
        if not re.fullmatch("[0-9]{1,12}", text) or not least <= int(text) <= A_YEAR_MS:
            raise ConfigError(f"{name}={text!r}: a whole number of milliseconds from {least} to {A_YEAR_MS} is needed")
        return timedelta(milliseconds=int(text))

    def whole(self, name: str, default: int, least: int) -> int:
        text = self._environment.get(name, str(default))
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
            raise ConfigError(f"{name}={text!r}: a whole number from {least} on is needed")
        return int(text)

    def fraction(self, name: str, default: str) -> float:
        text = self._environment.get(name, default)
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII) or not 0 < float(text) <= 1:
            raise ConfigError(f"{name}={text!r}: a number above 0 and up to 1 is needed")
        return float(text)
