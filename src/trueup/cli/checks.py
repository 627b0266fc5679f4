"""How findings are shown: one line for what is wrong and one for what to do, or JSON; the exit code says whether there are any."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from trueup.cli import output
from trueup.cli.errors import WRONG
from trueup.cli.session import Session
from trueup.dsn import mask

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.operate.checks import Finding, Report


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
