"""Reads the fields of a cron expression, and says what is wrong with them.

cronsim parses the fields, and knows the days (`L`, `LW`, `#`, and how the two day fields combine). This module
handles what cronsim wrongly accepts or misreads before it sees the text; the decision on cronsim in `docs/decisions/` has the list.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from trueup.errors import ConfigError
from trueup.options import shown

MAX_LENGTH = 1_000  # characters; every field written out as a list needs fewer

_FIELDS = {  # name: (how many values, how they are written)
    "second": (60, "0-59"),
    "minute": (60, "0-59"),
    "hour": (24, "0-23"),
    "day-of-month": (31, "1-31, L or LW"),
    "month": (12, "1-12 or JAN-DEC"),
    "day-of-week": (8, "0-7 or SUN-SAT (0 and 7 are Sunday), 5L, or FRI#1 to FRI#5"),
}
_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_DAYS = "SUN MON TUE WED THU FRI SAT"
_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
_NAMES = {name: at for at, name in enumerate(_DAYS.split())} | {name: at for at, name in enumerate(_MONTHS.split(), 1)}
_VALUE = r"(?:[0-9]{1,2}|[A-Z]{3})"
_STEPPED = re.compile(rf"(?:\*|(?P<first>{_VALUE})(?:-(?P<last>{_VALUE}))?)(?:/(?P<step>[0-9]{{1,3}}))?")
_SPECIAL = re.compile(rf"L|LW|[0-7]L|{_VALUE}#[0-9]")
_ANY_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)  # cronsim requires a start, which is never used


def clean(written: str) -> str:
    """The expression with single blanks. Raises ConfigError for a text that cannot be an expression."""
    if not isinstance(written, str):
        raise ConfigError(f'cron expression {shown(written)}: a text such as "30 2 * * *" is needed')
    if len(written) > MAX_LENGTH:
        raise ConfigError(f"a cron expression of {len(written)} characters is too long; the maximum is {MAX_LENGTH}")
    # Before anything is made upper case: there are letters outside ASCII whose upper case is a plain S or I.
    if not written.isascii() or not written.replace("\t", " ").isprintable():
        raise ConfigError(f"cron expression {written!r}: only printable ASCII characters and spaces are allowed")
    return " ".join(written.split())


def split_fields(text: str) -> dict[str, str]:
    """The text of each of the six fields, by name and in upper case. Raises ConfigError when there are more or fewer."""
    expanded = _SHORTHANDS.get(text.lower(), text)
    if expanded.startswith("@"):
        raise ConfigError(f"cron expression {text!r}: {_why_not(text.lower())}")
    parts = expanded.upper().split(" ")
    if len(parts) == 5:
        parts.insert(0, "0")
    if len(parts) != len(_FIELDS) or not text:
        count = len(text.split())
        raise ConfigError(
            f"cron expression {text!r} has {count} field{'' if count == 1 else 's'}; it takes 5 (minute hour day-of-month"
            " month day-of-week), or 6 with the second first; there is no field for the year"
        )
    return dict(zip(_FIELDS, parts, strict=True))


def _why_not(shorthand: str) -> str:
    if shorthand == "@reboot":
        return "a fleet has no single start; enqueue a job when your service starts"
    if shorthand.startswith("@every"):
        return 'that is an interval; use Every("5m")'
    return f"the shorthands are {', '.join(_SHORTHANDS)}"


def parse_fields(text: str, fields: dict[str, str]) -> CronSim:
    """The fields as cronsim reads them. Raises ConfigError that names the field and the invalid term."""
    terms = [(name, term) for name, field in fields.items() for term in field.split(",")]
    for name, term in terms:
        if fault := _misshapen(name, term):
            raise _refusal(text, fields, name, term, fault)
    try:
        return CronSim(" ".join(map(_settled, fields.values())), _ANY_MOMENT)
    except CronSimError:
        # Its message does not name the term, so each term is tried alone.
        for name, term in terms:
            if not _readable(name, term):
                raise _refusal(text, fields, name, term, _unreadable(name, term)) from None
        raise never_comes(text, fields) from None


def _misshapen(name: str, term: str) -> str | None:
    """What is wrong with a term that cronsim might still accept, or None."""
    stepped = _STEPPED.fullmatch(term)
    if not stepped:
        return None if _SPECIAL.fullmatch(term) else _unreadable(name, term)
    size, _ = _FIELDS[name]
    if stepped["step"] and not 1 <= int(stepped["step"]) <= size:
        # cronsim reads "*/90" in the minutes as once an hour, which is surely not meant.
        return f"has a step of {int(stepped['step'])}; it takes 1 to {size}"
    return None


def _unreadable(name: str, term: str) -> str:
    stepped = _STEPPED.fullmatch(term)
    if stepped and stepped["last"] and _readable(name, stepped["first"]) and _readable(name, stepped["last"]):
        return "runs backwards" + ("; at the end of a range Sunday is 7" if name == "day-of-week" else "")
    _, allowed = _FIELDS[name]
    return f"is not valid; it takes {allowed}, * for all, ranges (1-5), lists (1,3) and steps (*/2)"


def _readable(name: str, term: str) -> bool:
    try:
        CronSim(" ".join(term if field == name else "*" for field in _FIELDS), _ANY_MOMENT)
    except CronSimError:
        return False
    return True


def _settled(field: str) -> str:
    """The field in a form that cronsim reads correctly."""
    # It looks for a star at the beginning only, so "5,*" would not be taken for a wildcard, although "*,5" is.
    terms = sorted(field.split(","), key=lambda term: not term.startswith("*"))
    return ",".join(map(_settled_term, terms))


def _settled_term(term: str) -> str:
    # It takes a range of one value with a step ("5-5/10") for one that is open at its end ("5/10").
    stepped = _STEPPED.fullmatch(term)
    one_value = stepped and stepped["last"] and _value(stepped["first"]) == _value(stepped["last"])
    return stepped["first"] if stepped and one_value else term


def _value(written: str) -> int | str:
    return int(written) if written.isdigit() else _NAMES.get(written, written)


def _refusal(text: str, fields: dict[str, str], name: str, term: str, fault: str) -> ConfigError:
    where = f"{name} {fields[name]!r}" + ("" if term == fields[name] else f": {term!r}")
    return ConfigError(f"cron expression {text!r}: {where} {fault}")


def never_comes(text: str, fields: dict[str, str]) -> ConfigError:
    days = ", ".join(f"{name} {fields[name]!r}" for name in ("day-of-month", "month", "day-of-week"))
    return ConfigError(f"cron expression {text!r} never comes: no day has {days}")
