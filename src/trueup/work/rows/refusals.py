"""What the database refuses: whether it is away, asks for a statement to be repeated, or does not want this row.

A statement over many rows that is refused is sent again in halves, until the row that it is about stands alone. An error after
which the database asks for a repetition (a deadlock, a serialisation failure) is believed twice; a row that still gets it when it
is alone has a trigger that raises it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from psycopg import errors

from trueup.store.db.connect import is_away
from trueup.store.db.connect import unanswered as unanswered

SLOW = 1.0  # seconds; a trigger may raise the error of a timeout at once, and then halves are quicker
MAX_REPEATS = 3  # times that a row alone may be told to repeat its statement

T = TypeVar("T")


def to_repeat(error: BaseException) -> bool:
    """Whether the server has refused the statement, and says that it might not refuse it the next time."""
    return is_away(error) and not unanswered(error)


def parts(group: Sequence[T], error: BaseException, took: float = SLOW) -> list[list[T]]:
    """How to send a refused group again: in halves, or one by one where each refusal takes long. `took`: seconds, if they are known."""
    if isinstance(error, errors.QueryCanceled | errors.LockNotAvailable) and took >= SLOW:
        return [[each] for each in group]
    middle = len(group) // 2
    return [list(group[:middle]), list(group[middle:])]


class OutcomeUndone(Exception):
    """A trigger of the table kept the row as it was."""


class OutcomeContested(Exception):
    """The row was changed by somebody else while its handler ran, and is still one for this reconciler."""


class RowBusy(Exception):
    """Somebody has had the row locked for too long, so its outcome could not be written."""
