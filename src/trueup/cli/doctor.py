"""`trueup doctor`: problems of the database, this machine and your tables, before they cause trouble; and `trueup status --check`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer

from trueup.cli import output
from trueup.cli.errors import WRONG
from trueup.cli.options import with_session
from trueup.cli.session import Session, note_new_server
from trueup.dsn import mask

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.operate.checks import Finding

T = TypeVar("T")


@with_session
def doctor(session: Session) -> None:
    """Examine the database, this machine, and the tables of your reconcilers; say what to do about each finding.

    Looks at poolers, clocks, old transactions, replication slots, autovacuum, indexes, just-in-time compilation, time zone data, the schema, columns without a time zone, privileges, Redis, NATS, connections, and whatever the App adds (`app.on_examine`). Nothing is changed. Exits with 1 when there is an error; warnings alone exit with 0.
    """
    findings = _asked(session, lambda app: app.examine())
    ok = all(each.severity != "error" for each in findings)
    _answer(session, findings, ok=ok, otherwise="ok: nothing found")


def show_checks(session: Session) -> None:
    """`trueup status --check`. Raises Exit with 1 while anything is wrong."""
    report = _asked(session, lambda app: app.check())
    checks = [dataclasses.asdict(each) for each in report.measured]
    _answer(session, report.findings, ok=report.ok, otherwise=f"ok: {len(checks)} checks passed", checks=checks)


def _asked(session: Session, ask: Callable[[App], Awaitable[T]]) -> T:
    """The answer of an App that may be unable to connect, which is a finding."""
    app = session.app()

    async def answer() -> T:
        try:
            return await ask(app)
        finally:
            await app.close()

    note_new_server(app.settings)
    return asyncio.run(answer())


def _answer(session: Session, findings: Sequence[Finding], *, ok: bool, otherwise: str, **more: object) -> None:
    if session.json:
        output.write_json({"ok": ok, "findings": [dataclasses.asdict(each) for each in findings], **more})
    else:
        for each in findings:
            output.say(f"{each.severity}: {each.check}: {mask(each.problem)}")
            output.say(f"    {each.advice}")
        if not findings:
            output.say(otherwise)
    if not ok:
        raise typer.Exit(WRONG)
