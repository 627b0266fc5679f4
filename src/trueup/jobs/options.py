"""The options of one enqueue, and their checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from trueup.backoff import Retry
from trueup.errors import ConfigError
from trueup.jobs.job import OnConflict
from trueup.jobs.names import checked_name
from trueup.options import wrong

if TYPE_CHECKING:
    from trueup.jobs.definition import Job

MAX_PRIORITY = 1_000  # a head start of 1,000 x aging; more would let a delayed job clog the front of its lane

# What every client can read in every time zone; the table refuses anything else.
MIN_RUN_AT = datetime(1970, 1, 1, tzinfo=UTC)
MAX_RUN_AT = datetime(8999, 12, 31, tzinfo=UTC)

UniqueKey = str | Callable[..., str]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one enqueue; `job.using(…)` makes them."""

    delay: timedelta = timedelta()
    run_at: datetime | None = None
    priority: int = 0
    queue: str | None = None
    unique: UniqueKey | None = None
    unique_for: timedelta | None = None
    on_conflict: OnConflict = "keep"
    max_attempts: int | None = None
    meta: str | None = None
    tx: Any = None


def checked(job: Job[Any, Any], options: Options, *, declared: bool = False) -> Options:
    who = f"job {job.kind!r}"
    if options.queue is not None:
        checked_name("queue", options.queue)
        if job.controls.any and options.queue != job.queue:
            raise ConfigError(
                f"{who}: a job with limit=, rate= or fair_by= has its own lane, so its queue cannot be chosen per call"
            )
    if (
        isinstance(options.priority, bool)
        or not isinstance(options.priority, int)
        or abs(options.priority) > MAX_PRIORITY
    ):
        raise ConfigError(
            f"{who}: priority={options.priority!r}: a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY} is needed"
        )
    if options.unique is not None and not (
        callable(options.unique) or (isinstance(options.unique, str) and options.unique)
    ):
        raise wrong(f"{who}: unique", options.unique, "a text, or a function of the arguments that returns one,")
    _check_not_a_template(who, options.unique, job.arguments.names, declared=declared)
    if options.run_at is not None:
        if not isinstance(options.run_at, datetime):
            raise wrong(f"{who}: run_at", options.run_at, "an aware datetime")
        if options.run_at.tzinfo is None:
            raise ConfigError(f"{who}: run_at={options.run_at.isoformat()} has no time zone; give an aware datetime")
        if not MIN_RUN_AT <= options.run_at <= MAX_RUN_AT:
            raise ConfigError(
                f"{who}: run_at={options.run_at.isoformat()}: a time from 1970 to 8999 is needed; omit it to run immediately"
            )
        if options.delay:
            raise ConfigError(f"{who}: give delay= or run_at=, not both")
    if options.on_conflict not in ("keep", "replace", "raise"):
        raise ConfigError(f"{who}: on_conflict={options.on_conflict!r}: 'keep', 'replace' or 'raise'")
    if options.unique_for is not None and options.unique is None:
        raise ConfigError(f"{who}: unique_for= needs unique=")
    if options.max_attempts is not None:
        Retry(max_attempts=options.max_attempts)
    return options


# What templates are written as: {name}, {name!r:>9}, {0}, {{ name }}, %(name)s, $name and ${name}. JSON has a quote after its brace.
_PLACEHOLDER = re.compile(
    r"\{{1,2}\s*(?P<braced>\w*)\s*(?P<rest>[.\[!:=][^{}]*)?\}{1,2}|%\((?P<percent>\w+)\)[a-z]|\$\{?(?P<dollar>[^\W\d]\w*)\}?"
)


def _check_not_a_template(who: str, unique: UniqueKey | None, names: Sequence[str], *, declared: bool) -> None:
    """Text is the key itself, and nothing in it is filled in. Text that names an argument was meant as a key per argument.

    A declaration has no use for braces at all. The key of one call may have some that come from its data.
    """
    if not isinstance(unique, str):
        return
    bare = unique.strip()
    found = [
        next(filter(None, each.group("braced", "percent", "dollar")), "") for each in _PLACEHOLDER.finditer(unique)
    ]
    if bare in names:
        meant = f"str({bare})"
    elif any(name in names for name in found) or (declared and found):
        meant = f"f{_PLACEHOLDER.sub(lambda each: _filled(each, names), unique)!r}"
    else:
        return
    unknown = [name for name in found if name and name not in names and not name.isdigit()]
    which = f" ({', '.join(map(repr, unknown))}: no such argument)" if unknown else ""
    raise ConfigError(
        f"{who}: unique={unique!r} is one key for every call{which}; for a key made from the arguments give a function:"
        f" unique=lambda {', '.join(names)}: {meant}"
    )


def _filled(placeholder: re.Match[str], names: Sequence[str]) -> str:
    """The template as an f-string. A field that names no argument becomes the first one, for the user to change."""
    name = next(filter(None, placeholder.group("braced", "percent", "dollar")), "0")
    if name.isdigit():
        name = names[int(name)] if int(name) < len(names) else ""
    known = name if name in names else next(iter(names), "…")
    return f"{{{known}{placeholder['rest'] or ''}}}"
