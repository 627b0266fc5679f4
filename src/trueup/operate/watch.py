"""One worker of the fleet watches: every few seconds it runs the checks and passes the report to the parts that act on it.

A lease decides which worker watches, and each look renews it. The other workers only try to take the lease, so a fleet of five
hundred runs the checks as often as one worker. When the watching worker dies, another one takes over as soon as the lease has
expired. While the database is unreachable, no check runs and no ping is sent, which the dead man's switch at the other end
notices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import Protocol
from uuid import uuid4

from trueup.clock import elapsed
from trueup.config import Settings
from trueup.dsn import Secret
from trueup.events import Events
from trueup.observe.counting import Instruments, counting
from trueup.observe.fleet import snapshot
from trueup.operate.alerts import AlertSender, Post, Reported
from trueup.operate.checks import Report, check
from trueup.store.health import Lead
from trueup.store.store import Store
from trueup.work.service import Service, jittered

LOOK_EVERY = 15.0  # seconds
MAX_SHARE = 20  # counting may take a twentieth of the time
LEASE_LOOKS = 3  # the lease lasts for this many looks, so that another worker does not take over when one is late
MIN_LEASE = 15.0  # seconds; longer than a POST may take, or two workers would send the same


class Part(Protocol):
    """Acts on reports. `purpose` is part of the lease's name: workers with other purposes watch beside this one.

    `lead` is that lease, to fence what a part writes.
    """

    purpose: str

    async def saw(self, report: Report, lead: Lead) -> None: ...
    def followed(self) -> None: ...


class Watch(Service):
    name = "watch"

    def __init__(
        self,
        store: Store,
        events: Events,
        parts: Sequence[Part],
        limits: Mapping[str, float | None] | None,
        every: timedelta = timedelta(seconds=LOOK_EVERY),
    ) -> None:
        super().__init__(events)
        self._store = store
        self._parts = parts
        self._limits = limits
        self._every = every.total_seconds()
        name = "watch:" + "+".join(sorted(part.purpose for part in parts))
        self._lead = Lead(store.pool, store.statements, name, uuid4(), max(LEASE_LOOKS * self._every, MIN_LEASE))

    async def run_once(self) -> float:
        if not await self._lead.take():
            for part in self._parts:
                part.followed()
            return jittered(self._every)
        report = await check(self._store, self._limits)
        for part in self._parts:
            await part.saw(report, self._lead)
        return self._every

    async def stop(self) -> None:
        """Release the lease, so that another worker may watch at once."""
        await super().stop()
        for part in self._parts:
            part.followed()
        await self._lead.leave()


class Ping:
    """A dead man's switch: a POST at an interval while all checks pass. Its absence is the alarm."""

    def __init__(self, post: Post, every: timedelta, events: Events) -> None:
        self.purpose = "ping"
        self._post = Reported(post, events, "ping")
        self._every = every.total_seconds()
        self._due = 0.0

    async def saw(self, report: Report, lead: Lead) -> None:
        if report.ok and elapsed() >= self._due:
            self._due = elapsed() + self._every
            await self._post({"ok": True, "checks": len(report.measured)}, f"ping {uuid4()}")

    def followed(self) -> None:
        self._due = 0.0


class Gauges:
    """Shows what waits as gauges, in the metrics attached to this App. Counting reads all queued jobs, so with very many it is
    done less often."""

    def __init__(self, store: Store, events: Events) -> None:
        self.purpose = "gauges"
        self._store = store
        self._events = events
        self._due = 0.0
        self._shown_in: tuple[Instruments, ...] = ()

    async def saw(self, report: Report, lead: Lead) -> None:
        started = elapsed()
        if started < self._due:
            return
        queues = await self._store.views.queues()
        failed = {each.check for each in report.findings}
        checks = [(each.name, each.name not in failed, each.value) for each in report.measured]
        found = snapshot(queues, checks)
        before, self._shown_in = self._shown_in, counting(self._events)
        for each in self._shown_in:
            each.fleet.show(self, found)
        for each in before:
            if each not in self._shown_in:  # it was detached meanwhile
                each.fleet.hide(self)
        self._due = elapsed() + MAX_SHARE * (elapsed() - started)

    def followed(self) -> None:
        shown_in, self._shown_in = self._shown_in, ()
        for each in shown_in:
            each.fleet.hide(self)
        self._due = 0.0


def watching(store: Store, settings: Settings, events: Events, post_to: Callable[[Secret], Post]) -> list[Watch]:
    """The watches that these settings ask for; none when there is nothing to watch for.

    Alerts have a lease of their own, so that workers with and without a port or a ping never alert beside each other.
    """
    watches = []
    if settings.alert_url is not None:
        alerts = AlertSender(store, post_to(settings.alert_url), settings.alert_after, events, settings.service)
        often = max(min(settings.alert_after.total_seconds(), LOOK_EVERY), 1.0)
        watches.append(Watch(store, events, [alerts], settings.check_limits, timedelta(seconds=often)))
    parts: list[Part] = []
    if settings.ping_url is not None:
        parts.append(Ping(post_to(settings.ping_url), settings.ping_every, events))
    serves = settings.metrics_port is not None or settings.health_port is not None
    if counting(events) or (serves and find_spec("prometheus_client") is not None):
        parts.append(Gauges(store, events))
    if parts:
        every = min(settings.ping_every, timedelta(seconds=LOOK_EVERY))
        watches.append(Watch(store, events, parts, settings.check_limits, every))
    return watches
