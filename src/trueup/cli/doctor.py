"""`trueup doctor`: problems of the database, this machine and your tables, before they cause trouble; and `trueup status --check`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from trueup.cli import output
from trueup.cli.errors import WRONG
from trueup.cli.options import with_session
from trueup.cli.session import Session
from trueup.dsn import mask
from trueup.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.operate.checks import Finding, Report


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


def show_checks(session: Session) -> None:
    """`trueup status --check`. Raises Exit with 1 while anything is wrong."""
    report = asyncio.run(_checked(session.app()))
    if session.json:
        found = [dataclasses.asdict(each) for each in report.findings]
        output.write_json(
            {"ok": report.ok, "findings": found, "checks": [dataclasses.asdict(each) for each in report.measured]}
        )
    else:
        say_findings(report.findings)
        if report.ok:
            output.say(f"ok: {len(report.measured)} checks passed")
    if not report.ok:
        raise typer.Exit(WRONG)


def say_findings(findings: Sequence[Finding]) -> None:
    for each in findings:
        output.say(f"{each.severity}: {each.check}: {mask(each.problem)}")
        output.say(f"    {each.advice}")


async def _checked(app: App) -> Report:
    try:
        return await app.check()
    finally:
        await app.close()
