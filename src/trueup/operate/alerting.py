"""Reading alerts: every check with its limit, whether it fails now, and how far its alert has come. `app.alerts`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from trueup.config import Settings
from trueup.operate.checks import Finding, advice, judge
from trueup.operate.operating import Operating, twin
from trueup.store.alerts import Alert, AlertStates
from trueup.store.health import Health, Measured
from trueup.store.store import Store

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
