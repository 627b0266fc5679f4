"""A network between client and Redis that misbehaves for chosen commands. It knows the protocol as far as commands go."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import urlsplit

from tests.support import ports

Kind = Literal["cut", "lost", "late", "drip", "refused"]

LATE = 1.3  # seconds: later than a client waits
DRIP = 0.1  # seconds between the bytes of an answer that does not end
MAX_DRIPS = 300


@dataclass
class Fault:
    """For commands whose words contain `words`: the first `times` of them. `happened` counts."""

    words: bytes
    kind: Kind
    times: int = 1
    refusal: bytes = b"-NOPERM this user has no permissions to run it\r\n"
    happened: int = field(default=0)


class RedisProxy:
    """Listens on a port of its own on loopback, as long as its `with` block lasts."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._upstream = (parts.hostname or ports.LOOPBACK, parts.port or 6379)
        self._path = parts.path
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._listener = ports.reserve()
        self._listener.listen()
        self._listener.settimeout(0.1)
        self.url = f"redis://{ports.LOOPBACK}:{ports.number(self._listener)}{self._path}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._accepting.join(10)
        self._listener.close()

    def fail(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        with self._lock:
            self._faults.clear()

    def _accept(self) -> None:
        while not self._ended.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=[client], daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError), client, socket.create_connection(self._upstream, timeout=10) as server:
            client.settimeout(60)
            requests, answers = client.makefile("rb"), server.makefile("rb")
            while True:
                request = _message(requests)
                if not self._failed(request, client, server, answers):
                    server.sendall(request)
                    client.sendall(_message(answers))

    def _failed(self, request: bytes, client: socket.socket, server: socket.socket, answers: object) -> bool:
        """Whether it was dealt with here. Raises EOFError to end the connection."""
        fault = self._next(request)
        if fault is None:
            return False
        if fault.kind == "cut":
            raise EOFError
        if fault.kind == "refused":
            client.sendall(fault.refusal)
            return True
        if fault.kind == "drip":
            for _ in range(MAX_DRIPS):
                if self._ended.wait(DRIP):
                    break
                client.sendall(b"+")
            raise EOFError
        server.sendall(request)
        answer = _message(answers)
        if fault.kind == "lost":
            raise EOFError
        self._ended.wait(LATE)
        client.sendall(answer)
        return True

    def _next(self, request: bytes) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.words in request and fault.happened < fault.times:
                    fault.happened += 1
                    return fault
        return None


def _message(stream: object) -> bytes:
    """One whole message, whatever it is made of. Raises EOFError at the end of the stream."""
    line: bytes = stream.readline()  # type: ignore[attr-defined]
    if not line.endswith(b"\r\n"):
        raise EOFError
    kind, size = line[:1], line[1:-2]
    if kind in b"$=!" and size != b"-1":
        body: bytes = stream.read(int(size) + 2)  # type: ignore[attr-defined]
        return line + body
    if kind in b"*~>%" and size != b"-1":
        return line + b"".join(_message(stream) for _ in range(int(size) * (2 if kind == b"%" else 1)))
    return line
