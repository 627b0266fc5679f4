"""The error of a statement whose write a trigger of the user's table has undone, by putting the state back that the row had.

PostgreSQL takes the row for written. So where a table has triggers, statements that write a state look at what they have written, and
fail: nothing of the row is written then, and the row is found like one that PostgreSQL refuses.
"""

from __future__ import annotations

from psycopg import errors

# The text of an error that a cast raises; no trigger raises the same one by chance, and no language translates it.
KEPT = "trueup: a trigger keeps the row in its state"


def keeps_state(error: BaseException | None) -> bool:
    return isinstance(error, errors.InvalidTextRepresentation) and KEPT in str(error)
