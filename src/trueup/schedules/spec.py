"""A schedule's rule as a value that is stored in a row and read back.

Planners follow the row, not their own code, so two releases of a service agree on what is due. A release does not guess: it
refuses anything unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeAlias

from trueup.durations import format_duration
from trueup.errors import ConfigError
from trueup.schedules.cron import Cron
from trueup.schedules.when import Every, Once

Spec: TypeAlias = Cron | Every | Once

_SPECS_KEPT = 16_384  # so that a planner with 10,000 schedules reads each cron expression once


def to_json(spec: Spec) -> dict[str, str]:
    """A JSON object of texts that `from_json` reads back as an equal value. Equal values give equal objects."""
    match spec:
        case Cron(expr=expr, tz=tz, dst=dst):
            return {"kind": "cron", "expr": expr, "tz": tz, "dst": dst}
        case Every(interval=interval, anchor=anchor):
            return {"kind": "every", "interval": format_duration(interval), "anchor": anchor.isoformat()}
        case Once(at=at):
            return {"kind": "once", "at": at.isoformat()}


def from_json(value: object) -> Spec:
    """The value that `to_json` wrote. Raises ConfigError for anything that this release cannot read completely."""
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise ConfigError("a schedule's spec is a JSON object of texts")
    return _read(tuple(sorted(value.items())))


@lru_cache(maxsize=_SPECS_KEPT)
def _read(items: tuple[tuple[str, str], ...]) -> Spec:
    fields = dict(items)
    kind = fields.pop("kind", "")
    if kind not in _READERS:
        raise ConfigError(f"a schedule of kind {kind!r} is not known to this release ({', '.join(_READERS)} are)")
    names, read = _READERS[kind]
    if fields.keys() != names:
        raise ConfigError(f"a schedule of kind {kind!r} has {', '.join(sorted(names))}; stored are {', '.join(fields)}")
    return read(fields)


def _moment(name: str, written: str) -> datetime:
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        raise ConfigError(f"a schedule's {name} {written!r} is not a moment") from None


_READERS: dict[str, tuple[frozenset[str], Callable[[Mapping[str, Any]], Spec]]] = {
    "cron": (frozenset({"expr", "tz", "dst"}), lambda fields: Cron(**fields)),
    "every": (
        frozenset({"interval", "anchor"}),
        lambda fields: Every(fields["interval"], _moment("anchor", fields["anchor"])),
    ),
    "once": (frozenset({"at"}), lambda fields: Once(_moment("at", fields["at"]))),
}
