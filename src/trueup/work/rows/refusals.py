"""How often a refusal is believed that asks for a repetition, and what else a row's outcome can fail with."""

from __future__ import annotations

# Times that a row alone may be told to repeat its statement (a deadlock, a serialisation failure); then a trigger of its table raises it.
MAX_REPEATS = 3


class NotEvaluated(Exception):
    """PostgreSQL cannot evaluate `where=` for the row, or cannot read it."""


class OutcomeUndone(Exception):
    """A trigger of the table kept the row as it was."""


class OutcomeContested(Exception):
    """The row was changed by another transaction while its handler ran, and still matches this reconciler."""


class RowBusy(Exception):
    """Another transaction has had the row locked for too long, so its outcome could not be written."""
