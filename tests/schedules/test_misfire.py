from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedules.moments import utc, written
from trueup.errors import ConfigError
from trueup.schedules import Cron, Every, Once, When
from trueup.schedules.misfire import Fire, MisfirePolicy, Missed, PausedSpan, Plan, Reason, Skip, plan

FIVE_MINUTES = Cron("*/5 * * * *")
LAST_FIRED = utc("2026-11-14T03:00")
BACK = utc("2026-11-15T00:55:30")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def fired(made: Plan) -> list[str]:
    return written(verdict.due_at for verdict in made.verdicts if isinstance(verdict, Fire))


def skipped(made: Plan) -> Counter[str]:
    counts: Counter[str] = Counter()
    for verdict in made.verdicts:
        if isinstance(verdict, Skip):
            counts[verdict.reason.value] += verdict.count
    return counts


def test_after_a_day_down_latest_fires_one() -> None:
    made = plan(FIVE_MINUTES, LAST_FIRED, BACK, MisfirePolicy("latest"))
    assert fired(made) == ["2026-11-15T00:55"]
    assert made.verdicts[:-1] == (  # a row of the ledger for each day
        Skip(utc("2026-11-14T03:05"), utc("2026-11-14T23:55"), 251, Reason.COALESCED),
        Skip(utc("2026-11-15T00:00"), utc("2026-11-15T00:50"), 11, Reason.COALESCED),
    )
    assert made.watermark == utc("2026-11-15T00:55")
    assert made.next_due == utc("2026-11-15T01:00")
    assert not made.more


def test_after_a_day_down_all_fires_each_oldest_first() -> None:
    made = plan(FIVE_MINUTES, LAST_FIRED, BACK, MisfirePolicy("all"))
    assert len(made.verdicts) == 263
    assert fired(made)[:2] == ["2026-11-14T03:05", "2026-11-14T03:10"]
    first = made.verdicts[0]
    assert isinstance(first, Fire)
    assert first.lateness == BACK - utc("2026-11-14T03:05")


def test_after_a_day_down_all_within_an_hour_fires_twelve() -> None:
    made = plan(FIVE_MINUTES, LAST_FIRED, BACK, MisfirePolicy("all", catch_up=HOUR))
    assert fired(made) == [f"2026-11-15T00:{minute:02}" for minute in range(0, 60, 5)]
    assert skipped(made) == {"outside catch_up": 251}


def test_after_a_day_down_skip_fires_only_what_is_not_late() -> None:
    made = plan(FIVE_MINUTES, LAST_FIRED, BACK, MisfirePolicy("skip"))
    assert fired(made) == ["2026-11-15T00:55"]
    assert skipped(made) == {"missed": 262}
    later = plan(FIVE_MINUTES, LAST_FIRED, BACK + MINUTE, MisfirePolicy("skip"))
    assert fired(later) == []
    assert skipped(later) == {"missed": 263}


def test_when_nothing_is_on_time_latest_fires_the_last_of_the_missed() -> None:
    made = plan(FIVE_MINUTES, LAST_FIRED, BACK + 2 * MINUTE, MisfirePolicy("latest"))
    assert fired(made) == ["2026-11-15T00:55"]
    assert skipped(made) == {"coalesced": 262}


def test_latest_makes_up_for_a_weekly_tick_however_late() -> None:
    made = plan(Cron("0 3 * * MON"), utc("2026-11-02T03:00"), utc("2026-11-13T12:00"), MisfirePolicy("latest"))
    assert fired(made) == ["2026-11-09T03:00"]


@pytest.mark.parametrize("missed", ["latest", "all", "skip"])
def test_ticks_on_time_are_fired_each_even_when_several_are_due(missed: Missed) -> None:
    made = plan(Every("1s"), LAST_FIRED, LAST_FIRED + timedelta(seconds=3), MisfirePolicy(missed))
    assert len(fired(made)) == 3


