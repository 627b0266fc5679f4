"""Metrics with OpenTelemetry (extra `otel`): the same as for Prometheus, from the same table.

Names are those of the reference without the endings `_total` and `_seconds`: units express the latter, and exporters to
Prometheus add both. What is counted and when is in `observe.counting`; this is a backend of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter_provider

from trueup.events import Events
from trueup.observe.counting import Instruments, Labels
from trueup.observe.fleet import GAUGES, FleetGauges
from trueup.observe.table import METRICS, Metric

_lock = threading.Lock()
_instruments: WeakKeyDictionary[MeterProvider, Instruments] = WeakKeyDictionary()


def attach_metrics(events: Events, meter_provider: MeterProvider | None = None) -> Callable[[], None]:
    """Start counting the events of an App with OpenTelemetry. Returns a function that stops it.

    `meter_provider` is the global one unless given. Several Apps may share it; attaching an App twice counts it once.
    """
    provider = get_meter_provider() if meter_provider is None else meter_provider
    with _lock:
        found = _instruments.get(provider)
        if found is None:
            found = _instruments[provider] = Instruments(_OpenTelemetry(provider.get_meter("trueup")))
            _observe(provider.get_meter("trueup"), found.fleet)
    found.attach(events)
    attached: list[Instruments] = [found]

    def detach() -> None:
        if attached:
            attached.pop().detach(events)

    return detach


class _OpenTelemetry:
    """The instruments of one meter. Series stay: the SDK has no way to drop one."""

    def __init__(self, meter: Meter) -> None:
        self._by_name = {metric.name: _make(meter, metric) for metric in METRICS}

    def add(self, metric: Metric, amount: float, labels: Labels) -> None:
        self._by_name[metric.name].add(amount, labels)

    def observe(self, metric: Metric, value: float, labels: Labels) -> None:
        self._by_name[metric.name].record(value, labels)

    def put(self, metric: Metric, value: float, labels: Labels) -> None:
        self._by_name[metric.name].set(value, labels)

    def drop(self, metric: Metric, labels: Labels) -> None:
        return None


def name_of(metric: Metric) -> str:
    return metric.name.removesuffix("_total").removesuffix("_seconds")


def _unit(metric: Metric) -> str:
    return "s" if metric.name.removesuffix("_total").endswith("_seconds") else "1"


def _make(meter: Meter, metric: Metric) -> Any:
    name, unit = name_of(metric), _unit(metric)
    match metric.type:
        case "histogram":
            bounds = list(metric.buckets)
            return meter.create_histogram(name, unit, metric.meaning, explicit_bucket_boundaries_advisory=bounds)
        case "counter":
            return meter.create_counter(name, unit, metric.meaning)
        case _:
            return meter.create_gauge(name, unit, metric.meaning)


def _observe(meter: Meter, fleet: FleetGauges) -> None:
    """The gauges of waiting work, from the worker that watches."""

    def look(metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: [
            Observation(value, dict(zip(metric.labels, labels, strict=True)))
            for labels, value in fleet.series(metric.name).items()
        ]

    for metric in GAUGES:
        meter.create_observable_gauge(name_of(metric), [look(metric)], _unit(metric), metric.meaning)
