"""Decoding in a process of its own, which is killed when it takes too long.

A decoder in a thread cannot be stopped: it would go on for as long as a hostile file makes it, long after the client was told
that it failed. The process (`python -m apps.wallpapers.decoding FD`) is kept for the next picture. It gets descriptors of files
through a socket and answers with a line of JSON. It ends with the process that started it, and by an alarm of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import IO, Any

from .images import KINDS, Picture, Rejected, UnsupportedType, inspect

DECODE_WITHIN = 20.0  # seconds; the largest picture takes two
START_WITHIN = 30.0  # seconds for the process to be ready
ROOT = Path(__file__).parents[2]


class Undecided(Exception):
    """Nothing is known about the picture. It may be made to do this, or the machine is too busy: worth another try."""


class Decoder:
    """One picture at a time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "apps.wallpapers.decoding", str(number)], cwd=ROOT, pass_fds=[number]
            )
        self._in_use = threading.RLock()  # while a thread reads from the socket, no other may close it
        self._end = weakref.finalize(self, _end, self._socket, self._in_use, self._process)
        self._ready = False

    @property
    def alive(self) -> bool:
        return self._end.alive and self._process.poll() is None

    def kill(self) -> None:
        """Returns when it has ended. May be called twice, and from another thread than the one that waits for it."""
        self._end()

    async def look(self, file: IO[bytes], within: float = DECODE_WITHIN) -> Picture:
        """What the file is. Raises Rejected; Undecided when it took too long, and the process has ended then."""
        spooled: Any = file
        if hasattr(spooled, "rollover"):
            spooled.rollover()  # to the disk, where another process can read it
        file.seek(0)
        # One position in the file for both descriptors: it is restored below, when no other thread reads any more.
        descriptor = os.dup(file.fileno())
        try:
            answer = await asyncio.to_thread(self._ask, descriptor, within)
        except BaseException:
            self.kill()
            raise
        file.seek(0)
        return _picture(answer)

    def _ask(self, descriptor: int, within: float) -> dict[str, Any]:
        with self._in_use:
            return self._answer(descriptor, within)

    def _answer(self, descriptor: int, within: float) -> dict[str, Any]:
        try:
            if not self._ready:
                self._socket.settimeout(START_WITHIN)
                self._ready = self._socket.recv(1) == b"\n"
            self._socket.settimeout(within)
            socket.send_fds(self._socket, [within.hex().encode()], [descriptor])
            answer = b""
            while not answer.endswith(b"\n"):
                part = self._socket.recv(4096)
                if not part:
                    raise ConnectionError
                answer += part
            return dict(json.loads(answer))
        except TimeoutError:
            self.kill()
            raise Undecided(f"the image took longer than {within:g} s to decode") from None
        except OSError:
            self.kill()
            raise Undecided("decoding the image ended the decoder") from None
        finally:
            os.close(descriptor)


def _end(ours: socket.socket, in_use: threading.RLock, process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    with in_use:  # the reading thread has ended by now
        ours.close()


def _picture(answer: dict[str, Any]) -> Picture:
    if "unsupported" in answer:
        raise UnsupportedType(answer["unsupported"])
    if "rejected" in answer:
        raise Rejected(answer["rejected"])
    return Picture(KINDS[answer["kind"]], answer["width"], answer["height"])


def _looked(descriptor: int) -> dict[str, Any]:
    with os.fdopen(descriptor, "rb") as file:
        try:
            found = inspect(file)
        except UnsupportedType as error:
            return {"unsupported": str(error)}
        except Rejected as error:
            return {"rejected": str(error)}
    return {"kind": found.kind.file_type, "width": found.width, "height": found.height}


def serve(ours: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the whole terminal: the process that waits for us decides
    ours.sendall(b"\n")
    while True:
        within, descriptors, _, _ = socket.recv_fds(ours, 64, 1)
        if not within:
            return
        signal.setitimer(signal.ITIMER_REAL, float.fromhex(within.decode()) + 1)  # its signal ends the process
        answer = _looked(descriptors[0])
        signal.setitimer(signal.ITIMER_REAL, 0)
        ours.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)
