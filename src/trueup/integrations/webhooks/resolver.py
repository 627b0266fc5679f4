"""Name resolution that dead names cannot stop.

`getaddrinfo` blocks for as long as the system's resolver likes, often half a minute, and cannot be interrupted. In the event
loop's default executor a few dead names would occupy every thread, and with them every `asyncio.to_thread` of the process.
So lookups have threads of their own, shared by all webhooks of the process:

- one lookup per name at a time; later callers join it, and give up at once when it is overdue
- a failure is remembered for a few seconds, so that a herd of deliveries to one dead name costs one lookup
- the total is bounded, and names are admitted by their standing: names that failed before fill at most a quarter of the
  threads, and some are kept free for names that have been resolved before

States of a name: unknown, being looked up, resolved, failed. The memory is of this process and bounded; losing it costs
lookups and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address
Lookup = Callable[[str], list[str]]

MAX_LOOKUPS = 512  # threads of some 30 KiB; far more than concurrent deliveries: an abandoned lookup continues
OVERDUE_AFTER = 8.0  # seconds; longer than the 5 after which glibc turns to its second name server
FAILED_FOR = 5.0  # seconds: shorter than any retry, longer than a burst of deliveries
MAX_NAMES = 10_000  # remembered, the latest


class Standing(IntEnum):
    FAILED = 0  # not resolved the last time
    UNKNOWN = 1
    RESOLVED = 2


# How many lookups may be running for a name of this standing to be admitted.
_ROOM = {Standing.FAILED: 1 / 4, Standing.UNKNOWN: 7 / 8, Standing.RESOLVED: 1}


@dataclass(frozen=True)
class _Ended:
    at: float
    error: str | None


@dataclass
class _UnderWay:
    host: str
    standing: Standing
    found: Future[list[Address] | str] = field(default_factory=Future)
    started_at: float | None = None
    callers: int = 0


class Resolver:
    """Addresses of names, for any number of event loops. `lookup` is the blocking call; `getaddrinfo` without it."""

    def __init__(
        self, lookup: Lookup | None = None, *, most: int = MAX_LOOKUPS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lookup = lookup or _getaddrinfo
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._under_way: dict[str, _UnderWay] = {}
        self._running = 0
        self._queues: dict[Standing, deque[_UnderWay]] = {standing: deque() for standing in Standing}

    async def addresses(self, host: str) -> list[Address]:
        """Every address of the host. Raises OSError with the reason when there is none, or none in time."""
        try:
            return [ip_address(host)]  # a literal needs no lookup
        except ValueError:
            pass
        with self._lock:
            lookup = self._join(host.lower())
        try:
            async with asyncio.timeout(OVERDUE_AFTER):
                found = await asyncio.wrap_future(lookup.found)
        except TimeoutError:
            raise self._overdue(lookup) from None
        finally:
            with self._lock:
                self._leave(lookup)
        if isinstance(found, str):
            raise OSError(found)
        return found

    def _join(self, host: str) -> _UnderWay:
        now = self._clock()
        lookup = self._under_way.get(host)
        if lookup is not None:
            if lookup.started_at is not None and now - lookup.started_at > OVERDUE_AFTER:
                raise self._overdue(lookup)
            lookup.callers += 1
            return lookup
        ended = self._ended.get(host)
        if ended is not None and ended.error is not None and now - ended.at < FAILED_FOR:
            raise OSError(f"{ended.error} (looked up {now - ended.at:.0f} s ago)")
        lookup = self._under_way[host] = _UnderWay(host, _standing(ended), callers=1)
        lookup.found.set_running_or_notify_cancel()  # a cancelled caller must not cancel it for the others
        self._queues[lookup.standing].append(lookup)
        self._admit()
        return lookup

    def _leave(self, lookup: _UnderWay) -> None:
        lookup.callers -= 1
        if not lookup.callers and lookup.started_at is None and self._under_way.get(lookup.host) is lookup:
            del self._under_way[lookup.host]
            self._queues[lookup.standing].remove(lookup)

    def _admit(self) -> None:
        """Start lookups while there is room, the best standing first. Called with the lock held."""
        for standing in reversed(Standing):
            queue = self._queues[standing]
            while queue and self._running < max(1, int(self._most * _ROOM[standing])):
                lookup = queue.popleft()
                lookup.started_at = self._clock()
                self._running += 1
                try:
                    threading.Thread(target=self._run, args=(lookup,), name="trueup resolver", daemon=True).start()
                except RuntimeError as error:  # the system has no thread left, which is no fault of the name
                    self._running -= 1
                    del self._under_way[lookup.host]
                    lookup.found.set_result(str(error))

    def _run(self, lookup: _UnderWay) -> None:
        found: list[Address] | str
        try:
            addresses = self._lookup(lookup.host)
            found = list(dict.fromkeys(ip_address(address) for address in addresses)) or "it has no address"
        except UnicodeError:  # a label that is empty or too long
            found = "it is not a host name"
        except Exception as error:  # any error: callers wait for it, and the thread's place must be freed
            found = str(error) or type(error).__name__
        with self._lock:
            self._running -= 1
            del self._under_way[lookup.host]
            self._remember(lookup.host, _Ended(self._clock(), found if isinstance(found, str) else None))
            self._admit()
        lookup.found.set_result(found)

    def _remember(self, host: str, ended: _Ended) -> None:
        self._ended[host] = ended
        self._ended.move_to_end(host)
        if len(self._ended) > MAX_NAMES:
            self._ended.popitem(last=False)

    def _overdue(self, lookup: _UnderWay) -> OSError:
        if lookup.started_at is None:
            return OSError(f"{self._most} other lookups are under way; it has been waiting for {OVERDUE_AFTER:.0f} s")
        return OSError(f"the resolver has not answered for {self._clock() - lookup.started_at:.0f} s")


def _standing(ended: _Ended | None) -> Standing:
    if ended is None:
        return Standing.UNKNOWN
    return Standing.RESOLVED if ended.error is None else Standing.FAILED


def _getaddrinfo(host: str) -> list[str]:
    return [str(where[0]) for *_, where in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


SHARED = Resolver()


def _begin_anew() -> None:
    global SHARED  # a forked child has none of its parent's threads
    SHARED = Resolver()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
