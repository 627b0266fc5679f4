"""Metrics with OpenTelemetry: the same numbers as with Prometheus, from the same events."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from tests.observe.test_metrics import all_classes, made_up
from trueup import App
from trueup.events import Events, JobCompleted, ReconcilerPaused
from trueup.integrations.otel import attach_metrics
from trueup.integrations.otel_metrics import name_of
from trueup.observe.metrics import attach_metrics as attach_prometheus
from trueup.observe.table import METRICS, Metric


class Exported:
    """What an exporter would get."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def points(self) -> dict[str, dict[tuple[tuple[str, str], ...], Any]]:
        data = self.reader.get_metrics_data()
        found = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics if data else ():
            found[metric.name] = {tuple(sorted(point.attributes.items())): point for point in metric.data.data_points}
        return found


def number(metric: Metric, point: Any) -> float:
    return float(point.sum if metric.type == "histogram" else point.value)


def test_opentelemetry_gets_what_prometheus_gets() -> None:
    events, registry, exported = Events(), CollectorRegistry(), Exported()
    attach_prometheus(events, registry)
    attach_metrics(events, exported.provider)
    for cls in all_classes():
        events.emit(made_up(cls, 3))
    events.emit(ReconcilerPaused("push", "down", 30.0, "a key"))
    points = exported.points()
    assert set(points) == {name_of(metric) for metric in METRICS}
    for metric in METRICS:
        for labels, point in points[name_of(metric)].items():
            name = f"{metric.name}_sum" if metric.type == "histogram" else metric.name
            # Two calls of time.time() for the one metric that is a moment.
            assert number(metric, point) == pytest.approx(registry.get_sample_value(name, dict(labels)), abs=5), name
            if metric.type == "histogram":
                assert tuple(point.explicit_bounds) == metric.buckets


def test_attaching_twice_counts_once_and_detaching_ends_it() -> None:
    events, exported = Events(), Exported()
    first, second = attach_metrics(events, exported.provider), attach_metrics(events, exported.provider)
    job = JobCompleted(7, "push", "mail", 1, 250.0)
    events.emit(job)
    first()
    first()
    events.emit(job)
    second()
    events.emit(job)
    (point,) = exported.points()["trueup_jobs_completed"].values()
    assert point.value == 2


@pytest.mark.asyncio
async def test_the_worker_that_watches_shows_the_backlog_there_too(database_url: str) -> None:
    app, exported = App(database_url), Exported()
    detach = attach_metrics(app.events, exported.provider)

    @app.job
    async def noop() -> None: ...

    await noop.using(delay="1h").enqueue()
    async with app.worker() as worker:
        (watch,) = worker._beside
        await watch.run_once()
        job = (("kind", "noop"), ("queue", "default"))
        assert exported.points()["trueup_jobs_queued"][job].value == 1
        assert exported.points()["trueup_check_ok"][("check", "workers"),].value == 1
    assert "trueup_jobs_queued" not in exported.points(), "another worker watches now"
    detach()
    await app.close()
