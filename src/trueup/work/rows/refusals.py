"""The errors of rows whose outcomes could not be written, and how often a statement about one row is repeated."""

from __future__ import annotations

# Times that the server may ask to repeat a statement about one row (deadlock, serialization failure). After that, a trigger is the reason.
MAX_REPEATS = 3


class NotEvaluated(Exception):
    """PostgreSQL cannot evaluate `where=` for the row, or cannot read it."""


class NotEvaluatedInTime(NotEvaluated):
    """The same, because it takes too long."""


class OutcomeUndone(Exception):
    """A trigger of the table kept the row as it was."""


class OutcomeContested(Exception):
    """The row was changed by another transaction while its handler ran, and still matches this reconciler."""


class RowBusy(Exception):
    """Another transaction has had the row locked for too long, so its outcome could not be written."""
