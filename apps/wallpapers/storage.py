"""The bucket. Only what S3 says is not there is absent; anything else that goes wrong is StorageUnavailable, and decides nothing.

Looking for objects is always done by listing: an object that a HEAD does not find may be in a bucket that is not there, and
the answer does not say which.

A status of 200 proves nothing: a proxy, a maintenance page or a captive portal sends it, too. So every answer has to prove that
it is S3's answer to this very request (`answers.py`), and one that does not is StorageUnavailable.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import get_session
from aiohttp import ClientError as HttpError
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from . import answers
from .answers import Stored, Unproven
from .content import Content, received

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

PAGE = 1000  # the most that S3 lists, or deletes, at a time
CHUNK = 1 << 16
WHOLE_ANSWER = 3  # times the timeout, which is for each read: an answer that drips in ends, too
SESSION = get_session()  # it keeps the description of S3, once that is read


class StorageUnavailable(Exception):
    """The storage is down, slow, refuses us, or has no such bucket: nothing can be said about any object."""


class NotThere(Exception):
    """The object was there a moment ago, and is not any more."""


@dataclass(frozen=True)
class Place:
    """Which storage, and who we are there."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    region: str
    timeout: timedelta

    def __repr__(self) -> str:
        return f"<Place {self.bucket}>"


class OneHost(AIOHTTPSession):  # type: ignore[misc]  # it has no types
    """Follows no redirect: what is signed for this storage, pictures included, is not sent to where an answer points."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        return SimpleNamespace(request=partial(session.request, allow_redirects=False))


class Storage:
    """Connects when it is first used."""

    def __init__(self, place: Place) -> None:
        self.bucket = place.bucket
        self._place = place
        self._within = WHOLE_ANSWER * place.timeout.total_seconds()
        self._client: S3Client | None = None
        self._opened = AsyncExitStack()
        self._opening = asyncio.Lock()

    async def aclose(self) -> None:
        self._client = None
        await self._opened.aclose()

    async def find(self, prefix: str, after: str = "") -> list[Stored]:
        """A page of the objects whose keys begin so, in the order of their keys, from after this key on.

        Empty only when the storage itself says that there is none.
        """
        # S3 repeats StartAfter: an answer to an earlier request, out of some cache, has another one. "!" sorts before our keys.
        start = after or f"!{secrets.token_hex(8)}"
        with _explained("list"):
            s3 = await self._s3()
            async with asyncio.timeout(self._within):
                answer = await s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix, StartAfter=start, MaxKeys=PAGE)
            return answers.listed(answer, self.bucket, prefix, start)

    async def check_absent(self, key: str) -> None:
        """What no listing shows is absent only if the storage also says so when it is asked for it by name.

        The index that listings are made from may lag behind, or have lost an entry. Raises StorageUnavailable.
        """
        with suppress(NotThere):
            with _explained("get", self.bucket, key):
                answer = await (await self._s3()).get_object(Bucket=self.bucket, Key=key)
                answer["Body"].close()
            raise StorageUnavailable(f"list: it does not show {key}, which can be had")

    async def pages(self, prefix: str, after: str = "") -> AsyncGenerator[list[Stored], None]:
        """All of them, page by page."""
        while listed := await self.find(prefix, after):
            yield listed
            after = listed[-1].key

    @asynccontextmanager
    async def get(self, stored: Stored, most: int) -> AsyncIterator[Content]:
        """Its bytes, for as long as the block lasts. Raises NotThere, TooLarge, StorageUnavailable."""
        async with AsyncExitStack() as opened:
            with _explained("get", self.bucket, stored.key):
                answer = await (await self._s3()).get_object(Bucket=self.bucket, Key=stored.key)
                body = await opened.enter_async_context(answer["Body"])
                answers.check_got(answer, stored)
            chunks = await opened.enter_async_context(aclosing(_chunks(body)))
            content = await opened.enter_async_context(received(chunks, most))
            with _explained("get"):
                answers.check_content(answer, stored, content)
            yield content

    async def put(self, key: str, content: Content, mime_type: str) -> None:
        """Whole or not at all: the storage compares the checksum, and names what it has stored. The same again is harmless."""
        content.file.seek(0)
        with _explained("put"):
            answer = await (await self._s3()).put_object(
                Bucket=self.bucket,
                Key=key,
                Body=content.file,
                ContentLength=content.size,
                ContentType=mime_type,
                ChecksumSHA256=content.checksum,
            )
            answers.check_put(answer, content)

    async def remove(self, objects: Sequence[Stored]) -> list[str]:
        """Delete at most a page of them, each only if it still is what was listed; the keys that are gone now.

        The storage compares the ETag itself. Where one ignores it, what is left is the moment since they were listed.
        """
        if not objects:
            return []
        wanted: Any = [{"Key": each.key, "ETag": each.etag} for each in objects]
        with _explained("delete"):
            s3 = await self._s3()
            async with asyncio.timeout(self._within):
                answer = await s3.delete_objects(Bucket=self.bucket, Delete={"Objects": wanted})
            return answers.removed(answer, {each.key for each in objects})

    async def _s3(self) -> S3Client:
        async with self._opening:
            client = self._client
            if client is None:
                client = self._client = await self._opened.enter_async_context(await _client(self._place))
            return client


async def _client(place: Place) -> AbstractAsyncContextManager[S3Client]:
    # Otherwise it would be read on the event loop, and it is large.
    await asyncio.to_thread(SESSION.get_component("data_loader").load_service_model, "s3", "service-2")
    seconds = place.timeout.total_seconds()
    made: AbstractAsyncContextManager[S3Client] = SESSION.create_client(
        "s3",
        region_name=place.region,
        endpoint_url=place.endpoint,
        aws_access_key_id=place.access_key,
        aws_secret_access_key=place.secret_key,
        verify=None if place.endpoint.startswith("https:") else False,  # no certificates are read for plain HTTP
        config=AioConfig(
            connect_timeout=seconds,
            read_timeout=seconds,
            retries={"total_max_attempts": 1},  # trying again is for sweeps, which know for how long
            s3={"addressing_style": "path"},
            max_pool_connections=50,
            http_session_cls=OneHost,
        ),
    )
    return made


async def _chunks(body: Any) -> AsyncGenerator[bytes, None]:
    with _explained("get"):
        while chunk := await body.read(CHUNK):
            yield chunk


@contextmanager
def _explained(what: str, bucket: str = "", key: str | None = None) -> Iterator[None]:
    """`key` in `bucket` is what is asked for by name."""
    try:
        yield
    except ClientError as error:
        response: Mapping[str, Any] = error.response
        if key is not None and answers.is_absent(response, bucket, key):
            raise NotThere(what) from None
        raise StorageUnavailable(f"{what}: {response.get('Error', {}).get('Code')}"[:300]) from None
    except Unproven as error:
        raise StorageUnavailable(f"{what}: not an answer of S3's to this request: {error}"[:300]) from None
    # The first quotes the whole answer; the others say that a number or a date is none.
    except (ResponseParserError, ValueError, ArithmeticError, RuntimeError):
        raise StorageUnavailable(f"{what}: not an answer of S3's to this request: it cannot be read") from None
    except (BotoCoreError, HTTPClientError, HttpError, OSError, TimeoutError) as error:
        raise StorageUnavailable(f"{what}: {type(error).__name__}: {error}"[:300]) from None
