"""The server a project's processes share: started by the first, stopped after the last.

A user is a process that holds `users.lock` shared. One process arrives at a time (`arrivals.lock`): it becomes a user, and
then makes sure that there is a keeper and a server that answers. A user leaves by releasing the lock; the kernel releases it
for a killed process. Everything else is the keeper's work, see `keeper`.

Every user monitors the keeper in a thread: when it was killed, one of them starts another, which also restarts a server that
died with it. A keeper that left in order (`trueup postgres stop`) is not replaced until another user arrives.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg

from trueup.embedded import binaries, locks, logfile
from trueup.embedded.cluster import Cluster
from trueup.embedded.home import DATABASE, FAILED, LEFT, READY, Home
from trueup.embedded.private import resolved
from trueup.errors import DatabaseUnavailable

# All in seconds. They only detect that something is badly wrong; the slowest healthy start takes less.
ARRIVE_WITHIN = 180.0  # another one makes the data directory and recovers, or stops the server with a large checkpoint
LAUNCH_WITHIN = 120.0  # make the data directory and recover
ANSWER_WITHIN = 60.0  # another keeper does that, whose launcher was killed
KEEPER_LEAVES_WITHIN = 10.0
POLL = 0.05
WATCH_EVERY = 1.0  # a check is one try to lock a file
MAX_PAUSE = 30.0  # between two tries to start a keeper in place of one that was killed
log = logging.getLogger("trueup.embedded")

LINGER = timedelta(seconds=1)  # commands run one after another in a terminal or script share one server


@dataclass(frozen=True)
class EmbeddedStatus:
    """What is known about a shared server without starting it."""

    directory: Path
    running: bool
    kept: bool
    url: str | None
    version: str | None
    pid: int | None
    users: frozenset[int] | None  # process ids; None where the system does not tell


class EmbeddedPostgres:
    """The shared PostgreSQL of one directory; as a context manager it gives the URL of the database.

    Any number of processes, and objects in a process, may use one directory at once. The hold lasts from `acquire` to
    `release` or to the end of the process, however it ends. A forked child shares its parent's hold: the server stays
    until both have released it or ended, and neither can end it for the other.

    `major` and `settings` apply when this process starts the server, and not when it joins one; `linger` is how long the
    server stays after its last user.
    """

    def __init__(
        self,
        directory: Path,
        *,
        major: int | None = None,
        settings: Mapping[str, str] | None = None,
        linger: timedelta = LINGER,
    ) -> None:
        self._home = Home(resolved(Path(directory)))
        self._cluster = Cluster(self._home.cluster)
        self._major = major
        self._settings = dict(settings or {})
        self._linger = linger
        self._hold: locks.FileLock | None = None
        self._released = threading.Event()

    def acquire(self) -> str:
        """Start the server or join it, and return the URL of its database `trueup`, which can be connected to.

        Called again while held, it makes sure that the server still runs. Raises EmbeddedUnavailable when there is no
        PostgreSQL for this machine, ConfigError when the directory belongs to another user, and DatabaseUnavailable with
        the reason when the server does not come up.
        """
        binaries.installed()
        self._home.prepare()
        with ExitStack() as on_failure:
            if self._hold is None:
                on_failure.callback(self.release)
            with _locked(self._home.arrivals):
                # Has to wait while a keeper is stopping the server; once held, no keeper will.
                if self._hold is None:
                    self._hold = _locked(self._home.users, shared=True)
                    self._watch_over_keeper(self._hold)
                self._home.stopping.unlink(missing_ok=True)
                self._ensure_answering()
            on_failure.pop_all()
        return self._cluster.url(DATABASE)

    def release(self) -> None:
        """Stop being a user; the server stops soon after its last user has left. Harmless when not held."""
        self._released.set()
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    def keep(self) -> str:
        """Start or join the server, keep it running without users until `unkeep` or `stop`, and return its URL."""
        held_before = self._hold is not None
        url = self.acquire()
        self._home.kept.touch(mode=0o600)
        if not held_before:
            self.release()
        return url

    def unkeep(self) -> None:
        """Let the server stop with its last user again; soon, if it has none."""
        self._home.kept.unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop the server now, kept or not, and even if other processes use it: their connections break.

        The next `acquire` in any process starts it again. Raises TimeoutError if it cannot be stopped.
        """
        self.release()
        if not self._home.directory.exists():
            return
        self.unkeep()
        with _locked(self._home.arrivals):
            self._home.stopping.touch(mode=0o600)
            try:
                self._cluster.end()
                with locks.lock(self._home.keeper, within=KEEPER_LEAVES_WITHIN) as office:
                    office.write(LEFT)  # or the users of a server whose keeper was killed would start it again
            finally:
                self._home.stopping.unlink(missing_ok=True)

    @property
    def programs(self) -> Path:
        """The directory of `psql` and the other programs that fit the server. Raises EmbeddedUnavailable."""
        return self._cluster.programs

    def status(self) -> EmbeddedStatus:
        """Report the state without changing it."""
        running = self._cluster.running
        return EmbeddedStatus(
            directory=self._home.directory,
            running=running,
            kept=self._home.kept.exists(),
            url=self._cluster.url(DATABASE) if running else None,
            version=self._version() if running else None,
            pid=self._cluster.pid,
            users=locks.sharers(self._home.users),
        )

    def __enter__(self) -> str:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _ensure_answering(self) -> None:
        deadline = time.monotonic() + ANSWER_WITHIN
        while True:
            # Also when the server answers: one without a keeper would never be stopped.
            if not self._home.has_keeper():
                self._launch_keeper()
            said = self._home.keeper_says()
            if said == READY and self._cluster.answers():
                return
            reason = said.removeprefix(FAILED) if said.startswith(FAILED) else self._cluster.out_of_reach()
            if reason is not None:
                raise DatabaseUnavailable(f"the embedded PostgreSQL cannot be used: {reason}")
            if time.monotonic() > deadline:
                log = self._home.keeper_log
                raise DatabaseUnavailable(
                    f"the embedded PostgreSQL in {self._home.directory} does not answer. "
                    f"The log of its keeper, {log}, ends:\n{logfile.tail(log)}"
                )
            time.sleep(POLL)

    def _watch_over_keeper(self, hold: locks.FileLock) -> None:
        self._released = threading.Event()
        arguments = (hold, self._released)
        threading.Thread(target=self._watch, args=arguments, name="trueup embedded", daemon=True).start()

    def _watch(self, hold: locks.FileLock, released: threading.Event) -> None:
        pause = WATCH_EVERY
        while not released.wait(pause):
            try:
                if not hold.in_place():
                    return  # the directory was deleted
                if self._home.keeper_was_killed():
                    log.warning("the keeper of the embedded PostgreSQL was killed; starting another")
                    self._replace_keeper(released)
                pause = WATCH_EVERY
            except Exception as error:
                if released.is_set():
                    return
                pause = min(2 * pause, MAX_PAUSE)
                log.error("no keeper of the embedded PostgreSQL; retrying in %.0f s: %s", pause, error)

    def _replace_keeper(self, released: threading.Event) -> None:
        with _locked(self._home.arrivals):
            if self._home.keeper_was_killed() and not released.is_set():  # another user may have been faster
                self._launch_keeper()

    def _version(self) -> str | None:
        try:
            with psycopg.connect(self._cluster.url(DATABASE), connect_timeout=2) as connection:
                return connection.info.parameter_status("server_version")
        except psycopg.OperationalError:
            return None

    def _launch_keeper(self) -> None:
        """Leave a keeper running; the server is ready afterwards. Raises DatabaseUnavailable."""
        command = [sys.executable, "-m", "trueup.embedded.keeper", str(self._home.directory)]
        command += [f"--linger={self._linger.total_seconds()}"]
        command += [f"--set={name}={value}" for name, value in self._settings.items()]
        command += [f"--major={self._major}"] if self._major else []
        try:
            launcher = subprocess.run(
                command,
                cwd=self._home.directory,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
                timeout=LAUNCH_WITHIN,
            )
        except subprocess.TimeoutExpired as error:
            raise DatabaseUnavailable(f"the embedded PostgreSQL has not started after {LAUNCH_WITHIN:.0f} s") from error
        if launcher.returncode != 0:
            raise DatabaseUnavailable(f"the embedded PostgreSQL did not start: {launcher.stderr.strip()}")


def _locked(path: Path, *, shared: bool = False) -> locks.FileLock:
    try:
        return locks.lock(path, shared=shared, within=ARRIVE_WITHIN)
    except TimeoutError as error:
        raise DatabaseUnavailable(f"the embedded PostgreSQL is busy: {error}") from error
