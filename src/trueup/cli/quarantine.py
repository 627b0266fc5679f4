"""`trueup reconcilers quarantine …`: rows that reconcilers gave up on, and what operators decide about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueup.cli import completing, many, output
from trueup.cli.ages import ago, written
from trueup.cli.errors import WRONG, WrongUsage
from trueup.cli.listing import Limit, error_text
from trueup.cli.options import YesOption, argument, switch, with_session
from trueup.cli.output import Heading, TextTable, headings
from trueup.cli.session import Session
from trueup.jobs.records import JobError
from trueup.observe.printable import printable, printable_lines
from trueup.texts import counted

if TYPE_CHECKING:
    from trueup.app import App

group = typer.Typer(help="Inspect, release or discard rows in quarantine.", no_args_is_help=True)

Name = Annotated[str, argument("NAME", "The reconciler's name.", autocompletion=completing.reconcilers)]
Key = Annotated[str, argument("KEY", 'The key as it is listed; with several columns: ["a", "1"].')]
Keys = Annotated[list[str] | None, argument("KEY…", "The keys as they are listed; after -- if one begins with a dash.")]
All = Annotated[bool, switch("--all", "All rows of this reconciler that are in quarantine.")]

LONG = 40  # characters of a key up to which it is never cut
Move = Callable[["App", Sequence[str]], Awaitable[set[str]]]
MoveAll = Callable[["App", Callable[[int], None]], Awaitable[int]]


@group.command("list")
@with_session
def list_rows(
    session: Session,
    name: Annotated[
        str | None, argument("[NAME]", "Only rows of this reconciler.", autocompletion=completing.reconcilers)
    ] = None,
    discarded: Annotated[bool, switch("--discarded", "List discarded rows instead.")] = False,
    limit: Limit = 50,
) -> None:
    """List rows in quarantine, latest first."""
    # One more than shown, to know whether there are more.
    found = session.run(lambda app: app.reconcilers.quarantined(name, limit=limit + 1, discarded=discarded))
    if session.json:
        output.write_json(found[:limit])
        return
    shown = found[:limit]
    columns = (
        Heading("reconciler", wide=True),
        Heading("key", wide=any(len(row["key"]) > LONG for row in shown)),
        *headings("state", "attempt>", "since", "why*"),
    )
    empty = "no row was discarded" if discarded else "no row is in quarantine"
    output.show(TextTable("Quarantine", columns, [_row(row) for row in shown], empty=empty))
    if len(found) > limit:
        output.note(f"there are more; the latest {limit} are shown (--limit)")


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    return (row["reconciler"], row["key"], row["was_state"], row["attempt"], ago(row["changed_at"]), _why(row))


def _why(row: dict[str, Any]) -> str:
    reason, error = str(row["reason"] or ""), row["error"]
    # GiveUp's own words are the reason.
    return f"{reason}: {error_text(error)}" if error and JobError.of(error).message != reason else reason


@group.command("show")
@with_session
def show(session: Session, name: Name, key: Key) -> None:
    """Show a row in quarantine: why it is there, and every error with its traceback."""
    row = session.run(lambda app: app.reconcilers.quarantined_row(name, key))
    if session.json:
        output.write_json(row)
        return
    crashes = f", {row['crashes']} of them ended with their process" if row["crashes"] else ""
    facts = [
        ("reconciler", row["reconciler"]),
        ("key", row["key"]),
        ("state", row["state"]),
        ("reason", row["reason"]),
        ("row was", row["was_state"]),
        ("attempts", f"{row['attempt']}{crashes}"),
        ("claimed", written(row["claimed_at"])),
        ("set aside", written(row["changed_at"])),
    ]
    output.write_block(
        [*((label, printable(text)) for label, text in facts if text), *map(_error, JobError.all_of(row["errors"]))]
    )


def _error(error: JobError) -> tuple[str, str]:
    at = "at an unknown time" if error.at is None else error.at.isoformat()
    heading = printable(f"attempt {error.attempt}, {at}: {error}")
    return "error", f"{heading}\n{printable_lines(error.traceback, '  ')}" if error.traceback else heading


@group.command("release")
@with_session
def release(session: Session, name: Name, keys: Keys = None, everything: All = False, yes: YesOption = False) -> None:
    """Release rows: they are processed again soon, with all their attempts.

    Rows that were discarded can be released by their key, too.
    """
    _free(
        session,
        name,
        _chosen(keys, everything),
        yes,
        ("release", "released", "neither in quarantine nor discarded"),
        lambda app, wanted: app.reconcilers.release(name, wanted),
        lambda app, note: app.reconcilers.release_all(name, note),
    )


@group.command("discard")
@with_session
def discard(session: Session, name: Name, keys: Keys = None, everything: All = False, yes: YesOption = False) -> None:
    """Ignore rows for good, as long as they stay in their current state."""
    _free(
        session,
        name,
        _chosen(keys, everything),
        yes,
        ("discard", "discarded", "not in quarantine"),
        lambda app, wanted: app.reconcilers.discard(name, wanted),
        lambda app, note: app.reconcilers.discard_all(name, note),
    )


def _chosen(keys: list[str] | None, everything: bool) -> list[str]:
    """The keys once each; empty means --all."""
    if bool(keys) == everything:
        raise WrongUsage("give keys of rows, or --all")
    return list(dict.fromkeys(keys or ()))


def _free(
    session: Session,
    name: str,
    wanted: list[str],
    yes: bool,
    words: tuple[str, str, str],
    move: Move,
    move_all: MoveAll,
) -> None:
    verb, did, why_not = words
    if not wanted:
        _free_all(session, name, yes, verb, did, move_all)
        return
    moved = session.run(lambda app: move(app, wanted))
    left = [key for key in wanted if key not in moved]
    if session.json:
        output.write_json({"reconciler": name, did: [key for key in wanted if key in moved], "unchanged": left})
    elif moved:
        output.say(f"{did} {counted(len(moved), 'row')} of {name}")
    if left:
        output.note(f"unchanged {', '.join(left)}: {why_not}")
        raise typer.Exit(WRONG)


def _free_all(session: Session, name: str, yes: bool, verb: str, did: str, move_all: MoveAll) -> None:
    async def run(app: App) -> int:
        total = await app.reconcilers.count_quarantined(name)
        if not total:
            return 0
        many.confirm(f"{verb.capitalize()} {counted(total, 'row')} of {name}?", yes)
        with many.progress(verb, total) as note:
            return await move_all(app, note)

    count = session.run(run)
    said = f"{did} {counted(count, 'row')} of {name}" if count else f"no row of {name} is in quarantine"
    session.answer({"reconciler": name, did: count}, said)
