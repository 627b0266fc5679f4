"""A worker's registration as a holder: from registering until it loses or releases its lease.
A process may register several times, one after another (after it was stopped past its lease, say). Each registration has its own
holder id, so that nothing of an earlier one can be mistaken for the present one.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from uuid import UUID, uuid4

from trueup.clock import Clock
from trueup.errors import ConfigError
from trueup.jobs.job import ClaimedJob
from trueup.leases.trust import Trust
from trueup.store.workers import Identity


@dataclass(slots=True)
class Registration:
    identity: Identity
    trust: Trust
    clock: Clock
    over: bool = False

    @property
    def holder(self) -> UUID:
        return self.identity.holder

    @property
    def trusted(self) -> bool:
        """Whether this process may still act under the lease."""
        return not self.over and self.trust.left(self.clock.elapsed()) > 0

    def covers(self, job: ClaimedJob) -> bool:
        """Whether the job was claimed under this registration."""
        holder = self.identity.holder
        return job.holder is holder or job.holder == holder  # to compare the values of two UUIDs takes longer


class Holder:
    """Has the id under which something acts: an id of its own, or that of a worker's present registration."""

    def __init__(self) -> None:
        self._id = uuid4()

    @property
    def id(self) -> UUID:
        return self._id


class Registrations(Holder):
    """The present registration of a worker; None before it has started and after it has stopped."""

    def __init__(self) -> None:
        self.present: Registration | None = None

    @property
    def id(self) -> UUID:
        return self.current.holder

    @property
    def current(self) -> Registration:
        if self.present is None:
            raise ConfigError("this worker has not been started")
        return self.present

    @property
    def trusted(self) -> bool:
        """Whether there is a lease that the worker may still act under."""
        return self.present is not None and self.present.trusted


def new_identity(release: str | None, queues: tuple[str, ...], concurrency: int, declaration: str) -> Identity:
    return Identity(uuid4(), socket.gethostname(), os.getpid(), release, queues, concurrency, declaration)
