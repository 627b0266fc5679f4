"""After a downtime: what was missed, what has been caught up with, and what is still behind.

This module only reports what workers have recorded: they catch up by themselves, oldest first. The period is extended back to the
beginning of any downtime in it, so that the report contains what was due then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from trueup.durations import format_duration
from trueup.errors import ConfigError
from trueup.operate.audit import audit
from trueup.program import typed
from trueup.reconcile.counts import Counts
from trueup.reconcile.lateness import Lateness
from trueup.schedules.audit import Findings
from trueup.schedules.misfire import Reason
from trueup.schedules.policy import SchedulePolicy
from trueup.store.db.own_connection import Record
from trueup.store.recovery import OverdueJobs, RecoveryViews, Verdicts
from trueup.store.store import Store
from trueup.store.workers import Downtime
from trueup.texts import counted

Backlog: TypeAlias = Callable[[str], Awaitable[int | None]]

# Skipped because they were missed; others had their run.
MISSED = (Reason.COALESCED, Reason.MISSED, Reason.OUTSIDE_CATCH_UP)
BACKFILLED = "backfill (was "


@dataclass(slots=True)
class ScheduleRecovery:
    """The ticks of a schedule that were due. Lateness is from when a tick was due to when it was fired."""

    name: str
    on_time: int = 0
    late: int = 0  # fired, later than the schedule's grace
    backfilled: int = 0  # skipped at first, and fired by a person
    skipped: dict[str, int] = field(default_factory=dict)  # by reason
    worst_lateness_s: float = 0.0
    average_lateness_s: float = 0.0
    undecided: int = 0  # due for more than a minute, and neither fired nor skipped yet
    unaccounted: int = 0  # passed over: `trueup audit` lists them
    unreadable: str | None = None  # why its ticks could not be judged
    unfinished: int = 0  # runs, of whatever tick
    unfinished_late: int = 0  # of them, those of late ticks, and those that should have begun

    @property
    def fired(self) -> int:
        return self.on_time + self.late + self.backfilled

    @property
    def due(self) -> int:
        return self.fired + sum(self.skipped.values()) + self.undecided + self.unaccounted

    @property
    def coalesced(self) -> int:
        return self.skipped.get(Reason.COALESCED, 0)

    @property
    def missed(self) -> int:
        """Ticks that were not fired when they were due because nothing was running, or nothing in time."""
        dropped = sum(self.skipped.get(reason, 0) for reason in MISSED)
        return self.late + self.backfilled + dropped + self.undecided + self.unaccounted

    @property
    def behind(self) -> bool:
        return bool(self.undecided or self.unaccounted or self.unreadable or self.unfinished_late)


@dataclass(slots=True)
class ReconcilerRecovery:
    """What the sweeps of a reconciler did, how its rows are now, and how many are left (None: not known)."""

    name: str
    counts: Counts = field(default_factory=Counts)
    rows_per_second: float | None = None  # while it was last at work
    paused: bool = False
    last_swept_at: datetime | None = None
    last_error: str | None = None  # of the last sweep, if that failed
    held: int = 0
    resting: int = 0
    quarantined: int = 0
    discarded: int = 0
    backlog: int | None = None
    unattended: bool = False  # no worker is alive

    @property
    def lateness(self) -> Lateness:
        return self.counts.lateness

    @property
    def eta_s(self) -> float | None:
        """Seconds until nothing is left, at the rate of its last minutes of work; None if unknown."""
        if self.backlog == 0:
            return 0.0
        at_work = not (self.unattended or self.paused) and self.last_error is None
        if self.backlog is None or not at_work or not self.rows_per_second:
            return None
        return self.backlog / self.rows_per_second

    @property
    def behind(self) -> bool:
        return bool(self.backlog) or self.last_error is not None


@dataclass(frozen=True, slots=True)
class Recovery:
    """Everything that was due between two moments, and what became of it."""

    since: datetime
    until: datetime
    downtimes: tuple[Downtime, ...]
    down_since: datetime | None  # if no worker is alive now: the last heartbeat of any
    schedules: tuple[ScheduleRecovery, ...]
    reconcilers: tuple[ReconcilerRecovery, ...]
    overdue: tuple[OverdueJobs, ...]  # jobs that no worker has claimed in time
    ever_alive: bool = True  # False: no worker has run on this database yet

    @property
    def caught_up(self) -> bool:
        behind = any(each.behind for each in self.schedules) or any(each.behind for each in self.reconcilers)
        return not (behind or self.overdue or self.down_since)

    @property
    def summary(self) -> str:
        """The report in one sentence."""
        parts = [_down(self), _ticks(self.schedules), _rows(self.reconcilers)]
        # If no worker is alive, that explains the rest.
        parts.insert(len(parts) if self.down_since is None else 0, _verdict(self))
        return "; ".join(part for part in parts if part)


async def recovery(store: Store, within: timedelta, keep_ticks: timedelta, backlog: Backlog | None = None) -> Recovery:
    """The report on the last `within`. `backlog` returns how many rows a reconciler has left; None: unknown."""
    views = RecoveryViews(store.pool, store.statements)
    now = await store.schedules.now()
    since = now - within
    downtimes = await views.downtimes(since, now)
    down_since = await views.down_since()
    since = min([since, *(downtime.since for downtime in downtimes), *([down_since] if down_since else ())])
    return Recovery(
        since,
        now,
        tuple(downtimes),
        down_since,
        tuple(await _schedules(store, views, since, now, keep_ticks)),
        tuple(await _reconcilers(views, since, now, backlog, unattended=down_since is not None)),
        tuple(await views.waiting()),
        await views.ever_alive(),
    )


async def _schedules(
    store: Store, views: RecoveryViews, since: datetime, now: datetime, keep_ticks: timedelta
) -> list[ScheduleRecovery]:
    graces = _graces(await store.views.schedules())
    verdicts = _by_schedule(await views.verdicts(since, now, graces))
    found = {name: _counted(name, of_schedule) for name, of_schedule in verdicts.items()}
    for name, runs in (await views.unfinished(graces)).items():
        each = found.setdefault(name, ScheduleRecovery(name))
        each.unfinished, each.unfinished_late = runs.runs, runs.late
    for findings in (await audit(store.schedules, now - since, keep_ticks)).schedules:
        _add_findings(found.setdefault(findings.name, ScheduleRecovery(findings.name)), findings)
    return [found[name] for name in sorted(found)]


def _graces(schedules: Sequence[Record]) -> dict[str, timedelta]:
    graces: dict[str, timedelta] = {}
    for schedule in schedules:
        try:
            graces[schedule["name"]] = SchedulePolicy.from_json(schedule["policy"]).grace
        except ConfigError:  # a newer release's: judged by the usual grace
            continue
    return graces


def _by_schedule(verdicts: Sequence[Verdicts]) -> dict[str, list[Verdicts]]:
    by_schedule: dict[str, list[Verdicts]] = {}
    for each in verdicts:
        by_schedule.setdefault(each.schedule, []).append(each)
    return by_schedule


def _counted(name: str, verdicts: Sequence[Verdicts]) -> ScheduleRecovery:
    counted = ScheduleRecovery(name)
    total_s = 0.0
    for each in verdicts:
        reason = each.reason or ""
        if each.outcome == "skipped":
            _add_skipped(counted, reason, each.ticks)
            continue
        counted.worst_lateness_s = max(counted.worst_lateness_s, each.worst_s)
        total_s += each.total_s
        if reason.startswith(BACKFILLED):
            counted.backfilled += each.decisions
            # The first of several in a row was backfilled, the others are skipped as before.
            _add_skipped(counted, reason.removeprefix(BACKFILLED).removesuffix(")"), each.ticks - each.decisions)
        else:
            counted.late += each.late
            counted.on_time += each.decisions - each.late
    counted.average_lateness_s = total_s / counted.fired if counted.fired else 0.0
    return counted


def _add_skipped(counted: ScheduleRecovery, reason: str, ticks: int) -> None:
    if ticks:
        counted.skipped[reason] = counted.skipped.get(reason, 0) + ticks


def _add_findings(counted: ScheduleRecovery, findings: Findings) -> None:
    counted.undecided = sum(span.count for span in findings.overdue)
    counted.unaccounted = sum(span.count for span in findings.gaps)
    counted.unreadable = findings.unreadable


async def _reconcilers(
    views: RecoveryViews, since: datetime, now: datetime, backlog: Backlog | None, *, unattended: bool
) -> list[ReconcilerRecovery]:
    swept = await views.swept(since, now)
    found = {known["name"]: ReconcilerRecovery(**known) for known in await views.known()}
    if backlog is not None:
        for name, each in found.items():
            each.backlog = await backlog(name)
    for name, done in swept.items():
        each = found.setdefault(name, ReconcilerRecovery(name))
        each.counts, each.rows_per_second = done.counts, done.rows_per_second
    for each in found.values():
        each.unattended = unattended
    return [found[name] for name in sorted(found)]


def _down(report: Recovery) -> str:
    downtimes = report.downtimes
    if not downtimes:
        return "" if report.down_since else "no downtime" if report.ever_alive else "no worker has run yet"
    if len(downtimes) <= 2:
        return "down " + " and ".join(_downtime(downtime, report.until) for downtime in downtimes)
    total = sum((downtime.length for downtime in downtimes), timedelta())
    longest = max(downtimes, key=lambda downtime: downtime.length)
    return f"down {len(downtimes)} times, {short(total.total_seconds())} in all, longest {_downtime(longest, report.until)}"


def _downtime(downtime: Downtime, now: datetime) -> str:
    since, until = (moment.astimezone(UTC) for moment in (downtime.since, downtime.until))
    clock = "%H:%M:%S" if downtime.length < timedelta(minutes=10) else "%H:%M"
    length = short(downtime.length.total_seconds())
    if since.date() == until.date() == now.astimezone(UTC).date():
        return f"{since:{clock}}–{until:{clock}}Z ({length})"
    return f"{since:%Y-%m-%d {clock}}Z – {until:%Y-%m-%d {clock}}Z ({length})"


def _ticks(schedules: Sequence[ScheduleRecovery]) -> str:
    if not schedules:
        return ""
    missed = sum(each.missed for each in schedules)
    if not missed:
        return "no tick missed"
    became = {
        "fired late": sum(each.late for each in schedules),
        "backfilled": sum(each.backfilled for each in schedules),
        **{
            "skipped" if reason is Reason.MISSED else str(reason): sum(
                each.skipped.get(reason, 0) for each in schedules
            )
            for reason in MISSED
        },
        "undecided": sum(each.undecided for each in schedules),
        "unaccounted for": sum(each.unaccounted for each in schedules),
    }
    return f"{counted(missed, 'tick')} missed: " + ", ".join(f"{n:,} {what}" for what, n in became.items() if n)


def _rows(reconcilers: Sequence[ReconcilerRecovery]) -> str:
    if not reconcilers:
        return ""
    all_of_them = [each.lateness for each in reconcilers]
    handled, late = sum(each.count for each in all_of_them), sum(each.late for each in all_of_them)
    overdue = sum(each.backlog or 0 for each in reconcilers)
    if not late:
        return f"{counted(overdue, 'row')} overdue, and none handled" if overdue else "no row late"
    worst = short(max(each.worst_s for each in all_of_them))
    average = short(sum(each.total_s for each in all_of_them) / handled) if handled else "not known"
    if late >= handled:
        return f"{counted(late, 'row')} late, worst {worst}, average {average}"
    return f"{late:,} of {counted(handled, 'row')} late, worst {worst}, average of all {average}"


def _verdict(report: Recovery) -> str:
    if report.caught_up:
        if not report.ever_alive:
            return "nothing is overdue"
        uncounted = any(each.backlog is None for each in report.reconcilers)
        return "caught up, as far as is known: remaining rows were not counted" if uncounted else "caught up"
    parts = [part for part in (_rows_left(report.reconcilers), *_behind(report)) if part]
    if report.down_since is None:
        return "catching up: " + "; ".join(parts)
    clock = (
        "%H:%MZ"
        if report.down_since.astimezone(UTC).date() == report.until.astimezone(UTC).date()
        else "%Y-%m-%d %H:%MZ"
    )
    so_far = short((report.until - report.down_since).total_seconds())
    return "; ".join([f"no worker alive since {report.down_since.astimezone(UTC):{clock}} ({so_far})", *parts])


def _rows_left(reconcilers: Sequence[ReconcilerRecovery]) -> str:
    behind = [each for each in reconcilers if each.backlog]
    if not behind:
        return ""
    left = f"{counted(sum(each.backlog or 0 for each in behind), 'row')} left"
    paused = [each.name for each in behind if each.paused]
    if paused:
        return f"{left}, {', '.join(paused)} paused"
    # Reconcilers work side by side: the slowest ends last.
    etas = [each.eta_s for each in behind]
    if any(eta is None for eta in etas):
        return left
    rate = sum(each.rows_per_second or 0.0 for each in behind)
    return f"{left}, {per_second(rate)}, about {short(max(eta or 0.0 for eta in etas))}"


def _behind(report: Recovery) -> list[str]:
    undecided = sum(each.undecided for each in report.schedules)
    unaccounted = sum(each.unaccounted for each in report.schedules)
    unreadable = sum(each.unreadable is not None for each in report.schedules)
    runs = sum(each.unfinished_late for each in report.schedules)
    jobs = sum(each.count for each in report.overdue)
    failing = [each.name for each in report.reconcilers if each.last_error is not None]
    show = typed("trueup reconcilers show") + "".join(f" {name}" for name in failing[:1])
    oldest = max((each.oldest_s for each in report.overdue), default=0.0)
    return [
        text
        for number, text in (
            (undecided, f"{counted(undecided, 'tick')} undecided"),
            (unaccounted, f"{counted(unaccounted, 'tick')} unaccounted for"),
            (unreadable, f"{counted(unreadable, 'schedule')} not readable by this release"),
            (runs, f"{counted(runs, 'late run')} unfinished"),
            (jobs, f"{counted(jobs, 'job')} overdue, the oldest by {short(oldest)}"),
            (len(failing), f"sweeps of {', '.join(failing)} fail: see {show}"),
        )
        if number
    ]


def short(seconds: float) -> str:
    """A length of time at a glance: "3h30m", "1m35s", "24s"; below ten seconds with one decimal."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    unit = 1 if seconds < 600 else 60 if seconds < 86_400 else 3_600
    return format_duration(timedelta(seconds=round(seconds / unit) * unit))


def per_second(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
