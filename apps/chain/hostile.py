"""A node that misbehaves: between an application and a real node, it answers as sick, overloaded or strange nodes do."""

from __future__ import annotations

import gzip
import json
import threading
import time
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .blocks import EMPTY_ROOT

LOGLESS = "0x" + "0" * 512
BATCH_LIMIT = 12
DRIP = 0.05  # seconds between two bytes
CHUNK = b" " * 2**16
BOMB = 2**26  # bytes, when it is unpacked

Call = dict[str, Any]
Lie = Callable[[Call, Any], Any]  # a call and its true result


def _is_block(call: Call) -> bool:
    return call["method"] == "eth_getBlockByNumber" and bool(call["params"][1]) and call["params"][0] != "pending"


def _receipt(change: Callable[[Any], Any]) -> Lie:
    """Changes each receipt, however it is asked for, and each answer about logs."""

    def lie(call: Call, result: Any) -> Any:
        if call["method"] == "eth_getBlockReceipts" and result:
            return [change(each) for each in result]
        if call["method"] == "eth_getTransactionReceipt" and result:
            return change(result)
        return change({"logs": result})["logs"] if call["method"] == "eth_getLogs" else result

    return lie


def _block(change: Callable[[Any], Any]) -> Lie:
    return lambda call, result: change(result) if _is_block(call) and result and result["transactions"] else result


def _empty_blocks(call: Call, result: Any) -> Any:
    if call["method"] in ("eth_getBlockReceipts", "eth_getLogs"):
        return []
    return _block(lambda block: {**block, "transactions": []})(call, result)


def _one_fewer(call: Call, result: Any) -> Any:
    """Of those that have several."""
    if call["method"] in ("eth_getBlockReceipts", "eth_getLogs"):
        return result[: max(1, len(result) - 1)]
    return _block(lambda block: {**block, "transactions": (all := block["transactions"])[: max(1, len(all) - 1)]})(
        call, result
    )


def _one_in_the_middle(call: Call, result: Any) -> Any:
    """Is left out, with its receipt, where others follow: a plain payment, whose absence leaves no gap in the numbers of logs."""
    if call["method"] == "eth_getBlockReceipts":
        return _without_first(result, lambda receipt: not receipt["logs"])
    plain = _block(
        lambda block: {
            **block,
            "transactions": _without_first(block["transactions"], lambda each: each["input"] == "0x"),
        }
    )
    return plain(call, result)


def _without_first(items: list[Any], which: Callable[[Any], bool]) -> list[Any]:
    """The last one stays."""
    found = next((n for n, each in enumerate(items[:-1]) if which(each)), None)
    return items if found is None else items[:found] + items[found + 1 :]


def _lagging_index(call: Call, result: Any) -> Any:
    """Blocks are there, and what is looked up in an index is not yet."""
    match call["method"]:
        case "eth_getLogs" | "eth_getBlockReceipts":
            return []
        case "eth_getTransactionReceipt" | "eth_getTransactionByHash":
            return None
    return result


def _no_receipts(call: Call, result: Any) -> Any:
    return None if call["method"] in ("eth_getBlockReceipts", "eth_getTransactionReceipt") else _lagging(call, result)


def _lagging(call: Call, result: Any) -> Any:
    return [] if call["method"] == "eth_getLogs" else result


def _contradiction(call: Call, result: Any) -> Any:
    """Blocks that say of themselves that they are empty; asked by name, the node has their transactions all the same."""
    if call["method"] in ("eth_getBlockReceipts", "eth_getLogs"):
        return []
    empty = {"transactions": [], "transactionsRoot": EMPTY_ROOT, "receiptsRoot": EMPTY_ROOT}
    return _block(lambda block: {**block, **empty, "gasUsed": "0x0", "logsBloom": LOGLESS})(call, result)


def _other_chain(call: Call, result: Any) -> Any:
    return hex(4711) if call["method"] == "eth_chainId" else result


def _tip_ahead(call: Call, result: Any) -> Any:
    if call["method"] == "eth_getBlockByNumber" and call["params"][0] == "latest":
        return {**result, "number": hex(2**40)}
    return result


def syncing(genesis: Any) -> Lie:
    """A node that has just been set up: it knows the first block, and nothing else yet."""

    def lie(call: Call, result: Any) -> Any:
        if call["method"] != "eth_getBlockByNumber":
            return result
        return genesis if call["params"][0] in ("latest", "0x0") else None

    return lie


def headers_dated(at: int) -> Lie:
    """Blocks that are asked for without their transactions have this time, except for the newest."""

    def lie(call: Call, result: Any) -> Any:
        header = call["method"] == "eth_getBlockByNumber" and not call["params"][1] and call["params"][0] != "latest"
        return {**result, "timestamp": hex(at)} if header and result else result

    return lie


def pending(change: Callable[[Any], Any]) -> Lie:
    """Changes each transaction that waits to be mined."""

    def lie(call: Call, result: Any) -> Any:
        if call["method"] != "eth_getBlockByNumber" or call["params"][0] != "pending":
            return result
        return {**result, "transactions": [change(each) for each in result["transactions"]]}

    return lie


