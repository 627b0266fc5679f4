"""Makes the leases that an App gives out: checks what is asked for, and finds the backend that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast, get_args

from trueup.building import imported
from trueup.config import Settings, redis_urls
from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError
from trueup.events import Events
from trueup.jobs.names import checked_name
from trueup.leases.backend import Backend, LeaseBackend
from trueup.leases.length import MIN_LEASE
from trueup.store.explained import Explained
from trueup.store.leases import AdvisoryLeases, RowLeases, Terms
from trueup.store.store import Store
from trueup.work.jobs.exclusive import check_key
from trueup.work.leases.hold import LeaseRequest
from trueup.work.leases.lease import LeaseContext


@dataclass(frozen=True)
class Leasing:
    store: Callable[[], Store]  # called when a lease is acquired, not before
    settings: Settings
    events: Events

    def lease(
        self, name: str, ttl: Duration, wait: Duration | None, backend: Backend, key: int | str | None
    ) -> LeaseContext:
        """Raises ConfigError that names the option which is wrong."""
        length = duration_of(f"lease {name!r}: ttl", ttl)
        if length < MIN_LEASE:
            raise ConfigError(f"lease {name!r}: ttl={ttl!r} is too short; the minimum is one second")
        checked_name("lease", name)
        if backend == "postgres" and name.startswith(("advisory:", "redis:")):
            raise ConfigError(f"lease {name!r}: this prefix is for the terms of leases in other backends")
        if backend not in get_args(Backend):
            raise ConfigError(f"lease {name!r}: backend={backend!r}: {', '.join(map(repr, get_args(Backend)))}")
        check_key(f"lease {name!r}: key=", backend, key)
        return self.holding(
            LeaseRequest(name, length, None if wait is None else duration_of(f"lease {name!r}: wait", wait)),
            backend,
            key,
        )

    def holding(self, request: LeaseRequest, backend: Backend, key: int | str | None) -> LeaseContext:
        return LeaseContext(request, lambda: self._source(backend, key), self.events)

    def _source(self, backend: Backend, key: int | str | None) -> tuple[LeaseBackend, Terms, Explained]:
        store = self.store()
        return self.backend(backend, key), store.terms, store.explained()

    def backend(self, backend: Backend, key: int | str | None) -> LeaseBackend:
        """The backend that keeps leases of this kind."""
        store, settings = self.store(), self.settings
        match backend:
            case "postgres":
                return RowLeases(store.terms)
            case "advisory":
                return AdvisoryLeases(store.terms, store.statements, cast(int | None, key))
            case "redis":
                if settings.redis_url is None:
                    raise ConfigError("backend='redis': no Redis is configured; set redis_url= or TRUEUP_REDIS_URL")
                redis: Any = imported("trueup.integrations.redis")
                urls = redis_urls(settings.redis_url)
                made = redis.leases(urls, store.terms, settings.schema, settings.redis_unavailable, key, self.events)
                return cast(LeaseBackend, made)
