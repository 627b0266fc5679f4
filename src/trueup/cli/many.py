"""Commands over many jobs: choosing between ids and --all, asking for confirmation, and showing progress."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, Unpack

import typer

from trueup.cli import output
from trueup.cli.errors import WRONG, WrongUsage
from trueup.cli.session import Session
from trueup.errors import NotFound
from trueup.texts import counted

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.operate.jobs import Matching

T = TypeVar("T")

MAX_EXPLAINED = 50  # jobs that are looked up to say why they were left unchanged
GONE = "no such job; its history may have passed its retention"


def chosen(ids: list[int] | None, everything: bool, kind: str | None) -> list[int]:
    """The ids once each; empty means --all. Raises a usage error unless exactly one of both was given."""
    if bool(ids) == everything:
        raise WrongUsage("give job ids, or --all")
    if kind is not None and ids:
        raise WrongUsage("--kind goes with --all, not with ids")
    return list(dict.fromkeys(ids or ()))


async def or_nothing(move: Awaitable[T], nothing: Callable[[], T]) -> T:
    """What was moved; nothing if no job was in a state for it, which `report` explains job by job."""
    try:
        return await move
    except NotFound:
        return nothing()


def confirm(question: str, yes: bool) -> None:
    """Ask the person at the terminal. Raises typer.Abort on no, and a usage error where there is no terminal."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise WrongUsage(f"{question} There is no terminal for confirmation: give --yes")
    typer.confirm(question, abort=True, err=True)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while a person watches; gives what is to be called with each number of jobs looked at."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


def report(
    session: Session,
    did: Mapping[str, Iterable[int]],
    asked: Sequence[int],
    why_not: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Say what was done to which of the ids; exit with 1 when some were left unchanged.

    Why one was: `why_not` by its state, or else that it is in that state, which the command does not change.
    """
    done = {verb: sorted(ids) for verb, ids in did.items()}
    left = sorted(set(asked).difference(*done.values()))
    if session.json:
        output.write_json({**done, "unchanged": left})
    else:
        for verb, ids in done.items():
            if ids:
                output.say(f"{verb.replace('_', ' ')} {_jobs(ids)}")
    if left:
        _explain(session, left, why_not)
        raise typer.Exit(WRONG)


def _explain(session: Session, left: Sequence[int], why_not: Mapping[str, str]) -> None:
    async def look(app: App) -> dict[int, str | None]:
        found = {job_id: await app.jobs.get(job_id) for job_id in left[:MAX_EXPLAINED]}
        return {job_id: None if job is None else job.state for job_id, job in found.items()}

    by_reason: dict[str, list[int]] = {}
    for job_id, state in session.run(look).items():
        reason = GONE if state is None else why_not.get(state, f"already {state}")
        by_reason.setdefault(reason, []).append(job_id)
    for reason, ids in by_reason.items():
        output.note(f"unchanged {_jobs(ids)}: {reason}")
    if len(left) > MAX_EXPLAINED:
        output.note(f"unchanged: {len(left) - MAX_EXPLAINED:,} more")


def act_on_all(
    session: Session,
    words: tuple[str, str],
    states: Sequence[str],
    kind: str | None,
    yes: bool,
    move: Callable[[App, Callable[[int], None]], Awaitable[int]],
    **matching: Unpack[Matching],
) -> None:
    """Count the jobs in these states that match, ask for confirmation, move them, and say how many. `words`: verb and participle."""
    verb, did = words

    async def run(app: App) -> int:
        total = await app.jobs.count(state=states, kind=kind, **matching)
        if not total.any:
            return 0
        which = " that match" if any(matching.values()) else ""
        jobs = f"{total} {' and '.join(states)} {noun(total.number)}{of_kind(kind)}{which}"
        confirm(f"{verb.capitalize()} {jobs}?", yes)
        with progress(verb, total.number) as note:
            return await move(app, note)

    report_all(session, {did: session.run(run)})


def report_all(session: Session, counts: dict[str, int]) -> None:
    """Say how many jobs a command over all of them changed."""
    said = [f"{verb} {counted(count, 'job')}" for verb, count in counts.items() if count]
    session.answer(counts, ", ".join(said) or "nothing to do")


def noun(count: int) -> str:
    return "job" if count == 1 else "jobs"


def of_kind(kind: str | None) -> str:
    return f" of kind {kind}" if kind is not None else ""


def _jobs(ids: Sequence[int]) -> str:
    return f"{noun(len(ids))} {', '.join(map(str, ids))}"
