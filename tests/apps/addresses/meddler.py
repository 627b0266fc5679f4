"""Something between the application and the node: it writes down who asked when, and may say something else than the node did."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Alter = Callable[[Any, Any], Any]  # the requests and the node's answers, both as they are; bytes or an HTTP status, too


class Meddler(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.asked_at: list[float] = []
        self.alter: Alter = lambda requests, answers: answers
        self._thread = threading.Thread(target=self.serve_forever, args=[0.02])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has been killed."""


class _Handler(BaseHTTPRequestHandler):
    server: Meddler

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked_at.append(time.monotonic())
        request = urllib.request.Request(self.server.upstream, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            answers = json.load(answer)
        altered = self.server.alter(json.loads(body), answers)
        status, said = (altered, b"") if isinstance(altered, int) else (200, altered)
        said = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        pass
