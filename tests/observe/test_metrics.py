from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from tests.support.watching import Watched
from trueup import App, ConfigError, DatabaseUnavailable, Retry
from trueup import events as all_events
from trueup.config import load_settings
from trueup.events import (
    DatabaseLost,
    DowntimeFound,
    Event,
    Events,
    JobBuried,
    JobClaimLost,
    JobCompleted,
    JobRescued,
    JobRetried,
    JobsEnqueued,
    JobStarted,
    ReconcilerDeclared,
    ReconcilerPaused,
    ReconcilerResumed,
    RowChanged,
    ScanCompleted,
    SweepCompleted,
    TicksDecided,
    WorkerLeaseLost,
    WorkerStarted,
)
from trueup.observe import metrics
from trueup.observe.counting import COUNTED
from trueup.observe.counting import counting as counted_by
from trueup.observe.fleet import GAUGES, snapshot
from trueup.observe.metrics import Metrics, attach_metrics, serve_metrics
from trueup.observe.table import MAX_QUEUES, METRICS, NAMES, OTHER_QUEUES, STALE_AFTER, Metric
from trueup.reconcile.counts import OUTCOMES
from trueup.testing.worker import ManualWorker

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"

BOUNDED = {"kind", "queue", "state", "refused_by", "reconciler", "outcome", "scan", "part", "service", "check"}


