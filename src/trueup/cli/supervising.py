"""`trueup worker --processes N` and `--reload`: a parent that starts workers as processes and keeps them running.

The parent runs no job and does not import the application, so that a bug in it cannot end the parent. Each child is
`trueup worker` in its own process group: Ctrl-C reaches only the parent, which passes every signal on once. A child holds the
reading end of a pipe; when the parent dies for any reason, the child sees the end of the pipe and drains.

A child that exits unexpectedly is started again after a pause, which doubles while children keep dying early. A child that
refuses its configuration (exit code 2) would do so again: then the parent stops the others and exits with 2. With `--reload` it
waits for the next change of a file instead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path

from trueup.cli.errors import USAGE, WRONG
from trueup.cli.systemd import Systemd
from trueup.events import Events, WorkerProcessEnded, WorkersReloaded

FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0  # seconds before a dead child is started again
LIVED_WELL = 60.0  # a child that ran at least this long starts again with the shortest pause
LOOK_EVERY = 0.5
HAND_BACK_AFTER = 2.0  # a reload waits no longer than this for running jobs; they run again
IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})


class Supervisor:
    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        count: int,
        *,
        reload: bool,
        events: Events,
        systemd: Systemd | None = None,
    ) -> None:
        self._arguments = arguments
        self._environment = dict(environment)
        self._count = count
        self._reload = reload
        self._events = events
        self._systemd = systemd
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()  # another one after each change: children end at different moments
        self._signals = 0
        self._code = 0

    async def run(self) -> int:
        """Run until a signal asks to stop, or a child refuses its configuration. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        alive, self._alive = os.pipe()
        os.set_inheritable(alive, True)
        self._pipe = alive
        tasks = [asyncio.create_task(self._watch())] if self._reload else []
        if self._systemd is not None:
            tasks.append(asyncio.create_task(self._systemd.watch(lambda: None)))
        try:
            await asyncio.gather(*(self._keep(place) for place in range(self._count)))
        finally:
            for task in tasks:
                task.cancel()
            os.close(self._alive)
            os.close(alive)
        return self._code

    async def _keep(self, place: int) -> None:
        """Keep a child running in this slot until the end."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            started = time.monotonic()
            changed = self._changed
            child = await self._start(place)
            code = await child.wait()
            del self._children[place]
            if self._stopping.is_set():
                self._code = self._code or (code and WRONG)
            elif changed.is_set():
                pause = FIRST_PAUSE
            elif self._reload:
                self._events.emit(WorkerProcessEnded(child.pid, code, None))
                await self._either(changed.wait())
            elif code == USAGE:
                self._code = USAGE
                self._stop()
            else:
                pause = FIRST_PAUSE if time.monotonic() - started > LIVED_WELL else pause
                self._events.emit(WorkerProcessEnded(child.pid, code, pause))
                await self._either(asyncio.sleep(pause))
                pause = min(pause * 2, MAX_PAUSE)

    async def _start(self, place: int) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trueup.cli", *self._arguments, "--child", f"{place}:{self._pipe}"),
            env=self._environment,
            pass_fds=(self._pipe,),
            process_group=0,
        )
        self._children[place] = child
        if self._systemd is not None and len(self._children) == self._count:
            self._systemd.ready(f"{self._count} workers started")
        if self._stopping.is_set():  # the signal came while it was being started
            self._send(child, signal.SIGTERM)
        return child

    async def _either(self, awaitable: Awaitable[object]) -> None:
        """Wait until this is done or a stop was requested."""
        waits = [asyncio.ensure_future(awaitable), asyncio.ensure_future(self._stopping.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    def _stop(self) -> None:
        """The first signal drains, the second hands back at once, the third kills."""
        self._signals += 1
        self._stopping.set()
        if self._systemd is not None:
            self._systemd.stopping()
        for child in self._children.values():
            self._send(child, signal.SIGTERM if self._signals < 3 else signal.SIGKILL)

    def _send(self, child: asyncio.subprocess.Process, number: signal.Signals) -> None:
        if child.returncode is None:
            child.send_signal(number)

    async def _watch(self) -> None:
        """Restart the children whenever a Python file below the working directory is written, added or removed."""
        seen = await asyncio.to_thread(snapshot, Path.cwd())
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = await asyncio.to_thread(snapshot, Path.cwd())
            if now != seen:
                changed = sorted(path for path in seen.keys() | now.keys() if seen.get(path) != now.get(path))
                seen = now
                self._events.emit(WorkersReloaded(tuple(changed[:10])))
                await self._restart()

    async def _restart(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        children = list(self._children.values())
        for child in children:
            self._send(child, signal.SIGTERM)
        ended = asyncio.gather(*(child.wait() for child in children))
        try:
            await asyncio.wait_for(asyncio.shield(ended), HAND_BACK_AFTER)
        except TimeoutError:
            for child in children:
                self._send(child, signal.SIGTERM)
            await ended


def snapshot(directory: Path) -> dict[str, tuple[int, int]]:
    """Every Python file below it with its time and size; hidden directories and installed packages are left out."""
    return {str(path.relative_to(directory)): state for path, state in _files(directory)}


def _files(directory: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    for root, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if name not in IGNORED and not name.startswith(".")]
        for name in names:
            if name.endswith(".py"):
                path = Path(root, name)
                try:
                    found = path.stat()
                except OSError:  # it has just been removed
                    continue
                yield path, (found.st_mtime_ns, found.st_size)
