"""What the independent checks of the applications share. Only they use it, so no mistake of an application is in here as well."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psycopg import Connection

AT_A_TIME = 100  # calls
ANSWER_WITHIN = 30  # seconds
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"  # Transfer(address,address,uint256)

Call = tuple[str, Sequence[Any]]


def counted(connection: Connection[Any], queries: Mapping[str, str], *, schema: str = "trueup") -> dict[str, int]:
    """Each query counts what its name says is wrong. `{trueup}` in it is the schema of trueup's tables."""
    asked = {what: query.replace("{trueup}", schema).encode() for what, query in queries.items()}
    return {what: int(connection.execute(query).fetchall()[0][0]) for what, query in asked.items()}


def told(found: Mapping[str, int]) -> list[str]:
    """One line for each count that is not 0."""
    return [f"{count} {what}" for what, count in found.items() if count]


class Chain:
    """An EVM node, asked as plainly as possible: its own answers, one call for one thing."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, *calls: Call) -> list[Any]:
        """The results in the order of the calls. Raises what goes wrong: a check that cannot look proves nothing."""
        results: list[Any] = []
        for start in range(0, len(calls), AT_A_TIME):
            part = calls[start : start + AT_A_TIME]
            body = [
                {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                for number, (method, params) in enumerate(part)
            ]
            request = urllib.request.Request(  # noqa: S310 - the caller's own node
                self._url, json.dumps(body).encode(), {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=ANSWER_WITHIN) as answer:  # noqa: S310
                answers = {each["id"]: each for each in json.load(answer)}
            results += [answers[number]["result"] for number in range(len(part))]
        return results

    def height(self) -> int:
        return int(self.ask(("eth_blockNumber", []))[0], 16)

    def blocks(self) -> Iterator[Any]:
        """All of them, with their transactions."""
        height = self.height()
        for first in range(0, height + 1, AT_A_TIME):
            numbers = range(first, min(first + AT_A_TIME, height + 1))
            yield from self.ask(*(("eth_getBlockByNumber", [hex(number), True]) for number in numbers))

    def receipts(self, hashes: Sequence[str]) -> list[Any]:
        return self.ask(*(("eth_getTransactionReceipt", [each]) for each in hashes))

    def transfers(self) -> list[Any]:
        """The logs of all token transfers whose sender and receiver differ."""
        (logs,) = self.ask(("eth_getLogs", [{"fromBlock": "0x0", "toBlock": "latest", "topics": [TRANSFER]}]))
        return [each for each in logs if len(each["topics"]) == 3 and _moved(each)]


def _moved(log: Any) -> bool:
    return int(log["data"], 16) > 0 and log["topics"][1] != log["topics"][2]


def party(topic: str) -> str:
    """The address in a log's topic."""
    return f"0x{topic[-40:]}"