def test_a_tick_is_missed_when_it_is_late_by_more_than_its_grace() -> None:
    policy = MisfirePolicy("skip", grace=timedelta(seconds=10))
    due = utc("2026-11-14T03:05")
    assert fired(plan(FIVE_MINUTES, LAST_FIRED, due + timedelta(seconds=10), policy)) == ["2026-11-14T03:05"]
    assert fired(plan(FIVE_MINUTES, LAST_FIRED, due + timedelta(seconds=10, microseconds=1), policy)) == []


def test_a_missed_tick_is_made_up_for_until_catch_up_is_over() -> None:
    due, policy = utc("2026-11-14T03:05"), MisfirePolicy("all", catch_up=HOUR)
    assert fired(plan(FIVE_MINUTES, LAST_FIRED, due + HOUR, policy))[0] == "2026-11-14T03:05"
    late = plan(FIVE_MINUTES, LAST_FIRED, due + HOUR + timedelta(microseconds=1), policy)
    assert fired(late)[0] == "2026-11-14T03:10"


def test_a_tick_is_due_at_its_very_moment_and_not_before() -> None:
    due = utc("2026-11-14T03:05")
    assert fired(plan(FIVE_MINUTES, LAST_FIRED, due, MisfirePolicy())) == ["2026-11-14T03:05"]
    before = plan(FIVE_MINUTES, LAST_FIRED, due - timedelta(microseconds=1), MisfirePolicy())
    assert before == Plan((), LAST_FIRED, due, more=False)


def test_a_clock_behind_the_watermark_decides_nothing() -> None:
    assert plan(FIVE_MINUTES, LAST_FIRED, LAST_FIRED - HOUR, MisfirePolicy("all")) == Plan(
        (), LAST_FIRED, utc("2026-11-14T03:05"), more=False
    )


def test_downtime_across_a_spring_night_fires_the_skipped_time_once() -> None:
    made = plan(
        Cron("30 2 * * *", "Europe/Berlin"),
        utc("2026-03-28T01:30"),
        utc("2026-03-30T12:00"),
        MisfirePolicy("all", catch_up=timedelta(days=7)),
    )
    assert fired(made) == ["2026-03-29T01:00", "2026-03-30T00:30"]


def test_downtime_over_an_autumn_night_fires_a_repeated_time_once_a_wildcard_twice() -> None:
    policy = MisfirePolicy("all", catch_up=timedelta(days=7))
    start, end = utc("2026-10-24T22:00"), utc("2026-10-25T03:00")
    assert fired(plan(Cron("30 2 * * *", "Europe/Berlin"), start, end, policy)) == ["2026-10-25T00:30"]
    hourly = plan(Cron("30 * * * *", "Europe/Berlin"), start, end, policy)
    assert fired(hourly) == [
        "2026-10-24T22:30",
        "2026-10-24T23:30",
        "2026-10-25T00:30",
        "2026-10-25T01:30",
        "2026-10-25T02:30",
    ]


def test_what_was_due_during_a_pause_is_skipped_as_paused() -> None:
    pause = PausedSpan(utc("2026-11-14T04:00"), utc("2026-11-14T23:00"))
    made = plan(FIVE_MINUTES, LAST_FIRED, BACK, MisfirePolicy("all"), [pause])
    assert skipped(made) == {"paused": 12 * 19}
    assert len(fired(made)) == 263 - 12 * 19
    assert "2026-11-14T04:00" not in fired(made)
    assert "2026-11-14T23:00" in fired(made)


def test_latest_still_makes_up_for_what_was_missed_before_a_pause() -> None:
    pause = PausedSpan(utc("2026-11-14T04:00"), BACK)
    made = plan(FIVE_MINUTES, LAST_FIRED, BACK, MisfirePolicy("latest"), [pause])
    assert fired(made) == ["2026-11-14T03:55"]
    assert skipped(made) == {"coalesced": 10, "paused": 252}
    assert fired(
        plan(FIVE_MINUTES, LAST_FIRED, BACK, MisfirePolicy("latest"), [PausedSpan(utc("2026-11-14T04:00"))])
    ) == ["2026-11-14T03:55"]


