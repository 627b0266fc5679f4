from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trueup import App, events
from trueup.events import Event, Events
from trueup.observe.logs import ENTRIES, Message, attach_logs

EVENT_CLASSES = [
    value
    for value in vars(events).values()
    if isinstance(value, type) and issubclass(value, Event) and value is not Event
]


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of its own in place of `trueup`."""
    logger = logging.getLogger("trueup_under_test")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def kept(logger: logging.Logger) -> Kept:
    kept = Kept()
    logger.addHandler(kept)
    return kept


def completed() -> events.JobCompleted:
    return events.JobCompleted(1, "send", "default", 1, 2.5)


def test_every_event_has_its_level_and_message() -> None:
    assert set(ENTRIES) == set(EVENT_CLASSES)


def test_every_message_is_its_own() -> None:
    messages = [entry.message for entry in ENTRIES.values()]
    assert len(set(messages)) == len(messages)


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.name)
def test_no_field_of_an_event_hides_what_every_log_record_has(cls: type[Event]) -> None:
    of_every_record = {*vars(logging.makeLogRecord({})), "message", "asctime", "event", "event_name"}
    assert not of_every_record & {field.name for field in dataclasses.fields(cls)}


def test_a_record_says_what_happened_to_what_and_has_the_facts_as_attributes(
    logger: logging.Logger, kept: Kept
) -> None:
    hub = Events()
    attach_logs(hub, logger)
    hub.emit(events.JobRetried(7, "send", "mail", 2, 20, 1000.0, "ValueError", "no mailbox", 12.5))
    (record,) = kept.records
    assert (record.name, record.levelname) == ("trueup_under_test.job", "WARNING")
    assert record.getMessage() == (
        "job retried: job_id=7 kind=send queue=mail attempt=2 max_attempts=20 delay_ms=1000.0 error_type=ValueError "
        "error='no mailbox' duration_ms=12.5"
    )
    assert (record.__dict__["event_name"], record.__dict__["job_id"], record.__dict__["error"]) == (
        "job.retried",
        7,
        "no mailbox",
    )


def test_a_password_in_an_error_does_not_reach_any_handler(logger: logging.Logger, kept: Kept) -> None:
    hub = Events()
    attach_logs(hub, logger)
    hub.emit(events.DatabaseLost("claim", "cannot connect to postgresql://app:geheim@db/x"))
    assert "geheim" not in str(vars(kept.records[0]))


def test_nobody_builds_an_event_per_job_while_debug_is_off(logger: logging.Logger) -> None:
    hub = Events()
    logs = attach_logs(hub, logger)
    assert not hub.wants(events.JobCompleted)
    assert hub.wants(events.JobBuried)
    logs.set_level("debug")
    assert hub.wants(events.JobCompleted)
    logs.set_level("error")
    assert not hub.wants(events.JobRetried)


def test_a_level_set_after_attaching_counts_once_a_worker_starts(logger: logging.Logger, kept: Kept) -> None:
    logger.setLevel(logging.ERROR)
    hub = Events()
    attach_logs(hub, logger)
    logger.setLevel(logging.DEBUG)
    hub.emit(events.WorkerStarted("a", "host", 1, ("default",), 10, 3))
    hub.emit(completed())
    assert [record.getMessage().partition(":")[0] for record in kept.records] == ["worker started", "job completed"]


def test_a_level_set_after_the_app_was_made_counts_once_its_worker_is_made() -> None:
    own = logging.getLogger("trueup")
    app = App("postgresql://nowhere/x")
    before = own.level
    try:
        own.setLevel(logging.ERROR)
        app.worker()
        assert not app.events.wants(events.ScheduleChanged)
        own.setLevel(logging.INFO)
        app.worker()
        assert app.events.wants(events.ScheduleChanged)
    finally:
        own.setLevel(before)


def test_a_level_set_on_the_logger_of_one_noun_counts(logger: logging.Logger) -> None:
    jobs = logger.getChild("job")
    jobs.setLevel(logging.DEBUG)
    try:
        hub = Events()
        attach_logs(hub, logger)
        assert hub.wants(events.JobCompleted)
        assert not hub.wants(events.HistoryDayCreated)
    finally:
        jobs.setLevel(logging.NOTSET)


def test_detached_logs_hear_nothing_any_more(logger: logging.Logger, kept: Kept) -> None:
    hub = Events()
    attach_logs(hub, logger).detach()
    hub.emit(events.JobsRevived(1))
    assert kept.records == []
    assert not any(hub.wants(cls) for cls in EVENT_CLASSES)


def test_a_failure_reaches_standard_error_when_nobody_has_configured_logging(capfd: pytest.CaptureFixture[str]) -> None:
    hub = Events()
    logs = attach_logs(hub)
    root_handlers, logging.getLogger().handlers = logging.getLogger().handlers, []
    try:
        hub.emit(events.ServiceFailed("claimer", "ValueError", "boom"))
    finally:
        logging.getLogger().handlers = root_handlers
        logs.detach()
    assert capfd.readouterr() == ("", "service failed: service=claimer error_type=ValueError error=boom times=1\n")


def test_a_worker_in_a_program_that_configures_no_logging_is_not_silent(database_url: str) -> None:
    """As under uvicorn, which configures its own loggers only."""
    program = """
import asyncio, sys
from trueup import App, GiveUp
app = App(sys.argv[1])
@app.job
async def send_mail(to: str) -> None:
    raise GiveUp("bad address")
async def main() -> None:
    async with app, app.worker():
        job = await send_mail.enqueue("ada")
        try:
            await job.result(timeout="20s")
        except Exception:
            pass
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program, database_url], capture_output=True, text=True, timeout=60)
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("job buried")]
    assert "kind=send_mail" in said
    assert "bad address" in said
    assert "job_id=" in said


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("bad", "bad"),
        ("bad address", "'bad address'"),
        ("closed\n\tby the server", r"'closed\n\tby the server'"),
        ("a\x1b[2J", r"'a\x1b[2J'"),
        (r"C:\new", r"C:\new"),
        ("", "''"),
    ],
)
def test_a_fact_in_the_message_is_escaped_once(value: str, shown: str) -> None:
    assert Message.of("failed", {"error": value}) == f"failed: error={shown}"
