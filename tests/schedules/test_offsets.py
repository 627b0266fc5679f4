"""Every change of clocks that the tz database has is found, to the second, and nothing else."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import groupby, pairwise

import pytest

from tests.schedules.moments import utc
from trueup.schedules.offsets import EARLIEST, LAST_YEAR, changes, first_showing, reached, stretches
from trueup.schedules.zones import zone, zone_names

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def recorded_changes(name: str) -> list[tuple[datetime, timedelta]]:
    """The changes listed in a zone's file (RFC 9636) from 1850 on, each with the offset that it brings."""
    data = files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    start, counts = 0, (0,) * 6
    for block, width in ((1, 4), (2, 8)):  # the second block repeats the first with wider numbers
        counts = struct.unpack(">6l", data[start + 20 : start + 44])
        universal, standard, leaps, times, types, letters = counts
        start += 44
        if block == 1:
            start += times * (width + 1) + types * 6 + letters + leaps * (width + 4) + standard + universal
    _, _, _, times, types, _ = counts
    moments = struct.unpack(f">{times}q", data[start : start + 8 * times])
    kinds = data[start + 8 * times : start + 9 * times]
    offsets = [
        struct.unpack(">l", data[at : at + 4])[0] for at in range(start + 9 * times, start + 9 * times + 6 * types, 6)
    ]
    offset, found = offsets[0], []
    for moment, kind in zip(moments, kinds, strict=True):
        if offsets[kind] != offset:
            offset = offsets[kind]
            found.append((moment, offset))
    return [(EPOCH + timedelta(seconds=at), timedelta(seconds=to)) for at, to in found if at > -3_786_825_600]


def distinct_zones() -> list[str]:
    """One name for each file that differs from the others."""
    by_data = {
        files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes(): name for name in sorted(zone_names())
    }
    return sorted(by_data.values())


@pytest.mark.slow
def test_every_recorded_change_of_every_zone_is_found_to_the_second() -> None:
    for name in distinct_zones():
        recorded = recorded_changes(name)
        for year, expected in groupby(recorded, key=lambda change: change[0].year):
            found = [(change.at, change.after) for change in changes(zone(name), year)]
            last = recorded[-1][0]  # later ones follow from a rule at the end of the file
            assert [change for change in found if change[0] <= last] == list(expected), (name, year)


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "Africa/Casablanca"]
)
def test_stretches_follow_each_other_without_a_hole(name: str) -> None:
    found = []
    for stretch in stretches(zone(name), EARLIEST):
        if stretch.begin.year > 2110:
            break
        found.append(stretch)
    assert found[0].begin == EARLIEST
    assert all(earlier.end == later.begin for earlier, later in pairwise(found))
    for stretch in found:
        assert stretch.begin.astimezone(zone(name)).utcoffset() == stretch.offset
        assert (stretch.end - timedelta(seconds=1)).astimezone(zone(name)).utcoffset() == stretch.offset


def test_stretches_end_with_the_calendar() -> None:
    assert [stretch.begin.year for stretch in stretches(zone("Europe/Berlin"), datetime(9998, 12, 1, tzinfo=UTC))] == [
        LAST_YEAR
    ]
    assert list(stretches(zone("Europe/Berlin"), datetime(9999, 12, 1, tzinfo=UTC))) == []


def test_in_a_repeated_hour_the_furthest_reading_is_the_one_before_clocks_went_back() -> None:
    berlin = zone("Europe/Berlin")
    just_before = datetime.fromisoformat("2026-10-25T02:59:59.999999")
    assert reached(berlin, utc("2026-10-25T00:59:00")) == datetime.fromisoformat("2026-10-25T02:59:00")
    assert reached(berlin, utc("2026-10-25T01:00:00")) == just_before
    assert reached(berlin, utc("2026-10-25T01:30:00")) == just_before
    assert reached(berlin, utc("2026-10-25T02:00:00")) == datetime.fromisoformat("2026-10-25T03:00:00")


@pytest.mark.parametrize(
    ("name", "reading", "moment"),
    [
        ("Europe/Berlin", "2026-06-01T12:00", "2026-06-01T10:00"),
        ("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-03-29T02:59:59.999999", "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30"),
        ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00"),
        ("Pacific/Apia", "2011-12-30T09:00", "2011-12-30T10:00"),
        ("Pacific/Kwajalein", "1969-09-30T12:00", "1969-09-30T01:00"),
        ("Pacific/Kiritimati", "2026-01-01T00:00", "2025-12-31T10:00"),
        ("Etc/GMT+12", "2026-01-01T00:00", "2026-01-01T12:00"),
        ("Africa/Monrovia", "1971-01-01T00:00", "1971-01-01T00:44:30"),
    ],
)
def test_a_reading_is_first_shown_at_this_moment(name: str, reading: str, moment: str) -> None:
    assert first_showing(zone(name), datetime.fromisoformat(reading)) == utc(moment)


def test_the_last_reading_of_the_calendar_is_never_shown() -> None:
    assert first_showing(zone("UTC"), datetime.fromisoformat("9999-12-31T23:59:59")) is None
