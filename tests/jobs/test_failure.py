from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from typing import Annotated, Any

import asyncpg
import orjson
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from trueup.jobs.failure import MAX_MESSAGE, MAX_TRACEBACK, Failure, clean, describe
from trueup.jobs.records import JobError

PASSWORD = "h0rse-battery"
DSN = f"postgresql://app:{PASSWORD}@db.example:5432/shop"


def raised(error: BaseException) -> Failure:
    """The failure of an error that has a traceback."""
    try:
        raise error
    except BaseException as caught:
        return Failure.of(caught, 1)


@given(st.text(st.characters()), st.integers(100, 500))
def test_cleaned_text_is_short_valid_and_without_nul(text: str, most: int) -> None:
    cleaned = clean(text, most)
    cleaned.encode()
    assert "\x00" not in cleaned
    assert len(cleaned) <= most + len(" … 999999 characters left out … ")


def test_short_plain_text_is_kept_as_it_is() -> None:
    assert clean("naïve 🐎 text\n\twith lines", 100) == "naïve 🐎 text\n\twith lines"


def test_nul_and_lone_surrogates_are_written_out() -> None:
    assert clean("a\x00b\ud800c", 100) == "a\\0b\\ud800c"


def test_cut_text_keeps_both_ends_and_says_how_much_is_missing() -> None:
    cut = clean("A" * 100 + "m" * 800 + "Z" * 100, 200)
    assert cut == "A" * 100 + " … 800 characters left out … " + "Z" * 100


def test_an_error_of_50_megabytes_is_described_at_once() -> None:
    error = ValueError("x y\x00" * 12_500_000)
    started = time.thread_time()
    failure = raised(error)
    assert time.thread_time() - started < 3
    assert len(failure.message) < MAX_MESSAGE + 100
    assert len(failure.traceback) < MAX_TRACEBACK + 100


def test_an_error_whose_text_cannot_be_had_is_still_recorded() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    failure = raised(Broken())
    assert failure.message == "<Broken without a text: str() of it raised RuntimeError>"
    assert "test_failure.py" in failure.traceback


def test_an_error_whose_text_is_not_text_is_still_recorded() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            return 3  # type: ignore[return-value]

    assert "TypeError" in describe(Odd())


@pytest.mark.parametrize(
    "text",
    [
        DSN,
        f"cannot connect to {DSN}: timeout",
        f"host=db password={PASSWORD} user=app",
        repr({"password": PASSWORD}),
        f"{'x ' * 40_000}{DSN} {'y ' * 40_000}",
        f"{'x' * 31_990}{DSN}{'y' * 70_000}",
        f"{'x' * 70_000} {DSN} {'y' * 31_990}",
    ],
    ids=["url", "sentence", "pairs", "repr", "middle of long text", "first cut", "second cut"],
)
def test_a_planted_password_never_survives(text: str) -> None:
    failure = raised(RuntimeError(text))
    assert PASSWORD not in failure.to_json()
    assert PASSWORD[:6] not in failure.to_json()


@pytest.mark.parametrize("offset", range(0, 60, 3))
def test_a_password_at_the_cut_of_a_long_text_never_survives(offset: int) -> None:
    for filler in ("x", "x "):
        head = (filler * 32_000)[: 32_000 - offset]
        text = f"{head}{DSN} {'y' * 100_000}"
        tail = f"{'y' * 100_000} {DSN}{(' ' + 'x' * 31_999)[: 32_000 - offset]}"
        assert PASSWORD[:4] not in clean(text, 100_000)
        assert PASSWORD[-4:] not in clean(tail, 100_000)


def test_a_password_in_the_chain_of_causes_never_survives() -> None:
    try:
        try:
            raise ConnectionError(DSN)
        except ConnectionError as cause:
            raise RuntimeError("could not load") from cause
    except RuntimeError as error:
        failure = Failure.of(error, 1)
    assert "ConnectionError" in failure.traceback
    assert PASSWORD not in failure.to_json()


def test_a_chain_of_causes_that_loops_is_still_recorded() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert raised(first).message == "first"


def test_the_type_is_named_with_its_module_unless_it_is_builtin() -> None:
    assert raised(ValueError()).type == "ValueError"
    assert raised(orjson.JSONDecodeError("x", "y", 0)).type.endswith("JSONDecodeError")
    assert "." in raised(orjson.JSONDecodeError("x", "y", 0)).type


def test_the_record_is_json_with_the_attempt_the_moment_and_the_trace() -> None:
    record = orjson.loads(raised(ValueError("boom\x00\ud800")).to_json())
    assert record.pop("at").endswith("+00:00")
    assert "raise error" in record.pop("traceback")
    assert (record.pop("host"), record.pop("pid")) == (socket.gethostname(), os.getpid())
    assert record == {"attempt": 1, "type": "ValueError", "message": "boom\\0\\ud800"}


