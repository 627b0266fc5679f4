from __future__ import annotations

import io
import json
import logging

import pytest

from trueup import events
from trueup.config import Settings
from trueup.events import Event, Events
from trueup.observe.lines import LinesHandler, NowAndThen, configure_logging
from trueup.observe.logs import attach_logs

FORGED = 'boom\n{"level":"info","message":"all is well"}\r\n12:00:00.000 INFO  all is well\x1b[2K\u2028next'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("trueup")


def written(event: Event, log_format: str, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    configure_logging(Settings(log_format=log_format, log_level="debug"), stream)
    hub = Events()
    logs = attach_logs(hub)
    hub.emit(event)
    logs.detach()
    return stream.getvalue()


def buried(error: str) -> events.JobBuried:
    return events.JobBuried(7, "send", "mail", 3, "out of attempts", "ValueError", error)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_an_error_text_cannot_forge_a_second_line(log_format: str) -> None:
    lines = written(buried(FORGED), log_format)
    assert lines.endswith("\n")
    assert len(lines.splitlines()) == 1
    assert lines.rstrip("\n").isprintable()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_passwords_are_masked(log_format: str) -> None:
    line = written(buried("cannot connect to postgresql://app:geheim@db/x"), log_format)
    assert "geheim" not in line
    assert "postgresql://app:***@db/x" in line


def test_a_json_line_has_the_facts_as_fields() -> None:
    line = json.loads(written(buried(FORGED), "json"))
    assert (line["level"], line["logger"], line["message"]) == ("error", "trueup.job", "job buried")
    assert (line["event_name"], line["job_id"], line["kind"], line["error"]) == ("job.buried", 7, "send", FORGED)
    assert line["time"].endswith("Z")


@pytest.mark.parametrize("value", ["half a pair \ud800", 2**70, {1, 2}], ids=["surrogate", "big integer", "set"])
def test_a_value_the_fast_encoder_refuses_is_still_one_json_line(logger: logging.Logger, value: object) -> None:
    stream = io.StringIO()
    configure_logging(Settings(log_format="json"), stream)
    logger.info("odd", extra={"value": value})
    assert json.loads(stream.getvalue())["message"] == "odd"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_stays_with_its_record_and_is_masked(logger: logging.Logger, log_format: str) -> None:
    stream = io.StringIO()
    configure_logging(Settings(log_format=log_format), stream)
    try:
        raise ValueError("postgresql://app:geheim@db/x")
    except ValueError:
        logger.exception("subscriber failed")
    first, *rest = stream.getvalue().splitlines()
    assert "subscriber failed" in first
    assert "geheim" not in stream.getvalue()
    assert all(line.startswith("    ") for line in rest)


def test_the_stack_that_blocked_the_loop_is_readable_below_its_line() -> None:
    text = written(events.LoopBlocked("send", 1.5, 'File "jobs.py", line 3\n  time.sleep(9)\n'), "console")
    first, *rest = text.splitlines()
    assert first.endswith("handler=send seconds=1.5")
    assert rest == ['    File "jobs.py", line 3', "      time.sleep(9)"]


def test_colours_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in written(buried("x"), "auto", Terminal())
    assert "\x1b[" not in written(buried("x"), "console")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in written(buried("x"), "auto", Terminal())


def test_auto_means_json_where_nobody_reads_along() -> None:
    assert json.loads(written(buried("x"), "auto"))["message"] == "job buried"


def test_configuring_twice_writes_each_record_once(logger: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging(Settings(), stream)
    configure_logging(Settings(), stream)
    logger.warning("once")
    assert stream.getvalue().count("once") == 1


def test_the_root_logger_is_left_alone_and_hears_nothing_twice() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    heard: list[logging.LogRecord] = []
    listening = logging.Handler()
    listening.emit = heard.append  # type: ignore[method-assign]
    root.addHandler(listening)
    try:
        written(buried("x"), "json")
    finally:
        root.removeHandler(listening)
    assert heard == []
    assert (list(root.handlers), root.level) == before


def test_an_application_with_its_own_handler_on_the_logger_keeps_it(logger: logging.Logger) -> None:
    own = logging.StreamHandler(io.StringIO())
    logger.addHandler(own)
    stream = io.StringIO()
    configure_logging(Settings(log_level="debug"), stream)
    logger.error("whose?")
    assert stream.getvalue() == ""
    assert own.stream.getvalue() == "whose?\n"
    assert not any(isinstance(handler, LinesHandler) for handler in logger.handlers)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_secrets_are_masked_wherever_a_record_holds_them(log_format: str) -> None:
    stream = io.StringIO()
    configure_logging(Settings(log_format=log_format), stream)
    log = logging.getLogger("trueup.theirs")
    extra = {
        "headers": {"Authorization": "Bearer geheim1", "accept": "*/*"},
        "pairs": [("x-api-key", "geheim2")],
        "token": "geheim3",
        "raw": b"password=geheim4",
        "urls": ["redis://:geheim5@cache"],
    }
    try:
        raise ValueError("api_key=geheim6")
    except ValueError:
        log.exception("sent %s", {"secret": "geheim7"}, extra=extra)
    log.error("Authorization: Bearer geheim8")
    lines = stream.getvalue()
    assert "geheim" not in lines
    assert "*/*" in lines
    assert "ValueError" in lines


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_line_is_bounded_whatever_is_logged(log_format: str) -> None:
    stream = io.StringIO()
    configure_logging(Settings(log_format=log_format), stream)
    log = logging.getLogger("trueup.theirs")
    log.error("é" * 10_000_000, extra={"fact": "é" * 10_000_000})
    try:
        raise ValueError("é" * 10_000_000)
    except ValueError:
        log.exception("failed")
    assert len(stream.getvalue().encode()) < 300_000


def test_a_message_whose_arguments_do_not_fit_is_a_line_all_the_same() -> None:
    stream = io.StringIO()
    configure_logging(Settings(log_format="json"), stream)
    logging.getLogger("trueup.theirs").error("%d of password=%s", "geheim")
    assert json.loads(stream.getvalue())["message"].startswith("%d of")


@pytest.fixture
def driver() -> logging.Logger:
    logger = logging.getLogger("psycopg")
    logger.handlers[:] = []  # also what another test has left there
    return logger


def test_the_drivers_own_warnings_are_lines_like_ours_and_do_not_flood(driver: logging.Logger) -> None:
    stream = io.StringIO()
    for _ in range(2):  # called again, it replaces what it did
        configure_logging(Settings(log_format="json"), stream)
    pool = logging.getLogger("psycopg.pool")
    for number in range(1000):
        pool.warning("error connecting in %r: %s", "pool-1", f"postgresql://u:geheim@db failed {number}")
    pool.error("another kind")
    logging.getLogger("psycopg").warning("discarding closed connection")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["logger"] for line in lines] == ["psycopg.pool", "psycopg.pool", "psycopg"]
    assert "geheim" not in stream.getvalue()


def test_what_was_left_out_is_said_with_the_next_one() -> None:
    sparse = NowAndThen(0.0)
    record = logging.makeLogRecord({"name": "psycopg", "msg": "again", "levelno": 30})
    assert sparse.filter(record)
    sparse._seconds = 1000.0
    assert not sparse.filter(logging.makeLogRecord({"name": "psycopg", "msg": "again", "levelno": 30}))
    sparse._seconds = 0.0
    assert sparse.filter(record)
    assert vars(record)["left_out"] == 1
    for number in range(5000):
        sparse.filter(logging.makeLogRecord({"name": "psycopg", "msg": f"kind {number}", "levelno": 30}))
    assert len(sparse._kinds) <= 1000


def test_an_application_that_handles_the_drivers_records_keeps_them(driver: logging.Logger) -> None:
    theirs = logging.StreamHandler(io.StringIO())
    driver.addHandler(theirs)
    configure_logging(Settings(log_format="json"), io.StringIO())
    assert [handler for handler in driver.handlers if not isinstance(handler, logging.NullHandler)] == [theirs]