class Counting:
    """Events that are counted into a registry of their own."""

    def __init__(self) -> None:
        self.events = Events()
        self.registry = CollectorRegistry()
        self.metrics = attach_metrics(self.events, self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def counting() -> Counting:
    return Counting()


def made_up(cls: type[Event], number: int = 1) -> Event:
    """An event with something in every field; texts differ with the number."""
    values: dict[str, Any] = {"int": number, "float": float(number), "tuple[str, ...]": (), "str | None": None}
    values |= {"float | None": float(number), "bool": False}
    return cls(**{field.name: values.get(str(field.type), f"text {number}") for field in dataclasses.fields(cls)})


def all_classes() -> list[type[Event]]:
    found = (value for value in vars(all_events).values() if inspect.isclass(value) and issubclass(value, Event))
    return [cls for cls in found if cls is not Event]


def test_the_reference_page_lists_every_metric_as_it_is() -> None:
    lines = (
        f"| `{each.name}` | {each.type} | {', '.join(f'`{label}`' for label in each.labels)} | {each.meaning} |"
        for each in (*METRICS, *GAUGES)
    )
    listed = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert listed == list(lines)


@pytest.mark.parametrize("metric", [*METRICS, *GAUGES], ids=lambda metric: metric.name)
def test_names_follow_the_conventions_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"trueup_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert metric.name.endswith("_seconds") or metric.type != "histogram"
    assert metric.buckets == tuple(sorted(metric.buckets))
    assert metric.meaning.endswith(".")
    assert set(metric.labels) <= BOUNDED, "a label with as many values as there are rows or jobs fills Prometheus"


def test_every_metric_is_counted_by_some_event(counting: Counting, caplog: pytest.LogCaptureFixture) -> None:
    for cls in all_classes():
        counting.events.emit(made_up(cls))
    counting.events.emit(ReconcilerPaused("push", "down", 30.0, "a key"))
    assert caplog.records == [], "a subscriber failed"
    silent = [
        each.name
        for each in METRICS
        if not any(sample.value for sample in samples(counting.registry, each.name.removesuffix("_total")))
    ]
    assert silent == ["trueup_reconciler_paused"]  # resumed after it was paused


def samples(registry: CollectorRegistry, name: str) -> list[Any]:
    found = [family for family in registry.collect() if family.name == name]
    return [sample for family in found for sample in family.samples if not sample.name.endswith("_created")]


def test_keys_and_ids_make_no_new_series(counting: Counting) -> None:
    facts = {"kind": "push", "queue": "q", "reconciler": "r", "scan": "s", "part": "p", "service": "v", "state": "dead"}
    facts["refused_by"] = "database"
    lines: set[int] = set()
    for number in range(1, 4):
        for cls in COUNTED:
            names = {field.name for field in dataclasses.fields(cls)}
            given = {name: value for name, value in facts.items() if name in names}
            counting.events.emit(dataclasses.replace(made_up(cls, number), **given))
        lines.add(generate_latest(counting.registry).count(b"\n"))
    assert len(lines) == 1


def test_jobs_are_counted_by_kind_and_queue(counting: Counting) -> None:
    job = {"kind": "push", "queue": "mail"}
    counting.events.emit(JobsEnqueued("push", "mail", 5, 2))
    counting.events.emit(JobStarted(7, "push", "mail", 1, 1, 1500.0))
    counting.events.emit(JobCompleted(7, "push", "mail", 1, 250.0))
    counting.events.emit(JobRetried(8, "push", "mail", 1, 3, 1.0, "ValueError", "no"))
    counting.events.emit(JobBuried(8, "push", "mail", 3, "out of attempts", "ValueError", "no"))
    assert counting.value("trueup_jobs_enqueued_total", **job) == 5
    assert counting.value("trueup_jobs_kept_total", **job) == 2
    assert counting.value("trueup_jobs_completed_total", **job) == 1
    assert counting.value("trueup_jobs_retried_total", **job) == 1
    assert counting.value("trueup_jobs_buried_total", **job) == 1
    assert counting.value("trueup_job_duration_seconds_sum", **job) == 0.25
    assert counting.value("trueup_job_duration_seconds_bucket", **job, le="0.1") == 0
    assert counting.value("trueup_job_duration_seconds_bucket", **job, le="0.5") == 1
    assert counting.value("trueup_job_lateness_seconds_sum", **job) == 1.5
    assert counting.value("trueup_job_failed_duration_seconds_count", **job) is None, "how long is not known"
    counting.events.emit(JobRetried(8, "push", "mail", 1, 3, 1.0, "ValueError", "no", 2000.0))
    counting.events.emit(JobBuried(8, "push", "mail", 3, "out of attempts", "ValueError", "no", 500.0))
    assert counting.value("trueup_job_failed_duration_seconds_sum", **job) == 2.5
    assert counting.value("trueup_job_duration_seconds_count", **job) == 1
    counting.events.emit(JobRescued(7, "push", 1, "queued", "holder", "host", 1))
    counting.events.emit(JobClaimLost(7, "push", 1, "local"))
    assert counting.value("trueup_jobs_rescued_total", kind="push", state="queued") == 1
    assert counting.value("trueup_jobs_claim_lost_total", kind="push", refused_by="local") == 1


def test_a_job_that_was_claimed_early_counts_as_on_time(counting: Counting) -> None:
    counting.events.emit(JobStarted(7, "push", "mail", 1, 1, -20.0))
    assert counting.value("trueup_job_lateness_seconds_sum", kind="push", queue="mail") == 0


def test_sweeps_say_what_became_of_rows_and_when_they_ended(counting: Counting) -> None:
    counting.events.emit(SweepCompleted("observe", 21, 1, 2, 3, 0, 4, 5, 6, 7, 90.0, 12.0, 2000.0, 10.5))
    counted = [counting.value("trueup_rows_total", reconciler="observe", outcome=outcome) for outcome in OUTCOMES]
    assert counted == [1, 2, 3, 0, 4, 5, 6]
    assert counting.value("trueup_rows_late_total", reconciler="observe") == 7
    assert counting.value("trueup_sweep_duration_seconds_sum", reconciler="observe") == 2
    ended = counting.value("trueup_sweep_last_completed_timestamp_seconds", reconciler="observe")
    assert ended is not None
    assert ended > 1_700_000_000
    counting.events.emit(RowChanged("observe", "key", "To", "a", "b", 1, 5000.0, 30.0))
    assert counting.value("trueup_row_lateness_seconds_sum", reconciler="observe") == 5
    assert counting.value("trueup_row_duration_seconds_sum", reconciler="observe") == 0.03


def test_a_pause_is_seen_until_it_ends(counting: Counting) -> None:
    def paused() -> float | None:
        return counting.value("trueup_reconciler_paused", reconciler="observe")

    counting.events.emit(ReconcilerDeclared("observe", "payments"))
    assert paused() == 0
    counting.events.emit(ReconcilerPaused("observe", "the same error", 30.0))
    assert paused() == 1
    counting.events.emit(ReconcilerResumed("observe"))
    assert paused() == 0


def test_ticks_scans_downtimes_and_losses_are_counted(counting: Counting) -> None:
    counting.events.emit(TicksDecided(3, 4))
    counting.events.emit(ScanCompleted("objects", 100, 2, 1000.0))
    counting.events.emit(DowntimeFound("then", "now", 90.0))
    counting.events.emit(WorkerLeaseLost("holder", "why", 1))
    counting.events.emit(DatabaseLost("claim", "gone"))
    assert counting.value("trueup_ticks_fired_total") == 3
    assert counting.value("trueup_ticks_skipped_total") == 4
    assert counting.value("trueup_scan_items_total", scan="objects") == 100
    assert counting.value("trueup_downtime_seconds_total") == 90
    assert counting.value("trueup_worker_leases_lost_total") == 1
    assert counting.value("trueup_database_lost_total", part="claim") == 1


def test_attaching_twice_counts_once_until_both_have_let_go(counting: Counting) -> None:
    again = Metrics(counting.events, counting.registry)
    counting.events.emit(TicksDecided(1, 0))
    assert counting.value("trueup_ticks_fired_total") == 1
    again.detach()
    again.detach()
    counting.events.emit(TicksDecided(1, 0))
    assert counting.value("trueup_ticks_fired_total") == 2
    counting.metrics.detach()
    counting.events.emit(TicksDecided(1, 0))
    assert counting.value("trueup_ticks_fired_total") == 2
    assert not counting.events.wants(TicksDecided)


def test_two_apps_count_into_one_registry(counting: Counting) -> None:
    other = Events()
    attach_metrics(other, counting.registry)
    other.emit(TicksDecided(1, 0))
    counting.events.emit(TicksDecided(1, 0))
    assert counting.value("trueup_ticks_fired_total") == 2


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"install trueup\[metrics\]"):
        attach_metrics(Events())
    with pytest.raises(ConfigError, match=r"metrics_port=9100: .* install trueup\[metrics\]"):
        serve_metrics(Events(), "127.0.0.1", 9100)


