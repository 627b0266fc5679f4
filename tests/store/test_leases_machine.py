"""Leases: taken, renewed, released and fenced by holders of today and of yesterday, at any time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.store.machine import WHICH, Bench, bench_on, recent, try_out
from trueup.errors import LostLease
from trueup.store.leases import RowLeases

NAME = "nightly"
HOLDERS = [UUID(int=n) for n in (1, 2)]
TTLS = st.sampled_from([timedelta(seconds=10), timedelta(seconds=60)])
AFTER = st.sampled_from([0, 0, 0, 9, 10, 60])  # seconds before a step


class Claim(NamedTuple):
    name: str
    holder: UUID
    term: int


@dataclass
class Known:
    """What the model says about a lease. A released one has no holder, and its newest term stays."""

    holder: UUID | None
    term: int
    until: datetime


class LeasesMachine(RuleBasedStateMachine):
    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.leases = RowLeases(bench.store.terms)
        bench.clear("trueup.leases")
        self.known: Known | None = None
        self.claims: list[Claim] = []

    @property
    def now(self) -> datetime:
        return self.bench.clock.now()

    def is_newest(self, claim: Claim) -> bool:
        return self.known is not None and (self.known.holder, self.known.term) == (claim.holder, claim.term)

    @rule(after=AFTER, holder=st.sampled_from(HOLDERS), ttl=TTLS)
    def acquire(self, after: int, holder: UUID, ttl: timedelta) -> None:
        self.bench.clock.advance(seconds=after)
        before = self.known
        free = before is None or before.holder in (None, holder) or before.until <= self.now
        term = self.leases.acquire(NAME, holder, ttl)
        assert (term is not None) == free
        if term is not None:
            assert before is None or term > before.term
            self.known = Known(holder, term, self.now + ttl)
            self.claims.append(Claim(NAME, holder, term))

    @precondition(lambda self: self.claims)
    @rule(after=AFTER, which=WHICH, ttl=TTLS)
    def renew(self, after: int, which: int, ttl: timedelta) -> None:
        self.bench.clock.advance(seconds=after)
        claim = recent(self.claims, which)
        assert self.known is not None
        may = self.is_newest(claim) and self.known.until > self.now
        assert self.leases.renew(*claim, ttl) == may
        if may:
            self.known.until = self.now + ttl

    @precondition(lambda self: self.claims)
    @rule(after=AFTER, which=WHICH)
    def release(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        claim = recent(self.claims, which)
        self.leases.release(*claim)
        if self.known is not None and self.is_newest(claim):
            self.known.holder = None

    @precondition(lambda self: self.claims)
    @rule(after=AFTER, which=WHICH)
    def fence(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        claim = recent(self.claims, which)
        with self.bench.other.transaction():
            if self.is_newest(claim):
                self.bench.store.terms.fence_sync(*claim, self.bench.other)
            else:
                with pytest.raises(LostLease):
                    self.bench.store.terms.fence_sync(*claim, self.bench.other)

    @invariant()
    def every_lease_is_as_the_model_says(self) -> None:
        rows = self.bench.query("select holder, term from trueup.leases")
        assert rows == ([] if self.known is None else [(self.known.holder, self.known.term)])


@pytest.mark.slow
def test_leases_follow_their_model_whatever_comes_in_whatever_order(database_url: str) -> None:
    with bench_on(database_url) as bench:
        try_out(lambda: LeasesMachine(bench), few=20, proof=300)
