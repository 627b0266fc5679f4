"""Bytes on their way through: in a temporary file, counted and hashed while they come, never more than allowed."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile

IN_MEMORY = 1 << 20  # bytes; what is larger goes to the disk


class TooLarge(ValueError):
    """More came than is allowed."""


@dataclass(frozen=True)
class Content:
    file: SpooledTemporaryFile[bytes]
    size: int
    digest: bytes
    md5: str  # what most storages use as ETag

    @property
    def sha256(self) -> str:
        return self.digest.hex()

    @property
    def checksum(self) -> str:
        """As S3 spells it."""
        return b64encode(self.digest).decode()


@asynccontextmanager
async def received(chunks: AsyncIterable[bytes], most: int) -> AsyncIterator[Content]:
    """All of it, for as long as the block lasts. Raises TooLarge as soon as it is known."""
    with SpooledTemporaryFile[bytes](max_size=IN_MEMORY) as file:
        size, digest, md5 = 0, hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        async for chunk in chunks:
            size += len(chunk)
            if size > most:
                raise TooLarge(f"more than {most:,} bytes")
            digest.update(chunk)
            md5.update(chunk)
            file.write(chunk)
        file.seek(0)
        yield Content(file, size, digest.digest(), md5.hexdigest())
