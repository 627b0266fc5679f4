from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup import App
from trueup.backoff import JOB_RETRY, MAX_ATTEMPTS, SHORT_RETRY, Retry
from trueup.errors import ConfigError


def seconds(retry: Retry, attempts: int) -> list[float]:
    return [retry.delay(attempt).total_seconds() for attempt in range(1, attempts + 1)]


def test_delays_double_from_the_first_and_stop_growing_at_the_cap() -> None:
    assert seconds(Retry(first="1s", factor=2, cap="30s"), 8) == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_factor_of_one_gives_equal_delays() -> None:
    assert seconds(Retry(first="5s", factor=1, cap="1h"), 3) == [5, 5, 5]


def test_a_fraction_as_factor_is_exact_to_the_microsecond() -> None:
    assert seconds(Retry(first="1s", factor=1.5, cap="1h"), 4) == [1, 1.5, 2.25, 3.375]


def test_a_cap_below_the_first_delay_wins() -> None:
    assert seconds(Retry(first="1m", cap="10s"), 2) == [10, 10]


@pytest.mark.parametrize("factor", [2, 2.0, 1e300, float("inf")])
def test_the_last_possible_attempt_overflows_to_the_cap(factor: float) -> None:
    assert Retry(first="1s", factor=factor, cap="1h").delay(MAX_ATTEMPTS) == timedelta(hours=1)


@pytest.mark.parametrize("factor", [2, float("inf")])
def test_no_first_delay_means_none_at_all_however_large_it_would_have_grown(factor: float) -> None:
    assert Retry(first="0s", factor=factor, cap="1h").delay(MAX_ATTEMPTS) == timedelta()


def test_without_jitter_the_wait_is_the_delay() -> None:
    retry = Retry(first="1s", cap="30s")
    assert [retry.wait(n, random.Random(n)) for n in (1, 2, 3)] == [retry.delay(n) for n in (1, 2, 3)]


@given(attempt=st.integers(1, MAX_ATTEMPTS), seed=st.integers())
def test_jitter_draws_between_nothing_and_the_full_delay(attempt: int, seed: int) -> None:
    retry = Retry(first="1s", cap="30s", jitter=True)
    assert timedelta() <= retry.wait(attempt, random.Random(seed)) <= retry.delay(attempt)


def test_jitter_uses_the_whole_range() -> None:
    rng = random.Random(7)
    waits = [Retry(first="10s", jitter=True).wait(1, rng).total_seconds() for _ in range(1000)]
    assert min(waits) < 1
    assert max(waits) > 9
    assert 4.5 < sum(waits) / len(waits) < 5.5


@given(
    first=st.timedeltas(timedelta(), timedelta(days=1)),
    factor=st.floats(1, 1e6),
    cap=st.timedeltas(timedelta(), timedelta(days=30)),
    attempt=st.integers(1, MAX_ATTEMPTS - 1),
)
def test_delays_never_shrink_and_never_pass_the_cap(
    first: timedelta, factor: float, cap: timedelta, attempt: int
) -> None:
    retry = Retry(first=first, factor=factor, cap=cap)
    assert retry.delay(attempt) <= retry.delay(attempt + 1) <= cap


def test_the_default_for_jobs_takes_roughly_nine_hours() -> None:
    total = sum((JOB_RETRY.delay(n) for n in range(1, JOB_RETRY.max_attempts)), timedelta())
    assert timedelta(hours=7) < total < timedelta(hours=10)


def test_errors_are_worth_retrying_unless_named_otherwise() -> None:
    assert Retry().worth_retrying(ValueError())
    picky = Retry(retry_on=(OSError,), give_up_on=(FileNotFoundError,))
    assert picky.worth_retrying(TimeoutError())
    assert not picky.worth_retrying(ValueError())
    assert not picky.worth_retrying(FileNotFoundError()), "give_up_on wins over retry_on"


def test_one_exception_class_may_be_given_without_a_tuple() -> None:
    retry = Retry(give_up_on=KeyError)  # type: ignore[arg-type]
    assert not retry.worth_retrying(KeyError())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"max_attempts": MAX_ATTEMPTS + 1}, f"max_attempts={MAX_ATTEMPTS + 1}"),
        ({"max_attempts": True}, "max_attempts=True"),
        ({"max_attempts": 2.5}, "max_attempts=2.5"),
        ({"factor": 0.5}, "factor=0.5"),
        ({"factor": float("nan")}, "factor=nan"),
        ({"first": "soon"}, "soon"),
        ({"cap": "-1s"}, "-1s"),
        ({"retry_on": ("ValueError",)}, "retry_on"),
        ({"give_up_on": (3,)}, "give_up_on"),
    ],
)
def test_a_retry_that_makes_no_sense_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Retry(**options)


OPTIONS: list[dict[str, Any]] = [
    {"max_attempts": 4},  # also when it is given as what it would have been elsewhere
    {"max_attempts": 5},
    {"first": "5s"},
    {"factor": 3},
    {"cap": "30s"},
    {"jitter": True},
    {"jitter": False},
    {"retry_on": (OSError,)},
    {"give_up_on": (KeyError,)},
]


@pytest.mark.parametrize("default", [JOB_RETRY, SHORT_RETRY], ids=["jobs", "ticks and rows"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_option_changes_only_itself(default: Retry, options: dict[str, Any]) -> None:
    retry = Retry(**options).with_defaults(default)
    exact = options.keys() & {"first", "factor", "cap"}
    assert retry == replace(default, **({"jitter": False} if exact else {}), **options)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda retry: pickle.loads(pickle.dumps(retry)), replace])
def test_a_copy_still_knows_what_was_not_given(copied: Callable[[Retry], Retry]) -> None:
    assert copied(Retry(max_attempts=3)).with_defaults(JOB_RETRY) == replace(JOB_RETRY, max_attempts=3)


def test_delays_are_spread_unless_exact_ones_are_named() -> None:
    assert [bool(each.jitter) for each in (Retry(), JOB_RETRY, SHORT_RETRY, Retry(max_attempts=9))] == [True] * 4
    named: list[dict[str, Any]] = [{"first": "1s"}, {"factor": 2}, {"cap": "30s"}]
    assert [bool(Retry(**each).jitter) for each in named] == [False] * 3
    assert [bool(Retry(**each, jitter=True).jitter) for each in named] == [True] * 3


def test_each_kind_of_work_starts_from_its_own_default() -> None:
    app = App("postgresql://nobody@127.0.0.1:1/none")

    @app.job
    def plain() -> None: ...

    @app.job(retry=Retry(give_up_on=(KeyError,)))
    def picky() -> None: ...

    @app.every("1h")
    def tick() -> None: ...

    @app.every("1h", retry=Retry(first="10s"))
    def later() -> None: ...

    table = app.table("things", key="id", state="state", changed_at="at")

    @table.reconcile("new", retry=Retry(first="10s"))
    def row(row: Any) -> None: ...

    assert app.registry["plain"].retry == JOB_RETRY
    assert app.registry["picky"].retry == replace(JOB_RETRY, give_up_on=(KeyError,))
    assert app.registry["tick"].retry == SHORT_RETRY
    exact = replace(SHORT_RETRY, first="10s", jitter=False)
    assert app.registry["later"].retry == exact
    assert app._reconcilers.all()[0].retry == exact
