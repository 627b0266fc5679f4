"""`trueup schedules …`: listing, creating and pausing schedules, firing ticks by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueup.cli import many, output, specs
from trueup.cli.ages import ago, to_second, written
from trueup.cli.making import Name, create, edit
from trueup.cli.moves import move, say
from trueup.cli.options import NoteOption, YesOption, option, switch, with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.preview import preview
from trueup.cli.session import Session
from trueup.observe.printable import printable
from trueup.texts import counted

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.operate.schedules import BackfillPreview

SHOWN = 20  # ticks of a dry run

group = typer.Typer(help="Inspect, create, pause, trigger or backfill schedules.", no_args_is_help=True)

COLUMNS = headings("schedule*", "when*", "state", "next tick", "last tick", "outcome*", "unfinished>")


@group.command("list")
@with_session
def list_all(session: Session) -> None:
    """List schedules, with their next and last ticks."""
    schedules, declared = session.run(_listed)
    if session.json:
        output.write_json(schedules)
    else:
        hint = f"; a worker stores those in the code when it starts: {', '.join(declared)}" if declared else ""
        output.show(TextTable("Schedules", COLUMNS, [_row(each) for each in schedules], empty=f"no schedules{hint}"))


async def _listed(app: App) -> tuple[list[dict[str, Any]], Sequence[str]]:
    return await app.schedules.list(), app.schedules.declared


def _row(schedule: dict[str, Any]) -> tuple[object, ...]:
    due = schedule["next_due_at"] if schedule["state"] == "active" else None
    return (
        schedule["name"],
        specs.text(schedule["spec"]),
        schedule["state"],
        ago(due) if due is not None else "",
        ago(schedule["last_due_at"]) if schedule["last_due_at"] is not None else "",
        _last(schedule),
        schedule["unfinished"] or "",
    )


def _last(schedule: dict[str, Any]) -> str:
    """The verdict on the last tick with the state of its run, or why the next one cannot be stored."""
    if schedule["refused"] is not None:
        return f"refused: {schedule['refused']['error']}"
    if not schedule["last_outcome"]:
        return ""
    run = f", run {schedule['last_run']}" if schedule["last_run"] else ""
    return _outcome(schedule["last_outcome"] + run, schedule["last_reason"])


@group.command("show")
@with_session
def show(
    session: Session,
    name: Name,
    ticks: Annotated[int, option("--ticks", "N", "Show the last N entries.", min=1, max=10_000)] = 20,
) -> None:
    """Show everything about a schedule, with its latest ticks and the states of their runs."""
    schedule = session.run(lambda app: app.schedules.show(name, ticks))
    if session.json:
        output.write_json(schedule)
        return
    output.write_block(_facts(schedule))
    output.say("")
    columns = headings("due at", "ticks>", "outcome*", "job", "run")
    output.show(TextTable("Ticks", columns, [_tick(each) for each in schedule["ticks"]], empty="no tick yet"))


def _facts(schedule: dict[str, Any]) -> list[tuple[str, str]]:
    policy = ", ".join(f"{name}={value}" for name, value in schedule["policy"].items())
    due: datetime | None = schedule["next_due_at"] if schedule["state"] == "active" else None
    facts = [
        ("schedule", schedule["name"]),
        ("when", specs.text(schedule["spec"])),
        ("state", schedule["state"]),
        ("note", schedule["note"]),
        ("refused", _refused(schedule["refused"])),
        ("made by", "code" if schedule["origin"] == "code" else "people"),
        ("job", schedule["kind"]),
        ("queue", schedule["queue"]),
        ("policy", policy),
        ("next tick", written(due) if due is not None else None),
        ("decided", f"up to {written(schedule['decided_until'])}"),
        ("changed", f"{written(schedule['changed_at'])}, version {schedule['version']}"),
    ]
    return [(label, printable(text)) for label, text in facts if text]


def _refused(refused: dict[str, Any] | None) -> str | None:
    if refused is None:
        return None
    times = "once" if refused["refusals"] == 1 else f"{refused['refusals']:,} times"
    return f"{refused['error']} ({times}, tried again at {written(datetime.fromisoformat(refused['retry_at']))})"


def _tick(tick: dict[str, Any]) -> tuple[object, ...]:
    return (
        to_second(tick["due_at"]),
        f"{tick['count']:,}",
        _outcome(tick["outcome"], tick["reason"]),
        tick["job_id"] or "",
        tick["run"] or "",
    )


def _outcome(outcome: str, reason: str | None) -> str:
    return f"{outcome}: {reason}" if reason else outcome


group.command("preview")(preview)
group.command("create")(create)
group.command("edit")(edit)


@group.command("pause")
@with_session
def pause(session: Session, name: Name, reason: NoteOption = "paused by a person") -> None:
    """Fire no ticks of a schedule until it is resumed."""
    move(session, "schedule", name, "paused", "it is paused already", lambda app: app.schedules.pause(name, reason))


@group.command("resume")
@with_session
def resume(session: Session, name: Name) -> None:
    """Fire ticks again from now on; ticks of the pause are not caught up."""
    move(session, "schedule", name, "resumed", "it is not paused", lambda app: app.schedules.resume(name))


@group.command("retire")
@with_session
def retire(session: Session, name: Name, reason: NoteOption = "retired by a person") -> None:
    """End a schedule that was declared in code and that no running worker declares.

    If code declares it again, it comes back.
    """
    move(
        session,
        "schedule",
        name,
        "retired",
        "it is retired or finished already",
        lambda app: app.schedules.retire(name, reason),
    )


@group.command("rewind")
@with_session
def rewind(session: Session, name: Name) -> None:
    """Fire ticks again from now on, after the database's clock was ahead.

    A schedule follows the clock forward and never back, so after such a jump it waits until the clock has caught up. Ticks that were already decided are not fired again.
    """
    move(session, "schedule", name, "rewound", "it is not ahead of the clock", lambda app: app.schedules.rewind(name))


@group.command("delete")
@with_session
def delete(session: Session, name: Name, yes: YesOption = False) -> None:
    """Delete a schedule that was not declared in code, or one that is retired.

    Its ledger stays, and queued runs still run.
    """
    many.confirm(f"Delete schedule {name}?", yes)
    session.run(lambda app: app.schedules.delete(name))
    say(session, "schedule", name, "deleted")


@group.command("trigger")
@with_session
def trigger(session: Session, name: Name) -> None:
    """Fire once now, regardless of the schedule."""
    job_id = session.run(lambda app: app.schedules.trigger(name))
    session.answer({"schedule": name, "job_id": job_id}, f"triggered schedule {name}: job {job_id}")


@group.command("backfill")
@with_session
def backfill(
    session: Session,
    name: Name,
    start: Annotated[str, option("--start", "MOMENT", "The first, such as 2031-01-01T00:00Z.")],
    end: Annotated[str, option("--end", "MOMENT", "The last; it must be in the past.")],
    rate: Annotated[str, option("--rate", "RATE", "Maximum rate, such as 10/s.")] = "100/s",
    dry_run: Annotated[bool, switch("--dry-run", "Only say which ticks would be fired.")] = False,
    yes: YesOption = False,
) -> None:
    """Fire the past ticks of a range that were not fired.

    May be stopped and started again: no tick is fired twice.
    """
    first, last = specs.moment("--start", start), specs.moment("--end", end)
    if dry_run:
        _preview_backfill(session, name, session.run(lambda app: app.schedules.preview_backfill(name, first, last)))
        return

    async def run(app: App) -> int:
        total = len(await app.schedules.ticks_between(name, first, last))
        if not total:
            return 0
        many.confirm(f"Fire up to {total:,} ticks of schedule {name}?", yes)
        with many.progress("backfill", total) as note:
            return await app.schedules.backfill(name, first, last, rate=rate, progress=note)

    fired = session.run(run)
    session.answer({"schedule": name, "fired": fired}, f"fired {counted(fired, 'tick')} of schedule {name}")


def _preview_backfill(session: Session, name: str, found: BackfillPreview) -> None:
    if session.json:
        output.write_json({"schedule": name, "ticks": found.ticks, "to_fire": list(found.to_fire)})
        return
    output.say(f"would fire {len(found.to_fire):,} of {counted(found.ticks, 'tick')} of schedule {name}")
    for tick in found.to_fire[:SHOWN]:
        output.say(f"  {to_second(tick)}")
    if len(found.to_fire) > SHOWN:
        output.say(f"  and {len(found.to_fire) - SHOWN:,} more")
