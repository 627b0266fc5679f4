"""`trueup recovery`: what was missed while no worker was running, and what has been caught up since."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueup.cli import output
from trueup.cli.ages import ago, to_second
from trueup.cli.errors import WRONG
from trueup.cli.options import duration_option, with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.session import Session
from trueup.program import typed

if TYPE_CHECKING:
    from trueup.operate.recovery import ReconcilerRecovery, Recovery, ScheduleRecovery

BARS = "▁▂▃▄▅▆▇█"
NO_BAR = "·"  # nothing at all there, which the lowest bar is not


@with_session
def recovery(
    session: Session,
    since: Annotated[str, duration_option("--since", help="How far back, such as 24h or 7d.")] = "24h",
) -> None:
    """Show what was missed while no worker was alive, and what has been caught up.

    Lists downtimes, ticks that were fired late or skipped, rows that were late, and what is still behind. Reaches back to the beginning of a downtime that ended within --since. Exits with 1 while anything is behind or unaccounted for.
    """
    report = session.run(lambda app: app.recovery(since))
    if session.json:
        output.write_json(document(report))
    else:
        _show(report)
    if not report.caught_up:
        raise typer.Exit(WRONG)


def document(report: Recovery) -> dict[str, Any]:
    """Every number there is, as `--json` writes it."""
    return {
        "since": report.since,
        "until": report.until,
        "caught_up": report.caught_up,
        "summary": report.summary,
        "downtimes": [
            {"since": each.since, "until": each.until, "seconds": each.length.total_seconds()}
            for each in report.downtimes
        ],
        "down_since": report.down_since,
        "ever_alive": report.ever_alive,
        "schedules": [_schedule_record(each) for each in report.schedules],
        "reconcilers": [_reconciler_record(each) for each in report.reconcilers],
        "overdue": [dataclasses.asdict(each) for each in report.overdue],
    }


def _schedule_record(schedule: ScheduleRecovery) -> dict[str, Any]:
    computed = {name: getattr(schedule, name) for name in ("due", "missed", "coalesced", "behind")}
    return {**dataclasses.asdict(schedule), **computed}


def _reconciler_record(reconciler: ReconcilerRecovery) -> dict[str, Any]:
    from trueup.reconcile.lateness import BOUNDS_S

    record = {name: value for name, value in dataclasses.asdict(reconciler).items() if name != "counts"}
    lateness = reconciler.lateness
    return {
        **record,
        "outcomes": reconciler.counts.as_dict(),
        "late": lateness.late,
        "worst_lateness_s": lateness.worst_s,
        "average_lateness_s": lateness.average_s,
        "lateness": [
            {"up_to_s": bound, "rows": rows} for bound, rows in zip((*BOUNDS_S, None), lateness.counts, strict=True)
        ],
        "eta_s": reconciler.eta_s,
        "behind": reconciler.behind,
    }


def _show(report: Recovery) -> None:
    shown = [table for table in _tables(report) if table.rows]
    if shown:
        output.show(*shown)
        if len(shown) == 1 or not output.on_terminal():  # several are drawn with a line after each
            output.say("")
    lines = [line for each in report.schedules for line in _remarks(each)]
    for line in lines:
        output.say(line)
    if lines:
        output.say("")
    _say_summary(report)
    output.note(f"from {to_second(report.since)} to {to_second(report.until)}")


def _tables(report: Recovery) -> Iterator[TextTable]:
    yield _downtimes(report)
    yield _schedules(report.schedules)
    swept = [each for each in report.reconcilers if each.counts.claimed]
    yield _rows(swept)
    yield _lateness(swept)
    yield _now(report.reconcilers, report.until)
    yield _overdue(report)


def _downtimes(report: Recovery) -> TextTable:
    from trueup.operate.recovery import short

    table = TextTable("Downtimes", headings("from", "until", "length>"))
    for each in report.downtimes:
        table.rows.append((to_second(each.since), to_second(each.until), short(each.length.total_seconds())))
    return table


def _schedules(schedules: Sequence[ScheduleRecovery]) -> TextTable:
    """Those with something to report; the others are only counted."""
    from trueup.operate.recovery import short

    told = [each for each in schedules if each.missed or each.skipped or each.unfinished or each.behind]
    rest = [each for each in schedules if each not in told]
    titles = ("due", "on time", "late", "coalesced", "skipped", "unfinished", "worst", "average")
    columns = headings("schedule*", *(f"{title}>" for title in titles))
    title = "Schedules" + (f" ({len(rest):,} more had every tick on time)" if rest else "")
    table = TextTable(title, columns)
    for each in told:
        skipped = sum(each.skipped.values()) - each.coalesced
        numbers = (each.due, each.on_time, each.late, each.coalesced, skipped, each.unfinished)
        fired = each.fired > 0
        table.rows.append(
            (
                each.name,
                *(f"{number:,}" for number in numbers),
                short(each.worst_lateness_s) if fired else "",
                short(each.average_lateness_s) if fired else "",
            )
        )
    return table


def _remarks(schedule: ScheduleRecovery) -> Iterator[str]:
    others = {reason: ticks for reason, ticks in schedule.skipped.items() if reason != "coalesced"}
    if others:
        yield f"{schedule.name}: skipped: " + ", ".join(f"{ticks:,} {reason}" for reason, ticks in others.items())
    if schedule.backfilled:
        yield f"{schedule.name}: {schedule.backfilled:,} backfilled by a person"
    if schedule.undecided:
        yield f"{schedule.name}: {schedule.undecided:,} undecided; does a worker run?"
    if schedule.unaccounted:
        yield f"{schedule.name}: {schedule.unaccounted:,} unaccounted for; {typed('trueup audit')} lists them"
    if schedule.unreadable is not None:
        yield f"{schedule.name}: not judged: {schedule.unreadable}"


def _rows(swept: Sequence[ReconcilerRecovery]) -> TextTable:
    from trueup.reconcile.counts import OUTCOMES, in_words

    titles = (in_words(name).replace("quarantined", "quar.") for name in OUTCOMES)
    columns = headings("reconciler*", "rows>", *(f"{title}>" for title in titles))
    table = TextTable("Rows", columns)
    for each in swept:
        counts = each.counts.as_dict()
        table.rows.append((each.name, *(f"{counts[name]:,}" for name in ("claimed", *OUTCOMES))))
    return table


def _lateness(swept: Sequence[ReconcilerRecovery]) -> TextTable:
    from trueup.operate.recovery import short

    columns = headings("reconciler*", "late>", "worst>", "average>", "rows by lateness")
    table = TextTable(f"Lateness ({_legend()})", columns)
    for each in swept:
        late = each.lateness
        table.rows.append((each.name, f"{late.late:,}", short(late.worst_s), short(late.average_s), bars(late.counts)))
    return table


def _legend() -> str:
    from datetime import timedelta

    from trueup.durations import format_duration
    from trueup.reconcile.lateness import BOUNDS_S

    bounds = (format_duration(timedelta(seconds=bound)) for bound in BOUNDS_S)
    return f"bars: up to {', '.join(bounds)}, more"


def bars(counts: Sequence[int]) -> str:
    """A bar for each number, the highest for the largest."""
    most = max(counts, default=0)
    return "".join(BARS[-(-n * len(BARS) // most) - 1] if n else NO_BAR for n in counts)


def _now(reconcilers: Sequence[ReconcilerRecovery], now: datetime) -> TextTable:
    from trueup.operate.recovery import per_second, short

    counts = ("left>", "rate>", "done in>", "held>", "resting>", "quar.>")
    table = TextTable("Reconcilers now", headings("reconciler*", *counts, "last sweep", "state"))
    for each in reconcilers:
        table.rows.append(
            (
                each.name,
                "?" if each.backlog is None else f"{each.backlog:,}",
                "" if each.rows_per_second is None else per_second(each.rows_per_second),
                short(each.eta_s) if each.eta_s else "",
                *(f"{number:,}" for number in (each.held, each.resting, each.quarantined)),
                "never" if each.last_swept_at is None else ago(each.last_swept_at, now),
                "paused" if each.paused else "active" if each.last_error is None else "failing",
            )
        )
    return table


def _overdue(report: Recovery) -> TextTable:
    from trueup.operate.recovery import short

    columns = headings("queue*", "kind*", "jobs>", "oldest>")
    table = TextTable("Overdue jobs", columns)
    for each in report.overdue:
        table.rows.append((each.queue, each.kind, f"{each.count:,}", short(each.oldest_s)))
    return table


def _say_summary(report: Recovery) -> None:
    if not output.on_terminal():
        output.say(report.summary)
        return
    from rich.text import Text

    from trueup.observe.printable import printable

    output.terminal().print(Text(printable(report.summary), "green" if report.caught_up else "yellow"))
