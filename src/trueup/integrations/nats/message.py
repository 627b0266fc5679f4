"""A message: its id, its headers and its body, checked before they are stored and the same at every attempt. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from trueup.jobs.job import ClaimedJob

ID_HEADER = "Nats-Msg-Id"
STREAM_HEADER = "Nats-Expected-Stream"
MAX_ID = 500  # characters; the server keeps every id in memory for as long as the duplicate window

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")


def fault_in_id(message_id: str) -> str | None:
    if not 1 <= len(message_id) <= MAX_ID:
        return f"1 to {MAX_ID} characters are needed"
    return _fault_in_value(message_id)


def fault_in_headers(headers: Mapping[str, str]) -> str | None:
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            return f"{name!r:.80} is not the name of a header"
        if name.lower().startswith("nats-"):
            return f"{name}: headers that begin with Nats- control the server, and only trueup sets them"
        fault = _fault_in_value(value)
        if fault is not None:
            return f"{name}: {fault}"
    return None


def _fault_in_value(value: str) -> str | None:
    """nats-py would replace line breaks by blanks and strip values; a value is sent unchanged or refused."""
    if not value.isprintable():
        return "a line break or another control character cannot be sent"
    if value != value.strip():
        return "leading and trailing spaces cannot be sent"
    return None


def fault_in_data(data: Any) -> str | None:
    """Other values that JSON cannot hold are found when the job's arguments are stored."""
    if isinstance(data, bytes | bytearray | memoryview):
        return "JSON cannot hold bytes; pass text or the decoded value"
    return None


def body_of(data: Any) -> bytes:
    """Compact JSON in UTF-8. Keys are sorted: the database, or a later release, may return them in another order."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def id_of(job: ClaimedJob) -> str:
    """The default id of a message: the same at every attempt, and different in every other database."""
    return job.idempotency_key


def size_of(headers: Mapping[str, str], body: bytes) -> int:
    """The size that counts against the server's limit. nats-py checks the body alone, and the server closes the connection for
    the rest."""
    lines = sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
    return len("NATS/1.0\r\n\r\n") + lines + len(body)
