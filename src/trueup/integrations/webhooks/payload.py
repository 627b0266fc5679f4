"""The body of a delivery: the same bytes for the same payload, in every process and at every attempt.

Keys are sorted, because a later release, or the database, may return them in another order; moments are written in UTC, because
each session has a time zone of its own. Sets are refused: their order differs from process to process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from trueup.errors import InvalidArguments


def encode(payload: Mapping[str, Any]) -> bytes:
    """Compact JSON in UTF-8. Raises InvalidArguments when the payload cannot be written as JSON."""
    if not isinstance(payload, Mapping):
        raise InvalidArguments(f"payload: a mapping is needed, not {type(payload).__name__}")
    try:
        return json.dumps(
            dict(payload), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(f"payload: it cannot be written as JSON: {error}") from None


def _plain(value: Any) -> Any:
    match value:
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case date() | time():
            return value.isoformat()
        case UUID() | Decimal():
            return str(value)
        case Enum():
            return value.value
        case Mapping():
            return dict(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")
