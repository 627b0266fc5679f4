"""All statements over a user's table, composed for the table as it was inspected; `OnTable` composes them again when it has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from typing import Any, get_args

from psycopg import errors

from trueup.errors import ConfigError
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.store.db.load import Statements
from trueup.store.rows.compose import Choice, Composer, Purging
from trueup.store.rows.tables import Found

CHOICES: tuple[Choice, ...] = get_args(Choice)
OF_TABLES = errors.ObjectNotInPrerequisiteState  # it is published without a replica identity, say
Look = Callable[[], Awaitable[Found]]  # raises ConfigError when the table cannot be worked on


class RowStatements:
    """The statements of one reconciler."""

    def __init__(self, statements: Statements, reconciler: Reconciler, found: Found) -> None:
        self.found = found
        self._reconciler = reconciler
        wanted = reconciler.handler.shape.columns
        columns = tuple(found.columns) if wanted is None else tuple(name for name in found.columns if name in wanted)
        self.columns = columns or found.spec.key
        selection, live = reconciler.selection, reconciler.mode == "live"
        if not live:  # it writes to no user's row, so no row is left in a working state
            selection = replace(selection, claimed_as=None)
        by = reconciler.pause_by if isinstance(reconciler.pause_by, str) else None
        self.composer = Composer(statements, found, selection, self.columns, marks=live, pause_by=by)
        unmarked = replace(self.composer, marks=False)
        # By whether a claim marks rows, and whether it is guarded against rows for which `where=` raises.
        self._composers = {
            (True, False): self.composer,
            (False, False): unmarked,
            (True, True): replace(self.composer, guarded=True),
            (False, True): replace(unmarked, guarded=True),
        }
        if by is not None and by not in found.columns:
            raise ConfigError(f"reconciler {reconciler.name!r}: pause_by={by!r}: {found.spec} has no such column")
        self.change = cache(self.composer.change)
        self.change_locked = cache(self.composer.change_locked)
        self.change_alone = cache(self.composer.change_alone)
        self.checkpoint = cache(self.composer.checkpoint)
        self._composed: dict[tuple[Any, ...], bytes] = {}

    def every(self) -> dict[str, bytes]:
        """All statements over the user's table that this reconciler may ever send, by what they do."""
        made = {
            "claim rows": self.once("claim_fresh", "start"),
            "claim further rows": self.once("claim_fresh", "with"),
            "claim rows again": self.once("claim_again"),
            "look for rows": self.once("probe", "start"),
            "forget rows": self.once("forget"),
            "claim rows, past those for which where= raises": self.once("claim_fresh", "start", guarded=True),
            "list rows without where=": self.once("candidates", "start", guarded=True),
            "evaluate rows": self.once("evaluate"),
            "read keys": self.once("readable"),
        }
        if self._reconciler.mode != "live":
            return made
        spec = self.found.spec
        plain = [name for name, column in self.found.columns.items() if column.writable and not column.generated]
        ours = (*spec.key, spec.state, *(spec.lease_columns or ()))
        sets = [(), *((name,) for name in plain if name not in ours)][:2]
        if self._reconciler.claim == "row_lock":
            made |= {"lock a row": self.once("lock"), "see why a row is locked": self.once("locked_out")}
            made |= {f"write {columns or 'an outcome'}": self.change_locked(columns) for columns in sets}
            return made | ({"delete a row": self.once("remove_locked")} if self.found.deletable else {})
        made |= {f"write {columns or 'an outcome'}": self.change(columns) for columns in sets}
        made |= {f"write {columns}, and go on": self.checkpoint(columns) for columns in sets if columns}
        if self.found.deletable:
            made["delete rows"] = self.once("remove")
        if self.composer.marks_rows:
            made |= {"mark rows": self.once("mark"), "put rows back": self.once("put_back")}
            if spec.lease_columns is not None:
                made["renew leases"] = self.once("renew_both")
        return made

    def once(self, name: str, *args: Any, mark: bool = True, guarded: bool = False) -> bytes:
        wanted = (name, args, mark, guarded)
        composed = self._composed.get(wanted)
        if composed is None:
            composed = self._composed[wanted] = getattr(self._composers[mark, guarded], name)(*args)
        return composed


class PurgeStatements:
    """The statements of one move or deletion."""

    def __init__(self, statements: Statements, purge: Purge, found: Found) -> None:
        self.found = found
        self._purge = purge
        self._columns = tuple(sorted(purge.columns))
        # A row of unknown age is not stale: no handler checks these rows before they are deleted.
        self.composer = Purging(statements, found, purge.selection, found.spec.key, nulls_are_stale=False)
        self.guarded = replace(self.composer, guarded=True)
        self.forgetting = Composer(statements, found, purge.selection, found.spec.key, nulls_are_stale=False)
        self.take = cache(self._take)
        self.pick = cache(self.composer.picked)
        self.evaluate = cache(self.composer.evaluate)

    def _take(self, state: str | None, choice: Choice = "all") -> bytes:
        to, composer = self._purge.to, self.composer
        return composer.delete(state, choice) if to is None else composer.move(state, to, self._columns, choice)

    def every(self) -> dict[str, bytes]:
        """All statements over the user's table that this one may ever send, by what they do."""
        what = "delete" if self._purge.to is None else "move"
        made = {"forget rows": self.forgetting.forget(), "count rows": self.composer.share()}
        for state in self._purge.selection.states or (None,):
            made[f"pick rows {state or ''}"] = self.pick(state, after=False)
            made[f"pick further rows {state or ''}"] = self.pick(state, after=True)
            for choice in CHOICES:
                made[f"{what} rows {state or ''} ({choice})"] = self.take(state, choice)
        return made
