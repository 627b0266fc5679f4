"""The story: a shop's day, with a worker that is killed and one that is frozen, and the proof at its end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import psycopg

from trueup.demo import proof
from trueup.demo.books import Books, Held, Snapshot
from trueup.demo.fleet import Worker
from trueup.demo.screen import Screen, make_screen
from trueup.demo.signals import Interrupted, interruptible, undisturbed
from trueup.demo.stage import LEASE, Stage, StepFailed
from trueup.errors import ConfigError, EmbeddedUnavailable, TrueupError

FEWEST_WORKERS, MOST_WORKERS = 2, 6  # somebody has to take over; the server has connections for so many
FEWEST_JOBS = 500  # or all are done before anything can happen to a worker
POLL = 0.05  # seconds
STEP_WITHIN = 30.0  # seconds
ENOUGH_IN_HAND = 5  # jobs a worker should hold when something happens to it
TAKEOVER_WITHIN = 6 * LEASE.total_seconds()
SLOWEST = 20.0  # jobs a second, on a machine that is busy with other things


def run(*, workers: int = 3, jobs: int = 3000, keep: bool = False, plain: bool | None = None) -> int:
    """Tell the story; returns the exit status.

    0: the proof holds. 1: it does not, or a step failed; the directory with the logs is left and named. 2: it could not
    begin. 128 + n: ended by signal n. Whatever happens, no process is left, and without `keep` or a failure no file.
    """
    screen = make_screen(plain)
    if not FEWEST_WORKERS <= workers <= MOST_WORKERS or jobs < FEWEST_JOBS:
        screen.conclude(f"{FEWEST_WORKERS} to {MOST_WORKERS} workers and at least {FEWEST_JOBS} jobs are needed", "red")
        return 2
    with interruptible():
        stage = Stage(workers)
        status = 0
        try:
            with screen:
                status = _tell(stage, screen, jobs)
        except Interrupted as interrupted:
            screen.conclude("interrupted: cleaning up", "yellow")
            status = interrupted.status
        except Exception:
            status = 1
            raise
        finally:
            keep = keep or status == 1
            with undisturbed():
                stage.clear(keep=keep)
    if keep:
        screen.conclude(f"Kept: logs in {stage.directory}, the database for TRUEUP_DATA_DIR={stage.home}", "")
    return status


def _tell(stage: Stage, screen: Screen, jobs: int) -> int:
    """Returns the exit status, having said why it is not 0."""
    screen.title("trueup demo: a shop, its jobs, and workers that do not always live to finish them")
    screen.say(f"starting a PostgreSQL in {stage.directory}")
    try:
        with stage.database() as connection:
            checks = Story(stage, screen, connection).tell(jobs)
    except EmbeddedUnavailable as error:
        screen.conclude(f"The demo brings its own PostgreSQL, and there is none: {error}", "red")
        return 2
    except ConfigError as error:
        screen.conclude(str(error), "red")
        return 2
    except (StepFailed, TrueupError, psycopg.Error) as error:
        screen.conclude(f"failed: {error}", "bold red")
        if isinstance(error, StepFailed) and error.detail:
            screen.conclude(error.detail, "")
        return 1
    return 0 if all(check.holds for check in checks) else 1


class Story:
    def __init__(self, stage: Stage, screen: Screen, connection: psycopg.Connection[Any]) -> None:
        self._stage = stage
        self._screen = screen
        self._connection = connection
        self._books = Books(connection)
        # The last two: with two workers the one that was killed is back before the other is frozen.
        self._killed, self._frozen = stage.workers[-2:]

    def tell(self, jobs: int) -> Sequence[proof.Check]:
        """Returns the proof, which has been shown."""
        self._begin()
        self._trade("morning", jobs // 2)
        self._kill(self._killed)
        self._restart(self._killed)
        self._trade("afternoon", jobs - jobs // 2)
        self._freeze(self._frozen)
        self._thaw(self._frozen)
        self._finish(jobs)
        return self._prove()

    # -- acts ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        version = self._connection.info.parameter_status("server_version")
        self._screen.say(f"PostgreSQL {version} is up")
        for worker in self._stage.workers:
            worker.start()
        self._until(lambda: all(self._holds_lease(worker) for worker in self._stage.workers), "the workers are up")
        self._screen.say(
            f"workers {_names(self._stage.workers)} are up, each with a lease of {LEASE.seconds} s (usually 30 s)"
        )

    def _trade(self, part: str, jobs: int) -> None:
        """Returns at once: what happens to the workers happens while the shop is at it."""
        self._close_shop()
        self._stage.open_shop(part, jobs)
        self._screen.say(f"{part}: the shop takes orders and enqueues {jobs:,} jobs in the same transactions")

    def _close_shop(self) -> None:
        self._until(lambda: not self._stage.shop_is_open(), "the shop has stored its orders")

    def _kill(self, worker: Worker) -> None:
        self._until(lambda: self._is_busy(worker), f"worker {worker.name} is in the middle of something")
        pid, holders = worker.pid, list(worker.holders)
        worker.kill()
        held = self._left_with(holders)
        self._screen.say(
            f"worker {worker.name} is killed (SIGKILL) with {held.jobs} jobs in hand; {held.sent} had sent their mail already",
            "bold red",
        )
        self._await_takeover(worker, pid)

    def _restart(self, worker: Worker) -> None:
        worker.start()
        self._until(lambda: self._holds_lease(worker), f"worker {worker.name} is back")
        self._screen.say(f"worker {worker.name} is started again, as somebody new", "green")

    def _freeze(self, worker: Worker) -> None:
        self._until(lambda: self._caught_busy(worker), f"worker {worker.name} is in the middle of something")
        held = self._left_with(list(worker.holders))
        self._screen.say(f"worker {worker.name} is frozen (SIGSTOP) with {held.jobs} jobs in hand", "bold cyan")
        self._await_takeover(worker, worker.pid)

    def _thaw(self, worker: Worker) -> None:
        worker.thaw()
        self._until(lambda: any(worker.written("worker.lease_lost")), f"worker {worker.name} knows what it missed")
        self._until(lambda: self._holds_lease(worker), f"worker {worker.name} has a new lease")
        self._until(lambda: self._refused() > 0, f"the late finishes of worker {worker.name} are refused")
        self._screen.say(
            f"worker {worker.name} wakes up (SIGCONT), wants to finish its old jobs, is refused, and starts anew",
            "green",
        )

    def _finish(self, jobs: int) -> None:
        self._close_shop()
        within = STEP_WITHIN + jobs / SLOWEST
        self._until(lambda: self._look().ended >= jobs, "every job has ended", within)
        for worker in self._stage.workers:
            worker.ask_to_stop()
        for worker in self._stage.workers:
            self._await_stop(worker)
        self._screen.say("everything has ended; the workers are stopped and their leases given back")

    def _prove(self) -> Sequence[proof.Check]:
        checks = proof.examine(self._connection, refused=self._refused())
        self._screen.proof(checks)
        if all(check.holds for check in checks):
            pace = proof.pace(self._connection)
            self._screen.conclude(
                f"Proved from the database. {pace.jobs:,} jobs in {pace.seconds:.1f} s, {pace.per_second:,.0f} a second, "
                f"with workers {self._killed.name} and {self._frozen.name} lost on the way.",
                "bold green",
            )
        else:
            self._screen.conclude("The proof does not hold.", "bold red")
        return checks

    # -- parts of acts --------------------------------------------------------------------------------------------------

    def _is_busy(self, worker: Worker) -> bool:
        """In the middle of handlers, and not only with jobs in hand: a mail has been sent whose job is not done."""
        self._look()
        held = self._books.held(list(worker.holders))
        return held.jobs >= ENOUGH_IN_HAND and held.sent > 0

    def _caught_busy(self, worker: Worker) -> bool:
        """Freeze it while busy; look again once it is frozen, as it may just have finished."""
        if not self._is_busy(worker):
            return False
        worker.freeze()
        if self._is_busy(worker):
            return True
        worker.thaw()
        return False

    def _left_with(self, holders: Sequence[UUID]) -> Held:
        """What a worker that can do nothing more holds, once the server is through with what it had sent."""
        before, held = None, self._books.held(holders)
        while held != before:
            time.sleep(POLL)
            before, held = held, self._books.held(holders)
        return held

    def _await_takeover(self, worker: Worker, pid: int) -> None:
        since = time.monotonic()
        holders = list(worker.holders)
        self._until(
            lambda: self._books.held(holders).jobs == 0 and self._books.taken_over(pid) > 0,
            f"the jobs of worker {worker.name} are taken over",
            TAKEOVER_WITHIN,
        )
        self._books.note_loss(worker.name, pid, holders)
        taken, others = self._books.taken_over(pid), [each for each in self._stage.workers if each is not worker]
        self._screen.say(
            f"its lease has passed: after {time.monotonic() - since:.1f} s its {taken} jobs are with {_names(others)}"
        )

    def _await_stop(self, worker: Worker) -> None:
        try:
            status = worker.await_stop()
        except subprocess.TimeoutExpired:
            raise StepFailed(f"worker {worker.name} does not stop ({worker.log})", worker.log_tail()) from None
        if status != 0:
            raise StepFailed(f"worker {worker.name} ended with status {status} ({worker.log})", worker.log_tail())

    def _holds_lease(self, worker: Worker) -> bool:
        return any(holder.pid == worker.pid for holder in self._look().holders)

    def _refused(self) -> int:
        return sum(1 for worker in self._stage.workers for _ in worker.written("job.claim_lost"))

    def _until(self, condition: Callable[[], bool], what: str, within: float = STEP_WITHIN) -> None:
        """Go on looking until it is so. Raises StepFailed after a while, and when a process died that should live."""
        deadline = time.monotonic() + within
        while not condition():
            if self._screen.due():
                self._screen.show(self._look(), self._stage.workers)
            self._check_processes()
            if time.monotonic() > deadline:
                raise StepFailed(f"after {within:.0f} s it is still not so that {what}", self._tails())
            time.sleep(POLL)

    def _look(self) -> Snapshot:
        """How things stand; remembers under which names each worker holds its jobs."""
        snapshot = self._books.snapshot()
        for holder in snapshot.holders:
            for worker in self._stage.workers:
                if holder.pid in worker.pids:
                    worker.holders.add(holder.holder)
        return snapshot

    def _check_processes(self) -> None:
        self._stage.shop_is_open()
        for worker in self._stage.workers:
            if (status := worker.died()) is not None:
                raise StepFailed(f"worker {worker.name} ended with status {status} ({worker.log})", worker.log_tail())

    def _tails(self) -> str:
        return "\n\n".join(f"{worker.log}:\n{worker.log_tail()}" for worker in self._stage.workers)


def _names(workers: Sequence[Worker]) -> str:
    *most, last = [worker.name for worker in workers]
    return f"{', '.join(most)} and {last}" if most else last
