"""A second server that follows a primary by streaming replication, for tests of lag and failover.

It starts as a copy of the primary's files, made while the primary runs, and stays read-only until promoted. Two ways to make
it lag, and the difference matters: a standby that has paused its replay still receives everything, so its promotion loses
nothing; one that has stopped receiving does not have what was committed since, and its promotion loses that.
"""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.urls import connection_url
from tests.support.waiting import wait_until
from trueup.embedded import datadir, nonroot
from trueup.embedded.cluster import Cluster, StopMode
from trueup.embedded.private import make_private

COPY_TIMEOUT = 60
PROMOTION_TIMEOUT = 30
OWN_SETTINGS = {"wal_retrieve_retry_interval": "100ms"}  # by default a lost primary is looked for every 5 s


class Standby:
    """A standby of a running primary, from entering its `with` block until leaving it.

    It runs with the settings that the primary was started with. When it is synchronous, the primary's commits wait for it,
    also while it is stopped or not receiving. `cluster` is its server, for whatever is not offered here.
    """

    def __init__(self, primary: Cluster, directory: Path, *, synchronous: bool = False) -> None:
        self.name = f"standby_{secrets.token_hex(4)}"
        self.cluster = Cluster(directory, settings=settings_of(primary) | OWN_SETTINGS)
        self._primary = primary
        self._conninfo = make_conninfo(primary.url(), application_name=self.name)
        self._synchronous = synchronous

    def __enter__(self) -> Self:
        try:
            self._copy()
            self.start()
            if self._synchronous:
                self._set_synchronous(self.name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")
        if self._primary.running:
            if self._synchronous:
                self._set_synchronous("")
            wait_until(self._dropped_slot, "the primary has let go of the standby")

    def url(self, database: str = "postgres") -> str:
        return self.cluster.url(database)

    def pair_url(self, database: str = "postgres") -> str:
        """A URL that leads to whichever of primary and standby takes writes at the moment."""
        pair = [conninfo_to_dict(server.url(database)) for server in (self._primary, self.cluster)]
        both = {name: ",".join(str(server[name]) for server in pair) for name in ("host", "port")}
        return connection_url({**pair[0], **both, "target_session_attrs": "read-write"})

    def start(self) -> None:
        """Return when the standby can be queried and the primary streams to it."""
        self.cluster.start()
        wait_until(self._streaming, f"{self.name} is streaming")

    def stop(self, mode: StopMode = "fast") -> None:
        self.cluster.stop(mode)

    def catch_up(self) -> None:
        """Return when everything that the primary has committed until now can be read here."""
        target = scalar(self._primary, "select pg_current_wal_flush_lsn()")
        replayed = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: scalar(self.cluster, replayed, target), f"{self.name} has replayed {target}")

    def pause_replay(self) -> None:
        """Keep what is received from now on from being seen, until resumed or promoted."""
        scalar(self.cluster, "select pg_wal_replay_pause()")
        scalar(self.cluster, "select pg_reload_conf()")  # wakes the recovery, which would notice only with the next WAL
        paused = "select pg_get_wal_replay_pause_state() = 'paused'"
        wait_until(lambda: scalar(self.cluster, paused), "replay has paused")

    def resume_replay(self) -> None:
        scalar(self.cluster, "select pg_wal_replay_resume()")

    def stop_receiving(self) -> None:
        """Cut the stream. What the primary commits from now on is not here, until resumed; it is lost if promoted."""
        self._receive_from("")
        receiving = "select exists (select from pg_stat_wal_receiver)"
        wait_until(lambda: not scalar(self.cluster, receiving), f"{self.name} receives nothing")

    def resume_receiving(self) -> None:
        """Return when the primary streams again."""
        self._receive_from(self._conninfo)
        wait_until(self._streaming, f"{self.name} is streaming")

    def promote(self) -> None:
        """Make it a primary that takes writes. The old primary, if it runs, is not told."""
        promoted = scalar(self.cluster, "select pg_promote(wait_seconds => %s)", PROMOTION_TIMEOUT)
        assert promoted, f"{self.name} was not promoted within {PROMOTION_TIMEOUT} s"

    def _copy(self) -> None:
        make_private(self.cluster.directory)
        way = nonroot.way()
        source = ("--dbname", self._conninfo)
        copy = ("--pgdata", self.cluster.data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        slot = ("--create-slot", "--slot", self.name)  # for it the primary keeps what a stopped standby has yet to get
        subprocess.run(
            [*way.prefix, self._primary.programs / "pg_basebackup", *source, *copy, *slot],
            check=True,
            cwd=self.cluster.directory,
            env=datadir.environment(),
            stdin=subprocess.DEVNULL,
            timeout=COPY_TIMEOUT,
            **way.options,
        )

    def _streaming(self) -> Any:
        states = "select exists (select from pg_stat_replication where application_name = %s and state = 'streaming')"
        return scalar(self._primary, states, self.name)

    def _receive_from(self, conninfo: str) -> None:
        configure(self.cluster, "primary_conninfo", conninfo)

    def _set_synchronous(self, names: str) -> None:
        configure(self._primary, "synchronous_standby_names", names)
        state = "select exists (select from pg_stat_replication where sync_state = 'sync')"
        wait_until(lambda: scalar(self._primary, state) == bool(names), f"the primary waits for {names or 'nobody'}")

    def _dropped_slot(self) -> bool:
        """The slot stays in use until the primary notices that the standby is gone."""
        slots = "from pg_replication_slots where slot_name = %s"
        scalar(self._primary, f"select pg_drop_replication_slot(slot_name) {slots} and not active", self.name)
        return not scalar(self._primary, f"select exists (select {slots})", self.name)


def settings_of(cluster: Cluster) -> dict[str, str]:
    """What the server was started with. A standby refuses to run with fewer connections or workers than its primary."""
    with psycopg.connect(cluster.url()) as connection:
        given = "select name, current_setting(name) from pg_settings where source = 'command line'"
        return dict(connection.execute(given).fetchall())


def configure(cluster: Cluster, name: str, value: str) -> None:
    """Change a setting of a running server; its processes take it up soon after."""
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), value))
        connection.execute("select pg_reload_conf()")


def scalar(cluster: Cluster, query: str, *parameters: object) -> Any:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        row = connection.execute(query.encode(), parameters).fetchone()
    return row[0] if row else None
