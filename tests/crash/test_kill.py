"""SIGKILL, at each named point and at random moments; another worker then finishes everything, once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.crash.run import Run
from tests.support.processes import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

RUNNING = "select count(*) from trueup.jobs where state = 'running'"
DONE = "select count(*) from trueup.history where state = 'done'"
WRITTEN = "select count(*) from effects.written"
# lease, a rescue pass, a start of the next worker on a busy machine, and the work itself
TAKEN_OVER_WITHIN = timedelta(seconds=20)


def nothing_claimed(run: Run) -> bool:
    return run.count(RUNNING) == 0 and run.count(DONE) == 0


def claimed_and_not_started(run: Run) -> bool:
    return run.count(RUNNING) > 0 and not run.events("job.started")


def started_without_effect(run: Run) -> bool:
    return bool(run.events("job.started")) and run.count(WRITTEN) == 0 and run.count(RUNNING) > 0


def ran_and_not_finished(run: Run) -> bool:
    return run.count("select count(*) from effects.delivered") > 0 and run.count(DONE) == 0


def finished_and_not_said(run: Run) -> bool:
    """Committed, and the process died before it did anything else: some are done, others still in its hands."""
    return run.count(DONE) > 0


def effect_rolled_back(run: Run) -> bool:
    return run.count(WRITTEN) == 0 and run.count(RUNNING) > 0


def effect_committed_with_done(run: Run) -> bool:
    return run.count(WRITTEN) == run.count(DONE) > 0


POINTS: dict[str, tuple[str, Callable[[Run], bool]]] = {
    "before_claim": ("deliver", nothing_claimed),
    "after_claim": ("deliver", claimed_and_not_started),
    "before_handler": ("transfer", started_without_effect),
    "after_handler": ("deliver", ran_and_not_finished),
    "before_finish": ("deliver", ran_and_not_finished),
    "after_finish": ("deliver", finished_and_not_said),
    "before_commit": ("transfer", effect_rolled_back),
    "after_commit": ("transfer", effect_committed_with_done),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_at_this_point_loses_and_repeats_nothing(crash: Run, point: str) -> None:
    kind, landed = POINTS[point]
    crash.enqueue(**{kind: 20}, transfer_sync=3)
    victim = crash.workers.launch(fault=f"{point}:kill", TRUEUP_LEASE_FOR="2s")
    crash.workers.expect_killed(victim)
    assert landed(crash), crash.states()

    died_at = crash.now()
    crash.workers.launch()
    crash.wait_ended()
    crash.prove(fault_ended_at=died_at, within=TAKEN_OVER_WITHIN)
    assert crash.states() == {"done": 23}


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_a_worker_killed_around_a_commit_in_a_thread_loses_and_repeats_nothing(crash: Run, point: str) -> None:
    crash.enqueue(transfer_sync=10)
    crash.workers.expect_killed(crash.workers.launch(fault=f"{point}:kill", TRUEUP_LEASE_FOR="1s"))
    assert POINTS[point][1](crash), crash.states()
    crash.workers.launch()
    crash.wait_ended()
    crash.prove()


def test_a_worker_killed_as_it_renews_is_taken_over(crash: Run, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    crash.jobs.gated.enqueue_sync(str(gate))
    crash.note_enqueued()
    victim = crash.workers.launch(fault="before_renew:kill:2", TRUEUP_LEASE_FOR="1s")
    crash.workers.expect_killed(victim)
    assert crash.count(RUNNING) == 1
    gate.touch()
    crash.workers.launch()
    crash.wait_ended()
    crash.prove()
    assert [line["held_by"] for line in crash.events("job.rescued")] == [crash.events("worker.started")[0]["holder"]]


@pytest.mark.parametrize(("point", "left_running"), [("before_rescue", 1), ("after_rescue", 0)])
def test_a_worker_killed_as_it_rescues_leaves_the_rest_to_the_next(
    crash: Run, tmp_path: Path, point: str, left_running: int
) -> None:
    gate = tmp_path / "gate"
    crash.jobs.gated.enqueue_sync(str(gate))
    crash.note_enqueued()
    first = crash.workers.start(TRUEUP_LEASE_FOR="1s")
    wait_until(lambda: crash.count(RUNNING) == 1, "the job runs")
    crash.workers.kill(first)
    wait_until(lambda: crash.count("select count(*) from trueup.workers where lease_until > now()") == 0, "it expires")
    # No room to claim: only the rescue is at work before it dies.
    crash.workers.expect_killed(crash.workers.launch(fault=f"{point}:kill,before_claim:sleep=5"))
    assert crash.count(RUNNING) == left_running
    gate.touch()
    crash.workers.launch()
    crash.wait_ended()
    crash.prove()


def test_workers_killed_at_random_moments_lose_and_repeat_nothing(crash: Run) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    rng = random.Random(seed)
    crash.enqueue(transfer=150, transfer_sync=50, flaky=50, deliver=150, limited=40, choosy=40)
    for _ in range(3):
        crash.workers.launch(TRUEUP_LEASE_FOR="1s")
    kills = 0
    for _ in range(4):
        victim = rng.choice(crash.workers.alive)
        crash.workers.wait_registered(victim)
        time.sleep(rng.uniform(0, 0.3))  # the random moment that is the point of the sweep
        crash.workers.kill(victim)
        kills += 1
        crash.workers.launch(TRUEUP_LEASE_FOR="1s")
    crash.wait_ended()
    crash.prove()
    assert kills == 4


def test_a_job_that_kills_its_worker_each_time_is_buried_and_blocks_nobody(crash: Run) -> None:
    crash.enqueue(poison=1, transfer=40, deliver=40)
    started = [crash.workers.launch(TRUEUP_LEASE_FOR="1s") for _ in range(2)]
    deaths = 0

    def ended() -> bool:
        nonlocal deaths
        for worker in [each for each in started if each.status is not None]:
            assert worker.status == 1, worker.said
            deaths += 1
            crash.workers.killed.add(worker.pid)
            started.remove(worker)
            started.append(crash.workers.launch(TRUEUP_LEASE_FOR="1s"))
        return crash.count("select count(*) from trueup.jobs") == 0

    wait_until(ended, "every job has ended", timeout=60)
    for worker in crash.workers.alive:
        crash.workers.wait_registered(worker)
    crash.prove()
    # A worker that stalls for longer than its lease spends an attempt without a death.
    stalled = len(crash.events("worker.lease_lost"))
    assert 3 - stalled <= deaths <= 3
    assert crash.states() == {"done": 80, "dead": 1}
    ((reason, errors),) = crash.query("select reason, errors from trueup.history where state = 'dead'")
    assert reason == "its worker died at the last attempt"
    assert [error["type"] for error in errors] == ["WorkerLost"] * 3


ENQUEUE_MANY = """
import asyncio, os
from trueup import App
from tests.crash.fleet import declare

