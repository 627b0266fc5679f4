from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from apps.birthdays import seed
from apps.birthdays.planning import Rules, first_after
from trueup.demo.yesterday import AWKWARD, FOR_LATER, UNWANTED, everybody

DAY = timedelta(days=1)
MOMENTS = [
    datetime(2026, 11, 15, 8, 13, tzinfo=UTC),
    datetime(2026, 3, 28, 20, 59, 59, tzinfo=UTC),  # clocks are put forward in Europe
    datetime(2026, 10, 24, 9, 0, tzinfo=UTC),  # and back
    datetime(2026, 11, 1, 0, 30, tzinfo=UTC),  # in America
    datetime(2026, 4, 4, 19, 0, tzinfo=UTC),  # in New Zealand
    datetime(2028, 2, 28, 12, 0, tzinfo=UTC),
    datetime(2027, 2, 27, 23, 0, tzinfo=UTC),
    datetime(2026, 12, 31, 3, 0, tzinfo=UTC),
]


@pytest.mark.parametrize("yesterday", MOMENTS)
def test_every_message_falls_due_within_the_day_after_and_those_for_later_do_not(yesterday: datetime) -> None:
    people = list(everybody(seed, 400, yesterday))
    assert Counter(person.fate for person in people) == {"delivered": 399, "dead": 1, "later": FOR_LATER}
    for person in people:
        due_at = first_after(Rules().birthday(person.born, person.timezone), yesterday).due_at
        if person.fate == "later":
            assert due_at > yesterday + DAY + timedelta(hours=12)
        else:
            assert yesterday < due_at <= yesterday + DAY + timedelta(hours=1)  # a day may have 25 hours


def test_all_zones_and_all_special_names_are_among_them() -> None:
    people = list(everybody(seed, 400, MOMENTS[0]))
    assert {person.timezone for person in people} == set(seed.ZONES)
    assert len(seed.ZONES) == 40
    names = {(person.first_name, person.last_name) for person in people}
    assert {*AWKWARD, tuple(UNWANTED.split())} <= names
