"""The process that keeps a shared server: `python -m trueup.embedded.keeper DIRECTORY`.

It starts the server (or adopts one whose keeper was killed), starts it again if it crashes, and stops it when its last
user has gone. It has its own session, so Ctrl-C in a user's terminal does not reach it, and holds nothing of the process
that launched it: no pipe, no terminal, no working directory.

One lock, `users.lock`, decides who uses the server. Every user holds it shared, and the kernel releases it for a user that was
killed. The keeper tries it exclusively, a few times a second, and gets it only when there is no user. To stop the server it
keeps the lock until the server is down and it is no longer the keeper. So a user that arrives meanwhile waits, finds neither
server nor keeper, and starts both again; a user that arrived before keeps the keeper from stopping.

The keeper starts a crashed server again, and keeps trying while that fails (for example on a full disk), as long as it has
users. The exit status tells a crash from a stop. The keeper leaves when another process has stopped the server. It stops the
server immediately on SIGTERM, and when the directory or the data in it was deleted. In all these cases it records that it left.

If the keeper itself is killed the server keeps running. Its users notice that it has not left, and start a new keeper, which
adopts the server or starts it again. An adopted server may be in another container on the same directory; see `cluster`.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import psycopg

from trueup.embedded import locks, logfile
from trueup.embedded.cluster import Cluster
from trueup.embedded.home import DATABASE, FAILED, LEFT, READY, STARTING, Home
from trueup.errors import TrueupError

POLL = 0.25  # seconds: how late the last leave or a crash is noticed; a check costs well under a millisecond
ENDS_WITHIN = 1.0  # seconds between the end of `postmaster.pid` and that of the server, in an orderly stop
MAX_PAUSE = 10.0  # seconds between two tries to start a server that does not start
BECOME_WITHIN = 1.0  # seconds: a process that checks for a keeper briefly holds the keeper's lock

log = logging.getLogger("trueup.embedded.keeper")  # not __name__, which is __main__ here


class Keeper:
    """Keeps the server of one directory. `run` is the whole life."""

    def __init__(self, home: Home, cluster: Cluster, *, linger: float) -> None:
        self._home = home
        self._cluster = cluster
        self._linger = linger
        self._told_to_stop = False
        self._unused_since: float | None = None
        self._failures = 0
        self._next_try = 0.0

    def run(self, when_ready: Callable[[], None]) -> None:
        """Start the server, call `when_ready`, and stay until there is nothing left to keep.

        If there is a keeper already, only calls `when_ready`: that one is in charge. Raises what starting the server
        raises.
        """
        try:
            office = locks.lock(self._home.keeper, within=BECOME_WITHIN)
        except TimeoutError:
            when_ready()
            return
        with office:
            office.write(STARTING)
            self._cluster.start()
            _create_database(self._cluster)
            office.write(READY)
            log.info("keeping PostgreSQL %s", self._cluster.pid or "in another container")
            when_ready()
            self._watch(office)

    def stop(self) -> None:
        """Make `run` stop the server and return soon, users or not. Safe in a signal handler."""
        self._told_to_stop = True

    def _watch(self, office: locks.FileLock) -> None:
        while True:
            time.sleep(POLL)
            if not office.in_place():
                log.info("the directory is gone")
                self._cluster.abandon()
                return
            if self._told_to_stop:
                log.info("told to stop")
                self._cluster.end()
                _leave(office)
                return
            if self._cluster.running:
                self._cluster.trim_log()
                logfile.trim(self._home.keeper_log)
            elif self._has_ended():
                _leave(office)
                return
            else:
                self._start_again(office)
            if self._stop_if_unused(office):
                return

    def _has_ended(self) -> bool:
        """Whether a server that does not run was stopped, or its data are being deleted; False when it crashed."""
        gone = self._cluster.gone(within=ENDS_WITHIN)
        if not (self._cluster.data / "PG_VERSION").exists():
            log.info("the data is gone")
            self._cluster.abandon()
            return True
        if gone and (self._home.stopping.exists() or self._cluster.was_stopped()):
            log.info("the server was stopped")
            return True
        return False

    def _start_again(self, office: locks.FileLock) -> None:
        if time.monotonic() < self._next_try:
            return
        log.warning("the server crashed; starting it again")
        try:
            self._cluster.start()
        except (TrueupError, OSError) as error:
            self._failures += 1
            pause = min(POLL * 2**self._failures, MAX_PAUSE)
            self._next_try = time.monotonic() + pause
            log.error("it does not start; trying again in %.1f s: %s", pause, error)
            _say(office, f"{FAILED}{error}")
        else:
            self._failures = 0
            _say(office, READY)

    def _stop_if_unused(self, office: locks.FileLock) -> bool:
        """Stop the server if it has had no user for a while; True when it was stopped."""
        nobody = locks.try_lock(self._home.users)
        if nobody is None:
            self._unused_since = None
            return False
        with nobody:
            # Checked under the lock: a process that marks the server as kept is a user while doing so.
            if self._home.kept.exists() or not self._lingered():
                return False
            log.info("the last user has gone; stopping PostgreSQL %s", self._cluster.pid)
            self._cluster.end()
            # Given up before users may come again, or one of them would take us for a keeper that is still at work.
            _leave(office)
            return True

    def _lingered(self) -> bool:
        now = time.monotonic()
        if self._unused_since is None:
            self._unused_since = now
        return now - self._unused_since >= self._linger


class Launcher:
    """The process that started the keeper and waits for its first message."""

    def __init__(self, writer: int) -> None:
        self._pipe = os.fdopen(writer, "w")

    def tell(self, word: str) -> None:
        """Report whether the server is ready, or why not. Only the first report is sent."""
        # The launcher may be gone, say by Ctrl-C. The server then has no user and is stopped in the usual way.
        with contextlib.suppress(BrokenPipeError):
            if not self._pipe.closed:
                self._pipe.write(word)
                self._pipe.close()


def main() -> int:
    """Leave a keeper running and return 0 once the server is ready, or print why not and return 1."""
    options = _parse_arguments()
    reader, writer = os.pipe()
    if os.fork() != 0:
        os.close(writer)
        return _await_word(reader)
    os.close(reader)
    home = Home(options.directory)
    _detach(home)
    cluster = Cluster(home.cluster, major=options.major, settings=dict(options.set), confined=True)
    return _keep(Keeper(home, cluster, linger=options.linger), Launcher(writer))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m trueup.embedded.keeper", description="Keeps a shared PostgreSQL.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--linger", type=float, default=0.0, help="seconds to stay after the last user")
    parser.add_argument("--major", type=int, help="PostgreSQL version for a new data directory")
    parser.add_argument("--set", action="append", default=[], type=_setting, metavar="NAME=VALUE")
    return parser.parse_args()


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _await_word(reader: int) -> int:
    with os.fdopen(reader) as keeper:
        word = keeper.read()
    if word == READY:
        return 0
    print(word or "the keeper of the embedded PostgreSQL was killed while starting it", file=sys.stderr)
    return 1


def _detach(home: Home) -> None:
    """Detach from the launcher's session, files and directory; output from now on goes to the keeper's log."""
    os.setsid()
    os.umask(0o077)
    os.chdir(home.directory)
    with Path(os.devnull).open("rb") as nothing, logfile.open_to_append(home.keeper_log) as written:
        os.dup2(nothing.fileno(), 0)
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{os.getpid()}] %(levelname)s %(message)s")


def _keep(keeper: Keeper, launcher: Launcher) -> int:
    def stop(number: int, frame: FrameType | None) -> None:
        keeper.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        keeper.run(when_ready=lambda: launcher.tell(READY))
    except Exception as error:
        log.exception("gave up")
        launcher.tell(str(error))
        return 1
    return 0


def _say(office: locks.FileLock, word: str) -> None:
    with contextlib.suppress(OSError):  # the disk may be full; the log has it
        office.write(word)


def _leave(office: locks.FileLock) -> None:
    _say(office, LEFT)
    office.release()


def _create_database(cluster: Cluster) -> None:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        if not connection.execute("select 1 from pg_database where datname = %s", [DATABASE]).fetchone():
            connection.execute(f"create database {DATABASE}")


if __name__ == "__main__":
    sys.exit(main())
