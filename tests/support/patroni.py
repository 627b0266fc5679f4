"""A high-availability cluster: PostgreSQL servers that Patroni starts, promotes and rewinds, with etcd for the agreement.

Every way between the parts is a proxy, so that a test can cut off one node: what clients use, what the other nodes use (for
replication and for `pg_rewind`), what the other Patronis ask, and what leads from the node to etcd.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.support import ports
from tests.support.etcd import Etcd
from tests.support.proxy import Proxy
from tests.support.urls import connection_url
from tests.support.waiting import wait_until
from trueup.embedded import binaries, datadir, nonroot, postmaster, processes
from trueup.embedded.private import make_private

SCOPE = "trueup"
SUPERUSER = datadir.SUPERUSER
BOOT_WITHIN = 90
SETTLE_WITHIN = 90

# Patroni allows no shorter time to live of the leader's key than 20 s, and wants ttl >= loop_wait + 2 * retry_timeout.
TIMES = {"ttl": 20, "loop_wait": 1, "retry_timeout": 5}
# Processes are killed here, machines are not: what was given to the kernel is not lost.
PARAMETERS = {
    "fsync": "off",
    "wal_log_hints": "on",
    "max_connections": 150,
    "shared_buffers": "64MB",
    "wal_keep_size": "256MB",
    "wal_retrieve_retry_interval": "200ms",
    "timezone": "UTC",
}
SYNCHRONOUS = {"synchronous_mode": True, "synchronous_mode_strict": True}
ASYNCHRONOUS = {"synchronous_mode": False, "synchronous_mode_strict": False}


class Node:
    """One server and its Patroni. `clients`, `peers`, `asked` and `consensus` are the ways to and from it."""

    def __init__(self, name: str, directory: Path, etcd_port: int, stack: ExitStack) -> None:
        self.name = name
        self.directory = directory
        self.data = directory / "data"
        self._reserved = [ports.reserve(), ports.reserve()]
        self.port, self.rest_port = map(ports.number, self._reserved)
        for reserved in self._reserved:
            stack.callback(reserved.close)
        self.clients, self.peers = (stack.enter_context(Proxy((ports.LOOPBACK, self.port))) for _ in range(2))
        self.asked = stack.enter_context(Proxy((ports.LOOPBACK, self.rest_port)))
        self.consensus = stack.enter_context(Proxy((ports.LOOPBACK, etcd_port)))
        self._patroni: subprocess.Popen[bytes] | None = None

    @property
    def ways(self) -> tuple[Proxy, ...]:
        return (self.clients, self.peers, self.asked, self.consensus)

    @property
    def log(self) -> Path:
        return self.directory / "patroni.log"

    def direct_url(self, database: str = "postgres") -> str:
        """Past every proxy, as from the same machine."""
        server = {"host": ports.LOOPBACK, "port": self.port}
        return connection_url({**server, "user": SUPERUSER, "dbname": database, "connect_timeout": 2})

    def start(self) -> None:
        """Start Patroni, which starts the server when it knows as what. Returns at once."""
        make_private(self.directory)
        config = self.directory / "patroni.yml"
        config.write_text(json.dumps(self._configuration()))  # JSON is YAML
        way = nonroot.way()
        way.own(config)
        with self.log.open("ab") as log:
            self._patroni = subprocess.Popen(
                [*way.prefix, sys.executable, "-m", "patroni", config],
                cwd=self.directory,
                env=datadir.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **way.options,
            )

    def kill(self) -> None:
        """End Patroni and every process of the server with SIGKILL, as a crash of the machine would."""
        if self._patroni is not None:
            self._patroni.kill()
            self._patroni.wait()
            self._patroni = None
        server = postmaster.running(self.data)
        if server is None:
            return
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGSTOP)  # a postmaster that runs on could start another child meanwhile
        doomed = [server.pid, *processes.children(server.pid)]
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(processes.alive, doomed)), f"{self.name} is gone", timeout=20)

    @property
    def server_runs(self) -> bool:
        return postmaster.running(self.data) is not None

    @property
    def patroni_runs(self) -> bool:
        return self._patroni is not None and self._patroni.poll() is None

    def asks(self, path: str, given: Mapping[str, Any] | None = None, *, method: str = "GET", within: float = 5) -> Any:
        """What its Patroni answers. Raises OSError when it does not."""
        request = urllib.request.Request(
            f"http://{ports.LOOPBACK}:{self.rest_port}{path}",
            None if given is None else json.dumps(given).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=within) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith(("{", "[")) else text

    def isolate(self) -> None:
        """Nothing comes in and nothing goes out, and no connection is closed: as behind a switch that has failed."""
        for way in self.ways:
            way.black_hole()

    def rejoin(self) -> None:
        """Heal the network. Connections from before are reset: what they held back must not arrive late."""
        for way in self.ways:
            way.cut()
            way.heal()

    def query(self, statement: str, *parameters: object, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.direct_url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def timeline(self) -> int:
        """Of a primary."""
        return int(self.query("select pg_walfile_name(pg_current_wal_insert_lsn())")[0][0][:8], 16)

    def fork(self) -> int:
        """Of a primary: the position of the log where its timeline left the one before."""
        history = f"pg_wal/{self.timeline():08X}.history"
        ((text,),) = self.query("select pg_read_file(%s)", history)
        last = [line.split() for line in text.splitlines() if line.strip()][-1]
        high, low = last[1].split("/")
        return (int(high, 16) << 32) + int(low, 16)

    def behind(self, standbys: Sequence[Node]) -> int:
        """How many bytes of this primary's log none of these has."""
        ((position,),) = self.query("select pg_current_wal_flush_lsn() - '0/0'")
        received = "select coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'"
        return int(position - max(node.query(received)[0][0] for node in standbys))

    def _configuration(self) -> dict[str, Any]:
        loopback = ports.LOOPBACK
        return {
            "scope": SCOPE,
            "name": self.name,
            "log": {"level": "INFO"},
            "restapi": {"listen": f"{loopback}:{self.rest_port}", "connect_address": f"{loopback}:{self.asked.port}"},
            # As proxies: otherwise Patroni asks etcd for its own address, and goes there.
            "etcd3": {"hosts": [f"{loopback}:{self.consensus.port}"], "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    **TIMES,
                    "maximum_lag_on_failover": 1 << 30,
                    **ASYNCHRONOUS,
                    "postgresql": {"use_pg_rewind": True, "use_slots": False, "parameters": PARAMETERS},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"{loopback}:{self.port}",
                "connect_address": f"{loopback}:{self.peers.port}",
                "data_dir": str(self.data),
                "bin_dir": str(binaries.locate(None)),
                "pgpass": str(self.directory / "pgpass"),
                "authentication": {role: {"username": SUPERUSER} for role in ("superuser", "replication", "rewind")},
                "parameters": {"unix_socket_directories": ""},
                "pg_hba": [f"host all all {loopback}/32 trust", f"host replication all {loopback}/32 trust"],
                "basebackup": [{"checkpoint": "fast"}],
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
            "watchdog": {"mode": "off"},
        }


class HighAvailability:
    """Three nodes, of which one is the primary, from entering its `with` block until leaving it."""

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        self._directory = directory
        self._count = nodes
        self.nodes: list[Node] = []
        self.synchronous = False

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        try:
            self.etcd = self._stack.enter_context(Etcd(self._directory / "etcd"))
            for number in range(1, self._count + 1):
                node = Node(f"n{number}", self._directory / f"n{number}", self.etcd.port, self._stack)
                self._stack.callback(node.kill)
                self.nodes.append(node)
            self.nodes[0].start()  # makes the cluster; the others copy it
            wait_until(lambda: self.primary() is not None, "there is a primary", timeout=BOOT_WITHIN, pause=0.2)
            for node in self.nodes[1:]:
                node.start()
            self.wait_whole()
        except BaseException as error:
            error.add_note("\n".join(self.complaints()))
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def complaints(self) -> Iterator[str]:
        for node in self.nodes:
            with suppress(OSError):
                yield f"-- {node.name}:\n{node.log.read_text(errors='replace')[-3_000:]}"

    def url(self, database: str = "postgres") -> str:
        """A URL that leads to whichever node takes writes."""
        several = {
            "host": ",".join(ports.LOOPBACK for _ in self.nodes),
            "port": ",".join(str(node.clients.port) for node in self.nodes),
        }
        options = {"target_session_attrs": "read-write", "sslmode": "disable", "gssencmode": "disable"}
        return connection_url({**several, "user": SUPERUSER, "dbname": database, **options, "connect_timeout": 2})

    def members(self, asked: Sequence[Node] | None = None) -> list[dict[str, Any]]:
        """What the cluster says about itself; empty while none of these nodes answers."""
        for node in asked or self.nodes:
            with suppress(OSError, ValueError):
                answer = node.asks("/cluster", within=2)
                return list(answer["members"])
        return []

    def primary(self, among: Sequence[Node] | None = None) -> Node | None:
        """The node whose server takes writes and which holds the leader's key, as these nodes see it."""
        for member in self.members(among):
            if member["role"] == "leader" and member["state"] == "running":
                return self.node(member["name"])
        return None

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def others(self, node: Node) -> list[Node]:
        return [each for each in self.nodes if each is not node]

    def wait_primary(self, among: Sequence[Node], timeout: float = SETTLE_WITHIN) -> Node:
        """The new primary, once it is one of these and takes writes."""
        found: list[Node] = []

        def writes() -> bool:
            primary = self.primary(among)
            if primary is None or primary not in among:
                return False
            with suppress(psycopg.OperationalError):
                if primary.query("select pg_is_in_recovery()") == [(False,)]:
                    found.append(primary)
            return bool(found)

        wait_until(writes, "there is a new primary", timeout=timeout, pause=0.1)
        return found[0]

    def wait_whole(self, timeout: float = SETTLE_WITHIN) -> Node:
        """Return the primary once both others stream from it, synchronously if that is asked for."""
        wanted = len(self.nodes) - 1
        streaming = "select count(*) from pg_stat_replication where state = 'streaming' and application_name = any(%s)"

        def whole() -> bool:
            primary = self.primary()
            if primary is None:
                return False
            with suppress(psycopg.OperationalError):
                names = [node.name for node in self.others(primary)]
                return (
                    primary.query(streaming, names) == [(wanted,)]
                    and bool(self.synchronous_standbys()) == self.synchronous
                )
            return False

        wait_until(whole, f"{wanted} standbys stream", timeout=timeout, pause=0.2)
        primary = self.primary()
        assert primary is not None
        return primary

    def synchronous_standbys(self) -> list[Node]:
        """Those of which etcd knows that they have everything that was acknowledged."""
        return [self.node(member["name"]) for member in self.members() if member["role"] == "sync_standby"]

    def set_synchronous(self, synchronous: bool) -> Node:
        """Return the primary when the cluster has taken it up."""
        primary = self.wait_whole()
        self.synchronous = synchronous
        primary.asks("/config", SYNCHRONOUS if synchronous else ASYNCHRONOUS, method="PATCH")
        in_force = "select current_setting('synchronous_standby_names') <> ''"
        wait_until(lambda: primary.query(in_force) == [(synchronous,)], "the mode is in force", timeout=SETTLE_WITHIN)
        return self.wait_whole()

    def wait_caught_up(self) -> None:
        """Return when every standby has what the primary has written until now."""
        primary = self.wait_whole()
        position = primary.query("select pg_current_wal_flush_lsn()")[0][0]
        replayed = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        for node in self.others(primary):
            wait_until(lambda node=node: node.query(replayed, position) == [(True,)], f"{node.name} has {position}")