def test_a_one_off_that_was_missed_is_fired_once() -> None:
    made = plan(Once(utc("2026-11-14T12:00")), LAST_FIRED, BACK, MisfirePolicy())
    assert fired(made) == ["2026-11-14T12:00"]
    assert made.next_due is None
    assert plan(Once(utc("2026-11-14T12:00")), made.watermark, BACK, MisfirePolicy()).verdicts == ()


def test_one_plan_of_a_million_missed_ticks_takes_some_and_says_there_are_more() -> None:
    started = time.process_time()
    made = plan(Cron("* * * * * *"), LAST_FIRED, LAST_FIRED + timedelta(seconds=1_000_000), MisfirePolicy())
    assert time.process_time() - started < 2
    last = LAST_FIRED + timedelta(seconds=1_000)
    skip = Skip(LAST_FIRED + timedelta(seconds=1), last, 1_000, Reason.COALESCED)
    assert made == Plan((skip,), last, last + timedelta(seconds=1), more=True)


def test_never_more_are_fired_in_one_plan_than_fit_in_a_transaction() -> None:
    made = plan(Every("1s"), LAST_FIRED, LAST_FIRED + HOUR, MisfirePolicy("all"))
    assert len(fired(made)) == 1_000
    assert made.more
    assert made.next_due == LAST_FIRED + timedelta(seconds=1_001)


SPECS: st.SearchStrategy[When] = st.sampled_from(
    [
        Cron("*/5 * * * *"),
        Cron("30 2 * * *", "Europe/Berlin"),
        Cron("0 */3 * * *", "America/New_York", "literal"),
        Every("7m"),
        Once(utc("2026-03-29T01:00")),
    ]
)
SPANS = st.timedeltas(timedelta(), timedelta(days=4))
POLICIES = st.builds(MisfirePolicy, st.sampled_from(["latest", "all", "skip"]), SPANS, st.timedeltas(timedelta(), HOUR))
MOMENTS = st.datetimes(datetime.fromisoformat("2026-03-25"), datetime.fromisoformat("2026-04-01")).map(
    lambda t: utc(t.isoformat())
)


@given(SPECS, MOMENTS, SPANS, POLICIES, st.integers(1, 50), st.lists(st.tuples(MOMENTS, SPANS), max_size=2))
def test_every_due_tick_gets_one_verdict_however_the_work_is_cut(
    when: When,
    watermark: datetime,
    span: timedelta,
    policy: MisfirePolicy,
    most: int,
    paused: list[tuple[datetime, timedelta]],
) -> None:
    now = watermark + span
    pauses = [PausedSpan(start, start + length) for start, length in paused]
    due = list(when.between(watermark, now))
    whole = plan(when, watermark, now, policy, pauses, most_looked_at=len(due) + 1, most_fired=len(due) + 1)
    counted = sum(verdict.count if isinstance(verdict, Skip) else 1 for verdict in whole.verdicts)
    assert counted == len(due)

    pieces: list[str] = []
    made = plan(when, watermark, now, policy, pauses, most_looked_at=most)
    pieces += fired(made)
    while made.more:
        made = plan(when, made.watermark, now, policy, pauses, most_looked_at=most)
        pieces += fired(made)
    assert pieces == fired(whole)
    assert (made.watermark, made.next_due) == (whole.watermark, whole.next_due)
    assert all(earlier < later for earlier, later in pairwise(pieces))
    if policy.missed == "latest":
        late = [verdict for verdict in whole.verdicts if isinstance(verdict, Fire) and verdict.lateness > policy.grace]
        assert len(late) <= 1


def test_a_policy_is_declared_in_words() -> None:
    assert MisfirePolicy.parse() == MisfirePolicy("latest", timedelta(days=1), timedelta(minutes=1))
    assert MisfirePolicy.parse("all", catch_up="1h", grace=timedelta(seconds=5)) == MisfirePolicy(
        "all", HOUR, timedelta(seconds=5)
    )


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"missed": "some"}, "missed='some'"),
        ({"grace": "-1s"}, "grace=: "),
        ({"catch_up": 60}, "catch_up=: 60 has no unit"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(declared: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        MisfirePolicy.parse(**declared)
