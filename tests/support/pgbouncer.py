"""A real PgBouncer in transaction mode, as users put between their workers and PostgreSQL.

It is left as strict as it comes: no startup parameter is ignored (libpq sends none that PgBouncer does not know, unless
`options` is used, and that must be seen to fail), and nothing is reset between two transactions.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.support import ports
from tests.support.debian import library_path, unpack
from tests.support.urls import connection_url
from tests.support.waiting import wait_until
from trueup.embedded import nonroot

PACKAGES = ("pgbouncer", "libevent-2.1-7", "libc-ares2")
ADMIN_CONSOLE = "pgbouncer"  # a database that PgBouncer itself answers for
STOP_TIMEOUT = 5
SESSION = """
select pg_backend_pid(), (select count(*) from pg_prepared_statements), (select count(*) from pg_listening_channels()),
       (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'),
       array(select name from pg_settings where source = 'session')
"""
ENDED_BY_CANCEL = "FATAL @"
SINGLE, DOUBLE = "'", '"'

# When the server could not be reached, PgBouncer tries it again after server_login_retry: by default 15 s, for which every
# test that restarts the server would have to wait.
CONFIG = """\
[databases]
* = {upstream}

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users
admin_users = {user}
pool_mode = {pool_mode}
default_pool_size = {default_pool_size}
max_client_conn = {max_client_conn}
server_login_retry = 0.1
"""


class Session(NamedTuple):
    """A session that the pooler keeps open on the server, and what its clients have left in it."""

    pid: int
    prepared: int
    channels: int
    locks: int
    settings: list[str]


class PgBouncer:
    """Pools the connections to the server of this URL or DSN, which must name its user, and a password if it asks for one.

    It serves from entering its `with` block until leaving it, always on the same port of its own on loopback. Clients log in
    as the same user and are trusted.
    """

    def __init__(
        self, upstream: str, *, default_pool_size: int = 4, pool_mode: str = "transaction", max_client_conn: int = 500
    ) -> None:
        self._upstream = conninfo_to_dict(upstream)
        self._user = str(self._upstream["user"])
        self._default_pool_size = default_pool_size
        self._pool_mode = pool_mode
        self._max_client_conn = max_client_conn
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._programs = unpack(PACKAGES)
        self._directory = tempfile.TemporaryDirectory(prefix="pgbouncer-")
        self._port = ports.reserve()
        try:
            self._configure(Path(self._directory.name))
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._port.close()
        self._directory.cleanup()

    def url(self, database: str = "postgres") -> str:
        """Where clients connect to. The database "pgbouncer" is the admin console (`show pools`, `pause`, ...)."""
        server = {"host": ports.LOOPBACK, "port": ports.number(self._port)}
        return connection_url({**server, "user": self._user, "dbname": database})

    def sessions(self, database: str) -> list[Session]:
        """Every session kept for a database that no client uses. Clients that have a transaction open at the same time have one each."""
        with psycopg.connect(self.url(ADMIN_CONSOLE), autocommit=True) as console:
            servers: list[Any] = console.execute("show servers").fetchall()
        with ExitStack() as stack:
            clients = [
                stack.enter_context(psycopg.connect(self.url(database), prepare_threshold=None))
                for server in servers
                if server[2] == database
            ]
            return [Session(*client.execute(SESSION).fetchone()) for client in clients]  # type: ignore[misc]

    def start(self) -> None:
        """Return when clients can connect. Raises RuntimeError with what PgBouncer said when it does not start."""
        way = nonroot.way()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*way.prefix, self._programs / "usr/sbin/pgbouncer", "config"],
                cwd=self._directory.name,
                env={**os.environ, "LD_LIBRARY_PATH": library_path(self._programs)},
                stdin=subprocess.DEVNULL,
                stderr=log,
                **way.options,
            )
        threading.Thread(target=self._supervise, args=(self._process,), daemon=True).start()
        wait_until(self._answers, "PgBouncer answers")

    def stop(self) -> None:
        """Break every connection, and refuse new ones until started again. Harmless when already stopped."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """As a crash of its machine: nothing is ended in order."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """As when PgBouncer is upgraded: all clients and all server connections are lost."""
        self.stop()
        self.start()

    def _supervise(self, process: subprocess.Popen[bytes]) -> None:
        """Start it again when it ends by a mistake of its own, as a service manager would.

        Before 1.21 a cancel request that arrives at the wrong moment ends it (its issues 822 and 904).
        """
        process.wait()
        if self._process is process and ENDED_BY_CANCEL in self._log.read_text():
            self.start()

    def _configure(self, directory: Path) -> None:
        host, port, password = (str(self._upstream.get(name, "")) for name in ("host", "port", "password"))
        config = CONFIG.format(
            upstream=f"host={quoted(host, SINGLE)} port={port or 5432}",
            host=ports.LOOPBACK,
            port=ports.number(self._port),
            directory=directory,
            user=self._user,
            default_pool_size=self._default_pool_size,
            pool_mode=self._pool_mode,
            max_client_conn=self._max_client_conn,
        )
        users = f"{quoted(self._user, DOUBLE)} {quoted(password, DOUBLE)}\n"
        nonroot.way().own(directory)
        for name, content in (("config", config), ("users", users)):
            (directory / name).write_text(content)
            nonroot.way().own(directory / name)

    @property
    def _log(self) -> Path:
        return Path(self._directory.name) / "log"

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"PgBouncer did not start:\n{self._log.read_text()}")
        try:
            psycopg.connect(self.url(ADMIN_CONSOLE), autocommit=True).close()
        except psycopg.OperationalError:
            return False
        return True


def quoted(word: str, mark: str) -> str:
    return mark + word.replace(mark, 2 * mark) + mark
