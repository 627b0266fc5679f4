"""Fits jobs to the encoding of a caller's connection, which may lack their characters or have others in their places.

trueup's own connections use UTF-8. A caller's connection may have another encoding by its role or its settings. Arguments and metadata
are JSON, for which ASCII suffices. A key is sent unchanged or refused: Shift JIS has a yen sign where the server reads a backslash, so
the encoding must give back the same text.
"""

from __future__ import annotations

import json
import re
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg._encodings import pg2pyenc

from trueup.errors import InvalidArguments
from trueup.jobs.job import Draft
from trueup.store.db.asyncpg import AsyncpgConnection

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_KEYS = {"unique_key": "unique=", "key": "the value of fair_by="}  # names of kinds and queues are ASCII


def encoding_of(connection: AsyncConnection[Any] | Connection[Any] | AsyncpgConnection) -> str | None:
    """The encoding's name in Python; None when it has every character."""
    if isinstance(connection, AsyncpgConnection):
        encoding = pg2pyenc(connection.encoding.encode())
    else:
        encoding = connection.info.encoding
        if encoding == "ascii":  # SQL_ASCII: psycopg writes UTF-8, and the server does not look at it
            return None
    return None if encoding == "utf-8" else encoding


def fitted(draft: Draft, encoding: str | None) -> Draft:
    """The job in a form that this encoding can carry. Raises InvalidArguments that names the text which it cannot."""
    if encoding is None:
        return draft
    for name, called in _KEYS.items():
        text = getattr(draft, name)
        if text and not text.isascii():
            _check(draft.kind, called, text, encoding)
    meta = None if draft.meta is None else _in_ascii(draft.meta)
    return draft._replace(args=_in_ascii(draft.args), meta=meta)


def _check(kind: str, called: str, text: str, encoding: str) -> None:
    for character in text:
        try:
            arrives = character.encode(encoding).decode(encoding) == character
        except UnicodeError:
            arrives = False
        if not arrives:
            raise InvalidArguments(
                f"{kind}: {called} has {character!r}, which does not exist in {encoding}, the encoding of the caller's connection; "
                "connect with client_encoding=UTF8"
            )


def _in_ascii(written: str) -> str:
    """JSON has other characters inside its texts only, where each can be escaped."""
    return written if written.isascii() else _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], written)
