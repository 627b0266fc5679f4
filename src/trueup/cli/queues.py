"""`trueup queues …`: how full queues are, and pausing them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trueup.cli import completing, output
from trueup.cli.ages import ago, span
from trueup.cli.listing import note_unknown, unknown
from trueup.cli.options import option, with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.session import Session
from trueup.errors import ConfigError

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.jobs.records import Pause, QueueDepth

group = typer.Typer(help="Inspect, pause or resume queues.", no_args_is_help=True)

Queue = Annotated[str | None, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=completing.queues)]
Kind = Annotated[
    str | None, option("--kind -k", "NAME", "A kind of job instead of a queue.", autocompletion=completing.kinds)
]
Reason = Annotated[str | None, option("--reason", "TEXT", "A reason, shown while it is paused.")]


@group.command("list")
@with_session
def list_queues(session: Session) -> None:
    """List queues with live jobs, and paused queues and kinds."""

    async def look(app: App) -> tuple[tuple[QueueDepth, ...], tuple[Pause, ...]]:
        return await app.jobs.queues(), await app.jobs.paused()

    depths, paused = session.run(look)
    if session.json:
        output.write_json({"queues": [asdict(each) for each in depths], "paused": [asdict(each) for each in paused]})
        return
    columns = headings("queue*", "kind*", "queued>", "due>", "running>", "oldest due>", "state")
    table = TextTable("Queues", columns, empty="no job is queued or running")
    for each in depths:
        oldest = "" if each.oldest_due_s is None else span(each.oldest_due_s)
        state = "paused" if each.paused else ""
        table.rows.append((each.queue, each.kind, each.queued, each.due, each.running, oldest, state))
    pauses = TextTable("Paused", headings("what", "name*", "since", "reason*"))
    for pause in paused:
        pauses.rows.append((pause.what, pause.name, ago(pause.paused_at), pause.reason or ""))
    output.show(*([table, pauses] if pauses.rows else [table]))


@group.command("pause")
@with_session
def pause(session: Session, queue: Queue = None, kind: Kind = None, reason: Reason = None) -> None:
    """Stop claiming jobs of a queue or a kind. Running jobs continue."""
    what, name = _thing(queue, kind)

    async def work(app: App) -> tuple[bool, list[str]]:
        did = await app.jobs.pause(queue=queue, kind=kind, reason=reason)
        return did, await unknown(app, queue=queue, kind=kind)

    did, doubts = session.run(work)
    _report(session, what, name, paused=True, changed=did)
    note_unknown(doubts)


@group.command("resume")
@with_session
def resume(session: Session, queue: Queue = None, kind: Kind = None) -> None:
    """Claim jobs of a paused queue or kind again."""
    what, name = _thing(queue, kind)
    did = session.run(lambda app: app.jobs.resume(queue=queue, kind=kind))
    _report(session, what, name, paused=False, changed=did)


def _thing(queue: str | None, kind: str | None) -> tuple[str, str]:
    if (queue is None) == (kind is None):
        raise ConfigError("name a queue, or a kind with --kind")
    return ("queue", queue) if queue is not None else ("kind", str(kind))


def _report(session: Session, what: str, name: str, *, paused: bool, changed: bool) -> None:
    if session.json:
        output.write_json({"what": what, "name": name, "paused": paused, "changed": changed})
    elif changed:
        output.note(f"{what} {name} is {'paused' if paused else 'resumed'}")
    else:
        output.note(f"{what} {name} was {'paused already' if paused else 'not paused'}")
