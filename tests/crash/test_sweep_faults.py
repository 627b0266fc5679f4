"""SIGKILL at each named point of a sweep, in each way of claiming; another process then does every row, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.crash.sweeping import Sweeping, sweeping
from tests.crash.sweeps import ATTEMPTS, MODES, OPTIONS, POISON
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TASKS = 40
SHORT = {OPTIONS: "lease_for=2s"}  # with less, a busy machine gives rows back before it has begun them
# lease, a sweep, a start of the next process on a busy machine, and the work itself
TAKEN_OVER_WITHIN = timedelta(seconds=30)


@pytest.fixture
def run(database_url: str, tmp_path: Path) -> Iterator[Sweeping]:
    with sweeping(database_url, tmp_path, MODES) as this:
        yield this


def held(run: Sweeping, mode: str) -> int:
    return int(run.scalar("select count(*) from trueup.rows where reconciler = %s and state = 'held'", mode))


def settled(run: Sweeping, mode: str) -> int:
    """Tasks of which what became of them is written: done, or failed and resting."""
    resting = run.scalar("select count(*) from trueup.rows where reconciler = %s and state = 'resting'", mode)
    return run.states(mode).get("done", 0) + int(resting)


def begun(run: Sweeping, mode: str) -> int:
    return sum(line["key"].startswith(f"{mode}:") for line in run.begun())


def nothing_claimed(run: Sweeping, mode: str) -> bool:
    return held(run, mode) == 0 and settled(run, mode) == 0


def claimed_and_not_begun(run: Sweeping, mode: str) -> bool:
    return held(run, mode) == TASKS and begun(run, mode) == 0


def begun_and_nothing_settled(run: Sweeping, mode: str) -> bool:
    return held(run, mode) == TASKS and begun(run, mode) > 0 and settled(run, mode) == 0


def one_ended_and_not_settled(run: Sweeping, mode: str) -> bool:
    return begun(run, mode) > 0 and held(run, mode) > 0


def some_settled(run: Sweeping, mode: str) -> bool:
    """Perhaps all: outcomes are written together, and a process that waits for a busy server has all of them by then."""
    return settled(run, mode) > 0


POINTS: dict[str, Callable[[Sweeping, str], bool]] = {
    "before_row_claim": nothing_claimed,
    "after_row_claim": claimed_and_not_begun,
    "before_row_handler": claimed_and_not_begun,
    "after_row_handler": begun_and_nothing_settled,
    "before_row_settle": one_ended_and_not_settled,
    "after_row_settle": some_settled,
    "before_row_commit": one_ended_and_not_settled,
}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_at_this_point_of_a_sweep_loses_and_repeats_nothing(
    run: Sweeping, point: str, mode: str
) -> None:
    run.fill(mode, TASKS)
    run.workers.expect_killed(run.workers.launch(fault=f"{point}:kill", SWEEPS=mode, **SHORT))
    assert POINTS[point](run, mode), "the fault did not land"

    died_at = run.now()
    run.workers.launch(SWEEPS=mode, **SHORT)
    run.wait_done(mode)
    run.prove(fault_ended_at=died_at, within=TAKEN_OVER_WITHIN)
    assert run.states(mode) == {"done": TASKS}
    assert len(run.effects()) == TASKS


def test_a_row_that_kills_its_process_each_time_is_quarantined_and_holds_up_no_other(run: Sweeping) -> None:
    run.fill("lease", 60)
    settings = {"SWEEPS": "poison", OPTIONS: "lease_for=1s,concurrency=5"}
    started = [run.workers.launch(**settings) for _ in range(3)]
    deaths = 0

    def over() -> bool:
        nonlocal deaths
        for process in [each for each in started if each.status is not None]:
            assert process.status == 1, process.said
            deaths += 1
            run.workers.killed.add(process.pid)
            started.remove(process)
            started.append(run.workers.launch(**settings))
        return run.states("lease").get("done") == 59 and run.quarantined() == [("lease", str(POISON), ATTEMPTS)]

    wait_until(over, "all others are done and one is set aside", timeout=90)
    for process in run.workers.alive:
        run.workers.wait_registered(process)
    run.prove()
    # As long as it is in company, a death is held against no row. It is in company once if the database had been told by then that
    # its handler has begun; a row that kills its process faster than that is suspected from the second time on.
    taken_over = [
        each for each in run.history().known if each.key == str(POISON) and each.claims and each.before == "held"
    ]
    in_company = 1 if taken_over[0].old_started else 2
    assert deaths == in_company + ATTEMPTS
    ((reason, errors),) = run.query("select reason, errors from trueup.rows")
    assert reason == "the process that held it died at the last attempt"
    assert [error["type"].rpartition(".")[2] for error in errors] == ["ProcessDied"]
    assert run.states("lease") == {"done": 59, "pending": 1}
