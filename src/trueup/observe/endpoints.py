"""A worker's HTTP endpoints: `/healthz`, `/readyz` and `/metrics`, and 404 for everything else. Needs no package.

Threads of their own answer, so that a blocked event loop is reported instead of leaving probes without an answer. `/healthz` is
503 when a restart would help: the event loop or the thread that renews the lease stands still. `/readyz` is 503 when this process
does not take work: it is starting or stopping, has lost its lease, or cannot reach the database. Neither queries the database.
Workers of one process that are given the same address share it; then each of them must be well.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from trueup.errors import ConfigError

READ_WITHIN = 5.0  # seconds for a request to arrive, and for its answer to be read
# Requests at a time; further ones are hung up on, so that slow clients cannot fill the process with threads.
MAX_REQUESTS = 32
METRICS_MISSING = 'metrics need prometheus-client: pip install "trueup[metrics]"'

Why = Callable[[], str | None]
"""Why not; None when all is well. Called on a thread of the server."""
Scrape = Callable[[], tuple[str, bytes]]
"""The type of the content, and the content."""


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The answers that a worker gives at an address."""

    alive: Why | None = None
    ready: Why | None = None
    scrape: Scrape | None = None


class Endpoints:
    """Serves from construction until `close`. Raises ConfigError, which names the `setting`, if it cannot listen on the
    address."""

    def __init__(self, host: str, port: int, served: Served, setting: str) -> None:
        self._address = (host, port)
        self._served: Served | None = served
        try:
            with _lock:
                listening = _listening.get(self._address)
                if listening is None:
                    listening = _listening[self._address] = _Server(host, port)
                listening.served.append(served)
        except OSError as error:
            raise ConfigError(
                f"{setting} cannot be served at {host}:{port}: {error.strerror or error}; change {setting}_port or "
                f"{setting}_host, and give each process its own port"
            ) from None

    def close(self) -> None:
        """Returns when nothing is served for this caller any more; takes up to half a second. May be called twice."""
        served, self._served = self._served, None
        if served is None:
            return
        with _lock:
            listening = _listening[self._address]
            listening.served.remove(served)
            if not listening.served:
                del _listening[self._address]
                listening.stop()


class _Server(ThreadingMixIn, TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, *_, address = found[0]
        self.served: list[Served] = []
        self._places = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(address, _Handler)  # type: ignore[arg-type]  # of IPv6, too
        self._thread = threading.Thread(target=self.serve_forever, name="trueup endpoints", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is not logged."""


class _Handler(BaseHTTPRequestHandler):
    timeout = READ_WITHIN
    server: _Server
    server_version, sys_version = "trueup", ""

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/healthz" if any(each.alive for each in self.server.served):
                self._probe("alive", [each.alive() for each in self.server.served if each.alive])
            case "/readyz" if any(each.ready for each in self.server.served):
                self._probe("ready", [each.ready() for each in self.server.served if each.ready])
            case "/metrics":
                self._metrics()
            case _:
                self._answer(404, "text/plain; charset=utf-8", b"not found; there is /healthz, /readyz and /metrics\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _probe(self, name: str, found: list[str | None]) -> None:
        why = [each for each in found if each is not None]
        body = json.dumps({name: not why, "why": why}).encode() + b"\n"
        self._answer(503 if why else 200, "application/json", body)

    def _metrics(self) -> None:
        scrape = next((each.scrape for each in self.server.served if each.scrape), None)
        if scrape is None:
            self._answer(404, "text/plain; charset=utf-8", f"{METRICS_MISSING}\n".encode())
        else:
            self._answer(200, *scrape())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "no-store")
        self.send_header("x-content-type-options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes arrive every few seconds, so requests are not logged."""


_lock = threading.Lock()
_listening: dict[tuple[str, int], _Server] = {}
