"""Claims rows of a reconciler: rows without a record by walking the user's table, and rows that are due again by their records.

A claim re-checks state and staleness in the claiming statement, skips what another session has locked, and mints the term. With a rate,
the fleet's lane is locked around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from trueup.jobs.limits import grant
from trueup.leases.trust import Trust
from trueup.reconcile.claimed import ClaimedRow
from trueup.store.db import message
from trueup.store.db.message import Fetched, Query
from trueup.store.db.own_connection import fetch
from trueup.store.fitted import RowStatements
from trueup.store.rows.asks import Done, keyed
from trueup.store.rows.batch import MIN_WINDOW, Batch, DuePosition, Position
from trueup.store.rows.compose import Place

if TYPE_CHECKING:
    from trueup.store.rows.rows import Rows

PROBE_WINDOW = 100  # the same for a probe that looks at the first rows and behind the last one


class RowClaims:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def fresh(
        self, holder: UUID, most: int, after: Position | None, cut_off: datetime | None = None, *, mark: bool = True
    ) -> Batch:
        """Rows without a record -> held; with `cut_off` only rows that were due by then.

        A row that the database refuses to mark makes the whole claim fail. Then claim with `mark=False`, and `mark` the rows.
        """
        made = self._rows.made
        place: Place = "start" if after is None else after.place
        params = {
            **self._about_claim(holder),
            "cut_off": cut_off,
            **self._rows.behind(after),
        }
        query = made.once("claim_fresh", place, mark=mark, guarded=self._rows.guarded)
        return await self._claim(query, params, most, partial(self._read_fresh, made))

    async def again(
        self,
        holder: UUID,
        most: int,
        cut_off: datetime | None,
        after: DuePosition | None = None,
        *,
        suspects: bool = False,
        mark: bool = True,
    ) -> Batch:
        """Rows that are due again -> held; with `suspects` only rows that may have crashed their process. `mark` as for `fresh`."""
        after = after or DuePosition()
        params = {
            **self._about_claim(holder),
            "cut_off": cut_off,
            "suspects": suspects,
            "after_due": after.due_at or "-infinity",
            "after_key": after.key,
            "place": str(self._rows.reconciler.selection.table),
        }
        made = self._rows.made
        query = made.once("claim_again", mark=mark)
        return await self._claim(query, params, most, partial(self._read_again, made, alone=suspects))

    async def probe(self, cut_off: datetime, behind: Position | None = None) -> tuple[bool, int | None]:
        """Whether one of the first rows has no record; and how many rows there are, None when there are too many to count.

        With a position, it looks at a few of the first rows and a few behind the position.
        """
        window = MIN_WINDOW if behind is None else PROBE_WINDOW
        params = {
            **self._rows.about_window(window),
            "cut_off": cut_off,
            **self._rows.behind(behind),
        }
        query = self._rows.made.once("probe", "start" if behind is None else behind.place, guarded=self._rows.guarded)
        ((fresh, count),) = await self._rows.claiming.fetch_steered(self._rows.steer, query, params)
        return fresh, None if count >= window else count

    async def mark(self, holder: UUID, rows: Sequence[ClaimedRow], *, briefly: bool = False) -> dict[str, Done]:
        """Write the marks of a claim to rows that are claimed already. A key that does not come back was lost.

        If the database refuses one row, or takes long for it, the statement fails for all of them.
        """
        params = {
            **self._rows.about(holder),
            **keyed(rows),
            "lease_for": self._rows.reconciler.lease_for.total_seconds(),
        }
        made = self._rows.made
        steer = self._rows.steer_briefly if briefly else self._rows.steer_together
        answers = await self._rows.claiming.fetch_steered(steer, made.once("mark"), params)
        marked = {key: (done, seen, values) for key, done, seen, *values in answers}
        for row in rows:
            done, seen, values = marked.get(row.key, (None, None, []))
            if done == "changed":
                row.seen, row.values = seen, dict(zip(made.columns, values, strict=True))
        return {key: done for key, (done, _, _) in marked.items()}

    def statement(self) -> tuple[bytes, dict[str, Any]]:
        """The first statement of a sweep, to examine its plan."""
        params = {
            **self._about_claim(UUID(int=0)),
            "cut_off": None,
            "most": self._rows.reconciler.batch,
            "window": self._rows.window(self._rows.reconciler.batch),
        }
        return self._rows.made.once("claim_fresh", "start"), params

    def _about_claim(self, holder: UUID) -> dict[str, Any]:
        reconciler = self._rows.reconciler
        return {
            "now": self._rows.clock.now(),
            "reconciler": reconciler.name,
            "holder": holder,
            "owner": self._rows.owner,
            "lease_for": reconciler.lease_for.total_seconds(),
            "max_attempts": reconciler.retry.max_attempts,
            "paused": list(self._rows.paused),
        }

    async def _claim(self, query: bytes, params: dict[str, Any], most: int, read: Any) -> Batch:
        reconciler = self._rows.reconciler
        params["window"] = self._rows.window(most)
        if reconciler.lane is None:
            sent = self._rows.clock.elapsed()
            rows = await self._rows.claiming.fetch_steered(self._rows.steer, query, {**params, "most": most})
            return read(rows, params["holder"], sent)  # type: ignore[no-any-return]
        async with self._rows.claiming.transaction() as connection:
            locked = await fetch(
                connection, self._rows.statements["lanes/lock"], {"now": params["now"], "lane": reconciler.lane}
            )
            if not locked:  # another worker is claiming through the lane
                return Batch(ask_again_after=timedelta(milliseconds=50))
            now, next_start_at, last_key = locked[0]
            granted = grant(reconciler.rate, next_start_at, now, most)
            if not granted.slots:
                return Batch(ask_again_after=granted.wait)
            await connection.execute(self._rows.steer)
            sent = self._rows.clock.elapsed()
            text = message.filled(connection, Query(query, {**params, "most": len(granted.slots)}))
            answers = await message.send(connection, text)
            batch: Batch = read(answers.check().rows(0), params["holder"], sent)
            if batch.rows:
                next_start = granted.next_start_at(len(batch.rows), reconciler.rate)
                advanced = {"lane": reconciler.lane, "next_start_at": next_start, "last_key": last_key}
                await fetch(connection, self._rows.statements["lanes/advance"], advanced)
        batch.waits = [granted.start_after(n) for n in range(len(batch.rows))]
        return batch

    def _read_fresh(self, made: RowStatements, rows: Fetched, holder: UUID, sent: float) -> Batch:
        keys = len(self._rows.found.spec.key)
        heavy, exhausted, passed, without_value, order, *place = rows[0][: 5 + keys]
        position = (
            None if without_value is None else Position("without" if without_value else "with", order, tuple(place))
        )
        claimed = [self._claimed(made, row[5 + keys :], holder, sent) for row in rows if row[5 + keys] is not None]
        waits = [timedelta()] * len(claimed)
        return Batch(claimed, waits, position, exhausted=exhausted, passed=passed, heavy=heavy)

    def _read_again(self, made: RowStatements, rows: Fetched, holder: UUID, sent: float, *, alone: bool) -> Batch:
        heavy, due_at, last_key = rows[0][:3]
        position = None if last_key is None else DuePosition(due_at, last_key)
        claimed = [self._claimed(made, row[3:], holder, sent, alone=alone) for row in rows if row[3] is not None]
        waits = [timedelta()] * len(claimed)
        return Batch(claimed, waits, due_position=position, exhausted=position is None, heavy=heavy)

    def _claimed(
        self, made: RowStatements, row: tuple[Any, ...], holder: UUID, sent: float, *, alone: bool = False
    ) -> ClaimedRow:
        keys = len(self._rows.found.spec.key)
        key, term, occasion, attempt, spent, outlived, claimed_at, was_state, was_changed_at, seen, due_at = row[:11]
        return ClaimedRow(
            self._rows.reconciler.name,
            holder,
            key,
            row[11 : 11 + keys],
            term,
            attempt,
            spent,
            alone,
            was_state,
            was_changed_at,
            seen,
            due_at,
            claimed_at,
            dict(zip(made.columns, row[11 + keys :], strict=True)),
            Trust(self._rows.reconciler.lease_for, sent),
            occasion,
            outlived,
        )
