"""Real worker processes of a test, with signals for hands: started, killed, stopped, continued and always ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tests.support import warm
from tests.support.journal import VARIABLE
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
START_WITHIN = 30  # seconds; a second or two, but several start at once on a busy machine
END_WITHIN = 30

# Short, so that what a dead worker held is taken over within a test.
QUICK = {
    "TRUEUP_LEASE_FOR": "2s",
    "TRUEUP_RESCUE_EVERY": "200ms",
    "TRUEUP_POLL_EVERY": "200ms",
    "TRUEUP_CONCURRENCY": "5",
    "TRUEUP_DRAIN_FOR": "5s",
    "TRUEUP_CONNECT_TIMEOUT": "2s",
}


class WorkerProcess:
    """One process that runs `module` of the tree. Everything it prints goes to a file that failures quote."""

    def __init__(self, module: str, environment: Mapping[str, str], log: Path, tree: Path = ROOT) -> None:
        self._log = log
        start = warm.Popen if tree == ROOT else subprocess.Popen  # a warm process has imported this tree
        with log.open("ab") as output:
            self._process = start(
                [sys.executable, "-W", "error", "-m", module],
                cwd=tree,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative for the signal that ended it; None while it lives."""
        return self._process.poll()

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout: float = END_WITHIN) -> int:
        """Its exit status. Raises TimeoutError, quoting what it said and where it is, when it does not end."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            for question in (signal.SIGUSR1, signal.SIGUSR2):  # `tests.crash.working` answers them
                self.send(question)
                time.sleep(0.5)
            raise TimeoutError(f"process {self.pid} did not end within {timeout} s:\n{self.said}") from None

    def end(self) -> None:
        """End it whatever state it is in."""
        if self.status is None:
            self._process.kill()
            self._process.wait()


class Fleet:
    """The worker processes of one test on one database. `killed` are those that could not say how their runs ended.

    Workers reach the database by `ways`, in turn; `took` says which one each process was given.
    """

    def __init__(self, module: str, url: str, directory: Path, *, tree: Path = ROOT, **settings: str) -> None:
        self.url = url
        self.journals = directory / "journals"
        self.killed: set[int] = set()
        self.ways: Sequence[str] = (url,)
        self.took: dict[int, str] = {}
        self.size = 2  # processes, where something keeps it full
        self._tree = tree
        self._module = module
        self._directory = directory
        self._settings = settings
        self._workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.end()
        if error is not None:
            error.add_note("\n".join(f"-- worker {worker.pid}:\n{worker.said}" for worker in self._workers))

    @property
    def concurrency(self) -> int:
        return int({**QUICK, **self._settings}["TRUEUP_CONCURRENCY"])

    @property
    def alive(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if worker.status is None]

    @property
    def crashed(self) -> list[WorkerProcess]:
        """Those that ended by themselves and not in order."""
        ends = (None, 0, -signal.SIGTERM)
        return [each for each in self._workers if each.pid not in self.killed and each.status not in ends]

    def launch(self, *, fault: str = "", base: Mapping[str, str] = os.environ, **settings: str) -> WorkerProcess:
        """Start a worker and return at once; `fault` is its TRUEUP_FAULT."""
        way = self.ways[len(self._workers) % len(self.ways)]
        environment = {
            **base,
            **QUICK,
            **self._settings,
            **settings,
            "TRUEUP_DATABASE_URL": way,
            "TRUEUP_FAULT": fault,
            VARIABLE: str(self.journals),
        }
        log = self._directory / f"worker-{len(self._workers)}.log"
        worker = WorkerProcess(self._module, environment, log, self._tree)
        self._workers.append(worker)
        self.took[worker.pid] = way
        return worker

    def start(self, *, base: Mapping[str, str] = os.environ, **settings: str) -> WorkerProcess:
        """Start a worker and return when it is registered as a holder."""
        worker = self.launch(base=base, **settings)
        self.wait_registered(worker)
        return worker

    def wait_registered(self, worker: WorkerProcess) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:

            def registered() -> bool:
                if worker.status is not None:
                    raise RuntimeError(f"worker {worker.pid} ended with {worker.status}:\n{worker.said}")
                return bool(connection.execute("select from trueup.workers where pid = %s", [worker.pid]).rowcount)

            wait_until(registered, f"worker {worker.pid} is registered", timeout=START_WITHIN)

    def kill(self, worker: WorkerProcess) -> None:
        """SIGKILL; it is gone afterwards."""
        self.killed.add(worker.pid)
        worker.send(signal.SIGKILL)
        worker.wait()

    def expect_killed(self, worker: WorkerProcess) -> None:
        """Return when it has died of SIGKILL by its own fault. Anything else means that the fault did not happen."""
        status = worker.wait()
        if status != -signal.SIGKILL:
            raise AssertionError(f"the fault did not land: worker {worker.pid} ended with {status}:\n{worker.said}")
        self.killed.add(worker.pid)

    def stop_all(self) -> None:
        """Ask every living worker to stop, and return when all have, in order. Raises when one did not.

        One that had not even begun dies of the signal, and that is in order too.
        """
        for worker in self.alive:
            worker.send(signal.SIGTERM)
        for worker in self._workers:
            if worker.pid not in self.killed and worker.wait() not in (0, -signal.SIGTERM):
                raise AssertionError(f"worker {worker.pid} ended with {worker.status}:\n{worker.said}")
