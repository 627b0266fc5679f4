"""What `trueup rules` prints is what Prometheus takes, and raises alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.integrations.sink import Sink
from tests.observe.test_metrics import all_classes, made_up, queue
from tests.support.ports import number, reserve
from tests.support.prometheus import alerting, promtool
from tests.support.watching import until
from trueup import App
from trueup.config import CHECKS
from trueup.events import Events
from trueup.observe.counting import counting
from trueup.observe.fleet import GAUGES, snapshot
from trueup.observe.metrics import attach_metrics
from trueup.observe.table import METRICS
from trueup.operate.rules import WARNINGS, Registered, grafana, panels, prometheus, rules, yaml

ODD = ("send", "shop.mail-x", 'a"b\\c', "prüfen 1+1", "a|b")
EVERYTHING = Registered(ODD, ODD, ODD)
DECLARED = {"nothing": Registered(), "everything": EVERYTHING}


@pytest.mark.parametrize("registered", DECLARED.values(), ids=DECLARED)
def test_prometheus_takes_the_rules_as_yaml_and_as_json(registered: Registered, tmp_path: Path) -> None:
    document = prometheus(registered)
    for name, text in (("rules.yml", "\n".join(yaml(document))), ("rules.json", json.dumps(document))):
        (tmp_path / name).write_text(text, "utf-8")
        said = promtool("check", "rules", str(tmp_path / name))
        assert f"{len(rules(registered))} rules found" in said
    names = [each.alert for each in rules(registered)]
    assert len(set(names)) == len(names)


def test_prometheus_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    shown = [target["expr"] for panel in grafana(EVERYTHING)["panels"] for target in panel["targets"]]
    recorded = [{"record": f"q{n}", "expr": expr.replace("$__rate_interval", "5m")} for n, expr in enumerate(shown)]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "all", "rules": recorded}]}), "utf-8")
    promtool("check", "rules", str(tmp_path / "queries.yml"))
    places = [tuple(panel["gridPos"].values()) for panel in grafana(EVERYTHING)["panels"]]
    assert len(set(places)) == len(panels(EVERYTHING))


def test_rules_and_queries_ask_for_metrics_and_labels_that_exist() -> None:
    labels = {each.name: {*each.labels, "le"} for each in (*METRICS, *GAUGES)}
    asked = [each.expr for each in rules(EVERYTHING)]
    asked += [expr for panel in panels(EVERYTHING) for expr, _ in panel.queries]
    for expr in asked:
        metrics = {name.removesuffix("_bucket") for name in re.findall(r"trueup_\w+", expr)}
        assert len(metrics) == 1, expr
        (metric,) = metrics
        grouped = [name for names in re.findall(r"by \(([^)]*)\)", expr) for name in names.split(", ")]
        assert {*grouped, *re.findall(r'(\w+)=~?"', expr)} <= labels[metric], expr


def test_the_severity_of_a_rule_is_that_of_its_check(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        found = dict(connection.execute("select name, severity from trueup.health").fetchall())
    assert {check for check, severity in found.items() if severity == "warning"} == WARNINGS


def test_rules_follow_the_settings_and_a_check_that_is_off_has_none() -> None:
    registered = Registered(("send",), (), (), {"quarantine": None, "overdue_jobs": 600.0}, timedelta(minutes=7))
    written = {each.alert: each for each in rules(registered)}
    assert "TrueupQuarantine" not in written
    assert len([each for each in written if each.removeprefix("Trueup").lower() in CHECKS]) <= len(CHECKS) - 1
    assert written["TrueupJobsLate"].expr.endswith("> 600")
    assert written["TrueupTicks"].wait == timedelta(minutes=7)


def test_our_metrics_follow_the_rules_of_promtool() -> None:
    registry, events, watching = CollectorRegistry(), Events(), object()
    attach_metrics(events, registry)
    (instruments,) = counting(events)
    instruments.fleet.show(watching, snapshot([queue("mail")], [("ticks", False, 400.0)]))
    for cls in all_classes():
        events.emit(made_up(cls))
    promtool("check", "metrics", given=generate_latest(registry))


# A series, its values minute by minute, and the alert that must be there after ten minutes.
RAISED = {
    "the first dead letter of a process": ('trueup_jobs_buried_total{kind="send"}', "_x5 1x10", "TrueupJobsDied"),
    "another dead letter": ('trueup_jobs_buried_total{kind="a|b"}', "3x5 4x10", "TrueupJobsDied"),
    "a downtime that ended before the first scrape": ("trueup_downtime_seconds_total", "_x5 60x10", "TrueupDowntime"),
    "a check that keeps failing": ('trueup_check_ok{check="ticks"}', "1x5 0x10", "TrueupTicks"),
    "nobody watches": ("up", "0x15", "TrueupUnwatched"),
    "rows in quarantine": (
        'trueup_rows_total{outcome="quarantined",reconciler="shop.mail-x"}',
        "_x5 2x10",
        "TrueupRowsQuarantined",
    ),
}
SILENT = {
    "old dead letters": ('trueup_jobs_buried_total{kind="send"}', "7x40", "TrueupJobsDied", 35),
    "dead letters of a kind of another service": (
        'trueup_jobs_buried_total{kind="other"}',
        "_x5 1x10",
        "TrueupJobsDied",
        10,
    ),
    "a check that fails for a moment": ('trueup_check_ok{check="ticks"}', "1x8 0x10", "TrueupTicks", 10),
}


def run_cases(directory: Path, cases: Mapping[str, tuple[str, str, str, int, bool]]) -> None:
    (directory / "rules.yml").write_text("\n".join(yaml(prometheus(EVERYTHING))), "utf-8")
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": series, "values": values}],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                }
            ],
        }
        for name, (series, values, alert, minute, fires) in cases.items()
    ]
    document = {"rule_files": [str(directory / "rules.yml")], "evaluation_interval": "1m", "tests": tests}
    (directory / "tests.yml").write_text(json.dumps(document), "utf-8")
    promtool("test", "rules", str(directory / "tests.yml"))


def test_the_rules_raise_alerts_for_what_is_wrong_and_for_nothing_else(tmp_path: Path) -> None:
    cases: dict[str, Any] = {name: (*case, 10, True) for name, case in RAISED.items()}
    run_cases(tmp_path, cases | {name: (*case, False) for name, case in SILENT.items()})


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_failing_check_reaches_a_webhook_through_prometheus_and_alertmanager(
    database_url: str, tmp_path: Path
) -> None:
    with reserve() as reserved:
        app = App(database_url, health_port=number(reserved), ping_every="1s", alert_after="0s")
        async with app.transaction() as tx:
            await tx.execute("insert into trueup.scans (name, due_at, error) values ('objects', now(), 'boom')")
        text = "\n".join(yaml(prometheus(app.registered())))

        def raised() -> list[dict[str, Any]]:  # other tests may have left counters in this process that raise others
            alerts = [alert for each in sink.received for alert in json.loads(each.body)["alerts"]]
            return [alert for alert in alerts if alert["labels"]["alertname"] == "TrueupSweeps"]

        async with Sink() as sink, app.worker():
            with alerting(tmp_path, text, number(reserved), sink.url) as logs:
                try:
                    await until(raised, timeout=60)
                except TimeoutError:
                    raise AssertionError("\n".join(log.read_text() for log in logs)) from None
            (alert, *_) = raised()
        await app.close()
    assert alert["status"] == "firing"
    assert alert["labels"] == {"alertname": "TrueupSweeps", "check": "sweeps", "severity": "critical"}
    assert "trueup reconcilers run NAME" in alert["annotations"]["description"]
