"""One data directory and its server.

`postmaster.pid` inside the data directory says which process serves it, so any process may control the server, not only the
one that started it. Whether there is a server at all is decided by `server.lock`: every process of the server inherits it
locked, so the kernel knows about servers that this process cannot see, in another container on the same directory, and
about processes that outlived their postmaster. A second server is never started while the lock is held.

What survives a crash of everything: the data directory, whole (`datadir`), and a stale `postmaster.pid` that is not believed
(`postmaster`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from trueup.embedded import binaries, confined, datadir, locks, logfile, nonroot, postmaster, processes, sockets
from trueup.embedded.private import make_private, resolved
from trueup.errors import DatabaseUnavailable

START_WITHIN = 60.0  # seconds; recovery after a crash replays up to max_wal_size, which takes a few on a slow disk
STOP_WITHIN = 60.0  # seconds; a fast stop writes a checkpoint
ANSWER_WITHIN = 2  # seconds
POLL = 0.02  # seconds

# What the server says when processes of its killed predecessor still hold the shared memory.
STILL_IN_USE = "is still in use"

_SUPERUSER = {"user": datadir.SUPERUSER, "dbname": "postgres"}  # or the server would log that there is no such role

StopMode = Literal["fast", "immediate", "smart"]


class Cluster:
    """A PostgreSQL server on a directory of its own: the data, the log, and (where its path is short enough) the socket.

    `settings` are given to the server at each start and win over its configuration files. With `confined`, and as root, it can
    open no files but its own and the system's, as far as the kernel allows; a tablespace must then be inside the directory. All
    methods are synchronous, may be called by several processes, and work as root and as an ordinary user.
    """

    def __init__(
        self,
        directory: Path,
        *,
        major: int | None = None,
        settings: Mapping[str, str] | None = None,
        confined: bool = False,
    ) -> None:
        self.directory = resolved(Path(directory))
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
        self._lock_file = self.directory / "cluster.lock"
        self._server_lock = self.directory / "server.lock"
        self._major = major
        self._settings = dict(settings or {})
        self._confined = confined
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def running(self) -> bool:
        """Whether the server runs; it may be starting or stopping.

        For a server whose processes are not visible from here, only whether it answers is known.
        """
        return postmaster.running(self.data) is not None or (self._is_served() and self.answers())

    @property
    def pid(self) -> int | None:
        """The postmaster's process id while it runs and can be seen from here."""
        server = postmaster.running(self.data)
        return server.pid if server else None

    @property
    def programs(self) -> Path:
        """The directory of the PostgreSQL programs that fit this data. Raises EmbeddedUnavailable."""
        return binaries.locate(datadir.version(self.data) or self._major)

    def url(self, database: str = "postgres") -> str:
        """A URL for libpq and every driver that reads its format."""
        name, host = quote(database, safe=""), quote(str(self._socket_directory()))
        return f"postgresql://{datadir.SUPERUSER}@/{name}?host={host}&port={sockets.UNIX_PORT}"

    def answers(self) -> bool:
        """Whether the server accepts connections right now."""
        server = postmaster.read(self.data)
        if server is None or not server.ready:
            return False
        # Through its socket, in a directory that no other server uses: the file may be out of date. A ping, because a
        # connection may be refused only because other clients have taken all of them.
        address = make_conninfo(
            **_SUPERUSER, host=str(server.socket_directory), port=server.port, connect_timeout=ANSWER_WITHIN
        )
        return pq.PGconn.ping(address.encode()) == pq.Ping.OK

    def out_of_reach(self) -> str | None:
        """Why a running server can neither be used nor replaced from here; None when it can."""
        server = postmaster.read(self.data)
        if server is None or not server.ready or postmaster.running(self.data) or not self._is_served():
            return None
        socket = server.socket_directory / f".s.PGSQL.{server.port}"
        if socket.exists():
            return None
        return (
            f"{self.data} is served by a PostgreSQL that cannot be seen from here (in another container?), and whose socket "
            f"{socket} is not visible here either. Mount {server.socket_directory} in both, stop that server where it was started, "
            f"or {binaries.OWN_DATABASE}"
        )

    def create(self) -> None:
        """Create the data directory unless it exists; it is complete afterwards, or untouched if this fails.

        Raises EmbeddedUnavailable when that is impossible here, and ConfigError when the directory belongs to another user
        or was made by another major version than the requested one.
        """
        make_private(self.directory)
        with self._alone():
            datadir.create(self.data, major=self._major, sync=self._settings.get("fsync") != "off")

    def start(self) -> None:
        """Start the server, and create it first if needed; it accepts connections afterwards. Does nothing if it already does.

        A server that was killed recovers. Raises DatabaseUnavailable with the end of the server's log when it dies, or
        is not up in a minute; in the latter case it keeps running, as it may be recovering.
        """
        self.create()
        deadline = time.monotonic() + START_WITHIN
        with self._alone():
            launched: subprocess.Popen[bytes] | None = None
            while not self.answers():
                if time.monotonic() > deadline:
                    raise DatabaseUnavailable(self._complaint(f"has not started after {START_WITHIN:.0f} s"))
                if launched is None and not postmaster.running(self.data):
                    launched = self._launch()
                elif launched is not None and launched.poll() is not None:
                    if STILL_IN_USE not in logfile.tail(self.log, self._log_start):
                        raise DatabaseUnavailable(self._complaint(f"ended with status {launched.returncode}"))
                    launched = None
                time.sleep(POLL)

    def stop(self, mode: StopMode = "fast", *, within: float = STOP_WITHIN) -> None:
        """Stop the server; its processes are gone afterwards. Nothing happens if it is not running.

        `smart` waits for clients to leave, `fast` disconnects them, `immediate` also skips the checkpoint, so that the
        next start recovers as after a crash. Raises TimeoutError when it is still there after `within` seconds.
        """
        server = postmaster.running(self.data)
        if server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.pid, _signal_for(mode))
            _wait_until(
                lambda: not postmaster.serves(server.pid, self.data), within, f"PostgreSQL {server.pid} to stop"
            )
            self._remove_short_directory(server.socket_directory)
        elif self.answers():
            self._stop_from_inside(mode, within)
        self._reap()

    def end(self) -> None:
        """Stop the server: in order, or immediately if that takes too long."""
        try:
            self.stop("fast")
        except TimeoutError:
            self.stop("immediate")

    def kill(self) -> None:
        """End the server and all its processes that can be seen from here with SIGKILL, as a crash would."""
        pid = self.pid
        if pid is not None:
            # Stopped first: a postmaster that runs on could start another child between the look and the kill.
            os.kill(pid, signal.SIGSTOP)
            _kill_all([pid, *processes.children(pid)])
        self._reap()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start again at the same address."""
        self.stop(mode)
        self.start()

    def gone(self, within: float) -> bool:
        """Whether every process of the server has ended, or does within that many seconds."""
        deadline = time.monotonic() + within
        while self._is_served() or (self._process is not None and self._process.poll() is None):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True

    def was_stopped(self) -> bool:
        """Whether the server that is gone was stopped, and did not crash.

        Its exit status decides if this process started it: a server that cannot continue, for example on a full disk, also
        removes its `postmaster.pid`. For a server that another process started, its control file decides.
        """
        if self._process is not None and self._process.poll() is not None:
            return self._process.returncode == 0
        return datadir.is_shut_down(self.data, self.programs)

    def trim_log(self) -> None:
        """Keep the log of the running server within bounds."""
        logfile.trim(self.log)

    def abandon(self) -> None:
        """End the server this object started even if its directory was deleted meanwhile."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(STOP_WITHIN)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _alone(self) -> locks.FileLock:
        return locks.lock(self._lock_file, within=START_WITHIN + STOP_WITHIN)

    def _socket_directory(self) -> Path:
        # A running server knows best: the short directory depends on TMPDIR, which may differ between two processes.
        server = postmaster.running(self.data)
        return server.socket_directory if server else sockets.socket_directory(self.directory)

    def _is_served(self) -> bool:
        """Whether any process of a server of this directory is alive, in any container."""
        return locks.is_locked(self._server_lock)

    def _stop_from_inside(self, mode: StopMode, within: float) -> None:
        """Stop a server whose processes are not visible from here: it signals itself."""
        signal_name = _signal_for(mode).name.removeprefix("SIG")
        # Without a row: the program reads none, and one written after the program ended would be an error.
        command = f"copy (select where false) to program 'read pid < postmaster.pid && kill -{signal_name} $pid'"
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(command.encode())
        _wait_until(lambda: self.gone(0) and not self.answers(), within, f"the PostgreSQL of {self.data} to stop")

    def _launch(self) -> subprocess.Popen[bytes] | None:
        """Start the server; None while processes of another one are alive. Raises DatabaseUnavailable if they may stay so."""
        server_lock = locks.try_lock(self._server_lock)
        if server_lock is None:
            _kill_all(postmaster.orphans(self.data))
            if reason := self.out_of_reach():
                raise DatabaseUnavailable(reason)
            return None
        with server_lock:
            return self._launch_under(server_lock)

    def _launch_under(self, server_lock: locks.FileLock) -> subprocess.Popen[bytes]:
        self._reap()
        way = nonroot.way()
        socket_directory = sockets.socket_directory(self.directory)
        make_private(socket_directory)
        self._clear_remains(socket_directory)
        defaults = {"cluster_name": postmaster.cluster_name(self.data)}
        addresses = {
            "port": str(sockets.UNIX_PORT),
            "listen_addresses": "",
            "unix_socket_directories": str(socket_directory),
        }
        settings = [f"--{name}={value}" for name, value in (defaults | self._settings | addresses).items()]
        with logfile.open_to_append(self.log) as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [
                    *way.prefix,
                    *self._confinement(socket_directory),
                    self.programs / "postgres",
                    "-D",
                    self.data,
                    *settings,
                ],
                cwd=self.data,
                env=datadir.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in our terminal is for us to act on
                pass_fds=[server_lock.fileno()],
                **way.options,
            )
        return self._process

    def _confinement(self, socket_directory: Path) -> list[str | Path]:
        """The prefix that confines the program to these files. Only needed for root."""
        if not self._confined or nonroot.way() != nonroot.IN_NAMESPACE or os.geteuid() != 0:
            return []
        installed = self.programs.parent
        libraries = installed.parent.with_name(f"{installed.parent.name}.libs")
        moved = [
            link.resolve() for link in (self.data / "pg_wal", *(self.data / "pg_tblspc").glob("*")) if link.is_symlink()
        ]
        script = [sys.executable, "-I", "-S", confined.__file__]
        return [*script, installed, libraries, "-w", self.directory, socket_directory, *moved, "--"]

    def _clear_remains(self, socket_directory: Path) -> None:
        """Remove the files of a killed server that would keep the next one from starting.

        They name its process. If another process has that id by now, or if it is a zombie that no parent reaps, as in a
        container without an init, PostgreSQL takes it for a server and refuses to start.
        """
        _kill_all(postmaster.orphans(self.data))
        for left in socket_directory.glob(".s.PGSQL.*"):
            left.unlink()
        recorded = postmaster.read(self.data)
        if recorded is not None and recorded.pid in processes.table():
            postmaster.pid_file(self.data).unlink()

    def _reap(self) -> None:
        """Wait for the process we started, once its server is known to be down."""
        if self._process is not None:
            self._process.wait(STOP_WITHIN)
            self._process = None

    def _remove_short_directory(self, socket_directory: Path) -> None:
        if socket_directory == self.directory:
            return
        alone = locks.try_lock(self._lock_file)
        if alone is None:
            return  # another process is starting the server again and needs it
        with alone, contextlib.suppress(OSError):
            socket_directory.rmdir()

    def _complaint(self, what: str) -> str:
        return (
            f"PostgreSQL in {self.data} {what}. Its log, {self.log}, ends:\n{logfile.tail(self.log, self._log_start)}"
        )


def _signal_for(mode: StopMode) -> signal.Signals:
    return {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode]


def _kill_all(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _wait_until(lambda: not any(processes.alive(pid) for pid in pids), STOP_WITHIN, f"killed processes {pids} to end")


def _wait_until(condition: Callable[[], bool], within: float, what: str) -> None:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within:.0f} s for {what}")
        time.sleep(POLL)