@pytest.fixture
def port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.asyncio
async def test_a_worker_serves_its_metrics_while_it_runs(database_url: str, port: int) -> None:
    app = App(database_url, metrics_port=port)

    @app.job(name="test_metrics_job")
    async def noop() -> None: ...

    series = 'trueup_jobs_completed_total{kind="test_metrics_job",queue="default"}'
    try:
        for times in (1, 2):
            events = Watched(app)
            async with app.worker():
                await (await noop.enqueue()).result(timeout="10s")
                await events.seen(JobCompleted)
                assert f"{series} {times}.0" in scraped(port)
            with pytest.raises(OSError, match="refused"):
                scraped(port)
    finally:
        await app.close()
    counted = REGISTRY.get_sample_value("trueup_worker_lives_total")
    assert counted is not None
    app.events.emit(WorkerStarted("holder", "host", 1, (), 1, 1))
    assert REGISTRY.get_sample_value("trueup_worker_lives_total") == counted, "nobody counts any more"
    assert not [thread for thread in threading.enumerate() if "serve_forever" in thread.name]


@pytest.mark.asyncio
async def test_a_port_that_is_taken_stops_the_worker_before_it_has_begun(database_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        app = App(database_url, metrics_port=taken.getsockname()[1])
        worker = app.worker()
        with pytest.raises(ConfigError, match=r"metrics cannot be served at 127.0.0.1:\d+: Address already in use"):
            await worker.start()
        assert await app.store.views.workers() == []
        assert not app.events.wants(TicksDecided)
        await worker.stop()
        await app.close()


@pytest.mark.asyncio
async def test_a_worker_that_cannot_begin_lets_go_of_the_port(empty_database_url: str, port: int) -> None:
    app = App(empty_database_url, metrics_port=port)
    worker = app.worker()
    with pytest.raises(Exception, match="trueup migrate"):
        await worker.start()
    with pytest.raises(OSError, match="refused"):
        scraped(port)
    await worker.stop()
    await app.close()


@pytest.mark.parametrize("written", ["0", "65536", "-1", "http", "tcp://10.0.0.1:9100"])
def test_a_port_is_a_number_that_a_port_can_have(written: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a whole number from 1 to 65535"):
        load_settings(overrides={"metrics_port": written}, environ={}, directory=tmp_path)


def test_a_service_called_trueup_metrics_does_not_set_our_port(tmp_path: Path) -> None:
    service = {"TRUEUP_METRICS_SERVICE_HOST": "10.0.0.1", "TRUEUP_METRICS_PORT_9100_TCP": "tcp://10.0.0.1:9100"}
    theirs = {**service, "TRUEUP_METRICS_PORT": "tcp://10.0.0.1:9100"}
    ours = {**service, "TRUEUP_METRICS_PORT": "9100"}
    assert load_settings(environ=theirs, directory=tmp_path).metrics_port is None
    assert load_settings(environ=ours, directory=tmp_path).metrics_port == 9100


@pytest.mark.asyncio
async def test_two_workers_of_one_process_serve_their_metrics_together(database_url: str, port: int) -> None:
    app = App(database_url, metrics_port=port)
    events = Watched(app)

    @app.job
    async def counted_together() -> None: ...

    async with app.worker():
        async with app.worker():
            assert "trueup_worker_lives_total" in scraped(port)
        job = await counted_together.enqueue()
        await events.seen(JobCompleted, job_id=job.id)
        text = scraped(port)
        assert 'trueup_jobs_completed_total{kind="counted_together",queue="default"} 1.0' in text
    with pytest.raises(OSError, match="refused"):
        scraped(port)
    await app.close()


def test_queues_that_are_made_up_at_run_time_do_not_become_series_without_end(counting: Counting) -> None:
    for number in range(1000):
        counting.events.emit(JobsEnqueued("send", f"tenant-{number}", 1, 0))
        counting.events.emit(JobRetried(**{**dataclasses.asdict(made_up(JobRetried)), "queue": f"tenant-{number}"}))
    queues = set(re.findall(r'queue="tenant-\d+"', generate_latest(counting.registry).decode()))
    assert len(queues) == MAX_QUEUES
    assert counting.value("trueup_jobs_enqueued_total", kind="send", queue="tenant-7") == 1
    assert counting.value("trueup_jobs_enqueued_total", kind="send", queue=OTHER_QUEUES) == 900


@pytest.mark.asyncio
@pytest.mark.parametrize("attempts", [1, 3], ids=["buried", "retried"])
async def test_how_long_a_failed_attempt_took_is_counted(app: App, attempts: int) -> None:
    registry = CollectorRegistry()
    attach_metrics(app.events, registry)

    @app.job(retry=Retry(max_attempts=attempts))
    async def slow() -> None:
        await asyncio.sleep(0.05)
        raise ValueError("no")

    await slow.enqueue()
    worker = ManualWorker(app)
    await worker.begin()
    await worker.run_pending()
    await worker.end()
    took = registry.get_sample_value("trueup_job_failed_duration_seconds_sum", {"kind": "slow", "queue": "default"})
    assert took is not None
    assert took >= 0.05
    assert registry.get_sample_value("trueup_job_duration_seconds_count", {"kind": "slow", "queue": "default"}) is None


class Later:
    """A clock for what is stale, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr("trueup.observe.counting.elapsed", lambda: self.seconds)


@pytest.mark.parametrize("label", sorted(NAMES))
def test_series_of_a_name_that_is_gone_are_dropped_after_a_day(
    counting: Counting, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    clock = Later(monkeypatch)

    def emit(name: str) -> None:
        for cls in COUNTED:
            names = {field.name for field in dataclasses.fields(cls)}
            if label in names and cls is not ReconcilerDeclared:
                stays = {each: f"{each}-that-stays" for each in NAMES & names}
                counting.events.emit(dataclasses.replace(made_up(cls), **{**stays, label: name}))

    def series(name: str) -> int:
        return generate_latest(counting.registry).decode().count(f'{label}="{name}"')

    emit("old")
    emit("new")
    assert series("old") == series("new") > 0
    clock.seconds += STALE_AFTER - 1
    emit("new")
    assert series("old") > 0, "not yet"
    clock.seconds += 2
    assert (series("old"), series("new") > 0) == (0, True)
    emit("old")
    assert series("old") == series("new"), "it is back, from zero"


def test_a_reconciler_that_is_declared_here_stays_however_quiet_it_is(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Later(monkeypatch)
    counting.events.emit(dataclasses.replace(made_up(ReconcilerDeclared), reconciler="push"))
    counting.events.emit(ReconcilerPaused("push", "down", 30.0))
    clock.seconds += 100 * STALE_AFTER
    assert counting.value("trueup_reconciler_paused", reconciler="push") == 1


def test_a_queue_that_is_gone_makes_room_for_another(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Later(monkeypatch)
    for number in range(MAX_QUEUES):
        counting.events.emit(JobsEnqueued("send", f"old-{number}", 1, 0))
    clock.seconds += STALE_AFTER + 1
    generate_latest(counting.registry)
    counting.events.emit(JobsEnqueued("send", "new", 1, 0))
    assert counting.value("trueup_jobs_enqueued_total", kind="send", queue="new") == 1


@pytest.mark.asyncio
async def test_waits_for_a_connection_are_counted_and_so_is_giving_up(database_url: str) -> None:
    app = App(database_url, pool_size=1, pool_timeout="500ms")
    registry = CollectorRegistry()
    attach_metrics(app.events, registry)
    pool = (await app.open()).pool
    async with pool.use():
        with pytest.raises(DatabaseUnavailable):
            await app.now()
    assert registry.get_sample_value("trueup_pool_timeouts_total") == 1
    before = registry.get_sample_value("trueup_pool_wait_seconds_count") or 0
    assert before >= 1
    async with pool.use():
        waiting = asyncio.create_task(app.now())
        while not pool._pool or not pool._pool.get_stats().get("requests_waiting"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.06)
    await waiting
    assert (registry.get_sample_value("trueup_pool_wait_seconds_count") or 0) > before
    assert (registry.get_sample_value("trueup_pool_wait_seconds_sum") or 0) > 0.5
    assert registry.get_sample_value("trueup_pool_timeouts_total") == 1
    await app.close()


def queue(name: str, kind: str = "send", **counts: Any) -> dict[str, Any]:
    return {
        "queue": name,
        "kind": kind,
        "queued": 3,
        "due": 2,
        "running": 1,
        "oldest_due_s": 7.5,
        "paused": False,
        **counts,
    }


def test_a_gauge_is_gone_with_what_it_was_about(counting: Counting) -> None:
    registry, watching = counting.registry, object()
    (instruments,) = counted_by(counting.events)
    fleet = instruments.fleet
    job = {"kind": "send", "queue": "mail"}
    assert registry.get_sample_value("trueup_jobs_due", job) is None
    fleet.show(watching, snapshot([queue("mail"), queue("retired")], [("ticks", False, 400.0)]))
    assert registry.get_sample_value("trueup_jobs_due", job) == 2
    assert registry.get_sample_value("trueup_jobs_oldest_due_age_seconds", job) == 7.5
    assert registry.get_sample_value("trueup_check_ok", {"check": "ticks"}) == 0
    assert registry.get_sample_value("trueup_check_value", {"check": "ticks"}) == 400
    fleet.show(watching, snapshot([queue("mail", due=0, oldest_due_s=None)], []))
    assert registry.get_sample_value("trueup_jobs_oldest_due_age_seconds", job) == 0
    assert b"retired" not in b"".join(line for line in generate_latest(registry).splitlines() if b"{" in line)
    fleet.hide(watching)
    assert b"trueup_jobs_due" not in generate_latest(registry), "another worker watches now"


def test_a_paused_queue_has_no_backlog_that_more_workers_could_work_off() -> None:
    shown = snapshot([queue("mail", paused=True)], [])
    job = ("send", "mail")
    assert shown["trueup_jobs_queued"][job] > 0
    assert shown["trueup_jobs_due"][job] == shown["trueup_jobs_oldest_due_age_seconds"][job] == 0


def test_queues_of_tenants_are_added_up_in_gauges_too() -> None:
    shown = snapshot([queue(f"tenant-{number:04}", oldest_due_s=float(number)) for number in range(1000)], [])
    assert len(shown["trueup_jobs_due"]) == MAX_QUEUES + 1
    assert shown["trueup_jobs_due"]["send", OTHER_QUEUES] == 2 * 900
    assert shown["trueup_jobs_oldest_due_age_seconds"]["send", OTHER_QUEUES] == 999


@pytest.mark.asyncio
async def test_one_worker_of_the_fleet_shows_what_waits(database_url: str, port: int) -> None:
    app = App(database_url, metrics_port=port)

    @app.job(name="test_gauges_job")
    async def noop() -> None: ...

    await noop.using(delay="1h").enqueue()
    async with app.worker() as first, app.worker() as second:
        (one,), (other,) = first._beside, second._beside
        await one.run_once()
        await other.run_once()
        text = scraped(port)
        assert text.count('trueup_jobs_queued{kind="test_gauges_job",queue="default"} 1.0') == 1
        assert 'trueup_check_ok{check="workers"} 1.0' in text
        ((held,),) = await app.store.pool.fetch(
            b"select count(*) from trueup.leases where name = 'watch:gauges' and holder is not null"
        )
        assert held == 1
    assert REGISTRY.get_sample_value("trueup_check_ok", {"check": "workers"}) is None
    await app.close()