async def main() -> None:
    await declare(App(os.environ["TRUEUP_DATABASE_URL"])).quick.enqueue_many((n,) for n in range(50_000))

asyncio.run(main())
"""


def test_a_process_killed_halfway_through_a_batch_has_enqueued_none_of_it(crash: Run) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", ENQUEUE_MANY],
        env={**os.environ, "TRUEUP_DATABASE_URL": crash.url, "TRUEUP_FAULT": "mid_enqueue_many:kill:5"},
        cwd=ROOT,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    assert crash.states() == {}


@pytest.mark.proof(beside="test_workers_killed_at_random_moments_lose_and_repeat_nothing")
def test_five_workers_started_at_once_share_the_work(crash: Run) -> None:
    crash.enqueue(transfer=300, deliver=300, limited=50)
    for _ in range(5):
        crash.workers.launch()
    crash.wait_ended()
    for worker in crash.workers.alive:
        crash.workers.wait_registered(worker)
    crash.prove()
    births = crash.events("worker.started")
    assert len({line["process"] for line in births}) == 5
    assert len({line["holder"] for line in births}) == len(births)
    assert crash.states() == {"done": 650}
    assert len({line["process"] for line in crash.events("job.started")}) > 1


def test_a_worker_stopped_past_its_lease_is_refused_and_goes_on_as_another_holder(crash: Run, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    crash.jobs.gated.enqueue_sync(str(gate))
    crash.note_enqueued()
    sleeper = crash.workers.start()
    wait_until(lambda: crash.count(RUNNING) == 1, "the job runs")
    sleeper.send(signal.SIGSTOP)
    other = crash.workers.start()
    gate.touch()
    crash.wait_ended()
    assert {line["process"] for line in crash.events("job.completed")} == {other.pid}

    sleeper.send(signal.SIGCONT)
    wait_until(lambda: crash.events("job.claim_lost"), "the late finish is counted")
    wait_until(lambda: len(crash.events("worker.started")) >= 3, "the sleeper is a new holder")
    crash.workers.kill(other)
    crash.enqueue(transfer=10)
    crash.wait_ended()
    crash.prove()
    assert {line["process"] for line in crash.events("job.claim_lost")} == {sleeper.pid}
    births = crash.events("worker.started")
    assert len({line["holder"] for line in births}) == len(births) >= 3
    assert sleeper.pid in {line["process"] for line in crash.events("worker.lease_lost")}
    assert crash.states() == {"done": 11}