class TwoNodes:
    """A load balancer with two nodes behind it, which take turns; one of them does not have the blocks above `tip`, nor what is in them."""

    def __init__(self, tip: Any) -> None:
        self._tip = tip
        self._height = int(tip["number"], 16)
        self._requests = 0

    def __call__(self, call: Call, result: Any) -> Any:
        if call["method"] == "eth_chainId":  # the first call of each request
            self._requests += 1
        if self._requests % 2:
            return result
        match call:
            case {"method": "eth_getBlockByNumber", "params": ["latest", _]}:
                return self._tip
            case {"method": "eth_getBlockByNumber" | "eth_getBlockReceipts", "params": [number, *_]}:
                return None if number != "pending" and int(number, 16) > self._height else result
            case {"method": "eth_getTransactionByHash" | "eth_getTransactionReceipt"} if result:
                return None if int(result["blockNumber"] or "0x0", 16) > self._height else result
        return result


OTHER_HASH = "0x" + "ab" * 32

LIES: dict[str, Lie] = {
    "empty logs": _receipt(lambda receipt: {**receipt, "logs": []}),
    "some logs": _receipt(lambda receipt: {**receipt, "logs": receipt["logs"][1:]}),
    "empty logs and blooms": _receipt(lambda receipt: {**receipt, "logs": [], "logsBloom": LOGLESS}),
    "empty blocks": _empty_blocks,
    "one transaction fewer": _one_fewer,
    "wrong roots": _block(lambda block: {**block, "transactionsRoot": EMPTY_ROOT}),
    "lagging index": _lagging_index,
    "no receipts": _no_receipts,
    "contradiction": _contradiction,
    "another chain": _other_chain,
    "one in the middle left out": _one_in_the_middle,
    "receipts of another block": _receipt(lambda receipt: {**receipt, "blockHash": OTHER_HASH}),
    "another block": _block(lambda block: {**block, "number": hex(int(block["number"], 16) + 1)}),
    "another parent": _block(lambda block: {**block, "parentHash": OTHER_HASH}),
    "a tip that is not there": _tip_ahead,
    "transactions of another block": _block(
        lambda block: {**block, "transactions": [{**each, "blockHash": OTHER_HASH} for each in block["transactions"]]}
    ),
}


BOMBS = {"bomb": 1, "bomb in a bomb": 2}  # and how often it is packed


@cache
def bomb(times: int) -> bytes:
    packed = zlib.compressobj(wbits=31)
    said = b"".join(packed.compress(bytes(2**20)) for _ in range(BOMB >> 20)) + packed.flush()
    for _ in range(times - 1):
        said = gzip.compress(said)
    return said


class Hostile(ThreadingHTTPServer):
    """`mode` is a lie, one of LIES or BOMBS by name, or "batch limit", "drip", "endless body", "slow"; None: as the node."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.upstream = upstream
        self.mode: str | Lie | None = None
        self.requests: list[int] = []  # calls in each
        self.asked: Counter[str] = Counter()
        self.sent = 0  # bytes of an endless body

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The application waits no longer."""


class _Handler(BaseHTTPRequestHandler):
    server: Hostile
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server, mode = self.server, self.server.mode
        body = self.rfile.read(int(self.headers["content-length"]))
        calls = json.loads(body)
        calls = calls if isinstance(calls, list) else [calls]
        server.requests.append(len(calls))
        server.asked.update(call["method"] for call in calls)
        if mode == "drip":
            self._without_end(b" ", DRIP)
        elif mode == "endless body":
            self._without_end(CHUNK, 0)
        elif isinstance(mode, str) and mode in BOMBS:
            self._say_packed(BOMBS[mode])
        elif mode == "batch limit" and len(calls) > BATCH_LIMIT:
            error = {"code": -32600, "message": f"batches of more than {BATCH_LIMIT} calls are not served"}
            self._say({"jsonrpc": "2.0", "id": None, "error": error})
        else:
            if mode == "slow":
                time.sleep(0.02 * len(calls))
            lie = LIES.get(mode) if isinstance(mode, str) else mode
            self._say(self._answers(body, {call["id"]: call for call in calls}, lie))

    def _answers(self, body: bytes, calls: dict[int, Call], lie: Lie | None) -> Any:
        request = urllib.request.Request(self.server.upstream, body, {"content-type": "application/json"})  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            answers = json.load(answer)
        for each in answers if isinstance(answers, list) else [answers]:
            if lie is not None and "result" in each:
                each["result"] = lie(calls[each["id"]], each["result"])
        return answers

    def _say(self, answer: Any) -> None:
        said = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def _say_packed(self, times: int) -> None:
        said = bomb(times)
        self.send_response(200)
        self.send_header("content-encoding", ", ".join(["gzip"] * times))
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def _without_end(self, part: bytes, pause: float) -> None:
        """Until the other side hangs up."""
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while self.server.mode is not None:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.server.sent += len(part)
            time.sleep(pause)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def hostile_to(upstream: str) -> Iterator[Hostile]:
    with Hostile(upstream) as hostile:
        thread = threading.Thread(target=hostile.serve_forever, args=[0.02])
        thread.start()
        try:
            yield hostile
        finally:
            hostile.mode = None
            hostile.shutdown()
            thread.join()
