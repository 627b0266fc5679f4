"""What can be seen of a payment request on its chain, and what an observer promises. Nothing here knows any chain."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from apps.chain.blocks import Place

__all__ = ["Observation", "Observer", "ObserverError", "Pace", "Place", "Subject", "Transfer"]


class ObserverError(Exception):
    """The chain could not be seen, in whole or in part. It says nothing about what is there, so nothing may follow from it."""


@dataclass(frozen=True)
class Transfer:
    """Money received. `index` tells apart several in one transaction; `place` is None while it waits to be mined."""

    tx_hash: str
    index: int
    amount: int
    place: Place | None

    @property
    def key(self) -> tuple[str, int]:
        return self.tx_hash, self.index


@dataclass(frozen=True)
class Subject:
    """What is observed: an address, for one coin, from a moment on. The rest is what was seen the last time.

    `scanned`, the number and hash of a block, is how far the chain has been read for good; `first_block` where it began.
    """

    address: str
    token: str | None
    since: datetime
    first_block: int | None
    scanned: tuple[int, str] | None
    known: Collection[Transfer]  # what is on the chain, or waits to be, as far as we know


@dataclass(frozen=True)
class Observation:
    """`transfers` is everything there is, also what was known before and still is there.

    `complete`: the chain has been read to its `tip`. When it has not, what is missing from `transfers` may be further on.
    `first_block` is None while the chain has not come to the moment that the subject is observed from.
    """

    tip: Place
    transfers: Collection[Transfer]
    complete: bool
    first_block: int | None
    scanned: tuple[int, str] | None


@dataclass(frozen=True)
class Pace:
    """How long an observation may take, and for how long a look at the tip of the chain serves others, too."""

    timeout: timedelta = timedelta(seconds=5)
    fresh_for: timedelta = timedelta(seconds=1)
    elapsed: Callable[[], float] = time.monotonic  # seconds


class Observer(Protocol):
    async def observe(self, subject: Subject) -> Observation:
        """Raises ObserverError when the chain cannot be seen, whatever the reason, and within a time of its own."""
        ...

    async def address(self, text: str) -> str:
        """As it is stored. Raises ValueError for what is no address there, ObserverError when that cannot be found out."""
        ...

    async def aclose(self) -> None: ...
