"""A worker's registration as a holder: from registering to losing or giving back its lease.

A process may register several times, one after another (after it was stopped past its lease, say). Each registration has its own
holder id, so that nothing of an earlier one can be mistaken for the present one.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from uuid import UUID, uuid4

from trueup.clock import Clock
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


def new_identity(release: str | None, queues: tuple[str, ...], concurrency: int, declaration: str) -> Identity:
    return Identity(uuid4(), socket.gethostname(), os.getpid(), release, queues, concurrency, declaration)
