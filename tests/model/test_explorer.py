"""The explorer itself finds what is there to be found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.model.explorer import Step, TooManyStates, explore


class Counter(NamedTuple):
    """Two processes read and write one number, without a lock."""

    value: int = 0
    read: tuple[int | None, int | None] = (None, None)
    done: tuple[bool, bool] = (False, False)
    bad: str = ""


def lost_update(state: Counter) -> Iterator[Step[Counter]]:
    for i in range(2):
        read, done = list(state.read), list(state.done)
        if state.done[i]:
            continue
        if read[i] is None:
            read[i] = state.value
            yield Step("read", f"{i} reads", state._replace(read=(read[0], read[1])))
        else:
            done[i] = True
            after = state._replace(value=(read[i] or 0) + 1, done=(done[0], done[1]))
            yield Step("write", f"{i} writes", after._replace(bad="lost" if all(done) and after.value < 2 else ""))


def test_a_broken_promise_is_found_by_a_shortest_way() -> None:
    found = explore(Counter(), lost_update).counterexample
    assert found is not None
    assert str(found) == "lost\n  1. 0 reads\n  2. 1 reads\n  3. 0 writes\n  4. 1 writes"


def count(limit: int, state: Counter) -> Iterator[Step[Counter]]:
    if state.value < limit:
        yield Step("up", "up", state._replace(value=state.value + 1))
    if state.value == 2:
        yield Step("jump", "jump", state._replace(value=9))


def test_a_state_from_which_the_goal_needs_another_kind_of_step_is_stuck() -> None:
    found = explore(Counter(), lambda state: count(4, state))
    assert found.states == 6
    assert (
        found.unreachable_goal("never 9", lambda state: state.value == 9, ("up", "jump"), lambda s: s.value < 3) is None
    )
    stuck = found.unreachable_goal("never 9", lambda state: state.value == 9, ("up", "jump"))
    assert stuck is not None
    assert stuck.steps == ("up", "up", "up")
    assert found.unreachable_goal("never 9", lambda state: state.value == 9, ("up",)) is not None


def test_a_model_that_outgrows_its_bound_says_so() -> None:
    with pytest.raises(TooManyStates):
        explore(Counter(value=10), lambda state: count(10_000, state), max_states=100)
