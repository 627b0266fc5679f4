"""The world outside, which takes part in no transaction of ours: a mail provider, and a board where runs are noted.

Its books are kept in the same database, so that the proof can read them, but written on connections of their own: what
was delivered stays delivered, whatever becomes of the job.
"""

from __future__ import annotations

import os
from functools import cache
from threading import Lock
from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool

CONNECTIONS = 4

_opening = Lock()


def deliver_mail(key: str, order_id: int) -> None:
    """Deliver a mail under this idempotency key, or once more if it has been before."""
    with _pool().connection() as books:
        books.execute(
            "insert into shop.mails (key, order_id) values (%s, %s)"
            " on conflict (key) do update set deliveries = shop.mails.deliveries + 1",
            [key, order_id],
        )


def note_report(job_id: int, attempt: int) -> None:
    """Note that a report has begun."""
    with _pool().connection() as books:
        books.execute("insert into shop.reports (job_id, attempt) values (%s, %s)", [job_id, attempt])


def close() -> None:
    _pool().close()


def _pool() -> ConnectionPool[Connection[Any]]:
    with _opening:  # handlers arrive in several threads at once
        return _open()


@cache
def _open() -> ConnectionPool[Connection[Any]]:
    return ConnectionPool(os.environ["TRUEUP_DATABASE_URL"], min_size=0, max_size=CONNECTIONS, open=True)
