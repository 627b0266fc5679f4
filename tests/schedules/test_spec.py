from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedules.moments import utc
from trueup.durations import MAX_DURATION
from trueup.errors import ConfigError
from trueup.schedules import Cron, Every, Once
from trueup.schedules.spec import Spec, from_json, to_json

MOMENTS = st.datetimes().map(lambda drawn: utc(drawn.isoformat()))


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        (
            Cron("30 2 * * *", "Europe/Berlin"),
            {"kind": "cron", "expr": "30 2 * * *", "tz": "Europe/Berlin", "dst": "debian"},
        ),
        (Cron("@daily", dst="literal"), {"kind": "cron", "expr": "@daily", "tz": "UTC", "dst": "literal"}),
        (Every("90s"), {"kind": "every", "interval": "1m30s", "anchor": "1970-01-01T00:00:00+00:00"}),
        (Once(utc("2026-06-01T12:00")), {"kind": "once", "at": "2026-06-01T12:00:00+00:00"}),
    ],
)
def test_what_is_stored_is_fixed_and_reads_back_as_the_same(spec: Spec, stored: dict[str, str]) -> None:
    assert to_json(spec) == stored
    assert from_json(json.loads(json.dumps(stored))) == spec


@given(
    st.one_of(st.builds(Every, st.timedeltas(timedelta(seconds=1), MAX_DURATION), MOMENTS), st.builds(Once, MOMENTS))
)
def test_every_moment_and_interval_survives_to_the_microsecond(spec: Spec) -> None:
    assert from_json(to_json(spec)) == spec


def test_the_same_row_gives_the_same_object() -> None:
    assert from_json(to_json(Cron("0 1 * * *"))) is from_json(dict(reversed(to_json(Cron("0 1 * * *")).items())))


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (None, "a JSON object of texts"),
        ("cron", "a JSON object of texts"),
        ([], "a JSON object of texts"),
        ({"kind": "once", "at": 5}, "a JSON object of texts"),
        ({"kind": ["cron"]}, "a JSON object of texts"),
        ({}, "of kind '' is not known"),
        ({"kind": "lunar"}, "of kind 'lunar' is not known to this release"),
        ({"kind": "cron", "expr": "* * * * *"}, "has dst, expr, tz; stored are expr"),
        ({"kind": "once", "at": "2026-06-01T12:00:00Z", "until": "x"}, "has at; stored are"),
        ({"kind": "once", "at": "tomorrow"}, "at 'tomorrow' is not a moment"),
        ({"kind": "once", "at": "2026-06-01T12:00:00"}, "has no time zone"),
        ({"kind": "every", "interval": "5", "anchor": "1970-01-01T00:00:00Z"}, "no unit"),
        ({"kind": "cron", "expr": "61 * * * *", "tz": "UTC", "dst": "debian"}, "minute '61'"),
        ({"kind": "cron", "expr": "1 * * * *", "tz": "Nowhere", "dst": "debian"}, "time zone 'Nowhere'"),
        ({"kind": "cron", "expr": "1 * * * *", "tz": "UTC", "dst": "other"}, "dst='other'"),
    ],
)
def test_a_row_that_cannot_be_read_completely_is_refused(stored: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        from_json(stored)
