"""Notifies systemd, for a service of `Type=notify`, that it is ready, alive, or stopping.

The protocol is one datagram of `NAME=value` lines to the Unix socket in `NOTIFY_SOCKET` (sd_notify(3)). Everywhere else the variable is
unset, and nothing is sent. A manager that does not listen must not harm the service, so failures to send are ignored.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def without_systemd(environment: Mapping[str, str]) -> dict[str, str]:
    """For children: systemd listens to the main process alone."""
    return {name: value for name, value in environment.items() if name not in VARIABLES}


class Systemd:
    """`watchdog` is how many seconds may pass between two signs of life; None when systemd does not watch this process."""

    def __init__(self, address: str, watchdog: float | None) -> None:
        self.watchdog = watchdog
        # @ stands for the abstract namespace.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Systemd | None:
        """None when no systemd listens."""
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return None
        watched = environment.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
        microseconds = environment.get("WATCHDOG_USEC", "")
        return cls(
            address, int(microseconds) / 1e6 if watched and microseconds.isdigit() and int(microseconds) else None
        )

    def tell(self, *lines: str) -> None:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto("\n".join(lines).encode(), self._address)

    def ready(self, status: str) -> None:
        self.tell("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        self.tell("STOPPING=1", "STATUS=waiting for running jobs")

    async def watch(self, why_not_alive: Callable[[], str | None]) -> None:
        """Send signs of life from the event loop, twice as often as needed. A loop that stands still sends none."""
        while self.watchdog is not None:
            if (why := why_not_alive()) is None:
                self.tell("WATCHDOG=1")
            else:
                self.tell(f"STATUS={why}")
            await asyncio.sleep(self.watchdog / 2)
