"""What a reconciler's handler knows about its run. Injected where a parameter is annotated `Context`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trueup.jobs.context import Context, JobTransaction
from trueup.leases.lost import LostSignal
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.outcome import NOTHING, Delete, Outcome, Stay, To


class RowAccess(Protocol):
    """What the Context of a row's handler calls: the worker's access to the claimed row."""

    def transaction(self, context: RowContext, outcome: Outcome) -> JobTransaction: ...
    async def checkpoint(self, context: RowContext, columns: dict[str, Any]) -> None: ...


class RowContext(Context):
    """One run for one row. `term`, `attempt`, `now`, `idempotency_key` and `lost` mean what they mean for a job."""

    __slots__ = ("_rows", "row")

    def __init__(self, row: ClaimedRow, lost: LostSignal, access: RowAccess) -> None:
        super().__init__(row, lost, access)  # type: ignore[arg-type]  # it has what Context asks of a job
        self.row = row
        self._rows = access

    def __repr__(self) -> str:
        return f"<Context {self.row.reconciler} key={self.row.key} attempt={self.row.attempt} term={self.row.term}>"

    @property
    def key(self) -> str:
        """The row's key as text."""
        return self.row.key

    @property
    def meta(self) -> Mapping[str, Any]:
        """Empty: only jobs have metadata."""
        return NOTHING

    async def progress(self, percent: float, note: str | None = None) -> None:
        """Rows have no progress of their own."""

    def progress_sync(self, percent: float, note: str | None = None) -> None:
        """Rows have no progress of their own."""

    def transaction(self, result: Any = None) -> JobTransaction:
        """A transaction that commits your writes and this outcome together, or neither: `ctx.transaction(To("sent"))`.

        Raises LostClaim on leaving it when the lease has passed, or another transaction has changed the row; your writes are then
        rolled back. What the handler returns afterwards is ignored.
        """
        if not isinstance(result, To | Stay | Delete):
            raise TypeError(f"ctx.transaction() of a reconciler takes To, Stay or Delete, not {result!r:.60}")
        return self._rows.transaction(self, result)

    async def checkpoint(self, more: Mapping[str, Any] = NOTHING, /, **columns: Any) -> None:
        """Write these columns to the row now and keep its claim, so that they are stored even if this run ends early.

        Fenced like an outcome. Raises LostClaim when the lease has passed, or another transaction has changed the row; nothing is
        written then. The row keeps its state and the time of its last change.
        """
        await self._rows.checkpoint(self, {**more, **columns})
