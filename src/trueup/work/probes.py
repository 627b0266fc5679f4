"""A worker's HTTP endpoints: metrics, liveness and readiness. They answer on threads other than the event loop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from trueup.aside import aside
from trueup.clock import elapsed
from trueup.config import Settings
from trueup.events import Events
from trueup.observe.endpoints import Endpoints, Served
from trueup.work.renewer import Renewer

BEATS_WITHIN = 10.0  # seconds; after this long without a turn, the event loop counts as dead


class Probes:
    def __init__(self, settings: Settings, events: Events, renewer: Renewer, stopping: asyncio.Event) -> None:
        self._settings = settings
        self._events = events
        self._renewer = renewer
        self._stopping = stopping
        self._beat_at: float | None = None
        self._closed_last: list[Callable[[], None]] = []

    def beat(self, at: float) -> None:
        """The event loop has turned at this moment."""
        self._beat_at = at

    def why_not_alive(self) -> str | None:
        """Why this process should be restarted; None while a restart would not help, as when the database is away."""
        if self._beat_at is None:
            return None  # it starts, and waits for the database perhaps
        silent = elapsed() - self._beat_at
        if silent > BEATS_WITHIN:
            return f"the event loop has not turned for {silent:.0f} s"
        silent = self._renewer.silent_for() - self._settings.renew_every.total_seconds()
        if silent > max(BEATS_WITHIN, self._settings.lease_for.total_seconds()):
            return f"the worker has not tried to renew its lease for {silent:.0f} s"
        return None

    def why_not_ready(self) -> str | None:
        if self._stopping.is_set():
            return "it stops"
        if self._beat_at is None:
            return "it starts"
        if not self._renewer.reached:
            return "the database cannot be reached"
        return None if self._renewer.trusted else "it has lost its lease, and registers again"

    async def serve(self) -> None:
        """Serve metrics and probes. Binds in a thread, because binding may query a name server."""
        settings = self._settings
        if settings.metrics_port is not None:
            from trueup.observe.metrics import serve_metrics  # only for those who ask: it needs a package few install

            serve = partial(serve_metrics, self._events, settings.metrics_host, settings.metrics_port)
            metrics = await aside(serve, "trueup metrics")
            self._closed_last.append(metrics.close)
        if settings.health_port is not None:
            await aside(partial(self._serve_probes, settings.health_host, settings.health_port), "trueup health")

    def _serve_probes(self, host: str, port: int) -> None:
        from trueup.observe.metrics import counted

        metrics = counted(self._events)
        served = Served(self.why_not_alive, self.why_not_ready, metrics.scrape if metrics is not None else None)
        if metrics is not None:
            self._closed_last.append(metrics.detach)
        self._closed_last.append(Endpoints(host, port, served, "health").close)

    async def close(self) -> None:
        ends, self._closed_last = self._closed_last, []
        for end in reversed(ends):
            await aside(end, "trueup stop")
