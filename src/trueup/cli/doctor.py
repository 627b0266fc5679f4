"""`trueup doctor`: problems of the database, this machine and your tables, before they cause trouble."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import typer

from trueup.cli import output
from trueup.cli.checks import say_findings
from trueup.cli.errors import WRONG
from trueup.cli.options import with_session
from trueup.cli.session import Session
from trueup.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from trueup.operate.checks import Finding


@with_session
def doctor(session: Session) -> None:
    """Examine the database, this machine, and the tables of your reconcilers; say what to do about each finding.

    Looks at poolers, clocks, old transactions, replication slots, autovacuum, indexes, just-in-time compilation, time zone data, the schema, columns without a time zone, privileges, Redis, NATS, connections, and whatever the App adds (`app.on_examine`). Nothing is changed. Exits with 1 when there is an error; warnings alone exit with 0.
    """
    findings = _findings(session)
    failed = any(each.severity == "error" for each in findings)
    if session.json:
        output.write_json({"ok": not failed, "findings": [dataclasses.asdict(each) for each in findings]})
    else:
        say_findings(findings)
        if not findings:
            output.say("ok: nothing found")
    if failed:
        raise typer.Exit(WRONG)


def _findings(session: Session) -> tuple[Finding, ...]:
    from trueup.operate.checks import away

    try:
        return session.run(lambda app: app.examine())
    except DatabaseUnavailable as error:
        return away(error).findings
