"""An explicit-state explorer: breadth first, so that the first counterexample is a shortest one.

A model is a start state and a function from a state to its steps. States are hashable values; a step that breaks a promise leads to a
state whose `bad` says which. After the exploration, `unreachable_goal` answers the questions of liveness: is there, from every
state, a way to a goal by steps that need neither luck nor the help of a process that may be gone?
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar


class Judged(Protocol):
    @property
    def bad(self) -> str: ...


S = TypeVar("S", bound=Judged)


class Step(NamedTuple, Generic[S]):
    """One move of one actor. `kind` groups moves for liveness; `sql` is the statement that makes it, where one does."""

    kind: str
    text: str
    after: S
    sql: str = ""


@dataclass(frozen=True)
class Counterexample:
    promise: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((self.promise, *(f"{number:>3}. {text}" for number, text in enumerate(self.steps, 1))))


class TooManyStates(AssertionError):
    """The model has outgrown its bound: it would no longer run in seconds."""


@dataclass
class Explored(Generic[S]):
    """Every reachable state, and how it was reached first."""

    start: S
    came_from: dict[S, tuple[S, str] | None] = field(default_factory=dict)
    steps: dict[S, list[tuple[str, S]]] = field(default_factory=dict)  # (kind, state after)
    counterexample: Counterexample | None = None
    transitions: int = 0
    statements: set[str] = field(default_factory=set)
    depth: int = 0

    @property
    def states(self) -> int:
        return len(self.came_from)

    def trace(self, state: S) -> tuple[str, ...]:
        texts: list[str] = []
        while (before := self.came_from[state]) is not None:
            state, text = before
            texts.append(text)
        return tuple(reversed(texts))

    def unreachable_goal(
        self,
        promise: str,
        goal: Callable[[S], bool],
        kinds: Collection[str],
        domain: Callable[[S], bool] = lambda _: True,
    ) -> Counterexample | None:
        """A state of the domain from which no steps of these kinds lead to a goal, reached as quickly as one can be."""
        before: dict[S, list[S]] = {}
        for state, steps in self.steps.items():
            for kind, after in steps:
                if kind in kinds:
                    before.setdefault(after, []).append(state)
        reaching = {state for state in self.came_from if goal(state)}
        queue = deque(reaching)
        while queue:
            for state in before.get(queue.popleft(), ()):
                if state not in reaching:
                    reaching.add(state)
                    queue.append(state)
        stuck = next((state for state in self.came_from if state not in reaching and domain(state)), None)
        return None if stuck is None else Counterexample(promise, self.trace(stuck))


def explore(start: S, steps: Callable[[S], Iterable[Step[S]]], *, max_states: int = 200_000) -> Explored[S]:
    """Everything reachable, or as far as the first broken promise."""
    collecting = gc.isenabled()
    gc.disable()  # states are many and refer to nothing in a circle: looking through them again and again takes a third of the time
    try:
        return _explore(start, steps, max_states)
    finally:
        if collecting:
            gc.enable()


def _explore(start: S, steps: Callable[[S], Iterable[Step[S]]], max_states: int) -> Explored[S]:
    found: Explored[S] = Explored(start, {start: None})
    level = [start]
    while level:
        found.depth += 1
        following: list[S] = []
        for state in level:
            taken = found.steps[state] = []
            for step in steps(state):
                found.transitions += 1
                if step.sql:
                    found.statements.add(step.sql)
                taken.append((step.kind, step.after))
                if step.after in found.came_from:
                    continue
                found.came_from[step.after] = (state, step.text)
                if step.after.bad:
                    found.counterexample = Counterexample(step.after.bad, found.trace(step.after))
                    return found
                following.append(step.after)
        if found.states > max_states:
            raise TooManyStates(f"{found.states:,} states and more")
        level = following
    return found


@dataclass(frozen=True)
class Guard:
    """One thing that a promise rests on, and where it is written.

    Within the bounds `shown_in`, its loss breaks a promise. With `backed_by`, it does so only when those guards are missing, too, while
    without them alone nothing breaks: two lines of defence, either of which would do. A `redundant` guard says why its loss never shows.
    """

    name: str
    meaning: str
    file: str  # below src/trueup
    text: str  # what stands there, with single spaces
    shown_in: str
    backed_by: tuple[str, ...] = ()
    why_backed: str = ""
    redundant: str = ""


class Checkable(Protocol):
    """A model that can be explored with some of its guards left out."""

    def check(self) -> tuple[Explored[Any], Counterexample | None]: ...
