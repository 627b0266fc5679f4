"""`trueup migrate`: brings the database's schema up to date, or says what that would mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueup.cli import output
from trueup.cli.errors import WRONG, WrongUsage
from trueup.cli.options import duration_option, switch, with_session
from trueup.cli.session import Session
from trueup.program import typed

if TYPE_CHECKING:
    from datetime import timedelta

    from trueup.app import App
    from trueup.events import Event
    from trueup.store.db.migrate import Migrator, Step


@with_session
def migrate(
    session: Session,
    check: Annotated[
        bool,
        switch("--check", "Change nothing; exit with 1 if steps are pending, or if a worker would refuse the schema."),
    ] = False,
    sql: Annotated[bool, switch("--sql", "Change nothing; print the pending steps as a script.")] = False,
    pre_only: Annotated[bool, switch("--pre-only", "Skip the steps that old workers do not tolerate.")] = False,
    wait: Annotated[
        str, duration_option("--wait", help="How long to keep trying while other sessions block it.")
    ] = "5m",
) -> None:
    """Bring the database's schema up to date.

    Workers and producers keep running: a step that cannot lock its tables immediately is rolled back and tried again after a pause, and the blocking session is named.
    """
    from trueup.durations import parse_duration
    from trueup.store.db.migrate import Migrator

    if sql and (check or pre_only):
        raise WrongUsage("--sql goes with neither --check nor --pre-only")
    app = session.app()
    try:
        store = app.store
        with store.connect_sync("migrate") as connection:
            migrator = Migrator(connection, app.settings.schema, app.events)
            if check:
                _check(session, migrator, post=not pre_only)
            elif sql:
                _print_script(session, migrator)
            else:
                _apply(session, app, migrator, post=not pre_only, wait=parse_duration(wait))
    finally:
        app.close_sync()


def _check(session: Session, migrator: Migrator, *, post: bool) -> None:
    pending, refusal = migrator.pending(post=post), migrator.refusal()
    if session.json:
        output.write_json({"pending": _names(pending), "refusal": None if refusal is None else str(refusal)})
    else:
        for step in pending:
            output.say(f"pending  {step.name}")
        if refusal is not None:
            output.say(str(refusal))
        elif not pending:
            output.say("the schema is up to date")
    if pending or refusal is not None:
        raise typer.Exit(WRONG)


def _print_script(session: Session, migrator: Migrator) -> None:
    script = migrator.sql()
    if session.json:
        output.write_json({"pending": [step.name for step in migrator.pending()], "sql": script})
    else:
        typer.echo(script or "-- the schema is up to date")


def _apply(session: Session, app: App, migrator: Migrator, *, post: bool, wait: timedelta) -> None:
    from trueup.events import MigrationApplied, MigrationWaits

    def said(event: Event) -> None:
        if isinstance(event, MigrationApplied):
            output.say(f"applied  {event.number:04} {_words(event)}  ({event.duration_ms:.0f} ms)")
        elif isinstance(event, MigrationWaits):
            typer.echo(f"waiting  {event.step}: {event.blockers}", err=True)

    if not session.json:
        app.events.subscribe(said, MigrationApplied)
        app.events.subscribe(said, MigrationWaits)
    done = migrator.migrate(post=post, wait=wait)
    left = migrator.pending()
    if session.json:
        output.write_json({"applied": _names(done), "pending": _names(left)})
        return
    if not done and not left:
        output.say("the schema is up to date")
    for step in left:
        output.say(f"left     {step.name}  (once no old worker runs: {typed('trueup migrate')})")


def _words(event: Any) -> str:
    title = str(event.title).replace("_", " ")
    return title if event.step == "only" else f"{title} ({event.step})"


def _names(steps: list[Step]) -> list[str]:
    return [step.name for step in steps]
