"""Alerts: every check with its limit, what fires, and since when."""

from __future__ import annotations

from typing import Any

from trueup.config.kinds import AGES
from trueup.operate.alerts import AlertRule
from trueup.web.dashboard.attention import PLACES
from trueup.web.dashboard.formats import count, length
from trueup.web.dashboard.visit import Visit


async def alerts(visit: Visit) -> dict[str, Any]:
    rules = await visit.source.shared("alerts", visit.app.alerts.list, 2.0)
    settings = visit.app.settings
    return {
        "rules": [_shown(visit, rule) for rule in rules],
        "firing": sum(rule.state == "firing" for rule in rules),
        "failing": sum(rule.state == "failing" for rule in rules),
        "sends": settings.alert_url is not None,
        "after": settings.alert_after.total_seconds(),
    }


def _shown(visit: Visit, rule: AlertRule) -> dict[str, Any]:
    path, query, label = PLACES.get(rule.check, (("fleet",), {}, "Look"))
    ages = rule.check in AGES

    def written(number: float) -> str:
        return length(number) if ages and number else count(number)

    return {
        "rule": rule,
        "name": rule.check.replace("_", " "),
        "value": written(rule.value),
        "allowed": None if rule.allowed is None else written(rule.allowed),
        "link": visit.url(*path, **query) if rule.state in ("firing", "failing") else None,
        "label": label,
    }
