"""Times and durations in a short form that people read at a glance."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def span(seconds: float) -> str:
    """The two largest units: "3d4h", "2h5m", "45s"; below ten seconds one decimal, "3.2s"."""
    if not isfinite(seconds):  # from "infinity" in a table
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f}s"
    rest = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append((count, unit))
    return "".join(f"{count}{unit}" for count, unit in parts[:2] if count)


def since(moment: datetime, now: datetime | None = None) -> float:
    """Seconds from then to now; negative when it is still to come. By this machine's clock, for people only."""
    return ((now or datetime.now(UTC)) - moment).total_seconds()


def ago(moment: datetime, now: datetime | None = None) -> str:
    """ "3m20s ago", or "in 3m20s"."""
    seconds = since(moment, now)
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def written(moment: datetime) -> str:
    """The moment itself, in UTC to the millisecond, with how long ago it was."""
    return f"{moment.astimezone(UTC).isoformat(sep=' ', timespec='milliseconds')[:-6]}Z  ({ago(moment)})"


def to_second(moment: datetime) -> str:
    """The moment itself, in UTC to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
