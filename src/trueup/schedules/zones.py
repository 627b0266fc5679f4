"""Time zones by name, from the `tzdata` package alone.

Systems ship tz databases that are years old, and two hosts of one fleet rarely ship the same one. The package is pinned like any
other dependency, so the whole fleet agrees on every tick, and an upgrade of it is a visible change.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # data, and a version

from trueup.errors import ConfigError

MAX_NAME = 255

_OFFSET = re.compile(r"(?:UTC|GMT)([+-])0*([0-9]{1,2})(?::?00)?", re.IGNORECASE)
_ABBREVIATION = re.compile("[A-Z]{2,5}")
_REFUSED = {
    "localtime": "its meaning differs from host to host",
    "posixrules": "it is a template, not a place",
    "factory": "it is a placeholder for an unset zone",
}
_REFUSED_TREES = {
    "right": "its seconds count leap seconds, which PostgreSQL's do not",
    "posix": "it is a copy of the zones; omit the prefix",
}


@cache
def zone_names() -> frozenset[str]:
    """Every zone that `zone` knows."""
    listed = files(tzdata).joinpath("zones").read_text("utf-8").split()
    return frozenset(name for name in listed if name.lower() not in _REFUSED)


def tz_version() -> str:
    """The release of the tz database in use, as IANA names it: "2026a"."""
    version: str = tzdata.IANA_VERSION
    return version


def zone(name: str) -> ZoneInfo:
    """The zone with that name; the same object every time. Raises ConfigError for an unknown name, with a suggestion."""
    # Only names that are on the package's own list reach the file system.
    if not isinstance(name, str) or name not in zone_names():
        raise ConfigError(f"time zone {_shown(name)}: {_why_not(name)}")
    return _load(name)


@cache
def _load(name: str) -> ZoneInfo:
    try:
        with files(tzdata).joinpath("zoneinfo", *name.split("/")).open("rb") as data:
            return ZoneInfo.from_file(data, key=name)
    except (OSError, ValueError) as error:
        raise ConfigError(f"time zone {name!r}: the tzdata package ({tz_version()}) is damaged: {error}") from error


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 80 else f"of {len(text)} characters"


def _why_not(name: object) -> str:
    if not isinstance(name, str):
        return f'a name such as "Europe/Berlin" is needed, not {type(name).__name__}'
    if not name:
        return 'it is empty; write "UTC" if you mean UTC'
    if len(name) > MAX_NAME:
        return f"no name is longer than {MAX_NAME} characters"
    lowered = name.lower()
    if lowered in _REFUSED:
        return f"refused, because {_REFUSED[lowered]}"
    tree = lowered.split("/")[0]
    if tree in _REFUSED_TREES:
        return f"refused, because {_REFUSED_TREES[tree]}"
    if offset := _OFFSET.fullmatch(name):
        return _in_place_of_an_offset(*offset.groups())
    return f"there is no such zone in tzdata {tz_version()}{_meant(name)}"


def _in_place_of_an_offset(sign: str, hours: str) -> str:
    # The signs of Etc/GMT±n are those of POSIX: east of Greenwich is negative.
    fixed = f"Etc/GMT{'-' if sign == '+' else '+'}{hours}"
    meant = f'"{fixed}" (its sign is the other way round) or ' if fixed in zone_names() else ""
    return f'an offset is not a zone; use {meant}a city such as "Europe/Berlin"'


def _meant(name: str) -> str:
    known = sorted(zone_names())
    plain = name.strip().replace(" ", "_").lower()
    same = [each for each in known if each.lower() == plain]
    same_city = [each for each in known if each.lower().rpartition("/")[2] == plain]
    match = same or same_city
    if not match and _ABBREVIATION.fullmatch(name):  # CEST resembles EST in spelling only
        return '; abbreviations do not name a zone, because places share them; use a city such as "Europe/Berlin"'
    match = match or difflib.get_close_matches(name, known, n=1)
    return f'; did you mean "{match[0]}"?' if match else ""
