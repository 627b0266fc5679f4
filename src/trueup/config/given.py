"""Settings as they are given to `App(…)`, for type checkers. `settings.py` is the authority; a test compares the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from trueup.durations import Duration


class GivenSettings(TypedDict, total=False):
    """Keyword arguments of App. Omitted ones come from the environment, a configuration file, or their default."""

    schema: str | None
    search_path: str | Sequence[str]
    data_dir: str | Path
    redis_url: str | Sequence[str] | None
    redis_unavailable: Literal["closed", "open"]
    app: str | None
    include: str | Sequence[str] | None
    queues: str | Sequence[str] | Mapping[str, int | None] | None
    concurrency: int
    prefetch: int
    lease_for: Duration
    renew_every: Duration
    drain_for: Duration
    poll_every: Duration
    poll_without_listen: Duration
    listen: bool
    notify: bool
    rescue_every: Duration
    prune_every: Duration
    gather_for: Duration
    aging: Duration
    payload_limit: int | str
    result_limit: int | str
    keep_done: Duration
    keep_cancelled: Duration
    keep_dead: Duration
    keep_ticks: Duration
    keep_sweeps: Duration
    keep_actions: Duration
    reconcile: bool
    pool_size: int
    pool_timeout: Duration
    connect_timeout: Duration
    start_within: Duration
    statement_timeout: Duration
    prepare: Literal["auto", "true", "false"] | bool
    blocked_after: Duration
    log_format: Literal["auto", "json", "console"]
    log_level: Literal["debug", "info", "warning", "error", "critical"]
    metrics_port: int | None
    metrics_host: str
    health_port: int | None
    health_host: str
    ping_url: str | None
    ping_every: Duration
    alert_url: str | None
    alert_after: Duration
    outgoing_allow: str | Sequence[str] | None
    check_limits: str | Mapping[str, Any] | None
    release: str | None
    service: str | None
    retire_after: Duration
    worker_name: str | None
