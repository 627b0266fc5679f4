"""JSON-RPC over HTTP, as EVM nodes speak it. An answer is either right in form or an error: never a guess.

One request takes a bounded time and brings a bounded number of bytes, whatever the node does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import ssl
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from types import TracebackType
from typing import Any, Self

import httpx

Call = tuple[str, Sequence[Any]]

TIMEOUT = timedelta(seconds=5)
MAX_TEXT = 500  # characters of what a node says in an error
MAX_ANSWER = 64 * 2**20  # bytes
TOO_LARGE = (400, 413)  # what servers answer to a batch that they find too large
METHOD_NOT_FOUND = -32601
QUANTITY = "0x[0-9a-fA-F]{1,512}"  # a logs bloom is the longest


class ChainError(Exception):
    """The chain could not be asked. It says nothing about what is on the chain."""


class ChainUnavailable(ChainError):
    """No answer, or none that can be read: the node is down, too slow, overloaded, or something else answers in its place."""


class ChainSlow(ChainUnavailable):
    """The answer was not complete in time."""


class ChainTooMuch(ChainUnavailable):
    """The node refused the request as a whole, or answered more than can be taken: less at a time may be answered."""


class ChainRefused(ChainError):
    """The node understood and said no. `code` is its own."""

    def __init__(self, method: str, code: int, message: str) -> None:
        super().__init__(f"{method}: {message} ({code})")
        self.code = code


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes longer than a request."""
    return httpx.create_ssl_context(trust_env=False)


class Rpc:
    """One node. Safe to share between tasks; `async with`, or close it with aclose().

    `timeout` bounds a whole request, from the connection to the last byte; `max_answer` the bytes of its answer.
    """

    def __init__(self, url: str, *, timeout: timedelta = TIMEOUT, max_answer: int = MAX_ANSWER) -> None:
        self._client = httpx.AsyncClient(
            base_url=url,
            timeout=timeout.total_seconds(),
            trust_env=False,
            verify=_tls(),
            headers={"accept-encoding": "gzip"},
        )
        self._timeout = timeout.total_seconds()
        self._max_answer = max_answer
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._client.aclose()

    async def call(self, method: str, *params: Any) -> Any:
        """The node's result. Raises ChainUnavailable or ChainRefused."""
        (result,) = await self.batch([(method, params)])
        return result

    async def batch(self, calls: Sequence[Call]) -> list[Any]:
        """The results in the order of the calls, from one request. Raises when any of them was not answered or refused."""
        if not calls:
            return []
        requests: list[dict[str, Any]] = [
            {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": list(params)}
            for method, params in calls
        ]
        answers = await self._post(requests)
        return [
            _result(request["method"], answers.get(request["id"]))  # an answer that is missing is no answer
            for request in requests
        ]

    async def _post(self, requests: list[dict[str, Any]]) -> dict[Any, Any]:
        body: Any = requests if len(requests) > 1 else requests[0]
        try:
            async with asyncio.timeout(self._timeout):
                status, said = await self._exchange(body)
        except (httpx.TimeoutException, TimeoutError):
            raise ChainSlow(f"the node did not answer {requests[0]['method']} in time") from None
        except httpx.HTTPError as error:
            raise ChainUnavailable(f"the node could not be asked: {type(error).__name__}: {error}") from None
        if status != 200:
            kind = ChainTooMuch if status in TOO_LARGE and len(requests) > 1 else ChainUnavailable
            raise kind(f"the node answered HTTP {status}{_words(said)}")
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError) as error:
            raise ChainUnavailable(f"the node's answer cannot be read: {type(error).__name__}: {error}") from None
        return _by_id(answer, requests)

    async def _exchange(self, body: Any) -> tuple[int, bytes]:
        async with self._client.stream("POST", "", json=body) as response:
            unpack, said = _unpacking(response.headers.get("content-encoding", "")), bytearray()
            async for part in response.aiter_raw():
                said += unpack(part, self._max_answer - len(said) + 1)
                if len(said) > self._max_answer:
                    raise ChainTooMuch(f"the node's answer is longer than {self._max_answer} bytes")
            return response.status_code, bytes(said)


def _unpacking(encoding: str) -> Callable[[bytes, int], bytes]:
    """Unpacks a part of an answer, up to a number of bytes. httpx unpacks without bounds, and as often as an answer says it was packed."""
    if encoding in ("", "identity"):
        return lambda part, most: part
    if encoding != "gzip":
        raise ChainUnavailable(f"the node's answer is packed as {encoding[:40]!r}")
    unpacked = zlib.decompressobj(wbits=31)

    def unpack(part: bytes, most: int) -> bytes:
        try:
            return unpacked.decompress(part, most)
        except zlib.error as error:
            raise ChainUnavailable(f"the node's answer cannot be unpacked: {error}") from None

    return unpack


def _by_id(answer: Any, requests: Sequence[dict[str, Any]]) -> dict[Any, Any]:
    answers = answer if isinstance(answer, list) else [answer]
    numbered = [each for each in answers if isinstance(each, dict) and isinstance(each.get("id"), int)]
    told = {each["id"]: each for each in numbered}
    if len(told) != len(numbered):
        raise ChainUnavailable("the node answered one call twice")
    if not told:
        # Nodes refuse a batch as a whole with one error that answers no call in particular.
        for each in answers:
            if isinstance(each, dict) and isinstance(each.get("error"), dict):
                if len(requests) > 1:
                    raise ChainTooMuch(f"the node refused {len(requests)} calls at a time: {_message(each['error'])}")
                raise _refusal(requests[0]["method"], each["error"])
    return told


def _result(method: str, answer: Any) -> Any:
    """A result of null says that there is no such thing; beside an error of whatever form it says nothing."""
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        raise _refusal(method, answer["error"])
    if not isinstance(answer, dict) or "result" not in answer or answer.get("error") is not None:
        raise ChainUnavailable(f"the node's answer to {method} cannot be read")
    return answer["result"]


def _refusal(method: str, error: dict[str, Any]) -> ChainRefused:
    code = error.get("code")
    return ChainRefused(method, code if isinstance(code, int) else 0, _message(error))


def _message(error: dict[str, Any]) -> str:
    return str(error.get("message", ""))[:MAX_TEXT]


def _words(said: bytes) -> str:
    """What a JSON-RPC error in the body says, behind a colon."""
    try:
        answer = json.loads(said)
        return f": {_message(answer['error'])}"
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return ""


def number(value: Any) -> int:
    """A quantity as nodes write it ("0x1f"). Raises ChainUnavailable for anything else, null included, and for one that is longer
    than anything in a block: to multiply two of many megabytes would keep everything else waiting for minutes."""
    if isinstance(value, str) and re.fullmatch(QUANTITY, value):  # int() itself takes blanks and underscores, too
        return int(value, 16)
    raise ChainUnavailable(f"the node said {str(value)[:40]!r} where a number belongs")


def quantity(value: int) -> str:
    return hex(value)
