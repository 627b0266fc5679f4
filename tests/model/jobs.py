"""The protocol of jobs: claim, run, finish, renew, rescue, leave, recover.

Two registrations of workers, one of which may be of the old release, compete for one job. Any process may pause or crash between two
steps; any statement may stay under way in the server after its sender has given it up; any answer may be lost; the database's clock may
jump. Time is counted in units: a lease lasts two, and a process trusts it for one, from before it asked. A registration that is lost is
over: the process goes on under a new one, which the other worker stands for.

Each guard of `GUARDS` is a condition or a lock of a statement, or a check of the worker. `JobProtocol(without={…})` leaves it out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from tests.model.explorer import Counterexample, Explored, Guard, Step, explore

LEASE, TRUST = 2, 1  # units of time
NO_ROW = -1

BOUNDS: dict[str, dict[str, Any]] = {
    "one attempt": {"max_attempts": 1},
    "two attempts": {"max_attempts": 2, "stops": False},
    "an old release": {"max_attempts": 1, "old": True},
    "no fault": {"max_attempts": 2, "max_faults": 0},
}

GUARDS = (
    Guard("claim_checks_lease", "a holder whose lease has passed claims nothing", "store/sql/jobs/claim.sql", "lease_until > {now}", "one attempt"),
    Guard("claim_checks_rescued", "a holder that was rescued claims nothing, whatever the clock says", "store/sql/jobs/claim.sql",
          "rescued_at is null and lease_until > {now}", "one attempt"),
    Guard("claim_locks_worker", "a claim under way and the end of its holder's registration cannot miss each other", "store/sql/jobs/claim.sql",
          "for key share", "one attempt"),
    Guard("claim_locks_job", "of two claims under way one takes the job", "store/sql/jobs/claim.sql", "for update skip locked", "one attempt"),
    Guard("claim_mints_term", "each claim has a term of its own", "store/sql/jobs/claim.sql", "term = greatest(term + 1", "one attempt"),
    Guard("fence_term", "a finish belongs to one claim", "store/sql/jobs/complete.sql", "j.term = mine.term", "two attempts"),
    Guard("fence_holder", "a finish belongs to one holder", "store/sql/jobs/complete.sql", "j.holder = %(holder)s", "one attempt",
          ("fence_term",), "terms differ wherever holders do"),
    Guard("fence_state", "only a running job is finished", "store/sql/jobs/retry.sql", "j.state = 'running'", "one attempt",
          ("fence_holder",), "a job that does not run has no holder"),
    Guard("retry_clears_holder", "a job that goes back to the queue has no holder", "store/sql/jobs/retry.sql",
          "set state = 'queued', holder = null", "two attempts", ("fence_state",), "a job that does not run is not finished, whoever is named as its holder"),
    Guard("renew_checks_rescued", "a holder that was rescued is not renewed, whatever the clock says", "store/sql/workers/renew.sql",
          "rescued_at is null and lease_until > t.now", "two attempts"),
    Guard("renew_checks_lease", "a lease that has passed is not renewed", "store/sql/workers/renew.sql", "lease_until > t.now", "no fault",
          ("renew_checks_rescued",), "before the rescue nothing was taken away; after it the mark refuses"),
    Guard("rescue_marks_worker", "a rescue ends the registration for good", "store/sql/jobs/rescue.sql", "set rescued_at = coalesce(w.rescued_at", "two attempts"),
    Guard("rescue_finds_vanished", "a running job whose holder has no row is rescued", "store/sql/jobs/rescue.sql",
          "not exists (select from {schema}.workers as w where w.holder = h.holder)", "an old release"),
    Guard("rescue_waits_for_lease", "nothing is rescued while the lease lasts", "store/sql/jobs/rescue.sql",
          "lease_until <= coalesce(%(now)s::timestamptz, now())", "no fault"),
    Guard("rescue_buries_spent", "a last attempt is not followed by another one", "store/sql/jobs/rescue.sql", "j.attempt >= j.max_attempts", "one attempt"),
    Guard("rescue_repeats", "a job that was passed over is found by the next rescue, although its worker is marked already", "store/sql/jobs/rescue.sql",
          "coalesce(w.rescued_at, %(now)s::timestamptz, now())", "one attempt"),
    Guard("forget_keeps_holders", "the row of a worker stays while a job of it runs", "store/sql/workers/forget.sql",
          "not exists (select from {schema}.jobs as j where j.holder = w.holder and j.state = 'running')", "one attempt"),
    Guard("leave_holds_first", "leaving waits for claims under way, and looks afterwards", "store/workers.py",
          '"workers/hold", holder=holder', "one attempt", ("rescue_finds_vanished",), "the job of a holder without a row is found by the next rescue"),
    Guard("leave_keeps_row", "a worker that leaves with a job in hand keeps its row until the lease ends", "store/sql/workers/leave.sql",
          "not exists (select from {schema}.jobs as j where j.holder = w.holder and j.state = 'running')", "one attempt"),
    Guard("recover_finds_unknown", "a worker takes what it claimed without knowing", "work/jobs/claimer.py",
          "await self._jobs.held_terms(registration.holder)", "one attempt"),
    Guard("recover_skips_known", "what is in hand is not taken twice", "work/jobs/claimer.py", "if (job_id, term) not in known", "one attempt"),
    Guard("recover_awaits_claims", "no claim is unanswered while a worker looks for what it does not know of", "work/jobs/claimer.py",
          "self._recover_at, planned = 0.0, self._recover_at", "one attempt"),
    Guard("trust_from_before_sending", "trust in a lease counts from before it was asked for", "work/renewer.py", "registration.trust.renewed(sent)", "no fault"),
    Guard("start_checks_trust", "no handler starts when the trust is over", "work/jobs/runner.py", "self._access.check(", "one attempt"),
    Guard("doubtful_is_looked_up", "a finish without an answer is looked up before it counts as lost", "work/jobs/finisher.py",
          "self._jobs.ended_as_mine(holder", "one attempt"),
    Guard("lookup_compares_crashes", "a job that a rescue put back does not count as finished", "store/sql/jobs/ended_as_mine.sql",
          "j.crashes = mine.crashes", "two attempts"),
)  # fmt: skip


NOTHING = (0, 0, 0)


class Worker(NamedTuple):
    well: bool = False  # nothing goes wrong with it: it is there to take over what the other one loses
    old: bool = False  # of the release that leaves without waiting for its claims
    life: str = "up"  # up, stopping, looked (leaving, and saw nothing running), kept, left, over, dead
    lease: int = LEASE  # of its row in `workers`: units left; NO_ROW
    rescued: bool = False
    trust: int = TRUST  # units for which this process still believes in the lease
    claim: str = ""  # in the server: "", sent, open (holds its locks, not committed)
    waits: bool = False  # for the answer to a claim
    won: tuple[int, int, int] = (0, 0, 0)  # that answer, under way: as `held`
    held: tuple[int, int, int] = (0, 0, 0)  # term, attempt and crashes of the job in hand
    run: str = ""  # "", waiting, running, ended
    move: str = ""  # how the run ended: complete, retry, release
    finish: str = ""  # "", sent, open, yes, no
    doubtful: bool = False  # an earlier finish of this run had no answer
    stray: tuple[int, str] = (
        0,
        "",
    )  # a finish that its sender has given up, and that may still be carried out: term, move
    renewal: int = -1  # the age of an answer to a renewal that is under way


class Job(NamedTuple):
    state: str = "queued"  # queued, running, done (or dead)
    holder: int = -1
    term: int = 0
    attempt: int = 0
    crashes: int = 0


class State(NamedTuple):
    workers: tuple[Worker, Worker]
    job: Job = Job()
    faults: int = 0
    jumped: bool = False  # the database's clock went forward: leases ended early
    accepted: int = 0  # bit per term: its finish was carried out
    started: int = 0  # bit per term: its handler was called
    bad: str = ""


SERVER = ("server", "time", "rescue")
AWAKE = ("server", "worker")


class JobProtocol:
    def __init__(
        self,
        *,
        without: Collection[str] = (),
        old: bool = False,
        max_attempts: int = 2,
        max_faults: int = 1,
        max_term: int = 2,
        stops: bool = True,
    ) -> None:
        unknown = set(without) - {guard.name for guard in GUARDS}
        assert not unknown, f"no such guard: {unknown}"
        self._without = frozenset(without)
        self.max_attempts, self.max_term, self._stops = max_attempts, max_term, stops
        self.start = State((Worker(old=old), Worker(well=True)), faults=max_faults)

    def on(self, guard: str) -> bool:
        return guard not in self._without

    def check(self) -> tuple[Explored[State], Counterexample | None]:
        """Explore everything; the counterexample is the first broken promise, of safety or else of liveness."""
        found = explore(self.start, self.steps)
        if found.counterexample is not None:
            return found, found.counterexample
        stuck = found.unreachable_goal(
            "the job stays running for ever, although every worker has stopped",
            lambda state: state.job.state != "running",
            SERVER,
            lambda state: state.job.holder == 0,
        )
        stuck = stuck or found.unreachable_goal(
            "the job stays running for ever, although its worker is well",
            lambda state: state.job.state != "running",
            AWAKE,
            lambda state: (
                state.job.state == "running"
                and state.workers[state.job.holder].life == "up"
                and state.workers[state.job.holder].trust > 0
            ),
        )
        return found, stuck

    def steps(self, state: State) -> Iterator[Step[State]]:
        for i, worker in enumerate(state.workers):
            name = "AB"[i]
            for step in (
                *self._local(state, i, worker),
                *self._server(state, i, worker),
                *self._faults(state, i, worker),
            ):
                yield step._replace(text=f"{name} {step.text}", after=self._judged(step.after))
        yield from self._clock(state)

    # -- what a process does by itself ---------------------------------------------------------------------------------

    def _local(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        if w.well:
            yield from self._works(state, i, w)
            return
        if w.life not in ("up", "stopping"):
            yield from self._ending(state, i, w)
            return
        idle = not w.run and not w.finish
        if w.life == "up":
            if idle and w.trust and not (w.claim or w.waits) and state.job.term < self.max_term:
                yield self._step(
                    state, i, "worker", "sends a claim", w._replace(claim="sent", waits=True), "jobs/claim"
                )
            if w.won[0]:
                twice = w.held[0] == w.won[0] and w.run
                in_hand = w._replace(waits=False, won=NOTHING, held=w.won, run="waiting")
                yield self._step(
                    state,
                    i,
                    "worker",
                    f"gets the answer to its claim (term {w.won[0]}){', of a job that it has' if twice else ''}",
                    in_hand,
                )
            yield from self._recover(state, i, w)
            if not w.trust and (w.run or w.held[0]):
                yield self._step(state, i, "worker", "sees that its trust is over, and drops everything", _over(w))
            if self._stops:
                stopping = w._replace(life="stopping", waits=False, won=NOTHING)
                yield self._step(state, i, "stop", "begins to stop", stopping)
            if w.run == "waiting" and (w.trust or not self.on("start_checks_trust")):
                yield self._start(state, i, w)
        if w.run and w.trust:
            for move in self._moves(w):
                sent = w._replace(run="ended", move=move, finish="sent")
                yield self._step(
                    state,
                    i,
                    "worker",
                    f"sends {move}, term {w.held[0]}{' again' if w.doubtful else ''}",
                    sent,
                    f"jobs/{move}",
                )
        if w.renewal >= 0:
            left = TRUST - w.renewal if self.on("trust_from_before_sending") else TRUST
            yield self._step(
                state,
                i,
                "worker",
                "learns that its lease was renewed",
                w._replace(renewal=-1, trust=max(w.trust, left)),
            )
        elif w.lease != NO_ROW and (w.lease < LEASE or w.trust < TRUST):
            yield self._renew(state, i, w)
        if w.life == "stopping" and w.finish not in ("sent", "open"):
            yield from self._leave(state, i, w)

    def _moves(self, w: Worker) -> list[str]:
        """How what is in hand may end now."""
        if w.run == "ended":  # and had no answer
            return [] if w.finish else [w.move]
        release = ["release"] if w.life == "stopping" else []
        if w.run == "waiting":
            return release
        return ["complete", *(["retry"] if w.held[1] < self.max_attempts else []), *release]

    def _works(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        """A worker that is well: the same statements, and every answer comes at once."""
        if not w.run and not w.claim and state.job.term < self.max_term:
            yield self._claim_begins(state, i, w)
        if w.won[0]:
            in_hand = w._replace(won=NOTHING, held=w.won, run="waiting")
            yield self._start(state, i, in_hand)
        if w.run == "running":
            sent = w._replace(run="ended", move="complete", finish="sent")
            yield self._step(state, i, "worker", f"sends complete, term {w.held[0]}", sent, "jobs/complete")

    def _ending(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        if w.life in ("looked", "kept") and w.claim != "open":
            lease = NO_ROW if w.life == "looked" else w.lease
            yield self._step(
                state,
                i,
                "server",
                "leaves" if w.life == "looked" else "leaves its row behind",
                _left(w)._replace(lease=lease),
                "workers/leave",
            )
        if w.life == "left" and w.run == "running":
            yield self._step(state, i, "worker", "has left, and its deaf handler ends", w._replace(run=""))

    def _start(self, state: State, i: int, w: Worker) -> Step[State]:
        bit = 1 << w.held[0]
        bad = ""
        if not w.trust:
            bad = "a handler was started after its process's own deadline"
        elif state.started & bit:
            bad = "the handler of one claim was started twice"
        step = self._step(state, i, "worker", f"starts the handler (term {w.held[0]})", w._replace(run="running"))
        return step._replace(after=step.after._replace(started=state.started | bit, bad=bad))

    def _recover(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        job = state.job
        if not self.on("recover_finds_unknown") or not w.trust or (w.waits and self.on("recover_awaits_claims")):
            return
        known = w.held[0] == job.term and w.run
        if job.state == "running" and job.holder == i and (not known or not self.on("recover_skips_known")):
            found = w._replace(held=_held(job), run="waiting", finish="", move="", doubtful=False)
            yield self._step(
                state, i, "worker", f"finds a claim that it did not know of (term {job.term})", found, "jobs/held_terms"
            )

    def _told(self, state: State, i: int, w: Worker, *, written: bool) -> State:
        """The worker gets its answer, and looks up what was refused after an earlier try that had none."""
        free = w._replace(run="", finish="", move="", doubtful=False, held=NOTHING)
        if state.bad or w.life in ("dead", "over"):
            return self._put(state, i, free)
        term, bit = w.held[0], 1 << w.held[0]
        if not written and w.doubtful and self.on("doubtful_is_looked_up"):
            written = self._ended_as_mine(state, i, w)
        bad = ""
        if written and not state.accepted & bit:
            bad = "a finish was reported as written that was not"
        elif (
            not written and w.doubtful and state.accepted & bit and state.job.term == term
        ):  # claimed again since: counts as lost
            bad = "a finish was reported as lost that had been written"
        return self._put(state, i, free)._replace(bad=bad)

    def _ended_as_mine(self, state: State, i: int, w: Worker) -> bool:
        job, (term, _, crashes) = state.job, w.held
        if job.term != term:
            return False
        if job.state == "done":  # in the history under our name, and not buried by a rescue
            return job.holder == i and job.crashes == crashes
        return job.state == "queued" and (job.crashes == crashes or not self.on("lookup_compares_crashes"))

    def _renew(self, state: State, i: int, w: Worker) -> Step[State]:
        refused = (w.rescued and self.on("renew_checks_rescued")) or (w.lease == 0 and self.on("renew_checks_lease"))
        after = _over(w) if refused else w._replace(lease=LEASE, renewal=0)
        return self._step(state, i, "worker", f"renews{', and is refused' if refused else ''}", after, "workers/renew")

    def _leave(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        sees = state.job.state == "running" and state.job.holder == i
        keeps = sees and self.on("leave_keeps_row")
        if w.old or not self.on("leave_holds_first"):
            # Looks first, and then waits for the lock of a claim under way. That claim changes no worker's row, so nothing is looked at again.
            yield self._step(
                state, i, "stop", "looks whether it holds anything", w._replace(life="kept" if keeps else "looked")
            )
        elif w.claim != "open" or not self.on("claim_locks_worker"):
            lease = w.lease if keeps else NO_ROW
            yield self._step(
                state,
                i,
                "stop",
                f"leaves{' its row behind' if keeps else ''}",
                _left(w)._replace(lease=lease),
                "workers/leave",
            )

    # -- what the server does with statements under way ----------------------------------------------------------------

    def _server(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        if w.claim == "sent":  # it may have been under way for long
            yield self._claim_begins(state, i, w)
        if w.claim == "open":
            yield self._claim_commits(state, i, w)
        if w.finish == "sent":
            yield from self._finish_begins(state, i, w)
        if w.finish == "open":
            done = self._finished(state, i, w, w.held[0], w.move)
            yield Step("server", f"has {w.move} of term {w.held[0]} committed", self._told(done, i, w, written=True))
            if not w.well:
                undone = w._replace(finish="") if w.life in ("dead", "over") else w._replace(finish="", doubtful=True)
                yield self._step(state, i, "server", f"has {w.move} of term {w.held[0]} rolled back", undone)
        if w.stray[0]:
            term, move = w.stray
            if "open" not in (w.finish, state.workers[1 - i].finish) and self._fenced(state, i, term):
                done = self._finished(state, i, w, term, move)
                yield Step(
                    "server",
                    f"an abandoned {move} of term {term} is carried out after all",
                    self._put(done, i, w._replace(stray=(0, ""))),
                    f"jobs/{move}",
                )
            yield self._step(
                state, i, "server", f"an abandoned {move} of term {term} comes to nothing", w._replace(stray=(0, ""))
            )
        if w.lease == 0 or (w.lease > 0 and not self.on("rescue_waits_for_lease")):
            yield from self._rescue(state, i, w)
        elif w.lease == NO_ROW and self.on("rescue_finds_vanished"):
            yield from self._rescue_vanished(state, i, w)
        if w.rescued and w.lease != NO_ROW and not self._locked(w):
            holds = state.job.state == "running" and state.job.holder == i
            if not holds or not self.on("forget_keeps_holders"):
                yield self._step(
                    state, i, "rescue", "is forgotten", w._replace(lease=NO_ROW, rescued=False), "workers/forget"
                )

    def _claim_begins(self, state: State, i: int, w: Worker) -> Step[State]:
        other = state.workers[1 - i]
        may = w.lease != NO_ROW
        may = (
            may
            and not (w.rescued and self.on("claim_checks_rescued"))
            and not (w.lease == 0 and self.on("claim_checks_lease"))
        )
        free = state.job.state == "queued" and not (other.claim == "open" and self.on("claim_locks_job"))
        if not may or not free:
            return self._step(state, i, "server", "claims nothing", w._replace(claim="", waits=False), "jobs/claim")
        bad = "a claim was granted to a holder without a lease" if w.rescued or w.lease <= 0 else ""
        step = self._step(state, i, "server", "has a claim under way", w._replace(claim="open"), "jobs/claim")
        return step._replace(after=step.after._replace(bad=bad))

    def _claim_commits(self, state: State, i: int, w: Worker) -> Step[State]:
        job = state.job
        if job.state == "done":
            return self._step(state, i, "server", "claims nothing", w._replace(claim="", waits=False))
        minted = job.term + 1 if self.on("claim_mints_term") else max(job.term, 1)
        claimed = Job("running", i, minted, job.attempt + 1, job.crashes)
        after = state._replace(job=claimed)
        if not self.on("claim_mints_term"):  # so that what follows is not taken for what this term did before
            after = after._replace(started=0)
        return Step(
            "server",
            f"has claimed term {minted}",
            self._put(after, i, w._replace(claim="", won=_held(claimed) if w.waits or w.well else NOTHING)),
            "jobs/claim",
        )

    def _fenced(self, state: State, i: int, term: int) -> bool:
        job = state.job
        return (
            (job.state == "running" or (job.state == "queued" and not self.on("fence_state")))
            and (job.term == term or not self.on("fence_term"))
            and (job.holder == i or not self.on("fence_holder"))
        )

    def _finish_begins(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        if self._fenced(state, i, w.held[0]):
            if state.workers[1 - i].finish != "open":  # else it waits for that one's lock
                yield self._step(
                    state,
                    i,
                    "server",
                    f"has {w.move} of term {w.held[0]} under way",
                    w._replace(finish="open"),
                    f"jobs/{w.move}",
                )
        else:
            after = self._told(state, i, w, written=False)
            yield Step(
                "server",
                f"has {w.move} of term {w.held[0]} refused",
                after,
                "jobs/ended_as_mine" if w.doubtful else f"jobs/{w.move}",
            )

    def _finished(self, state: State, i: int, w: Worker, term: int, move: str) -> State:
        """What a finish that passed its fence does. The promises are judged here."""
        job, bit = state.job, 1 << term
        bad = ""
        if state.accepted & bit:
            bad = "one claim was finished twice"
        elif job.term != term or job.holder != i:
            bad = "a late finish changed a job that another claim holds"
        keep = job.holder if move == "retry" and not self.on("retry_clears_holder") else -1
        after = {
            "complete": job._replace(state="done"),
            "retry": job._replace(state="queued", holder=keep),
            "release": job._replace(state="queued", holder=-1, attempt=job.attempt - 1),
        }[move]
        return state._replace(job=after, accepted=state.accepted | bit, bad=bad)

    def _locked(self, w: Worker) -> bool:
        return w.claim == "open" and self.on("claim_locks_worker")

    def _rescue(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        """By whatever worker comes by. Rows that are locked are passed over: a claim has this worker's, a finish the job's."""
        if self._locked(w) or (w.rescued and not self.on("rescue_repeats")):
            return
        marked = w._replace(rescued=self.on("rescue_marks_worker"))
        job = state.job
        if job.state != "running" or job.holder != i or "open" in (w.finish, state.workers[1 - i].finish):
            if not w.rescued:
                yield self._step(state, i, "rescue", "is marked as rescued", marked, "jobs/rescue")
            return
        spent = job.attempt >= self.max_attempts and self.on("rescue_buries_spent")
        after = job._replace(state="done") if spent else Job("queued", -1, job.term, job.attempt, job.crashes)
        after = after._replace(crashes=min(job.crashes + 1, 2))
        yield Step(
            "rescue", f"is rescued of term {job.term}", self._put(state._replace(job=after), i, marked), "jobs/rescue"
        )

    def _rescue_vanished(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        job = state.job
        if job.state != "running" or job.holder != i or w.finish == "open":
            return
        bad = "an attempt was given back although its handler had run" if state.started & (1 << job.term) else ""
        after = state._replace(job=Job("queued", -1, job.term, job.attempt - 1, job.crashes), bad=bad)
        yield Step("rescue", f"has no row, and its claim of term {job.term} is put back", after, "jobs/rescue")

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def _faults(self, state: State, i: int, w: Worker) -> Iterator[Step[State]]:
        if not state.faults or w.well:
            return
        hurt = state._replace(faults=state.faults - 1)
        if w.life in ("up", "stopping"):
            stray = (w.held[0], w.move) if w.finish == "sent" and not w.stray[0] else w.stray
            dead = _over(w)._replace(life="dead", stray=stray, finish="open" if w.finish == "open" else "")
            dead = dead._replace(held=w.held, move=w.move) if w.finish == "open" else dead
            yield self._step(hurt, i, "fault", "crashes", dead)
            if w.waits:
                yield self._step(
                    hurt, i, "fault", "loses the connection of its claim", w._replace(waits=False, won=NOTHING)
                )
            if w.finish == "sent" and not w.stray[0]:
                broken = w._replace(finish="", doubtful=True, stray=(w.held[0], w.move))
                yield self._step(hurt, i, "fault", f"loses the connection of its {w.move}", broken)

    def _clock(self, state: State) -> Iterator[Step[State]]:
        later = tuple(_later(w) for w in state.workers)
        if later != state.workers:
            yield Step("time", "time passes", self._judged(state._replace(workers=(later[0], later[1]))))
        if not state.faults:
            return
        hurt = state._replace(faults=state.faults - 1)
        if any(w.lease > 0 and not w.well for w in state.workers):
            ended = [w if w.well else w._replace(lease=min(w.lease, 0)) for w in state.workers]
            yield Step(
                "fault", "the database's clock jumps forward", hurt._replace(workers=(ended[0], ended[1]), jumped=True)
            )
        if any(w.lease == 0 for w in state.workers):
            again = [w._replace(lease=1) if w.lease == 0 else w for w in state.workers]
            yield Step("fault", "the database's clock jumps back", hurt._replace(workers=(again[0], again[1])))

    # -- small things --------------------------------------------------------------------------------------------------

    def _judged(self, state: State) -> State:
        if state.bad:
            return state
        if state.job.attempt > self.max_attempts:
            return state._replace(bad="a job was claimed more often than its attempts allow")
        a, b = state.workers
        if a.run == b.run == "running" and a.trust and b.trust and not state.jumped:
            return state._replace(
                bad="two handlers of one job ran at once, both under a lease that their processes trusted"
            )
        return state

    def _step(self, state: State, i: int, kind: str, text: str, worker: Worker, sql: str = "") -> Step[State]:
        return Step(kind, text, self._put(state, i, worker), sql)

    def _put(self, state: State, i: int, worker: Worker) -> State:
        workers = (worker, state.workers[1]) if i == 0 else (state.workers[0], worker)
        return state._replace(workers=workers)


def _held(job: Job) -> tuple[int, int, int]:
    return (job.term, job.attempt, job.crashes)


def _over(w: Worker) -> Worker:
    """Everything that the process knew under this registration is dropped; what is under way in the server is not."""
    fresh = Worker(old=w.old, life="over", lease=w.lease, rescued=w.rescued, trust=0, claim=w.claim, stray=w.stray)
    if w.finish == "sent" and not w.stray[0]:
        return fresh._replace(stray=(w.held[0], w.move))
    return fresh._replace(finish=w.finish, held=w.held, move=w.move) if w.finish == "open" else fresh


def _left(w: Worker) -> Worker:
    deaf = w.run == "running"
    return w._replace(life="left", run=w.run if deaf else "", finish="", renewal=-1, move="", doubtful=False, won=NOTHING, waits=False,
                      held=w.held if deaf else NOTHING, trust=w.trust if deaf else 0)  # fmt: skip


def _later(w: Worker) -> Worker:
    if w.well:
        return w
    return w._replace(
        lease=w.lease - 1 if w.lease > 0 else w.lease,
        trust=max(w.trust - 1, 0),
        renewal=min(w.renewal + 1, TRUST + 1) if w.renewal >= 0 else -1,
    )
