"""Metrics for Prometheus. The only file that needs `prometheus_client`, the extra `metrics`. What is counted is in `counting`.

The metrics of a registry are created once, and shared by all Apps of the process that count into it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from trueup.errors import ConfigError
from trueup.events import Events
from trueup.observe.counting import Instruments, Labels
from trueup.observe.endpoints import Endpoints, Served
from trueup.observe.fleet import Series
from trueup.observe.table import METRICS, Metric

try:
    import prometheus_client
    from prometheus_client.core import GaugeMetricFamily
except ImportError:
    prometheus_client = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class _Prometheus:
    """The metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.instruments = Instruments(self)
        registry.register(self)  # registered first: drops stale series before the others are collected
        self._by_name = {metric.name: _make(metric, registry) for metric in METRICS}

    def add(self, metric: Metric, amount: float, labels: Labels) -> None:
        self._one(metric, labels).inc(amount)

    def observe(self, metric: Metric, value: float, labels: Labels) -> None:
        self._one(metric, labels).observe(value)

    def put(self, metric: Metric, value: float, labels: Labels) -> None:
        self._one(metric, labels).set(value)

    def drop(self, metric: Metric, labels: Labels) -> None:
        self._by_name[metric.name].remove(*(labels[label] for label in metric.labels))

    def _one(self, metric: Metric, labels: Labels) -> Any:
        found = self._by_name[metric.name]
        return found.labels(**labels) if labels else found

    def describe(self) -> Iterable[Any]:
        return ()

    def collect(self) -> Iterable[Any]:
        self.instruments.drop_stale()
        return [
            _family(metric, self.instruments.fleet.series(metric.name)) for metric in self.instruments.fleet.gauges()
        ]


_lock = threading.Lock()
_instruments: WeakKeyDictionary[CollectorRegistry, Instruments] = WeakKeyDictionary()


def _make(metric: Metric, registry: CollectorRegistry) -> Any:
    match metric.type:
        case "histogram":
            return prometheus_client.Histogram(
                metric.name, metric.meaning, metric.labels, registry=registry, buckets=metric.buckets
            )
        case "counter":
            return prometheus_client.Counter(metric.name, metric.meaning, metric.labels, registry=registry)
        case _:
            return prometheus_client.Gauge(metric.name, metric.meaning, metric.labels, registry=registry)


def _family(metric: Metric, series: Series) -> Any:
    family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in series.items():
        family.add_metric(labels, value)
    return family


class Metrics:
    """Counts the events of an App into a registry until `detach`; what was counted stays."""

    def __init__(self, events: Events, registry: CollectorRegistry | None = None) -> None:
        """The default `registry` is the one that `prometheus_client` exports by default."""
        _need_prometheus_client("metrics")
        self.registry: CollectorRegistry = prometheus_client.REGISTRY if registry is None else registry
        with _lock:
            found = _instruments.get(self.registry)
            if found is None:
                found = _instruments[self.registry] = _Prometheus(self.registry).instruments
        self._attached: Instruments | None = found
        self._events = events
        found.attach(events)

    def scrape(self) -> tuple[str, bytes]:
        """The document for Prometheus, and its content type."""
        return prometheus_client.CONTENT_TYPE_LATEST, prometheus_client.generate_latest(self.registry)

    def detach(self) -> None:
        """May be called twice."""
        attached, self._attached = self._attached, None
        if attached is not None:
            attached.detach(self._events)


def attach_metrics(events: Events, registry: CollectorRegistry | None = None) -> Metrics:
    """Count the events from here on; see Metrics. Raises ConfigError when the extra is not installed."""
    return Metrics(events, registry)


class MetricsServer:
    """Counts events and serves the metrics at `/metrics`, from threads of its own, until `close`. Workers of one process with the
    same address share one server and one registry.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self._metrics = metrics
        try:
            self._endpoints = Endpoints(host, port, Served(scrape=metrics.scrape), "metrics")
        except ConfigError:
            metrics.detach()
            raise

    def close(self) -> None:
        """Returns when nothing is served for this caller any more; takes up to half a second. May be called twice."""
        self._endpoints.close()
        self._metrics.detach()


def serve_metrics(events: Events, host: str, port: int) -> MetricsServer:
    """Count the events and serve them. Raises ConfigError when the extra is missing, or it cannot listen on the address."""
    _need_prometheus_client(f"metrics_port={port}")
    return MetricsServer(Metrics(events), host, port)


def counted(events: Events) -> Metrics | None:
    """Metrics of the events, or None where the extra is not installed."""
    return None if prometheus_client is None else Metrics(events)


def _need_prometheus_client(wanted: str) -> None:
    if prometheus_client is None:
        raise ConfigError(f"{wanted}: prometheus-client is not installed; install trueup[metrics]")
