"""Between an observer and its node: passes everything on, and may change, withhold or delay what the node answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from apps.chain.anvil import Anvil


class Relay(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, anvil: Anvil) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.anvil = anvil
        self.asked: list[str] = []
        self.change: Callable[[str, list[Any], Any], Any] = lambda method, params, result: result
        self.raw: bytes | None = None  # said instead of anything
        self.holding = threading.Event()  # somebody waits
        self.go_on = threading.Event()
        self.go_on.set()

    def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(call["method"])
        result = self.change(call["method"], call["params"], self.anvil.call(call["method"], *call["params"]))
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has been killed, or waits no longer."""


class _Handler(BaseHTTPRequestHandler):
    server: Relay

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = [self.server.answer(each) for each in body] if isinstance(body, list) else self.server.answer(body)
        if not self.server.go_on.is_set():
            self.server.holding.set()
            self.server.go_on.wait()
        text = self.server.raw if self.server.raw is not None else json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def relay_to(anvil: Anvil) -> Iterator[Relay]:
    with Relay(anvil) as relay:
        thread = threading.Thread(target=relay.serve_forever, args=[0.05])
        thread.start()
        try:
            yield relay
        finally:
            relay.go_on.set()
            relay.shutdown()
            thread.join()
