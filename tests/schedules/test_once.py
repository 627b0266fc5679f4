from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from tests.schedules.moments import utc
from trueup.errors import ConfigError
from trueup.schedules import Once

NOON = utc("2026-06-01T12:00")


def test_it_comes_once_and_strictly_after() -> None:
    once = Once(NOON)
    assert once.next_after(NOON - timedelta(microseconds=1)) == NOON
    assert once.next_after(NOON) is None
    assert list(once.between(NOON - timedelta(days=1), NOON + timedelta(days=1))) == [NOON]


def test_the_same_moment_in_another_zone_is_the_same_schedule() -> None:
    assert Once(NOON.astimezone(timezone(timedelta(hours=5)))) == Once(NOON)
    assert Once(NOON).describe() == "Once at 2026-06-01T12:00:00+00:00"


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="at=2026-06-01T12:00:00 has no time zone"):
        Once(datetime.fromisoformat("2026-06-01T12:00"))