@pytest.mark.parametrize("host", ["bl\udcffade", "a\x00b", "x" * 5_000])
def test_a_failure_is_stored_although_its_host_name_cannot_be(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    stored = JobError.of(orjson.loads(raised(ValueError("boom")).to_json()))
    assert stored.host is not None
    assert len(stored.host) < 400
    assert "\x00" not in stored.host


@pytest.mark.parametrize(
    ("stored", "made_by"),
    [
        ({}, ""),  # by an older release
        ({"holder": None, "term": None, "host": None, "pid": None}, ""),
        ({"host": "blade", "pid": 7}, "blade, pid 7"),
        ({"holder": "not-an-id", "term": 4, "at": "yesterday"}, "term 4"),
        ({"holder": 7, "at": 7}, ""),
        ({"at": "2026-01-01T00:00:00"}, ""),  # without a time zone it is no moment
        (
            {"holder": "00000000-0000-4000-8000-000000000001", "term": 4, "host": "blade", "pid": 7},
            "blade, pid 7, term 4, holder 00000000-0000-4000-8000-000000000001",
        ),
    ],
)
def test_an_attempt_is_read_with_what_is_known_of_its_worker(stored: dict[str, object], made_by: str) -> None:
    read = JobError.of({"attempt": 1, "type": "ValueError", "message": "boom", **stored})
    assert (read.made_by, str(read), read.at) == (made_by, "ValueError: boom", None)


def _routes(count: int) -> list[Exception]:
    return [raised(ConnectionError(f"no route to host {n}")).error for n in range(count)]  # type: ignore[misc]


def _noted() -> Exception:
    error = ValueError("noted")
    for _ in range(200_000):
        error.add_note("n" * 100)
    return error


def _caused(by: BaseException) -> Exception:
    error = ValueError("caused")
    error.__cause__ = by
    return error


def _circular() -> ExceptionGroup[Exception]:
    errors = _routes(200)
    group = ExceptionGroup("circular", errors)
    for each in errors:
        each.__cause__ = group
    return group


def _shared(depth: int) -> ExceptionGroup[Exception]:
    group = ExceptionGroup("the innermost", _routes(1))
    for _ in range(depth):
        group = ExceptionGroup("shared", [group] * 20)
    return group


WIDE: dict[str, Callable[[], BaseException]] = {
    "group": lambda: ExceptionGroup("unhandled errors in a TaskGroup", _routes(5_000)),
    "group in a group": lambda: ExceptionGroup("outer", [ExceptionGroup("inner", _routes(5_000))]),
    "cause": lambda: _caused(ExceptionGroup("inner", _routes(5_000))),
    "group of causes": lambda: ExceptionGroup("g", [_caused(ExceptionGroup("h", _routes(5_000)))]),
    "group that causes its own errors": _circular,
    "groups that are shared": lambda: _shared(12),
    "notes": _noted,
}


@pytest.mark.parametrize("what", WIDE)
def test_an_error_of_any_width_is_told_in_a_moment(what: str) -> None:
    error = WIDE[what]()
    started = time.process_time()
    failure = raised(error)
    assert time.process_time() - started < 0.2
    assert "n" in failure.traceback
    assert len(failure.traceback) < 2 * MAX_TRACEBACK


def test_of_a_large_group_the_first_errors_are_told_and_how_many_there_are() -> None:
    told = raised(ExceptionGroup("offline", _routes(40))).traceback
    assert "no route to host 3" in told
    assert "and 25 more errors of this group" in raised(ExceptionGroup("offline", [ValueError("x")] * 40)).traceback


def test_an_error_that_was_never_raised_has_no_trace() -> None:
    assert "traceback" not in orjson.loads(Failure.of(ValueError("boom"), 1).to_json())


SECRET = "DE89 3704 0044"


def refused(url: str) -> psycopg.Error:
    """A real refusal, whose DETAIL quotes the row."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table if not exists accounts (iban text check (length(iban) < 3))")
        try:
            connection.execute("insert into accounts values (%s)", [SECRET])
        except psycopg.Error as error:
            return error
    raise AssertionError


def in_another_language(error: psycopg.Error) -> psycopg.Error:
    """As libpq writes it for a process whose locale is French."""
    error.args = (str(error).replace("DETAIL:  ", "DÉTAIL : "),)
    return error


def as_cause(error: Exception) -> BaseException:
    wrapped = RuntimeError(f"cannot save: {error}")
    wrapped.__cause__ = error
    return wrapped


class Account(BaseModel):
    owner: Annotated[str, Field(max_length=3)]
    iban: Annotated[str, Field(max_length=3)]
    parts: dict[str, int] = {}


@pytest.mark.parametrize(
    "values",
    [
        {"owner": "Ada", "iban": SECRET},
        {"owner": SECRET, "iban": SECRET},
        {"iban": SECRET},
        {"owner": "Ada", "iban": f"{SECRET}, input_type=x] {SECRET}"},
        {"owner": "Ada", "iban": "x", "parts": {"a": f"{SECRET}\n{SECRET}"}},
        {"owner": "Ada", "iban": "x", "parts": [SECRET]},
    ],
    ids=["one", "two", "missing", "its own words", "lines", "a list"],
)
@pytest.mark.parametrize(
    "raises",
    [lambda error: error, as_cause, lambda error: ExceptionGroup("in a task", [error])],
    ids=["alone", "as a cause", "in a group"],
)
def test_what_pydantic_quotes_of_a_row_is_in_no_text_of_a_failure(
    values: dict[str, Any], raises: Callable[[Exception], BaseException]
) -> None:
    with pytest.raises(ValidationError) as refusal:
        Account.model_validate(values)
    assert SECRET in str(refusal.value)
    failure = raised(raises(refusal.value))
    assert "validation error" in failure.traceback
    assert re.search(r"\[type=\w+, input_type=\w+\]", failure.traceback)
    assert SECRET not in failure.message + failure.traceback + failure.to_json()


@pytest.mark.parametrize("said", [lambda error: error, in_another_language], ids=["english", "french"])
@pytest.mark.parametrize(
    "raises",
    [lambda error: error, as_cause, lambda error: ExceptionGroup("in a task", [error])],
    ids=["alone", "as a cause", "in a group"],
)
def test_what_postgresql_quotes_of_a_row_is_in_no_text_of_a_failure(
    database_url: str, said: Callable[[psycopg.Error], psycopg.Error], raises: Callable[[psycopg.Error], BaseException]
) -> None:
    error = said(refused(database_url))
    assert SECRET in str(error)
    failure = raised(raises(error))
    assert "accounts_iban_check" in failure.traceback
    assert "test_failure.py" in failure.traceback
    assert SECRET not in failure.message + failure.traceback


@pytest.mark.parametrize(
    "of", ["int", "date", "timestamptz", "uuid", "numeric", "int[]", "boolean", "inet", "interval", "mood"]
)
def test_a_value_that_postgresql_cannot_read_is_in_no_text_of_a_failure(database_url: str, of: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create type mood as enum ('calm')")
        with pytest.raises(psycopg.Error) as found:
            connection.execute(f"select value::{of} from (values (%s)) as t (value)".encode(), [SECRET])
    assert SECRET in str(found.value)
    failure = raised(as_cause(found.value))
    assert "test_failure.py" in failure.traceback
    assert SECRET not in failure.message + failure.traceback
    assert '"…" (SQLSTATE 22' in describe(found.value)


@pytest.mark.parametrize("value", ["99999999999", "2026-13-01"])
def test_a_value_out_of_range_is_in_no_text_of_a_failure(database_url: str, value: str) -> None:
    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.Error) as found:
        connection.execute(
            f"select value::{'date' if '-' in value else 'int'} from (values (%s)) as t (value)".encode(), [value]
        )
    assert "out of range" in describe(found.value)
    assert value not in describe(found.value)


@pytest.mark.parametrize(
    "asked",
    [
        "now() at time zone value",
        "to_date(value, 'YYYY-MM-DD')",
        "to_number(value, '999')",
        "value::jsonb",
        "value::int4range",
        "value::pg_lsn",
        "make_interval(days => value::int)",
        "decode(value, 'hex')",
    ],
)
def test_no_expression_over_a_value_puts_it_into_a_failure(database_url: str, asked: str) -> None:
    value = "Zoë: not/a value"
    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.Error) as found:
        connection.execute(f"select {asked} from (values (%s)) as t (value)".encode(), [value])
    failure = raised(as_cause(found.value))
    assert value not in failure.message + failure.traceback


@pytest.mark.asyncio
async def test_nor_does_an_error_of_asyncpg(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        with pytest.raises(asyncpg.PostgresError) as found:
            await connection.execute(f"select value::int from (values ('{SECRET}')) as t (value)")
    finally:
        await connection.close()
    assert SECRET in str(found.value)
    failure = raised(found.value)
    assert SECRET not in failure.message + failure.traceback
    assert "invalid input syntax for type integer" in failure.message
