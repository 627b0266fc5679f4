"""Rows of a user's table: claimed, settled under claims of today and of yesterday, and changed by users meanwhile, at any time."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.store.machine import WHICH, Bench, bench_on, recent, try_out
from tests.store.rows_desk import RowsDesk, again, claimed, desk_on, failure, settled
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Change, RetryAfter, SetAside
from trueup.reconcile.outcome import To
from trueup.store.rows.rows import Rows

TABLE = "create table t (id int primary key, state text not null, changed_at timestamptz not null, note text)"
STALE, LEASE, BACK_OFF = timedelta(minutes=10), timedelta(seconds=30), timedelta(minutes=1)
HOLDERS = [UUID(int=n) for n in (1, 2)]
KEYS = st.sampled_from([1, 2])
AFTER = st.sampled_from([0, 0, 0, 30, 61, 600])  # seconds before a step


@dataclass
class Row:
    """The user's row as it must be."""

    state: str
    changed_at: datetime
    note: str | None = None


@dataclass
class Record:
    """What trueup must know about it."""

    state: str
    due_at: datetime | None  # the end of the lease or of the rest
    term: int
    holder: UUID | None = None


class RowsMachine(RuleBasedStateMachine):
    """The reconciler is for rows that have been open for ten minutes."""

    def __init__(self, bench: Bench, desk: RowsDesk, reconciler: Rows) -> None:
        super().__init__()
        self.bench = bench
        self.desk = desk
        self.reconciler = reconciler
        bench.clear("t", "trueup.rows")
        self.table: dict[int, Row] = {}
        self.known: dict[int, Record] = {}
        self.seen: dict[tuple[int, int], Row] = {}  # by key and term: the row as it was claimed
        self.newest_term = 0
        self.claims: list[ClaimedRow] = []

    @property
    def now(self) -> datetime:
        return self.bench.clock.now()

    def matches(self, key: int) -> bool:
        row = self.table.get(key)
        return row is not None and row.state == "open" and row.changed_at < self.now - STALE

    # -- users --------------------------------------------------------------------------------------------------------

    @rule(after=AFTER, key=KEYS, age=st.sampled_from([60, 10]))
    def insert(self, after: int, key: int, age: int) -> None:
        self.bench.clock.advance(seconds=after)
        if key not in self.table:
            row = self.table[key] = Row("open", self.now - timedelta(minutes=age))
            self.bench.run(self.desk.run("insert into t values (%s, %s, %s)", key, row.state, row.changed_at))

    @rule(after=AFTER, key=KEYS, state=st.sampled_from(["open", "closed"]))
    def change(self, after: int, key: int, state: str) -> None:
        self.bench.clock.advance(seconds=after)
        if key in self.table:
            row = self.table[key] = Row(state, self.now)
            query = "update t set state = %s, changed_at = %s, note = null where id = %s"
            self.bench.run(self.desk.run(query, row.state, row.changed_at, key))

    @rule(after=AFTER, key=KEYS)
    def delete(self, after: int, key: int) -> None:
        self.bench.clock.advance(seconds=after)
        self.table.pop(key, None)
        self.bench.run(self.desk.run("delete from t where id = %s", key))

    # -- workers ------------------------------------------------------------------------------------------------------

    def take(self, found: list[ClaimedRow], expected: set[int]) -> None:
        assert {int(each.key) for each in found} == expected
        for each in found:
            key = int(each.key)
            assert each.term > self.newest_term
            self.known[key] = Record("held", self.now + LEASE, each.term, each.holder)
            self.seen[key, each.term] = self.table[key]
        self.newest_term = max([self.newest_term, *(each.term for each in found)])
        self.claims += found

    @rule(after=AFTER, holder=st.sampled_from(HOLDERS))
    def claim_fresh(self, after: int, holder: UUID) -> None:
        self.bench.clock.advance(seconds=after)
        expected = {key for key in self.table if self.matches(key) and key not in self.known}
        self.take(self.bench.run(claimed(self.reconciler, holder)), expected)

    @rule(after=AFTER, holder=st.sampled_from(HOLDERS))
    def claim_again(self, after: int, holder: UUID) -> None:
        """Rows whose rest is over, and those whose holder has let its lease pass: suspects, if that was not the first time."""
        self.bench.clock.advance(seconds=after)
        due = {key for key, each in self.known.items() if each.due_at is not None and each.due_at <= self.now}
        found = self.bench.run(again(self.reconciler, holder))
        found += self.bench.run(again(self.reconciler, holder, suspects=True))
        self.take(found, {key for key in due if self.matches(key)})

    @rule(after=AFTER)
    def forget(self, after: int) -> None:
        self.bench.clock.advance(seconds=after)
        self.bench.run(self.reconciler.forget())
        for key, each in list(self.known.items()):
            over = not self.matches(key) if each.due_at is not None else self.state_of(key) != "open"
            if over and (each.due_at is None or each.due_at <= self.now):
                del self.known[key]

    def state_of(self, key: int) -> str | None:
        row = self.table.get(key)
        return None if row is None else row.state

    def holds(self, claim: ClaimedRow) -> bool:
        record = self.known.get(int(claim.key))
        return (
            record is not None
            and (record.state, record.holder, record.term) == ("held", claim.holder, claim.term)
            and record.due_at is not None
            and record.due_at > self.now
        )

    @precondition(lambda self: self.claims)
    @rule(after=AFTER, which=WHICH)
    def finish(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        claim = recent(self.claims, which)
        key = int(claim.key)
        verdict = self.bench.run(settled(self.reconciler, claim, Change(To("done", note="ours"), None)))
        if not self.holds(claim):
            assert verdict is None
        elif self.table.get(key) == self.seen[key, claim.term]:
            assert verdict == "changed"
            self.table[key] = Row("done", self.now, "ours")
            del self.known[key]
        elif self.matches(key):
            assert verdict == "contested"
        else:
            assert verdict == "conflict"
            del self.known[key]

    @precondition(lambda self: self.claims)
    @rule(after=AFTER, which=WHICH, last=st.booleans())
    def fail(self, after: int, which: int, last: bool) -> None:
        self.bench.clock.advance(seconds=after)
        claim = recent(self.claims, which)
        key = int(claim.key)
        verdict = SetAside("why", failure()) if last else RetryAfter(BACK_OFF, failure(), spend=True)
        held = self.holds(claim)
        answer = self.bench.run(settled(self.reconciler, claim, verdict))
        assert (answer is not None) == held
        if held:
            self.known[key] = (
                Record("quarantined", None, claim.term) if last else Record("resting", self.now + BACK_OFF, claim.term)
            )

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def no_row_of_a_user_was_touched_but_as_the_model_says(self) -> None:
        rows = self.bench.query("select id, state, changed_at, note from t")
        assert {key: Row(*rest) for key, *rest in rows} == self.table

    @invariant()
    def what_is_known_is_what_the_model_knows(self) -> None:
        query = "select key, state, nullif(due_at, 'infinity'), term, holder from trueup.rows"
        rows = {int(key): Record(*rest) for key, *rest in self.bench.query(query)}
        assert rows == self.known


@pytest.mark.slow
def test_rows_follow_their_model_whatever_comes_in_whatever_order(database_url: str) -> None:
    with bench_on(database_url) as bench:
        stack = AsyncExitStack()
        desk = bench.run(stack.enter_async_context(desk_on(bench.store)))
        try:
            bench.run(desk.run(TABLE))
            spec = {"changed_at": "changed_at"}
            reconciler = bench.run(desk.rows("open", stale_for=STALE, lease_for=LEASE, spec=spec))
            try_out(lambda: RowsMachine(bench, desk, reconciler), few=15, proof=200)
        finally:
            bench.run(stack.aclose())
