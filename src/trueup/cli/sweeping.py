"""`trueup reconcilers run`: one sweep or scan by hand, or a dry run.

The first Ctrl-C or SIGTERM claims nothing more and lets handlers end within `drain_for`, the second interrupts them, and a
third ends the process like any other.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trueup.cli import output
from trueup.cli.ages import ago, span
from trueup.cli.errors import INTERRUPTED, WRONG, WrongUsage
from trueup.cli.listing import outcomes_text
from trueup.cli.options import option, switch, with_session
from trueup.cli.output import Heading, TextTable, headings
from trueup.cli.quarantine import LONG, Name
from trueup.cli.session import Session
from trueup.clock import elapsed
from trueup.program import typed
from trueup.texts import counted

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.operate.runs import DryRun, Progress, Run

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAY_EVERY = 5.0  # seconds between lines about how far it is, where there is no terminal
DRAW_EVERY = 0.1  # seconds between movements of the bar
LISTED = 20

T = TypeVar("T")


class SweepInterrupted(Exception):
    """A signal from a person or a supervisor stopped it."""


@with_session
def run(
    session: Session,
    name: Name,
    dry_run: Annotated[bool, switch("--dry-run", "List the rows that are due; claim nothing.")] = False,
    shadow: Annotated[
        bool, switch("--shadow", "Call the handlers and discard their outcomes. Works with --dry-run too.")
    ] = False,
    limit: Annotated[
        int | None, option("--limit -n", "N", f"Maximum number of rows; with --dry-run {LISTED}.", min=1, max=2**31)
    ] = None,
    force: Annotated[bool, switch("--force", "Run even while it is paused or its circuit breaker is open.")] = False,
    progress: Annotated[bool | None, switch("--progress/--no-progress", "Show progress on standard error.")] = None,
) -> None:
    """Run one sweep or scan now, in this process.

    Needs your App. Shares rows with running workers. Ctrl-C stops it in order: rows that were not started are handed back. Exits with 1 when rows were quarantined, or when max_fraction refused the sweep.
    """
    if dry_run and force:
        raise WrongUsage("--force is for real runs; a dry run may look while it is paused")
    if dry_run:
        _dry_run(session, name, limit or LISTED, shadow)
    else:
        _run(session, name, limit, shadow, force, progress)


# -- a real one -------------------------------------------------------------------------------------------------------


def _run(session: Session, name: str, limit: int | None, shadow: bool, force: bool, progress: bool | None) -> None:
    done = 0

    async def work(app: App) -> Run:
        with _progress(name, progress) as show:

            def note(count: int, total: int | None) -> None:
                nonlocal done
                done = count
                show(count, total)

            sweep = app.reconcilers.run(name, limit=limit, shadow=shadow, force=force, progress=note)
            return await _until_signalled(sweep)

    if shadow:
        _say_not_undone()
    try:
        ended = session.run(work)
    except SweepInterrupted:
        document = {"reconciler": name, "ending": "interrupted", "done": done}
        session.answer(document, f"{name}: stopped after {done:,}; rows that were not started were released")
        raise typer.Exit(INTERRUPTED) from None
    if session.json:
        output.write_json(_document(ended))
    else:
        _tell(ended)
    if ended.index_ddl is not None:
        output.note(f"every claim reads the whole table; this would help: {ended.index_ddl}")
    if not ended.ok:
        raise typer.Exit(WRONG)


def _say_not_undone() -> None:
    output.note(
        "handlers are called: what they write through tx and ctx.transaction() is rolled back;"
        " other effects (requests, files, their own connections) are NOT undone"
    )


async def _until_signalled(work: Awaitable[T]) -> T:
    """The first two signals cancel the work, which then ends in order; raises SweepInterrupted after that."""
    loop, seen = asyncio.get_running_loop(), 0
    task = asyncio.ensure_future(work)

    def stop() -> None:
        nonlocal seen
        seen += 1
        output.note("stopping; a second signal interrupts handlers" if seen == 1 else "interrupting handlers")
        task.cancel()
        if seen == 2:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if seen:
            raise SweepInterrupted from None
        raise
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def _progress(name: str, wanted: bool | None) -> Iterator[Progress]:
    """A bar on a terminal, lines elsewhere; both on standard error."""
    if wanted is False:
        yield lambda count, total: None
    elif sys.stderr.isatty():
        with _bar(name) as show:
            yield show
    else:
        yield _lines(name)


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(name, total=None, count="", rate="")
    drawn_at = started = elapsed()

    def show(count: int, total: int | None) -> None:
        nonlocal drawn_at
        now = elapsed()
        if count and now - drawn_at < DRAW_EVERY:
            return
        drawn_at = now
        bar.start()  # not before there is something to show; a second time does nothing
        of = max(total, count) if total is not None else None  # more may come while it runs
        rate = f"{count / (now - started):,.0f}/s" if count else ""
        bar.update(task, completed=count, total=of, count=_of(count, total), rate=rate)

    try:
        yield show
    finally:
        bar.stop()


def _lines(name: str) -> Progress:
    started = said_at = elapsed()

    def show(count: int, total: int | None) -> None:
        nonlocal said_at
        now = elapsed()
        if not count or now - said_at < SAY_EVERY:
            return
        said_at = now
        rate = count / (now - started)
        left = f", about {span((total - count) / rate)} left" if total is not None and total > count else ""
        output.note(f"{name}: {_of(count, total)}, {rate:,.0f}/s{left}")

    return show


def _of(count: int, total: int | None) -> str:
    return f"{count:,}" if total is None else f"{count:,} of {total:,}"


def _document(run: Run) -> dict[str, Any]:
    return {
        "reconciler": run.name,
        "ending": run.ending,
        "why": run.why,
        "outcomes": run.outcomes,
        "proposed": run.proposed,
        "seconds": round(run.seconds, 3),
        "index_ddl": run.index_ddl,
    }


SCANNED = {
    "stopped": "stopped; the next process may repeat the last item",
    "failed": "its generator failed",
    "lost": "the lease was lost; its new holder continues",
    "elsewhere": "another process is scanning; see: {command} {name}",
}


def _tell(run: Run) -> None:
    if "items" in run.outcomes:
        _tell_scan(run)
        return
    rows, counts = run.outcomes["claimed"], run.outcomes
    if run.proposed:  # then every row that something was proposed for counts as unchanged
        counts = {**run.proposed, **{name: counts[name] for name in ("retry", "quarantined", "lost")}}
    if run.ending == "refused":
        output.say(f"{run.name}: refused, nothing was changed: {run.why}")
    elif not rows:
        output.say(f"{run.name}: nothing to do")
    else:
        became = outcomes_text(counts)
        took = f"{span(run.seconds)}, {rows / run.seconds:,.0f}/s" if run.seconds >= 1 else span(run.seconds)
        proposed = "proposed " if run.proposed else ""
        output.say(f"{run.name}: {counted(rows, 'row')} in {took}: {proposed}{became}")
    if run.outcomes["quarantined"]:
        output.note(f"see: {typed('trueup reconcilers quarantine list')} {run.name}")


def _tell_scan(run: Run) -> None:
    items, failed = run.outcomes["items"], run.outcomes["failed"]
    said = [counted(items, "item"), *([f"{failed:,} failed"] if failed else [])]
    shown = {"command": typed("trueup reconcilers show"), "name": run.name}
    ending = SCANNED[run.ending].format(**shown) if run.ending in SCANNED else f"took {span(run.seconds)}"
    output.say(f"{run.name}: {', '.join(said)}; {ending}{f': {run.why}' if run.why else ''}")


# -- a dry one --------------------------------------------------------------------------------------------------------


def _dry_run(session: Session, name: str, limit: int, shadow: bool) -> None:
    if shadow:
        _say_not_undone()
    dry = session.run(lambda app: app.reconcilers.dry_run(name, limit=limit, shadow=shadow))
    if session.json:
        output.write_json(
            {
                "reconciler": dry.name,
                "would": dry.would,
                "rows": dry.rows,
                "more": dry.more,
                "total": dry.total,
                "why": dry.why,
            }
        )
    elif any("item" in row for row in dry.rows):
        _show_items(dry)
    else:
        _show_rows(dry)
    if not dry.ok:
        raise typer.Exit(WRONG)


def _show_rows(dry: DryRun) -> None:
    called = any("outcome" in row for row in dry.rows)
    columns = (
        Heading("key", wide=any(len(row["key"]) > LONG for row in dry.rows)),
        *headings("state", "due", "attempts>", "outcome*" if called else "would*"),
    )
    rows = [
        (row["key"], row["state"], _due(row), row["attempts"] or "", row["outcome"] if called else dry.would)
        for row in dry.rows
    ]
    if rows:
        output.show(TextTable("Rows", columns, list(rows)))
    output.say(f"{dry.name}: {_how_many(dry)}")
    if dry.why is not None:
        output.say(f"{dry.name}: would be refused: {dry.why}")


def _due(row: dict[str, Any]) -> str:
    return "" if row["due_since"] is None else ago(row["due_since"])


def _how_many(dry: DryRun) -> str:
    from trueup.operate.runs import MAX_COUNTED

    if not dry.rows:
        return "nothing to do"
    if dry.total is None:
        return f"{len(dry.rows):,} of more than {MAX_COUNTED:,} rows are shown (--limit); would {dry.would}"
    total = counted(dry.total, "row")
    shown = f"{len(dry.rows):,} of {total} are shown (--limit)" if dry.more else total
    return f"{shown}; would {dry.would}"


def _show_items(dry: DryRun) -> None:
    columns = headings("item*", "next cursor*")
    output.show(TextTable("Items", columns, [(row["item"], row["next_cursor"]) for row in dry.rows]))
    more = ", and there are more (--limit)" if dry.more else ""
    output.say(f"{dry.name}: {counted(len(dry.rows), 'item')}{more}; would {dry.would}")
    if dry.why is not None:
        output.say(f"{dry.name}: {dry.why}")
