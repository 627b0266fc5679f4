"""`trueup alerts`: every check with its limit, and what fires."""

from __future__ import annotations

from dataclasses import asdict

from trueup.cli import output
from trueup.cli.ages import ago, span
from trueup.cli.options import with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.session import Session
from trueup.config.kinds import AGES

COLUMNS = headings("check", "state", "severity", "value>", "allowed>", "since", "sent", "detail*")


@with_session
def alerts(session: Session) -> None:
    """Show every check with its limit, firing ones first.

    A check fires when it has failed for alert_after and a worker with alert_url has raised the alert.
    """
    rules = session.run(lambda app: app.alerts.list())
    if session.json:
        output.write_json([asdict(rule) for rule in rules])
        return
    table = TextTable("Alerts", COLUMNS)
    for rule in rules:
        shown = span if rule.check in AGES else lambda number: f"{number:,.0f}"
        allowed = "off" if rule.allowed is None else shown(rule.allowed)
        since = "" if rule.since is None else ago(rule.since)
        sent = "yes" if rule.sent else ""
        table.rows.append((rule.check, rule.state, rule.severity, shown(rule.value), allowed, since, sent, rule.detail))
    output.show(table)
