"""Run in namespaces of its own: a name server that only knows `living.example`, and deliveries to that and to dead names.

`python -m tests.integrations.silent_dns DEAD` as the root of a new user, network and mount namespace.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any

from tests.integrations.sink import Sink
from trueup.integrations.webhooks import Webhook

SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
LIVING = b"\x06living\x07example\x00"


class NameServer(asyncio.DatagramProtocol):
    """Answers for one name, with 127.0.0.1, and is silent about all others."""

    def __init__(self) -> None:
        self.silent_about: set[bytes] = set()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, query: bytes, where: tuple[str, int]) -> None:
        question = query[12:]
        if not question.startswith(LIVING):
            self.silent_about.add(question)
            return
        wants_ipv4 = question[len(LIVING) :][:2] == b"\0\1"
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton("127.0.0.1")
        head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, int(wants_ipv4), 0, 0)
        asked = question[: len(LIVING) + 4]
        self._transport.sendto(head + asked + (record if wants_ipv4 else b""), where)


def prepare() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as configuration:
        configuration.write("nameserver 127.0.0.1\noptions timeout:30\n")
        configuration.flush()
        subprocess.run(["mount", "--bind", configuration.name, "/etc/resolv.conf"], check=True)


async def deliver(dead: int) -> None:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 53))
    async with Sink() as sink:
        waiting = [
            asyncio.create_task(Webhook(f"http://dead{n}.example/", timeout="5m").deliver({}, key="k"))
            for n in range(dead)
        ]
        while len(server.silent_about) < dead:  # twice as many when both families are asked for
            await asyncio.sleep(0.01)
        started = time.monotonic()
        hook = Webhook(f"http://living.example:{sink.port}/", allow=["127.0.0.1"], timeout="5m")
        assert (await hook.deliver({}, key="k")).status == 200
        assert time.monotonic() - started < 5
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    transport.close()


if __name__ == "__main__":
    prepare()
    asyncio.run(deliver(int(sys.argv[1])))
    print(f"delivered beside {sys.argv[1]} dead names")
