"""`trueup dead …`: dead letters, and what operators do with them."""

from __future__ import annotations

from typing import Annotated

import typer

from trueup.cli import many
from trueup.cli.listing import Limit, list_jobs
from trueup.cli.options import JobId, JobIds, KindOption, YesOption, option, switch, with_session
from trueup.cli.session import Session
from trueup.cli.showing import find, show_job
from trueup.errors import NotFound
from trueup.program import typed

group = typer.Typer(help="Inspect, revive or discard dead jobs.", no_args_is_help=True)

NOT_DEAD = {state: f"{state}, not dead" for state in ("queued", "running", "done", "cancelled")}

All = Annotated[bool, switch("--all", "All dead jobs, or those of --kind.")]
Reason = Annotated[str, option("--reason", "TEXT", "A reason, stored with the job.")]


@group.command("list")
@with_session
def list_dead(session: Session, kind: KindOption = None, limit: Limit = 50) -> None:
    """List dead jobs, newest first."""
    list_jobs(session, state="dead", kind=kind, limit=limit)


@group.command("show")
@with_session
def show(session: Session, job_id: JobId) -> None:
    """Show a dead job: its arguments and every error with its traceback."""
    job = find(session, job_id)
    if job.state != "dead":
        raise NotFound(f"job {job_id} is {job.state}, not dead; see: {typed('trueup jobs show')} {job_id}")
    show_job(session, job)


@group.command("revive")
@with_session
def revive(
    session: Session,
    ids: JobIds = None,
    everything: All = False,
    kind: KindOption = None,
    yes: YesOption = False,
) -> None:
    """Put dead jobs back into their queues, with all their attempts."""
    wanted = many.chosen(ids, everything, kind)
    if wanted:
        revived = session.run(lambda app: many.or_nothing(app.jobs.revive(wanted), set))
        many.report(session, {"revived": revived}, wanted, {**NOT_DEAD, "dead": "a live job has its unique key"})
        return
    words, states = ("revive", "revived"), ["dead"]
    many.act_on_all(session, words, states, kind, yes, lambda app, note: app.jobs.revive_all(kind, note))


@group.command("discard")
@with_session
def discard(
    session: Session,
    ids: JobIds = None,
    everything: All = False,
    kind: KindOption = None,
    reason: Reason = "discarded by a person",
    yes: YesOption = False,
) -> None:
    """Remove dead jobs from the list; they count as cancelled."""
    wanted = many.chosen(ids, everything, kind)
    if wanted:
        discarded = session.run(lambda app: many.or_nothing(app.jobs.discard(wanted, reason), set))
        many.report(session, {"discarded": discarded}, wanted, NOT_DEAD)
        return
    words, states = ("discard", "discarded"), ["dead"]
    many.act_on_all(session, words, states, kind, yes, lambda app, note: app.jobs.discard_all(kind, reason, note))
