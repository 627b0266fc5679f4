"""A receiver of webhooks on loopback that writes down what it takes, and can be told to fail for a while."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from apps.servers.server import LOOPBACK


class Receiver:
    """`taken` has the bodies that came under each Idempotency-Key and were answered with 200; a body that came twice is there once."""

    def __init__(self) -> None:
        self.taken: defaultdict[str, set[bytes]] = defaultdict(set)
        self._failing_until = 0.0

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}/hook"

    def fail(self, seconds: float) -> None:
        """Answer 503 for this long, and take nothing."""
        self._failing_until = time.monotonic() + seconds

    def _take(self, key: str, body: bytes) -> int:
        if time.monotonic() < self._failing_until:
            return 503
        self.taken[key].add(body)
        return 200

    def __enter__(self) -> Self:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(receiver._take(self.headers.get("idempotency-key", ""), body))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05])
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
