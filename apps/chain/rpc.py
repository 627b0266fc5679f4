"""JSON-RPC over HTTP, as EVM nodes speak it. An answer is either right in form or an error: never a guess."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import httpx

Call = tuple[str, Sequence[Any]]

TIMEOUT = timedelta(seconds=5)
MOST_TEXT = 500  # of what a node says in an error


class ChainError(Exception):
    """The chain could not be asked. It says nothing about what is on the chain."""


class ChainUnavailable(ChainError):
    """No answer, or none that can be read: the node is down, too slow, overloaded, or something else answers in its place."""


class ChainRefused(ChainError):
    """The node understood and said no. `code` is its own."""

    def __init__(self, method: str, code: int, message: str) -> None:
        super().__init__(f"{method}: {message} ({code})")
        self.code = code


class Rpc:
    """One node. Safe to share between tasks; `async with`, or close it with aclose()."""

    def __init__(self, url: str, *, timeout: timedelta = TIMEOUT) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=timeout.total_seconds(), trust_env=False)
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
            response = await self._client.post("", json=body)
            response.raise_for_status()
            answer = response.json()
        except httpx.HTTPStatusError as error:
            raise ChainUnavailable(f"the node answered HTTP {error.response.status_code}") from None
        except httpx.TimeoutException:
            raise ChainUnavailable(f"the node did not answer {requests[0]['method']} in time") from None
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            raise ChainUnavailable(f"the node could not be asked: {type(error).__name__}: {error}") from None
        answers = answer if isinstance(answer, list) else [answer]
        return {each["id"]: each for each in answers if isinstance(each, dict) and isinstance(each.get("id"), int)}


def _result(method: str, answer: Any) -> Any:
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        code = answer["error"].get("code")
        said = str(answer["error"].get("message", ""))[:MOST_TEXT]
        raise ChainRefused(method, code if isinstance(code, int) else 0, said)
    if not isinstance(answer, dict) or "result" not in answer:
        raise ChainUnavailable(f"the node's answer to {method} cannot be read")
    return answer["result"]


def number(value: Any) -> int:
    """A quantity as nodes write it ("0x1f"). Raises ChainUnavailable for anything else, null included."""
    if isinstance(value, str) and re.fullmatch(
        "0x[0-9a-fA-F]+", value
    ):  # int() itself takes blanks and underscores, too
        return int(value, 16)
    raise ChainUnavailable(f"the node said {str(value)[:40]!r} where a number belongs")


def quantity(value: int) -> str:
    return hex(value)
