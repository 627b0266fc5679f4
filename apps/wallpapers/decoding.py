"""Decoding in a process of its own, which is killed when it takes too long.

A decoder in a thread cannot be stopped: it would go on for as long as a hostile file makes it, long after the client was told
that it failed. The processes are forked from one that has Pillow loaded already, so that a picture costs milliseconds and not
the start of Python.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from typing import IO, Any

from .images import Picture, Rejected, inspect

DECODE_WITHIN = 20.0  # seconds; the largest picture takes two
MAX_MEMORY = 2 << 30  # bytes of address space; the largest picture takes 130 MB


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["apps.wallpapers.images"])
    return context


async def decoded(file: IO[bytes], within: float = DECODE_WITHIN) -> Picture:
    """What the file is. Raises Rejected, also when it took too long. The process has ended by then."""
    return await asyncio.to_thread(_decoded, file, within)


def _decoded(file: IO[bytes], within: float) -> Picture:
    rolled: Any = file
    if hasattr(rolled, "rollover"):
        rolled.rollover()  # to the disk, where another process can read it
    file.seek(0)
    ours, theirs = _context().Pipe(duplex=False)
    # A descriptor of its own, but one position in the file for both: nobody else reads meanwhile.
    process = _context().Process(target=_decode, args=(DupFd(file.fileno()), theirs, within), daemon=True)
    try:
        process.start()
        theirs.close()
        outcome = ours.recv() if ours.poll(within) else Rejected(f"the image took longer than {within:g} s to decode")
    except EOFError:
        outcome = Rejected("the image cannot be read: decoding it ended the decoder")
    finally:
        ours.close()
        with suppress(ValueError):  # it was never started
            process.kill()
            process.join()
            process.close()
        file.seek(0)
    if isinstance(outcome, Exception):
        raise outcome
    assert isinstance(outcome, Picture)
    return outcome


def _decode(file: Any, answer: Connection, within: float) -> None:
    _limit(within)
    with os.fdopen(file.detach(), "rb") as content:
        try:
            answer.send(inspect(content))
        except Rejected as error:
            answer.send(error)
        except MemoryError:
            answer.send(Rejected("the image cannot be read: it needs too much memory"))


def _limit(within: float) -> None:
    """So that it ends by itself, too, should the process that waits for it be killed."""
    import resource

    seconds = max(1, round(within) + 1)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
