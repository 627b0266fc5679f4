"""`trueup status`: waiting and running jobs, workers, recent results, the next ticks, and the state of sweeps."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueup.cli import output
from trueup.cli.ages import ago, span, to_second
from trueup.cli.doctor import show_checks
from trueup.cli.errors import WRONG, WrongUsage, say_error
from trueup.cli.options import duration_option, switch, with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.session import Session
from trueup.errors import DatabaseUnavailable
from trueup.program import typed
from trueup.texts import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trueup.app import App

LATELY = 3600.0  # seconds: how far back ended jobs are counted
MIN_PAUSE = 0.1  # seconds
SCHEDULE_STATES = ("active", "paused", "retired", "finished")


@with_session
def status(
    session: Session,
    watch: Annotated[bool, switch("--watch -w", "Refresh until Ctrl-C.")] = False,
    every: Annotated[str, duration_option("--every", help="Refresh interval.")] = "2s",
    check: Annotated[
        bool, switch("--check", "Only say what is wrong and what to do; exit with 1 if anything is.")
    ] = False,
) -> None:
    """Show queues, workers, how jobs ended in the last hour, schedules, and reconcilers.

    Exits with 1 while the last sweep of a reconciler was ended by an error, or a tick of a schedule is refused. With --check, while anything is wrong: no worker is alive, ticks are late, sweeps fail, jobs wait for a kind that no worker knows, rows or jobs are overdue, rows are in quarantine, a circuit breaker is open, jobs died in the last hour, migrations are missing, or the database is unreachable.
    """
    if check:
        if watch:
            raise WrongUsage("--check and --watch cannot be combined; let your monitoring repeat the check")
        show_checks(session)
        return
    from trueup.durations import parse_duration

    pause = max(MIN_PAUSE, parse_duration(every).total_seconds())
    if watch:
        session.run(lambda app: _watch(session, app, pause))
    else:
        seen = session.run(look)
        if session.json:
            output.write_json(seen)
        else:
            output.show(*tables(seen))
        if seen["reconcilers"]["failing"] or seen["schedules"]["refused"]:
            raise typer.Exit(WRONG)


async def look(app: App) -> dict[str, Any]:
    """The complete status, as `--json` shows it."""
    views = app.store.views
    return {
        "at": datetime.now(UTC),
        "queues": [asdict(each) for each in await app.jobs.queues()],
        "paused": [asdict(each) for each in await app.jobs.paused()],
        "workers": [asdict(each) for each in await app.workers.list()],
        "ended_last_hour": await views.ended(LATELY),
        "dead": (await app.jobs.count(state="dead")).number,
        "schedules": {**await views.planning(), **await app.schedules.attention()},
        "unserved": await views.unserved(),
        "reconcilers": await app.reconcilers.summary(),
    }


def tables(seen: dict[str, Any]) -> list[TextTable]:
    shown = [_queues(seen["queues"]), _workers(seen["workers"]), _ended(seen["ended_last_hour"], seen["dead"])]
    states = seen["schedules"]
    if any(states[name] for name in SCHEDULE_STATES):
        shown.append(_schedules(states))
    sweeping = seen["reconcilers"]
    if sweeping["active"] or sweeping["paused"] or sweeping["resting"] or sweeping["undeclared"]:
        shown.append(_reconcilers(sweeping, _alive(seen)))
    attention = _attention(seen)
    return [*shown, attention] if attention.rows else shown


def _attention(seen: dict[str, Any]) -> TextTable:
    """What to do next. Without a living worker it is unknown what the code declares, so there is no advice to retire or forget
    anything."""
    table, alive = TextTable("To look at", headings("what*")), _alive(seen)
    if seen["workers"] and not alive:
        table.rows.append((f"no worker is alive: {typed('trueup status --check')}",))
    for each in seen["paused"]:
        name = each["name"] if each["what"] == "queue" else f"--kind {each['name']}"
        why = f" ({each['reason']})" if each["reason"] else ""
        paused = f"{each['what']} {each['name']} was paused {ago(each['paused_at'])}{why}"
        table.rows.append((f"{paused}: {typed('trueup queues resume')} {name}",))
    for each in seen["unserved"] if alive else ():
        waits = f"{each['kind']} has waited in queue {each['queue']} for {span(each['oldest_s'])}"
        table.rows.append((f"{waits}: no running worker that serves the queue knows this kind",))
    for name in seen["schedules"]["missing"]:
        table.rows.append((f"schedule {name}: running workers declare it, but it is not stored or is retired",))
    for name in seen["schedules"]["refused"]:
        table.rows.append(
            (
                f"schedule {name}: PostgreSQL refuses its tick, and a worker retries it: {typed('trueup schedules show')} {name}",
            )
        )
    for name in seen["schedules"]["undeclared"] if alive else ():
        hint = f"{typed('trueup schedules retire')} {name}, if it was removed from the code"
        table.rows.append((f"schedule {name} fires, but no running worker declares it: {hint}",))
    return table


def _alive(seen: dict[str, Any]) -> bool:
    return any(each["lease_left_s"] > 0 for each in seen["workers"])


def _queues(records: list[dict[str, Any]]) -> TextTable:
    columns = headings("queue*", "kind*", "queued>", "due>", "running>", "oldest due>")
    table = TextTable("Queues", columns, empty="no job is queued or running")
    for queue in records:
        oldest = "" if queue["oldest_due_s"] is None else span(queue["oldest_due_s"])
        counts = (f"{queue[name]:,}" for name in ("queued", "due", "running"))
        table.rows.append((queue["queue"], queue["kind"], *counts, oldest))
    return table


def _workers(records: list[dict[str, Any]]) -> TextTable:
    columns = headings("worker*", "queues*", "in hand>", "at a time>", "up>", "lease left>", "state")
    table = TextTable("Workers", columns, empty=typed("no worker runs; start one: trueup worker --app module:app"))
    for worker in records:
        up = (datetime.now(UTC) - worker["started_at"]).total_seconds()
        table.rows.append(
            (
                f"{worker['host']}:{worker['pid']}",
                ",".join(worker["queues"]),
                f"{worker['running']:,}",
                worker["concurrency"],
                span(up),
                span(worker["lease_left_s"]),
                _worker_state(worker),
            )
        )
    return table


def _worker_state(worker: dict[str, Any]) -> str:
    if worker["lease_left_s"] <= 0:
        return "expired"
    return "stopping" if worker["stopping"] else "working"


def _ended(records: list[dict[str, Any]], dead: int) -> TextTable:
    states = ("done", "dead", "cancelled")
    columns = headings("kind*", *(f"{state}>" for state in states))
    counts: dict[str, dict[str, int]] = {}
    for record in records:
        counts.setdefault(record["kind"], {})[record["state"]] = record["count"]
    to_look_at = f"; {dead:,} dead to look at: {typed('trueup dead list')}" if dead else ""
    table = TextTable(f"Ended in the last hour{to_look_at}", columns, empty="nothing")
    for kind, by_state in counts.items():
        table.rows.append((kind, *(f"{by_state.get(state, 0):,}" for state in states)))
    return table


def _schedules(states: dict[str, Any]) -> TextTable:
    names = SCHEDULE_STATES
    ahead = states["ahead"]
    rewind = typed("trueup schedules rewind")
    wait = "" if not ahead else f"; ahead of the clock, so nothing fires: {', '.join(ahead)} ({rewind})"
    table = TextTable(f"Schedules{wait}", headings(*(f"{name}>" for name in names), "next tick"))
    table.rows.append((*(f"{states[name]:,}" for name in names), _next_tick(states["next_in_s"])))
    return table


def _next_tick(seconds: float | None) -> str:
    if seconds is None:
        return "none"
    return f"in {span(seconds)}" if seconds >= 0 else f"late by {span(-seconds)}"


def _reconcilers(sweeping: dict[str, Any], alive: bool) -> TextTable:
    names = ("active", "paused", "resting")
    quarantined = sweeping["quarantined"]
    listing = typed("trueup reconcilers quarantine list")
    to_look_at = f"; {counted(quarantined, 'row')} in quarantine: {listing}" if quarantined else ""
    columns = headings(*(f"{name}>" for name in names), "last sweep")
    table = TextTable(f"Reconcilers{to_look_at}", columns)
    swept = sweeping["swept_ago_s"]
    last = "never" if swept is None else f"{span(swept)} ago"
    failing = sweeping["failing"]
    if failing:
        last += f"; failing: {', '.join(failing)} ({typed('trueup reconcilers show')} {failing[0]})"
    for name, known in sweeping["undeclared"].items() if alive else ():
        last += f"; {name}: declared by no living worker, {known:,} rows known ({typed('trueup reconcilers forget')} {name})"
    table.rows.append((*(f"{sweeping[name]:,}" for name in names), last))
    return table


async def _watch(session: Session, app: App, pause: float) -> None:
    if session.json or not output.on_terminal():
        await _repeat(session, app, pause)
    else:
        await _watch_live(app, pause)


async def _repeat(session: Session, app: App, pause: float) -> None:
    """One JSON line, or one block of tables, per refresh."""
    while True:
        try:
            seen = await _look_or_say_why_not(app)
            if session.json:
                output.write_json_line(seen)
            else:
                output.say(to_second(seen["at"]))
                output.show(*tables(seen))
                output.say("")
        except DatabaseUnavailable as error:
            say_error(str(error))
        await asyncio.sleep(pause)


async def _watch_live(app: App, pause: float) -> None:
    """Redraw the tables; while the database is unreachable, keep the last ones under a line that says so."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    last: RenderableType = Text("…")
    with Live(last, console=output.terminal(), screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            try:
                last = shown = _picture(await _look_or_say_why_not(app))
            except DatabaseUnavailable as error:
                shown = Group(Text(str(error), style="red"), Text(), last)
            live.update(shown, refresh=True)
            await asyncio.sleep(pause)


def _picture(seen: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    heading = Text.assemble(("trueup status", "bold"), (f"  {seen['at'].astimezone():%H:%M:%S}  Ctrl-C ends", "dim"))
    return Group(
        heading, Text(), *(output.drawn(table, output.terminal().width, titled=True) for table in tables(seen))
    )


async def _look_or_say_why_not(app: App) -> dict[str, Any]:
    from trueup.store.db.connect import RETRYABLE, unavailable

    try:
        return await look(app)
    except RETRYABLE as error:
        raise unavailable(app.store.url, error) from error
