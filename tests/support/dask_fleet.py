"""A Dask scheduler and its workers as processes, forked from one that has imported `distributed` already."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.ports import LOOPBACK, number, reserve
from tests.support.waiting import wait_until

ALLOWED_FAILURES = 1  # a call that has ended two workers is not run on a third


class Forker:
    """Starts Dask's processes, and ends them all on leaving."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.support.dask_fleet", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._pids: set[int] = set()

    def start(self, role: str, port: int) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(role, port, file=self._process.stdin, flush=True)
        pid = int(self._process.stdout.readline())
        self._pids.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        """Returns when it is gone."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"process {pid} has ended")
        self._pids.discard(pid)

    def __enter__(self) -> Forker:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in list(self._pids):
            self.kill(pid)
        self._process.communicate(timeout=30)


class Fleet:
    """One cluster on a port of its own."""

    def __init__(self, forker: Forker) -> None:
        self._forker = forker
        self._reserved = reserve()
        self.address = f"tcp://{LOOPBACK}:{number(self._reserved)}"
        self.scheduler = 0
        self.workers: list[int] = []

    def start_scheduler(self) -> None:
        self.scheduler = self._forker.start("scheduler", number(self._reserved))

    def start_worker(self) -> None:
        self.workers.append(self._forker.start("worker", number(self._reserved)))

    def kill(self, pid: int) -> None:
        self._forker.kill(pid)
        self.workers = [each for each in self.workers if each != pid]

    def kill_scheduler(self) -> None:
        """Its workers end with it, as they do without a scheduler."""
        for pid in (self.scheduler, *self.workers):
            self._forker.kill(pid)
        self.scheduler, self.workers = 0, []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for pid in (*self.workers, self.scheduler):
            if pid:
                self._forker.kill(pid)
        self._reserved.close()


async def _serve(role: str, port: int, directory: str) -> None:
    from distributed import Scheduler, Worker

    server: Any
    if role == "scheduler":
        server = Scheduler(host=LOOPBACK, port=port, dashboard=False, dashboard_address=f"{LOOPBACK}:0")  # type: ignore[no-untyped-call]
    else:
        server = Worker(
            f"tcp://{LOOPBACK}:{port}", nthreads=1, host=LOOPBACK, dashboard=False, local_directory=directory
        )
    async with server:
        await server.finished()


def main(directory: str) -> None:
    import dask
    import distributed  # noqa: F401 - what is to be shared

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    dask.config.set(
        {
            "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
            "temporary-directory": directory,
        }
    )
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # they are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        role, port = line.split()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                asyncio.run(_serve(role, int(port), directory))
            finally:
                os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
