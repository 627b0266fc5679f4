"""`trueup actions`: the record of what people did."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from trueup.cli import output
from trueup.cli.ages import ago
from trueup.cli.options import duration_option, option, with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.session import Session

if TYPE_CHECKING:
    from trueup.store.actions import ActionRecord

SHOWN = 5  # ids or keys in a line

COLUMNS = headings("when", "who", "from", "action", "on*", "count>", "detail*")


@with_session
def actions(
    session: Session,
    who: Annotated[str | None, option("--who", "NAME", "Only actions of this person.")] = None,
    via: Annotated[str | None, option("--via", "WHERE", "Only from cli, python or web.")] = None,
    action: Annotated[str | None, option("--action", "NAME", "Only this action, such as cancel or pause.")] = None,
    what: Annotated[
        str | None, option("--what", "WHAT", "Only on a job, queue, kind, schedule, reconciler or row.")
    ] = None,
    name: Annotated[str | None, option("--name", "NAME", "Only on the queue, schedule, … of this name.")] = None,
    job: Annotated[int | None, option("--job", "ID", "Only actions on this job.", min=1, max=2**63 - 1)] = None,
    since: Annotated[str | None, duration_option("--since", help="Only the last 24h, 7d, …")] = None,
    limit: Annotated[int, option("--limit -n", "N", "Maximum number of entries.", min=1, max=1_000)] = 50,
    after: Annotated[int | None, option("--after", "ID", "Continue after this action, with older ones.")] = None,
) -> None:
    """Show the audit log: who cancelled, paused or triggered what, newest first.

    Actions from the command line, from Python, from the dashboard and from Django's admin are recorded.
    """
    page = session.run(
        lambda app: app.actions.list(
            actor=who,
            via=via,
            action=action,
            what=what,
            name=name,
            job=job,
            within=since,
            limit=limit,
            after=after,
        )
    )
    if session.json:
        output.write_json([asdict(each) for each in page])
        return
    output.show(TextTable("Actions", COLUMNS, [_row(each) for each in page], empty="no recorded action matches"))
    if page.next is not None:
        output.note(f"there are more; --after {page.next} shows older ones")


def _row(record: ActionRecord) -> tuple[object, ...]:
    where = f"{record.via} on {record.host}"
    return (ago(record.at), record.actor, where, record.action, on(record), record.count, record.detail or "")


def on(record: ActionRecord) -> str:
    """What it was done to, in words."""
    keys = ", ".join(record.keys[:SHOWN])
    more = record.count - SHOWN
    listed = f"{keys} and {more:,} more" if keys and more > 0 else keys
    named = record.what if record.name is None else f"{record.what} {record.name}"
    return f"{named}: {listed}" if listed and record.name else f"{named} {listed}".strip()
