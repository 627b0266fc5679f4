from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import tzdata  # type: ignore[import-untyped]

from tests.schedules.moments import utc
from trueup.errors import ConfigError
from trueup.schedules.zones import tz_version, zone, zone_names


def test_every_zone_of_the_package_can_be_loaded() -> None:
    assert len(zone_names()) > 590
    for name in zone_names():
        assert zone(name).key == name
        assert utc("2026-07-01T12:00").astimezone(zone(name)).utcoffset() is not None


def test_a_zone_is_loaded_once() -> None:
    assert zone("Europe/Berlin") is zone("Europe/Berlin")


def test_zones_come_from_the_package_even_when_the_system_has_others(tmp_path: Path) -> None:
    (tmp_path / "Europe").mkdir()
    tokyo = files("tzdata").joinpath("zoneinfo/Asia/Tokyo").read_bytes()
    (tmp_path / "Europe/Berlin").write_bytes(tokyo)
    program = (
        "from zoneinfo import ZoneInfo; from trueup.schedules.zones import zone; from datetime import datetime;"
        "print([datetime(2026, 7, 1, tzinfo=z('Europe/Berlin')).tzname() for z in (ZoneInfo, zone)])"
    )
    stale = {**os.environ, "PYTHONTZPATH": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=stale, capture_output=True, text=True, check=True, timeout=30
    )
    assert ran.stdout.strip() == "['JST', 'CEST']"


def test_the_version_is_that_of_the_installed_package() -> None:
    assert re.fullmatch(r"20\d\d[a-z]", tz_version())
    year, release = version("tzdata").split(".")[:2]
    assert tz_version() == f"{year}{chr(ord('a') + int(release) - 1)}" == tzdata.IANA_VERSION


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it is empty"),
        ("localtime", "differs from host to host"),
        ("LOCALTIME", "differs from host to host"),
        ("posixrules", "a template"),
        ("Factory", "an unset zone"),
        ("right/Europe/Berlin", "leap seconds"),
        ("posix/Europe/Berlin", "omit the prefix"),
        ("../../etc/passwd", "there is no such zone"),
        ("/etc/passwd", "there is no such zone"),
        ("/Europe/Berlin", 'did you mean "Europe/Berlin"'),
        ("Europe/../Europe/Berlin", "there is no such zone"),
        ("Europe\\Berlin", "there is no such zone"),
        ("Europe/Berlin\0", "there is no such zone"),
        ("Europe", "there is no such zone"),
        ("zone.tab", "there is no such zone"),
        ("tzdata.zi", "there is no such zone"),
        ("__init__.py", "there is no such zone"),
        ("Europe/Berlín", 'did you mean "Europe/Berlin"'),
        ("Mars/Olympus_Mons", "there is no such zone"),
        ("x" * 256, "no name is longer than 255"),
        ("x" * 100_000, "no name is longer than 255"),
        *(
            (name, 'abbreviations do not name a zone, .* a city such as "Europe/Berlin"$')
            for name in ("CEST", "PST", "IST", "AEDT")
        ),
        ("UTC+3", '"Etc/GMT-3" .its sign is the other way round.* a city'),
        ("utc-03:00", '"Etc/GMT.3" '),
        ("GMT+14", '"Etc/GMT-14" '),
        ("UTC+99", 'use a city such as "Europe/Berlin"'),
        ("europe/berlin", 'did you mean "Europe/Berlin"'),
        ("utc", 'did you mean "UTC"'),
        ("Berlin", 'did you mean "Europe/Berlin"'),
        ("new york", 'did you mean "America/New_York"'),
        ("Europe/Berlni", 'did you mean "Europe/Berlin"'),
        (" UTC", 'did you mean "UTC"'),
        (None, "a name such as .* is needed, not NoneType"),
        (b"UTC", "is needed, not bytes"),
        (timedelta(), "is needed, not timedelta"),
        (["UTC"], "is needed, not list"),
    ],
)
def test_what_is_not_a_zone_is_refused_with_what_may_be_meant(name: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"time zone .*{why}") as refused:
        zone(name)
    assert len(str(refused.value)) < 300


def test_offset_zones_go_by_their_posix_sign() -> None:
    assert datetime(2026, 1, 1, tzinfo=zone("Etc/GMT-3")).utcoffset() == timedelta(hours=3)
