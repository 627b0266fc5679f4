"""Alerts: a check that keeps failing is logged and posted once, and once more when it passes again.

How far each alert has come is in the database (`store/health.py`), fenced by the lease of the worker that watches: a worker that
takes over goes on from there. A message counts as sent when the webhook has accepted it. If a worker dies between the two, the
next one sends the message again, with the same idempotency key. `app.alerts` reads them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Literal, TypeAlias

from trueup.config import Settings
from trueup.durations import format_duration
from trueup.events import AlertRaised, AlertResolved, Events, ServiceFailed
from trueup.operate.checks import Finding, Report, advice, judge
from trueup.operate.operating import Operating, twin
from trueup.store.health import Alert, AlertStates, Health, Lead, Measured, State
from trueup.store.store import Store
from trueup.texts import clean, describe, type_name

MAX_PROBLEM = 1_000  # characters
SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})  # or a text could mention a whole channel

Post = Callable[[Mapping[str, Any], str], Awaitable[object]]
"""Posts a document with an idempotency key; raises when it was not accepted."""


class Reported:
    """Posts, and reports the first, second, fourth, … failure in a row. True when the document was accepted."""

    def __init__(self, post: Post, events: Events, name: str) -> None:
        self._post = post
        self._events = events
        self._name = name
        self._failures = 0

    async def __call__(self, document: Mapping[str, Any], key: str) -> bool:
        try:
            await self._post(document, key)
        except Exception as error:
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:
                self._events.emit(ServiceFailed(self._name, type_name(error), describe(error), self._failures))
            return False
        self._failures = 0
        return True


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


CheckState = Literal["ok", "failing", "firing", "off"]
Rules: TypeAlias = "tuple[AlertRule, ...]"  # defined here because `list` is a method inside the class


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One check. It is `failing` at first, and `firing` once a worker has raised the alert, which needs `alert_url`.

    `value` is what was measured, `allowed` the limit: seconds for ages, and counts otherwise. `since` is when a worker first
    noticed that it fails. `sent` says whether the webhook accepted the alert.
    """

    check: str
    state: CheckState
    severity: str
    value: float
    allowed: float | None
    detail: str
    advice: str
    since: datetime | None = None
    sent: bool = False


class AlertOperations(Operating):
    def __init__(self, store: Store, settings: Settings) -> None:
        super().__init__(store)
        self._settings = settings

    async def list(self) -> Rules:
        """Every check as it is now: firing ones first, then failing ones."""
        store = self._store
        measured = await Health(self._database, store.statements).measured()
        alerts = await AlertStates(self._database, store.statements).list()
        limits = self._settings.check_limits or {}
        found = {each.check: each for each in judge(measured, limits)}
        rules = [
            _rule(each, limits.get(each.name, each.allowed), found.get(each.name), alerts.get(each.name))
            for each in measured
        ]
        order = {"firing": 0, "failing": 1, "ok": 2, "off": 3}
        return tuple(sorted(rules, key=lambda rule: (order[rule.state], rule.severity != "error")))

    list_sync = twin(list)


def _rule(measured: Measured, allowed: float | None, finding: Finding | None, alert: Alert | None) -> AlertRule:
    failing = finding is not None
    raised = alert is not None and alert.state in ("raised", "sent")
    state: CheckState = "off" if allowed is None else "ok" if not failing else "firing" if raised else "failing"
    return AlertRule(
        measured.name,
        state,
        measured.severity,
        measured.value,
        allowed,
        measured.detail,
        advice(measured.name) if finding is None else finding.advice,
        alert.since if alert is not None and failing else None,
        failing and alert is not None and alert.state == "sent",
    )
