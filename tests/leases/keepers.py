"""Each way a lease can be kept, behind one face for the tests that all of them must pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import psycopg

from apps.servers.valkey import Valkey
from trueup import App
from trueup.leases.backend import LeaseBackend
from trueup.store.leases import AdvisoryLeases
from trueup.work.jobs.exclusive import Backend

END_SESSIONS = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and application_name = 'trueup advisory lease'"
)


class Keeper(ABC):
    """`app` is on the database of the test; others may be made from `database_url` and `settings`."""

    backend: Backend
    settings: dict[str, Any]

    def __init__(self, database_url: str, **settings: Any) -> None:
        self.database_url = database_url
        self.settings = settings
        self.app = App(database_url, **settings)
        self._made: list[LeaseBackend] = []

    def make(self) -> LeaseBackend:
        """A backend of its own, as each holder has."""
        made = self.app._leasing.backend(self.backend, None)
        self._made.append(made)
        return made

    def close(self) -> None:
        for made in self._made:
            made.close()
        self.app.close_sync()

    def die(self, backend: LeaseBackend) -> None:
        """As when the holder's process died. What is not tied to it ends with its ttl."""
        if isinstance(backend, AdvisoryLeases):
            backend.close()

    @abstractmethod
    def forget(self, name: str) -> None:
        """Whoever keeps the lease forgets that somebody holds it."""


class Rows(Keeper):
    backend = "postgres"

    def forget(self, name: str) -> None:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute("update trueup.leases set holder = null, lease_until = '-infinity'")


class Advisory(Keeper):
    backend = "advisory"

    def forget(self, name: str) -> None:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute(END_SESSIONS)


class Servers(Keeper):
    backend = "redis"

    def __init__(self, database_url: str, servers: Sequence[Valkey]) -> None:
        super().__init__(database_url, redis_url=",".join(server.url for server in servers))
        self.servers = servers
        for server in servers:
            server.flush()

    def forget(self, name: str) -> None:
        for server in self.servers:
            server.flush()
