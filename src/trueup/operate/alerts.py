"""Alerts: a check that keeps failing is logged and posted once, and once more when it passes again.

How far each alert has come is in the database (`store/alerts.py`), fenced by the lease of the worker that watches: a worker that
takes over goes on from there. A message counts as sent when the webhook has accepted it. If a worker dies between the two, the
next one sends the message again, with the same idempotency key.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

from trueup.durations import format_duration
from trueup.events import AlertRaised, AlertResolved, Events
from trueup.operate.checks import Finding, Report
from trueup.operate.posting import Post, Reported
from trueup.store.alerts import Alert, AlertStates, State
from trueup.store.health import Lead
from trueup.store.store import Store
from trueup.texts import clean

MAX_PROBLEM = 1_000  # characters
SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})  # or a text could mention a whole channel


class AlertStep(Enum):
    """The next step of an alert."""

    NOTICE = "notice"  # the time for which the check fails counts from now on
    FORGET = "forget"  # the check passes again before it has failed for long enough
    RAISE = "raise"  # log it
    SEND_RAISED = "send raised"
    RESOLVE = "resolve"  # log it
    SEND_RESOLVED = "send resolved"  # after that, the alert is forgotten


SENDING = (AlertStep.SEND_RAISED, AlertStep.SEND_RESOLVED)


def next_step(alert: Alert | None, failing: bool, after: timedelta) -> AlertStep | None:
    """The next step of a check's alert, or None, from the alert's state and whether the check fails now."""
    if alert is None:
        return AlertStep.NOTICE if failing else None
    if alert.state == "resolved":  # even if the check fails again: that is a new alert
        return AlertStep.SEND_RESOLVED
    if not failing:
        return AlertStep.FORGET if alert.state == "noticed" else AlertStep.RESOLVE
    if alert.state == "noticed":
        return AlertStep.RAISE if alert.lasted_s >= after.total_seconds() else None
    return AlertStep.SEND_RAISED if alert.state == "raised" else None


class AlertSender:
    """Logs and sends alerts about the reports of a watch. All workers with an alert_url share its lease."""

    def __init__(self, store: Store, post: Post, after: timedelta, events: Events, service: str | None = None) -> None:
        self.purpose = "alerts"
        self._states = AlertStates(store.pool, store.statements)
        self._post = Reported(post, events, "alerts")
        self._after = after
        self._events = events
        self._service = service or "trueup"

    async def saw(self, report: Report, lead: Lead) -> None:
        if not report.measured:  # the database was unreachable, so it is unknown which checks fail
            return
        findings = {each.check: each for each in report.findings}
        alerts = await self._states.list()
        posting = True  # until the webhook refuses a message: the other alerts are logged now and sent at the next look
        for check in sorted({*findings, *alerts}):
            alert, finding = alerts.get(check), findings.get(check)
            while (step := next_step(alert, finding is not None, self._after)) and (posting or step not in SENDING):
                if await self._take(step, alert, finding, lead):
                    alert = (await self._states.list()).get(check)
                elif step in SENDING:
                    posting = False
                else:
                    return  # the lease is lost: another worker goes on

    def followed(self) -> None:
        """Always true: the state of alerts is in the database."""

    async def _take(self, step: AlertStep, alert: Alert | None, finding: Finding | None, lead: Lead) -> bool:
        """Take the step. False when the lease is lost, or when the webhook refuses the message."""
        if alert is None:
            assert finding is not None
            problem = clean(finding.problem, MAX_PROBLEM)
            return await self._states.write(lead, finding.check, "noticed", finding.severity, problem)
        # The lease outlasts one delivery, but not many slow ones: without a renewal another worker would send the same.
        if step in SENDING and not (
            await lead.take() and await self._post(*message(self._service, step, alert, finding))
        ):
            return False
        if step in (AlertStep.FORGET, AlertStep.SEND_RESOLVED):
            return await self._states.forget(lead, alert.check)
        problem = alert.problem if finding is None else clean(finding.problem, MAX_PROBLEM)
        if not await self._states.write(lead, alert.check, _AFTER[step], alert.severity, problem):
            return False
        if step is AlertStep.RAISE and finding is not None:
            self._events.emit(
                AlertRaised(alert.check, alert.severity, problem, finding.advice, round(alert.lasted_s, 3))
            )
        elif step is AlertStep.RESOLVE:
            self._events.emit(AlertResolved(alert.check, alert.severity, problem, round(alert.lasted_s, 3)))
        return True


_AFTER: dict[AlertStep, State] = {
    AlertStep.RAISE: "raised",
    AlertStep.SEND_RAISED: "sent",
    AlertStep.RESOLVE: "resolved",
}


def message(service: str, step: AlertStep, alert: Alert, finding: Finding | None) -> tuple[dict[str, Any], str]:
    """The document for the webhook and its idempotency key. `text` is what Slack and similar services show."""
    lasted = format_duration(timedelta(seconds=round(alert.lasted_s)))
    facts: dict[str, Any] = {
        "event": AlertRaised.name if step is AlertStep.SEND_RAISED else AlertResolved.name,
        "service": service,
        "check": alert.check,
        "severity": alert.severity,
        "problem": alert.problem,
        "since": alert.since.isoformat(),
        "lasted_s": round(alert.lasted_s, 3),
    }
    if step is AlertStep.SEND_RAISED and finding is not None:
        text = f"{service}: {alert.severity}: {alert.check}: {alert.problem} (for {lasted})\n{finding.advice}"
        facts |= {"advice": finding.advice, "value": finding.value, "allowed": finding.allowed}
    else:
        text = f"{service}: resolved: {alert.check} passes again after {lasted}; it was: {alert.problem}"
    key = f"{facts['event']} {alert.check} {facts['since']}"
    return {"text": text.translate(SLACK_ESCAPES), "alert": facts}, key
