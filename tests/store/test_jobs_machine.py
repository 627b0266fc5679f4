"""Jobs and their workers' leases: enqueued, claimed, finished by holders of today and of yesterday, rescued, revived, at any time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.store.desk import LEASE, Desk, failure
from tests.store.machine import WHICH, Bench, bench_on, recent, try_out
from trueup.jobs.job import ClaimedJob
from trueup.store.jobs import Jobs

MINUTE = timedelta(minutes=1)
STATES = "select id, state, attempt, term, holder from trueup.jobs union all select id, state, attempt, term, null from trueup.history"
AFTER = st.sampled_from([0, 0, 0, 1, 31, 120])  # seconds before a step


@dataclass
class Known:
    """What the model says about a job."""

    max_attempts: int
    run_at: datetime
    state: str = "queued"
    attempt: int = 0
    term: int = 0
    holder: UUID | None = None

    def ends(self, state: str) -> None:
        self.state, self.holder = state, None


@dataclass
class Alive:
    """What the model says about a worker."""

    until: datetime
    rescued: bool = False


class JobsMachine(RuleBasedStateMachine):
    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.desk = Desk(bench.store)
        self.store: Jobs = bench.store.jobs
        bench.clear("trueup.jobs", "trueup.history", "trueup.workers")
        self.known: dict[int, Known] = {}
        self.alive: dict[UUID, Alive] = {}
        self.workers: list[UUID] = []
        self.claims: list[ClaimedJob] = []

    @property
    def now(self) -> datetime:
        return self.bench.clock.now()

    # -- workers ------------------------------------------------------------------------------------------------------

    @rule(after=AFTER)
    def register(self, after: int) -> None:
        self.bench.clock.advance(seconds=after)
        holder = self.bench.run(self.desk.worker())
        self.alive[holder] = Alive(self.now + LEASE)
        self.workers.append(holder)

    @precondition(lambda self: self.workers)
    @rule(after=AFTER, which=st.integers(0, 1))
    def renew(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        holder = recent(self.workers, which)
        worker = self.alive.get(holder)
        may = worker is not None and not worker.rescued and worker.until > self.now
        assert self.bench.run(self.bench.store.workers.renew(holder, LEASE)) == may
        if worker is not None and may:
            worker.until = self.now + LEASE

    @precondition(lambda self: self.workers)
    @rule(after=AFTER, which=st.integers(0, 1))
    def leave(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        holder = recent(self.workers, which)
        may = holder in self.alive and not any(job.holder == holder for job in self.known.values())
        assert self.bench.run(self.bench.store.workers.leave(holder)) == may
        if may:
            del self.alive[holder]

    # -- jobs ---------------------------------------------------------------------------------------------------------

    @rule(after=AFTER, max_attempts=st.integers(1, 3), delay=st.sampled_from([0, 15]))
    def enqueue(self, after: int, max_attempts: int, delay: int) -> None:
        self.bench.clock.advance(seconds=after)
        run_at = self.now + timedelta(seconds=delay)
        job = self.bench.run(self.desk.put(max_attempts=max_attempts, run_at=run_at))
        self.known[job] = Known(max_attempts, run_at)

    @precondition(lambda self: self.workers)
    @rule(after=AFTER, which=st.integers(0, 1), most=st.integers(1, 3))
    def claim(self, after: int, which: int, most: int) -> None:
        self.bench.clock.advance(seconds=after)
        holder = recent(self.workers, which)
        worker = self.alive.get(holder)
        may = worker is not None and not worker.rescued and worker.until > self.now
        due = {id for id, job in self.known.items() if job.state == "queued" and job.run_at <= self.now}
        claimed = self.bench.run(self.desk.claim(holder, most))
        assert len(claimed) == (min(most, len(due)) if may else 0)
        for each in claimed:
            job = self.known[each.id]
            assert each.id in due
            assert each.term > job.term
            assert each.attempt == job.attempt + 1 <= job.max_attempts
            job.state, job.holder, job.term, job.attempt = "running", holder, each.term, each.attempt
        self.claims += claimed

    def holds(self, claim: ClaimedJob) -> bool:
        job = self.known[claim.id]
        return (job.state, job.holder, job.term) == ("running", claim.holder, claim.term)

    @precondition(lambda self: self.claims)
    @rule(after=AFTER, which=WHICH)
    def complete(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        claim = recent(self.claims, which)
        held = self.holds(claim)
        assert self.bench.run(self.store.complete(claim.holder, [claim], [None])) == ({claim.id} if held else set())
        if held:
            self.known[claim.id].ends("done")

    @precondition(lambda self: self.claims)
    @rule(after=AFTER, which=WHICH)
    def bury(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        claim = recent(self.claims, which)
        held = self.holds(claim)
        buried = self.bench.run(self.store.bury(claim.holder, [claim], ["why"], [failure()]))
        assert buried == ({claim.id} if held else set())
        if held:
            self.known[claim.id].ends("dead")

    @precondition(lambda self: self.claims)
    @rule(after=AFTER, which=WHICH, move=st.sampled_from(["release", "retry", "snooze"]))
    def put_back(self, after: int, which: int, move: str) -> None:
        self.bench.clock.advance(seconds=after)
        claim = recent(self.claims, which)
        held = self.holds(claim)
        spends = move == "retry"
        if spends and claim.attempt >= claim.max_attempts:
            return  # the last attempt is buried, not retried: so `jobs.decide` says
        moves = {
            "retry": lambda: self.store.retry(claim.holder, [claim], [MINUTE], [failure()]),
            "snooze": lambda: self.store.snooze(claim.holder, [claim], [MINUTE]),
            "release": lambda: self.store.release(claim.holder, [claim], ["default"], [""]),
        }
        assert self.bench.run(moves[move]()) == ({claim.id} if held else set())
        if held:
            job = self.known[claim.id]
            job.ends("queued")
            job.attempt -= not spends
            job.run_at = self.now + MINUTE if move != "release" else min(job.run_at, self.now)

    @rule(after=AFTER)
    def rescue(self, after: int) -> None:
        self.bench.clock.advance(seconds=after)
        lost = {holder for holder, worker in self.alive.items() if worker.until <= self.now}
        expected = {id: job for id, job in self.known.items() if job.state == "running" and job.holder in lost}
        rescued = {each.job_id: each.state for each in self.bench.run(self.store.rescue())}
        assert rescued == {id: "dead" if job.attempt >= job.max_attempts else "queued" for id, job in expected.items()}
        for holder in lost:
            self.alive[holder].rescued = True
        for id, state in rescued.items():
            self.known[id].ends(state)
            if state == "queued":  # how long it waits after a crash is another test's business
                ((self.known[id].run_at,),) = self.bench.query("select run_at from trueup.jobs where id = %s", id)

    @precondition(lambda self: self.known)
    @rule(after=AFTER, which=WHICH)
    def cancel(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        job = recent(list(self.known), which)
        queued = self.known[job].state == "queued"
        assert self.bench.run(self.store.cancel([job], "why")) == ({job} if queued else set())
        if queued:
            self.known[job].ends("cancelled")

    @precondition(lambda self: self.known)
    @rule(after=AFTER, which=WHICH)
    def revive(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        job = recent(list(self.known), which)
        dead = self.known[job].state == "dead"
        assert self.bench.run(self.store.revive([job])) == ({job} if dead else set())
        if dead:
            known = self.known[job]
            known.state, known.attempt, known.run_at = "queued", 0, self.now

    @precondition(lambda self: self.known)
    @rule(after=AFTER, which=WHICH)
    def discard(self, after: int, which: int) -> None:
        self.bench.clock.advance(seconds=after)
        job = recent(list(self.known), which)
        dead = self.known[job].state == "dead"
        assert self.bench.run(self.store.discard([job], "why")) == ({job} if dead else set())
        if dead:
            self.known[job].ends("cancelled")

    @invariant()
    def every_job_is_in_one_place_as_the_model_says(self) -> None:
        rows = self.bench.query(STATES)
        assert len(rows) == len(self.known)
        for id, state, attempt, term, holder in rows:
            job = self.known[id]
            assert (state, attempt, term, holder) == (job.state, job.attempt, job.term, job.holder), id


@pytest.mark.slow
def test_jobs_and_workers_follow_their_model_whatever_comes_in_whatever_order(database_url: str) -> None:
    with bench_on(database_url) as bench:
        try_out(lambda: JobsMachine(bench), few=20, proof=300)
