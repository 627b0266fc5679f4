"""The protocol of a tick's run under a lease: run it, or skip it because another instance has the lease.

One tick was fired, and its job is claimed by one worker after another: a worker may lose its claim at any moment without noticing, and its
late writes arrive all the same. What the ledger says must be what happened: a tick that ran stays fired, so that a backfill leaves it alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from tests.model.explorer import Counterexample, Explored, Guard, Step, explore

BOUNDS: dict[str, dict[str, Any]] = {"two claims and a backfill": {}}

GUARDS = (
    Guard("skip_is_fenced", "a holder that lost its claim does not mark the tick", "store/sql/jobs/drop_run.sql",
          "update {schema}.ticks as t set outcome = 'skipped', reason = gone.tick_skipped from gone", "two claims and a backfill"),
    Guard("skip_drops_at_once", "the job is dropped and its tick marked by one statement", "store/sql/jobs/drop_run.sql",
          "skipped as ( update {schema}.ticks", "two claims and a backfill"),
    Guard("finish_is_fenced", "a holder that lost its claim finishes nothing", "store/sql/jobs/drop_run.sql",
          "j.term = mine.term and j.holder = %(holder)s and j.state = 'running'", "two claims and a backfill"),
    Guard("skip_names_its_job", "only the tick whose run this job is is marked", "store/sql/jobs/drop_run.sql",
          "t.job_id = gone.id", "two claims and a backfill", redundant="a tick gets another job only by a backfill, and before that its first job is gone, so the fence refuses"),
)  # fmt: skip

MAX_TERM = 2


class Run(NamedTuple):
    """A job of the tick."""

    state: str = "queued"  # queued, running, done, dropped
    term: int = 0


class State(NamedTuple):
    outcome: str = "fired"  # of the tick
    runs: tuple[Run, ...] = (Run(),)  # the one that was fired, and the one of a backfill; the tick names the last
    writes: frozenset[tuple[int, int, str]] = frozenset()  # job, term and verb of what workers may still send
    effects: int = 0  # runs that were finished
    crashed: int = 1
    bad: str = ""


class RunProtocol:
    def __init__(self, *, without: Collection[str] = ()) -> None:
        unknown = set(without) - {guard.name for guard in GUARDS}
        assert not unknown, f"no such guard: {unknown}"
        self._without = frozenset(without)
        self.start = State()

    def on(self, guard: str) -> bool:
        return guard not in self._without

    def check(self) -> tuple[Explored[State], Counterexample | None]:
        found = explore(self.start, self.steps)
        return found, found.counterexample

    def steps(self, state: State) -> Iterator[Step[State]]:
        for step in self._steps(state):
            yield step._replace(after=self._judged(step.after))

    def _steps(self, state: State) -> Iterator[Step[State]]:
        for n, run in enumerate(state.runs):
            if run.state == "queued" and run.term < MAX_TERM:
                term = run.term + 1
                for verb in ("complete", "skip"):  # what its handler will come to
                    claimed = self._put(state, n, Run("running", term))
                    yield Step(
                        "worker",
                        f"job {n + 1} is claimed (term {term}), and will {verb}",
                        claimed._replace(writes=state.writes | {(n, term, verb)}),
                        "jobs/claim",
                    )
            if run.state == "running":
                yield Step(
                    "rescue",
                    f"job {n + 1} is rescued of term {run.term}",
                    self._put(state, n, Run("queued", run.term)),
                    "jobs/rescue",
                )
        for n, term, verb in sorted(state.writes):
            sent = state._replace(writes=state.writes - {(n, term, verb)})
            if verb == "complete":
                yield Step(
                    "worker", f"term {term} of job {n + 1} completes", self._complete(sent, n, term), "jobs/complete"
                )
            elif self.on("skip_drops_at_once"):
                yield Step(
                    "worker",
                    f"term {term} of job {n + 1} is dropped, its tick skipped",
                    self._mark(self._drop(sent, n, term), sent, n, term),
                    "jobs/drop_run",
                )
            else:
                marking = self._drop(sent, n, term)
                yield Step(
                    "worker",
                    f"term {term} of job {n + 1} is dropped",
                    marking._replace(writes=marking.writes | {(n, term, "mark")}),
                    "jobs/drop_run",
                )
                if state.crashed:
                    yield Step(
                        "fault", f"the worker of term {term} crashes after its drop", marking._replace(crashed=0)
                    )
        if state.outcome == "skipped" and len(state.runs) < 2:
            again = state._replace(outcome="fired", runs=(*state.runs, Run()))
            yield Step("people", "people backfill the tick", again, "schedules/fire")

    def _passes(self, state: State, n: int, term: int) -> bool:
        return state.runs[n] == Run("running", term) or (
            not self.on("finish_is_fenced") and state.runs[n].state in ("running", "queued")
        )

    def _complete(self, state: State, n: int, term: int) -> State:
        if not self._passes(state, n, term):
            return state
        late = state.runs[n] != Run("running", term)
        done = self._put(state, n, state.runs[n]._replace(state="done"))._replace(effects=state.effects + 1)
        return done._replace(bad="a holder that had lost its claim finished the run") if late else done

    def _drop(self, state: State, n: int, term: int) -> State:
        return self._put(state, n, state.runs[n]._replace(state="dropped")) if self._passes(state, n, term) else state

    def _mark(self, after: State, before: State, n: int, term: int) -> State:
        if self.on("skip_is_fenced") and not self._passes(before, n, term):
            return after
        mine = n == len(before.runs) - 1 or not self.on("skip_names_its_job")
        return after._replace(outcome="skipped") if mine and after.outcome == "fired" else after

    def _judged(self, state: State) -> State:
        if state.bad:
            return state
        last = state.runs[-1].state
        if state.effects > 1:
            return state._replace(bad="a tick ran twice, the second time by a backfill of a tick that had run")
        if state.outcome == "skipped" and last == "done":
            return state._replace(bad="the ledger says that a tick was skipped which has run")
        if state.outcome == "fired" and last == "dropped" and not state.writes:
            return state._replace(bad="the ledger says that a tick was fired whose run was dropped")
        return state

    def _put(self, state: State, n: int, run: Run) -> State:
        return state._replace(runs=(*state.runs[:n], run, *state.runs[n + 1 :]))
