# ruff: noqa: RUF009 - setting() makes a dataclass field, it is not a default shared by accident
"""The table of all settings: name, default, kind of value, meaning. Everything else about them follows from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

from trueup.config.kinds import (
    APP,
    BOOL,
    CHECK_LIMITS,
    DATABASE_URL,
    HOST,
    HTTP_URL,
    MODULES,
    NAMES,
    PATH,
    QUEUE_LIST,
    REDIS_URLS,
    RELEASE,
    SCHEMA,
    SEARCH_PATH,
    Kind,
    choice,
    duration,
    size,
    whole,
)
from trueup.dsn import Secret

T = TypeVar("T")

PREFIX = "TRUEUP_"
DEFAULT = "default"


def setting(default: str | None, kind: Kind[T], meaning: str) -> T:
    """A field of Settings. The default is written as a person would; None means that nothing is set."""
    value = None if default is None else kind.read(default)
    return cast(T, field(default=value, metadata={"default": default, "kind": kind, "meaning": meaning}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of a process. `load_settings` makes it, and is what checks that the values go together."""

    database_url: Secret | None = setting(
        None, DATABASE_URL, "the PostgreSQL to use; none: an embedded one in data_dir"
    )
    schema: str = setting("trueup", SCHEMA, "the schema that holds trueup's tables")
    search_path: tuple[str, ...] = setting(
        "role",
        SEARCH_PATH,
        "the search path for your tables; role: the search path of the role and database, which a pooler needs",
    )
    data_dir: Path = setting(".trueup", PATH, "where the embedded PostgreSQL keeps its data")
    redis_url: Secret | None = setting(
        None,
        REDIS_URLS,
        "the Redis for leases with backend='redis'; three or more servers, separated by commas, form a quorum",
    )
    redis_unavailable: str = setting(
        "closed",
        choice("closed", "open"),
        "while Redis is unreachable: closed grants a lease to no process, open to every process",
    )
    app: str | None = setting(None, APP, "the App the command line works with, as module:attribute")
    include: tuple[str, ...] | None = setting(
        None,
        MODULES,
        "the modules with its declarations, which workers and commands import; * is one level of a package",
    )
    queues: Mapping[str, int | None] | None = setting(
        None, QUEUE_LIST, "the queues a worker serves, each with its own concurrency if given; none: those of its jobs"
    )
    concurrency: int = setting("50", whole(1, 10_000), "how many jobs a worker runs at a time")
    prefetch: int = setting("4000", whole(0, 100_000), "maximum number of jobs a worker claims ahead")
    lease_for: timedelta = setting("30s", duration("1s", "1d"), "how long a claim holds unless it is renewed")
    renew_every: timedelta = setting(
        "10s", duration("100ms", "12h"), "how often claims are renewed; unless set, a third of lease_for"
    )
    drain_for: timedelta = setting("25s", duration("0s", "1d"), "how long a stopping worker waits for running jobs")
    poll_every: timedelta = setting(
        "4s", duration("50ms", "5m"), "maximum time between polls of an idle worker while notifications arrive"
    )
    poll_without_listen: timedelta = setting(
        "500ms", duration("10ms", "5m"), "maximum time between polls of an idle worker without notifications"
    )
    listen: bool = setting("true", BOOL, "wake up on notifications; needs a connection outside a transaction pooler")
    notify: bool = setting(
        "true", BOOL, "send notifications, which wake workers; false: neither send nor listen, so workers only poll"
    )
    rescue_every: timedelta = setting("10s", duration("100ms", "1h"), "how often a worker looks for expired leases")
    prune_every: timedelta = setting("10m", duration("1s", "1d"), "how often old history is dropped")
    gather_for: timedelta = setting("2ms", duration("0s", "1s"), "how long finished jobs wait to be written together")
    aging: timedelta = setting("60s", duration("1ms", "3650d"), "the head start that one point of priority is worth")
    payload_limit: int = setting("1MiB", size(1 << 10, 100 << 20), "the largest arguments of a job, as JSON")
    result_limit: int = setting("256KiB", size(1 << 10, 100 << 20), "the largest result of a job, as JSON")
    keep_done: timedelta = setting("24h", duration("1s", "36500d"), "how long done jobs stay in the history")
    keep_cancelled: timedelta = setting("24h", duration("1s", "36500d"), "how long cancelled jobs stay in the history")
    keep_dead: timedelta = setting("30d", duration("1s", "36500d"), "how long dead jobs can be inspected and revived")
    keep_ticks: timedelta = setting("90d", duration("1s", "36500d"), "how long the ledger of ticks is kept")
    keep_actions: timedelta = setting(
        "90d", duration("1s", "36500d"), "how long the audit log of operators' actions is kept"
    )
    keep_sweeps: timedelta = setting("3d", duration("1s", "36500d"), "how long records of sweeps are kept")
    reconcile: bool = setting("true", BOOL, "whether workers sweep users' tables; off for workers that only run jobs")
    pool_size: int = setting("10", whole(1, 1000), "maximum number of pooled connections of a process")
    pool_timeout: timedelta = setting(
        "30s",
        duration("100ms", "1h"),
        "how long enqueueing and reading wait for a connection before DatabaseUnavailable",
    )
    connect_timeout: timedelta = setting("5s", duration("1s", "5m"), "the timeout for opening a connection")
    start_within: timedelta = setting(
        "15s", duration("0s", "1h"), "how long a starting worker waits for an unreachable database"
    )
    statement_timeout: timedelta = setting(
        "30s", duration("100ms", "1d"), "the timeout of each of trueup's own statements"
    )
    prepare: str = setting(
        "auto",
        choice("auto", "true", "false"),
        "prepare statements on the server where that pays; auto: unless there is a pooler; true: without that check",
    )
    blocked_after: timedelta = setting(
        "1s", duration("10ms", "1h"), "how long a handler may block the event loop before it is reported"
    )
    log_format: str = setting(
        "auto", choice("auto", "json", "console"), "the format of log lines; auto: console on a terminal"
    )
    log_level: str = setting(
        "info", choice("debug", "info", "warning", "error", "critical"), "minimum level of log lines"
    )
    metrics_port: int | None = setting(
        None, whole(1, 65_535), "the port where a worker serves metrics for Prometheus; none: not served"
    )
    metrics_host: str = setting(
        "127.0.0.1", HOST, "the address for metrics_port; anyone who can reach it can read the metrics"
    )
    health_port: int | None = setting(
        None, whole(1, 65_535), "the port where a worker answers /healthz, /readyz and /metrics; none: not served"
    )
    health_host: str = setting(
        "127.0.0.1", HOST, "the address for health_port; 0.0.0.0 for probes from other machines, such as Kubernetes"
    )
    ping_url: Secret | None = setting(
        None,
        HTTP_URL,
        "one worker of the fleet posts to this URL while all checks pass: a dead man's switch",
    )
    ping_every: timedelta = setting("1m", duration("1s", "1d"), "how often the worker posts to ping_url")
    alert_url: Secret | None = setting(
        None,
        HTTP_URL,
        "a URL, such as a Slack webhook, for alerts when a check keeps failing and when it passes again",
    )
    alert_after: timedelta = setting(
        "2m", duration("0s", "7d"), "how long a check must fail before its alert is raised"
    )
    outgoing_allow: tuple[str, ...] | None = setting(
        None, NAMES, "private networks, addresses and hosts that pings and alerts may connect to"
    )
    check_limits: Mapping[str, float | None] | None = setting(
        None,
        CHECK_LIMITS,
        "thresholds for the checks of `trueup status --check` that differ from the defaults; off: no check",
    )
    release: str | None = setting(None, RELEASE, "the release of your application, for display")
    service: str | None = setting(
        None, RELEASE, "the name of your service, the same in all releases; none: its kinds identify it"
    )
    retire_after: timedelta = setting(
        "1h",
        duration("1s", "365d"),
        "how long workers of a service must run without declaring a schedule before it is retired",
    )
    worker_name: str | None = setting(
        None, RELEASE, "the name of a worker in lease columns of your tables; none: its host and process id"
    )

    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)


class Setting(NamedTuple):
    """One row of the table: what the reference page shows, and how its value is read."""

    name: str
    variable: str
    default: str | None
    meaning: str
    kind: Kind[Any]


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        each.name: Setting(
            each.name,
            PREFIX + each.name.upper(),
            each.metadata["default"],
            each.metadata["meaning"],
            each.metadata["kind"],
        )
        for each in dataclasses.fields(Settings)
        if each.metadata
    }
)


class ShownSetting(NamedTuple):
    """A setting as it is now. `source` says where the value was found, `value` is None when nothing is set."""

    name: str
    value: str | None
    source: str
    variable: str


def describe(settings: Settings) -> list[ShownSetting]:
    """Every setting with its value as text (passwords masked) and where it came from, in the order of the table."""

    def row(setting: Setting) -> ShownSetting:
        value = getattr(settings, setting.name)
        shown = None if value is None else setting.kind.show(value)
        return ShownSetting(setting.name, shown, settings.sources.get(setting.name, DEFAULT), setting.variable)

    return [row(setting) for setting in SETTINGS.values()]
