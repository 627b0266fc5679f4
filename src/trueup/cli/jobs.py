"""`trueup jobs …`: listing, enqueueing, retrying and cancelling jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trueup.cli import completing, many
from trueup.cli.enqueue import enqueue
from trueup.cli.errors import WrongUsage
from trueup.cli.listing import Limit, list_jobs
from trueup.cli.options import JobId, JobIds, KindOption, YesOption, duration_option, option, switch, with_session
from trueup.cli.session import Session
from trueup.cli.showing import find, show_job
from trueup.jobs.states import JobState

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.operate.jobs import Matching

DONE = "done; only dead and waiting jobs can be retried, so enqueue a new one"
CANCELLED = "cancelled; only dead and waiting jobs can be retried, so enqueue a new one"

Queue = Annotated[
    str | None, option("--queue -q", "NAME", "Only jobs of this queue.", autocompletion=completing.queues)
]
Error = Annotated[str | None, option("--error", "TEXT", "Only jobs whose last error contains this.")]
Arguments = Annotated[
    list[str] | None, option("--argument", "NAME=VALUE", "Only jobs with this argument. May be repeated.")
]
OlderThan = Annotated[str | None, duration_option("--older-than", help="Only jobs enqueued longer ago than this.")]

group = typer.Typer(help="Inspect, enqueue, retry or cancel jobs.", no_args_is_help=True)
group.command("enqueue")(enqueue)


@group.command("list")
@with_session
def list_all(
    session: Session,
    state: Annotated[
        list[JobState] | None,
        option(
            "--state -s", "STATE", "Only jobs in this state: queued, running, done, dead or cancelled. May be repeated."
        ),
    ] = None,
    kind: KindOption = None,
    queue: Queue = None,
    limit: Limit = 50,
    error: Error = None,
    argument: Arguments = None,
    older_than: OlderThan = None,
    min_attempts: Annotated[
        int, option("--min-attempts", "N", "Only jobs with at least this many attempts.", min=0)
    ] = 0,
    after: Annotated[int | None, option("--after", "ID", "Continue after this job, with older ones.")] = None,
) -> None:
    """List jobs, newest first."""
    matching: Matching = {**_matching(queue, error, argument, older_than), "min_attempts": min_attempts}
    states = [str(each) for each in state or JobState]
    list_jobs(session, state=states, kind=kind, limit=limit, after=after, **matching)


def _matching(queue: str | None, error: str | None, argument: list[str] | None, older_than: str | None) -> Matching:
    from trueup.operate.given import arguments_of

    arguments = arguments_of(argument or ())
    return {"queue": queue, "error_contains": error, "arguments": arguments, "older_than": older_than}


@group.command("show")
@with_session
def show(session: Session, job_id: JobId) -> None:
    """Show everything about a job.

    Arguments, progress, result, and every error with its traceback.
    """
    show_job(session, find(session, job_id))


@group.command("retry")
@with_session
def retry(
    session: Session,
    ids: JobIds = None,
    everything: Annotated[
        bool, switch("--all", "All dead jobs and all that wait after a failed attempt, or those of --kind.")
    ] = False,
    kind: KindOption = None,
    yes: YesOption = False,
) -> None:
    """Run dead and waiting jobs again now.

    Dead jobs are revived with all their attempts; queued ones become due immediately.
    """
    wanted = many.chosen(ids, everything, kind)
    if not wanted:
        _retry_all(session, kind, yes)
        return
    from trueup.operate.jobs import Retried

    did = session.run(lambda app: many.or_nothing(app.jobs.retry(wanted), lambda: Retried(set(), set())))
    moved = {"revived": did.revived, "hurried": did.hurried}
    why_not = {"queued": "due already; it waits for a free worker", "done": DONE, "cancelled": CANCELLED}
    many.report(session, moved, wanted, why_not)


def _retry_all(session: Session, kind: str | None, yes: bool) -> None:
    async def run(app: App) -> dict[str, int]:
        dead = await app.jobs.count(state="dead", kind=kind)
        waiting = await app.jobs.count(state="queued", kind=kind, min_attempts=1)
        if not dead.any and not waiting.any:
            return {"revived": 0, "hurried": 0}
        many.confirm(f"Retry {dead} dead and {waiting} waiting jobs{many.of_kind(kind)}?", yes)
        with many.progress("retry", dead.number + waiting.number) as note:
            # The waiting first: a job revived and failed again in the meantime keeps its backoff.
            hurried = await app.jobs.hurry_all(kind, note)
            return {"revived": await app.jobs.revive_all(kind, note), "hurried": hurried}

    many.report_all(session, session.run(run))


@group.command("cancel")
@with_session
def cancel(
    session: Session,
    ids: JobIds = None,
    everything: Annotated[
        bool, switch("--all", "All queued and running jobs, or those that the options name.")
    ] = False,
    kind: KindOption = None,
    queue: Queue = None,
    error: Error = None,
    argument: Arguments = None,
    older_than: OlderThan = None,
    reason: Annotated[str, option("--reason", "TEXT", "A reason, stored with the job.")] = "cancelled by a person",
    yes: YesOption = False,
) -> None:
    """Cancel jobs.

    Queued jobs are cancelled immediately; the workers of running ones are notified and cancel the handlers.
    """
    wanted = many.chosen(ids, everything, kind)
    matching = _matching(queue, error, argument, older_than)
    if not wanted:
        words, states = ("cancel", "cancelled"), ["queued", "running"]
        many.act_on_all(
            session,
            words,
            states,
            kind,
            yes,
            lambda app, note: app.jobs.cancel_all(kind, reason, note, **matching),
            **matching,
        )
        return
    if any(matching.values()):
        raise WrongUsage("options that narrow go with --all, not with ids")
    from trueup.operate.jobs import Cancelled

    did = session.run(lambda app: many.or_nothing(app.jobs.cancel(wanted, reason), lambda: Cancelled(set(), set())))
    many.report(session, {"cancelled": did.cancelled, "asked_to_stop": did.asked}, wanted)
