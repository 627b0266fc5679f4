"""`trueup schedules create` and `edit`: schedules that operators create."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from trueup.cli import completing, specs
from trueup.cli.enqueue import Document, Items, read_arguments
from trueup.cli.errors import WrongUsage
from trueup.cli.moves import say
from trueup.cli.options import argument, duration_option, option, with_session
from trueup.cli.session import Session

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.jobs.job import Draft

Name = Annotated[str, argument("NAME", "The schedule's name.", autocompletion=completing.schedules)]
NewName = Annotated[str, argument("NAME", "A name for the schedule.")]
MissedOption = Annotated[str | None, option("--missed", "POLICY", "What to do with missed ticks: latest, all or skip.")]
CatchUpOption = Annotated[str | None, duration_option("--catch-up", help="With --missed all: how far back.")]
GraceOption = Annotated[str | None, duration_option("--grace", help="A tick that is later than this counts as missed.")]
OverlapOption = Annotated[
    str | None,
    option("--overlap", "POLICY", "While a run is not finished: skip, queue_one, queue_all, cancel_running or allow."),
]
JitterOption = Annotated[str | None, duration_option("--jitter", help="Spread the runs over this duration (jitter).")]
PauseAfterOption = Annotated[
    int | None, option("--pause-after", "N", "Pause the schedule after this many dead runs in a row.", min=1)
]


@with_session
def create(
    session: Session,
    name: NewName,
    kind: Annotated[str, argument("KIND", "The job to run.", autocompletion=completing.kinds)],
    arguments: Document = None,
    arg: Items = None,
    cron: specs.CronOption = None,
    tz: specs.TzOption = None,
    dst: specs.DstOption = None,
    every: specs.EveryOption = None,
    at: specs.AtOption = None,
    missed: MissedOption = None,
    catch_up: CatchUpOption = None,
    grace: GraceOption = None,
    overlap: OverlapOption = None,
    jitter: JitterOption = None,
    pause_after: PauseAfterOption = None,
) -> None:
    """Create a schedule for a job of your App."""
    spec = specs.chosen(cron, tz, dst, every, at)
    if spec is None:
        raise WrongUsage("give the rule: --cron, --every or --at")
    policy = _given(
        missed=missed, catch_up=catch_up, grace=grace, overlap=overlap, jitter=jitter, pause_after=pause_after
    )
    app = session.app_with_jobs()
    call = _call(app, kind, arguments, arg)
    session.run_on(app, lambda app: app.schedules.create(name, spec, call, **policy))
    say(session, "schedule", name, "created")


@with_session
def edit(
    session: Session,
    name: Name,
    kind: Annotated[
        str | None,
        option("--job", "KIND", "Run this job instead, with the arguments of --arg.", autocompletion=completing.kinds),
    ] = None,
    arg: Items = None,
    cron: specs.CronOption = None,
    tz: specs.TzOption = None,
    dst: specs.DstOption = None,
    every: specs.EveryOption = None,
    at: specs.AtOption = None,
    missed: MissedOption = None,
    catch_up: CatchUpOption = None,
    grace: GraceOption = None,
    overlap: OverlapOption = None,
    jitter: JitterOption = None,
    pause_after: PauseAfterOption = None,
) -> None:
    """Change a schedule that was not declared in code; options that are omitted stay as they are.

    Ticks that are due are decided first, by the old rule.
    """
    if arg and kind is None:
        raise WrongUsage("--arg goes with --job")
    spec = specs.chosen(cron, tz, dst, every, at)
    policy = _given(
        missed=missed, catch_up=catch_up, grace=grace, overlap=overlap, jitter=jitter, pause_after=pause_after
    )
    app = session.app_with_jobs()
    call = _call(app, kind, None, arg) if kind is not None else None
    changed = session.run_on(app, lambda app: app.schedules.edit(name, spec=spec, call=call, **policy))
    say(session, "schedule", name, "edited" if changed else "unchanged")


def _call(app: App, kind: str, arguments: str | None, items: list[str] | None) -> Draft:
    positional, named = read_arguments(arguments, items or [])
    return app.registry[kind].call(*positional, **named)


def _given(**options: str | int | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
