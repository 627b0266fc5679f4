"""How values are written on pages. Everything is escaped by the templates; what is Markup here has escaped its parts itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from markupsafe import Markup, escape
from pydantic_core import to_json

from trueup.durations import format_duration
from trueup.errors import ConfigError
from trueup.jobs.records import JobError
from trueup.masking import mask_value
from trueup.schedules import spec as specs

Redact = Callable[[str, Any], Any]
"""`redact(kind, arguments)` returns what may be shown of a job's arguments, its result or {"note": …} of its progress."""

MAX_JSON = 20_000  # characters of a payload on a page
MAX_BRIEF = 160  # of one in a list


def length(seconds: float | None) -> str:
    """One unit, or two near its border: "0.4s", "12s", "4m", "3h", "2d"."""
    if seconds is None or not isfinite(seconds):
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{round(seconds * 1000)}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    for size, unit in ((60, "s"), (3600, "m"), (172_800, "h")):
        if seconds < size:
            return f"{int(seconds / {'s': 1, 'm': 60, 'h': 3600}[unit])}{unit}"
    return f"{int(seconds / 86_400)}d"


def relative(moment: datetime, now: datetime) -> str:
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{_whole(seconds)} ago" if seconds > 0 else f"in {_whole(-seconds)}"


def _whole(seconds: float) -> str:
    return f"{int(seconds)}s" if seconds < 60 else length(seconds)


def when(moment: datetime | None, now: datetime) -> Markup:
    """A <time> with the relative time as its text and the whole moment in its title."""
    if moment is None:
        return Markup('<span class="none">–</span>')
    at = moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}" data-relative>{}</time>').format(
        at.isoformat(timespec="milliseconds"), f"{at:%Y-%m-%d %H:%M:%S} UTC", relative(moment, now)
    )


def clock(moment: datetime | None) -> Markup:
    """The moment itself."""
    if moment is None:
        return Markup('<span class="none">–</span>')
    at = moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"), f"{at:%Y-%m-%d %H:%M:%S.%f} UTC", f"{at:%b %d %H:%M:%S}"
    )


def count(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}"


def short(number: float | None) -> str:
    """For charts and badges: "940", "12.4k", "3.1M"."""
    if number is None:
        return "–"
    for size, unit in ((1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1_000 if unit == 'k' else size):.1f}{unit}"
    return f"{number:,.0f}"


def rate(per_second: float) -> str:
    if per_second <= 0:
        return "0/min"
    return f"{per_second:,.1f}/s" if per_second >= 1 else f"{per_second * 60:,.1f}/min"


def brief(arguments: Any) -> str:
    """Arguments in a line of a list: `to="ann@example.org", order=7`."""
    if not isinstance(arguments, Mapping):
        return str(arguments or "")[:MAX_BRIEF]
    told = (f"{name}={to_json(value, serialize_unknown=True).decode()}" for name, value in arguments.items())
    line = ", ".join(told)
    return line if len(line) <= MAX_BRIEF else line[:MAX_BRIEF] + "…"


def pretty(value: Any) -> str:
    text = to_json(value, indent=2, serialize_unknown=True).decode()  # not orjson: integers may be longer than 64 bits
    return text if len(text) <= MAX_JSON else f"{text[:MAX_JSON]}\n… {len(text) - MAX_JSON:,} more characters"


def shown(redact: Redact | None, kind: str, value: Any) -> Any:
    """A payload for display: `redact` is applied first, then everything that looks like a secret is hidden. If `redact` raises,
    the whole payload is hidden.
    """
    if redact is not None and value is not None:
        try:
            value = redact(kind, value)
        except Exception as error:
            return f"hidden: redact raised {type(error).__name__}"
    return mask_value(value)


def rule(spec: Any) -> str:
    """A schedule's rule in one line."""
    try:
        read = specs.from_json(spec)
    except ConfigError:
        return "not readable by this release"
    written = specs.to_json(read)
    match written["kind"]:
        case "cron":
            zone = "" if written["tz"] == "UTC" else f" {written['tz']}"
            return f"{written['expr']}{zone}"
        case "every":
            return f"every {written['interval']}"
    return f"once, {written['at'][:16].replace('T', ' ')}"


def duration(value: timedelta | None) -> str:
    return "–" if value is None else format_duration(value)


def error_line(error: Any) -> Markup:
    """The type and first line of an error as it is stored with a job or a row."""
    if not error:
        return Markup("")
    read = JobError.of(error)
    message = read.message.split("\n", 1)[0]
    return Markup("<b>{}</b> {}").format(read.type, message) if message else escape(read.type)
