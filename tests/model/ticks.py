"""The protocol of ticks: plan, fire, skip, advance, change, rewind, backfill, prune.

Two planners look at one schedule that is due at the moments 1 and 2. A planner may stall or crash anywhere in its transaction; people pause,
resume, backfill and rewind; the database's clock may be moved ahead and back; old days of the ledger go. Each tick gets one verdict and at
most one run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from tests.model.explorer import Counterexample, Explored, Guard, Step, explore

LAST = 2  # the last moment
NEVER = LAST + 1

BOUNDS: dict[str, dict[str, Any]] = {
    "every tick": {"missed": "all"},
    "late ticks skipped": {"missed": "skip"},
    "a clock that was moved": {"missed": "all", "moved_clock": True},
    "late ticks skipped by a moved clock": {"missed": "skip", "moved_clock": True},
    "planners alone": {"missed": "all", "people": False},
}

GUARDS = (
    Guard("planner_lock", "one planner at a time", "store/sql/schedules/lock.sql", "pg_try_advisory_xact_lock", "planners alone",
          ("due_locks_row", "advance_compares"), "it only spares work: the row itself is locked, and compared when it advances"),
    Guard("due_locks_row", "what is decided about is locked until the decision commits", "store/sql/schedules/due.sql",
          "for update of s skip locked", "every tick", ("advance_compares",), "a decision about a row that was changed meanwhile is undone"),
    Guard("advance_compares", "a schedule advances from where it was read, or not at all", "store/sql/schedules/advance.sql",
          "s.version = a.version and s.next_due_at is not distinct from a.was_due_at", "every tick", ("due_locks_row",), "the row was locked when it was read"),
    Guard("stale_pass_undone", "what a stale pass wrote does not stay", "store/planning.py",
          "if len(advanced) < len(decisions)", "every tick", ("due_locks_row",), "a locked row cannot have become stale"),
    Guard("one_transaction", "verdicts, jobs and watermark commit together", "store/planning.py",
          "async with self._database.transaction() as connection:", "planners alone", ("ledger_key",), "a verdict that was written refuses a second one"),
    Guard("ledger_key", "a tick has one row in the ledger", "store/sql/schedules/fire.sql", "on conflict (schedule, due_at) do update", "every tick"),
    Guard("only_skipped_again", "a backfill leaves fired ticks alone", "store/sql/schedules/fire.sql", "where t.outcome = 'skipped'", "every tick"),
    Guard("only_backfill_again", "a planner leaves skipped ticks alone", "store/sql/schedules/fire.sql",
          "and excluded.reason = 'backfill'", "late ticks skipped by a moved clock"),
    Guard("watermark_forward", "a plan never moves the watermark back", "store/sql/schedules/advance.sql",
          "greatest(s.decided_until, a.decided_until)", "every tick", redundant="while advancing compares, nobody has moved the watermark since it was read"),
    Guard("change_settles_first", "what is due is decided before a schedule is changed", "store/schedules.py",
          "if not await self._settle(connection, name, now):", "every tick"),
    Guard("change_locks_row", "a change waits for the planner that is at it", "store/sql/schedules/hold.sql",
          "for update", "every tick", ("advance_compares",), "the planner finds the row changed, and undoes its pass"),
    Guard("due_only_active", "a schedule that is paused fires nothing", "store/sql/schedules/due.sql", "s.state = 'active'", "every tick"),
    Guard("backfill_settles_first", "what is due is decided before a backfill", "store/schedules.py",
          "async with self._settled(name) as (connection, now): if moments", "every tick", redundant="the tick that the backfill fired has its row, which the planner finds"),
)  # fmt: skip


class Planner(NamedTuple):
    at: str = ""  # "", begun (has the fleet's lock), read (has read the row), fired (without one transaction: not yet advanced)
    now: int = 0
    version: int = 0
    due: int = 0
    until: int = 0


class State(NamedTuple):
    clock: int = 0
    reached: int = 0  # the latest that any clock has said
    version: int = 1
    active: bool = True
    due: int = 1  # next_due_at
    until: int = 0  # decided_until
    ledger: tuple[str, ...] = ("", "", "")  # by moment: "", fired, skipped
    pruned: tuple[bool, ...] = (False, False, False)
    runs: tuple[int, ...] = (0, 0, 0)
    decided: tuple[bool, ...] = (False, False, False)  # it had a verdict at some time
    expected: tuple[bool, ...] = (False, False, False)  # the schedule was active when the clock came to it first
    planners: tuple[Planner, Planner] = (Planner(), Planner())
    jumps: int = 0
    moved: bool = False
    changes: int = 1
    backfills: int = 1
    crashes: int = 1
    bad: str = ""


class TickProtocol:
    def __init__(
        self, *, without: Collection[str] = (), missed: str = "all", moved_clock: bool = False, people: bool = True
    ) -> None:
        unknown = set(without) - {guard.name for guard in GUARDS}
        assert not unknown, f"no such guard: {unknown}"
        self._without = frozenset(without)
        self._missed = missed
        self.start = State(jumps=2 if moved_clock else 0, changes=int(people), backfills=int(people))

    def on(self, guard: str) -> bool:
        return guard not in self._without

    def check(self) -> tuple[Explored[State], Counterexample | None]:
        found = explore(self.start, self.steps)
        stuck = found.counterexample or found.unreachable_goal(
            "a tick that is due is never decided",
            lambda state: not state.active or state.until >= state.clock or state.bad != "",
            ("plan", "commit"),
            lambda state: not state.moved,
        )
        return found, stuck

    def steps(self, state: State) -> Iterator[Step[State]]:
        if state.clock < LAST:
            yield Step("time", f"the clock comes to {state.clock + 1}", self._at(state, state.clock + 1))
        for i, planner in enumerate(state.planners):
            yield from self._planning(state, i, planner)
        yield from self._people(state)
        for tick in range(1, state.clock):
            if state.ledger[tick] and not state.pruned[tick] and tick <= state.until and not state.moved:
                gone = state._replace(ledger=_at(state.ledger, tick, ""), pruned=_at(state.pruned, tick, True))
                yield Step("prune", f"the ledger's row of {tick} is pruned", gone, "history/drop_day")
        if state.jumps == 2 and state.clock < LAST:
            yield Step("fault", f"the clock jumps ahead to {LAST}", self._at(state, LAST)._replace(jumps=1, moved=True))
        if state.jumps == 1 and state.clock > 0:
            yield Step("fault", "the clock is set back to 0", state._replace(clock=0, jumps=0))

    def _at(self, state: State, clock: int) -> State:
        expected = state.expected
        for tick in range(max(state.clock, state.reached) + 1, clock + 1):
            expected = _at(expected, tick, state.active)
        return state._replace(clock=clock, reached=max(clock, state.reached), expected=expected)

    # -- planners ------------------------------------------------------------------------------------------------------

    def _planning(self, state: State, i: int, planner: Planner) -> Iterator[Step[State]]:
        name, other = "PQ"[i], state.planners[1 - i]
        if not planner.at and (not other.at or not self.on("planner_lock")):
            yield Step("plan", f"{name} begins to plan", self._put(state, i, Planner("begun")), "schedules/lock")
        if planner.at == "begun":
            locked = other.at == "read" and self.on("due_locks_row")
            if (state.active or not self.on("due_only_active")) and state.due <= state.clock and not locked:
                read = Planner("read", state.clock, state.version, state.due, state.until)
                yield Step(
                    "plan", f"{name} reads what is due at {state.clock}", self._put(state, i, read), "schedules/due"
                )
            else:
                yield Step("plan", f"{name} finds nothing due", self._put(state, i, Planner()), "schedules/due")
        if planner.at == "read":
            yield from self._writing(state, i, planner, name)
        if planner.at == "fired":
            yield Step(
                "commit",
                f"{name} advances",
                self._put(self._advanced(state, planner, planner.now), i, Planner()),
                "schedules/advance",
            )
        if planner.at and state.crashes:
            yield Step("fault", f"{name} crashes", self._put(state._replace(crashes=state.crashes - 1), i, Planner()))

    def _writing(self, state: State, i: int, planner: Planner, name: str) -> Iterator[Step[State]]:
        fresh = state.version == planner.version and state.due == planner.due
        if self.on("advance_compares") and not fresh:
            after = state if self.on("stale_pass_undone") else self._fired(state, planner.until, planner.now)
            yield Step(
                "commit", f"{name} finds that its row has changed", self._put(after, i, Planner()), "schedules/advance"
            )
            return
        fired = self._fired(state, planner.until, planner.now)
        if self.on("one_transaction"):
            yield Step(
                "commit",
                f"{name} commits its verdicts",
                self._put(self._advanced(fired, planner, planner.now), i, Planner()),
                "schedules/fire",
            )
        else:
            yield Step(
                "commit",
                f"{name} commits its verdicts alone",
                self._put(fired, i, planner._replace(at="fired")),
                "schedules/fire",
            )

    def _verdict(self, tick: int, now: int) -> str:
        """What `missed=` says. Grace is nothing here: a tick is missed as soon as its moment has passed."""
        late = tick < now
        return "skipped" if late and self._missed in ("skip", "latest") else "fired"

    def _fired(self, state: State, until: int, now: int, *, reason: str = "") -> State:
        for tick in range(until + 1, now + 1):
            state = self._record(state, tick, self._verdict(tick, now), reason)
        return state

    def _record(self, state: State, tick: int, verdict: str, reason: str) -> State:
        known = state.ledger[tick]
        if known and self.on("ledger_key"):
            again = (known == "skipped" or not self.on("only_skipped_again")) and (
                reason == "backfill" or not self.on("only_backfill_again")
            )
            if not again or verdict != "fired":
                return state
        bad = state.bad
        runs = _at(state.runs, tick, state.runs[tick] + (verdict == "fired"))
        if runs[tick] > 1:
            bad = f"the tick of {tick} was fired twice"
        elif known == "skipped" and verdict == "fired" and reason != "backfill":
            bad = f"the tick of {tick} had been skipped, and was fired although no person asked for it"
        elif verdict == "fired" and not reason and not state.expected[tick] and not state.moved:
            bad = f"the tick of {tick} was fired although the schedule was paused then"
        return state._replace(
            ledger=_at(state.ledger, tick, verdict), runs=runs, decided=_at(state.decided, tick, True), bad=bad
        )

    def _advanced(self, state: State, planner: Planner, now: int) -> State:
        decided_until = max(planner.until, now) if now >= planner.due else planner.until
        until = max(state.until, decided_until) if self.on("watermark_forward") else decided_until
        return self._judged(state._replace(due=_next(now), until=until))

    def _judged(self, state: State) -> State:
        for tick in range(1, min(state.until, state.clock) + 1):
            if state.expected[tick] and not state.decided[tick] and not state.moved and not state.bad:
                return state._replace(
                    bad=f"the tick of {tick} was passed over: the watermark is beyond it, and it has no verdict"
                )
        return state

    # -- people --------------------------------------------------------------------------------------------------------

    def _people(self, state: State) -> Iterator[Step[State]]:
        if (
            any(planner.at == "read" for planner in state.planners)
            and self.on("due_locks_row")
            and self.on("change_locks_row")
        ):
            return  # they wait for the row
        if state.changes:
            settled = self._settled(state) if self.on("change_settles_first") else state
            until = max(settled.until, state.clock) if not state.active else settled.until
            word = "pause" if state.active else "resume"
            changed = settled._replace(
                active=not state.active, version=state.version + 1, changes=state.changes - (not state.active),
                due=_next(state.clock) if not state.active else settled.due, until=until,
            )  # fmt: skip
            if state.active and settled.until < state.clock:  # nobody looks at a paused schedule again
                changed = changed._replace(until=state.clock)
            yield Step("people", f"people {word} the schedule", self._judged(changed), "schedules/set_state")
        if state.backfills and state.active:
            settled = self._settled(state) if self.on("backfill_settles_first") else state
            for tick in range(1, state.clock + 1):
                if not state.pruned[tick]:
                    filled = self._record(settled._replace(backfills=0), tick, "fired", "backfill")
                    yield Step("people", f"people backfill the tick of {tick}", filled, "schedules/fire")
        if state.moved and state.until > state.clock and state.active:
            rewound = state._replace(until=state.clock, due=_next(state.clock), version=state.version + 1)
            yield Step("people", "people bring the watermark back", rewound, "schedules/rewind")

    def _settled(self, state: State) -> State:
        if not state.active or state.due > state.clock:
            return state
        planner = Planner("", state.clock, state.version, state.due, state.until)
        return self._advanced(self._fired(state, state.until, state.clock), planner, state.clock)

    def _put(self, state: State, i: int, planner: Planner) -> State:
        planners = (planner, state.planners[1]) if i == 0 else (state.planners[0], planner)
        return state._replace(planners=planners)


def _next(now: int) -> int:
    return min(now + 1, NEVER)


def _at(values: tuple, tick: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:tick], value, *values[tick + 1 :])
