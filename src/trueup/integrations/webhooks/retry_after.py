"""Retry-After, as seconds or as a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx

MIN_POSTPONEMENT = timedelta(seconds=1)  # "0" would make us call without a pause, and no attempt is spent on it
MAX_POSTPONEMENT = timedelta(hours=1)

_SECONDS = re.compile("[0-9]+")
_MAX_DIGITS = 9


def retry_after(headers: httpx.Headers) -> timedelta | None:
    """How long the receiver asks us to wait, from a second to an hour. None if it does not say, or not sensibly.

    A date is compared with the receiver's own `Date`, so that neither its clock nor ours needs to be right.
    """
    value = _first(headers, "retry-after")
    if _SECONDS.fullmatch(value):
        return _bounded(MAX_POSTPONEMENT if len(value) > _MAX_DIGITS else timedelta(seconds=int(value)))
    then, now = _moment(value), _moment(_first(headers, "date"))
    if then is None or now is None or then < now:
        return None
    return _bounded(then - now)


def _first(headers: httpx.Headers, name: str) -> str:
    return next(iter(headers.get_list(name)), "").strip()


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _bounded(after: timedelta) -> timedelta:
    return min(max(after, MIN_POSTPONEMENT), MAX_POSTPONEMENT)
