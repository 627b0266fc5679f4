"""One etcd server, for programs that need a place for their consensus; its data is thrown away with it."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from tests.support import ports
from tests.support.debian import unpack
from tests.support.waiting import wait_until

PACKAGES = ("etcd-server",)
START_WITHIN = 30
STOP_WITHIN = 5


class Etcd:
    """Serves from entering its `with` block until leaving it, on a port of its own on loopback."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program = unpack(PACKAGES) / "usr/bin/etcd"
        self._directory.mkdir(parents=True)
        self._reserved = [ports.reserve(), ports.reserve()]
        self.port, peers = map(ports.number, self._reserved)
        clients, others = f"http://{ports.LOOPBACK}:{self.port}", f"http://{ports.LOOPBACK}:{peers}"
        for reserved in self._reserved:
            reserved.close()  # etcd does not share a port that is reserved
        options = {
            "name": "only",
            "data-dir": self._directory / "data",
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": others,
            "initial-advertise-peer-urls": others,
            "initial-cluster": f"only={others}",
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [program, *(f"--{name}={value}" for name, value in options.items())],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_until(self._answers, "etcd answers", timeout=START_WITHIN)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def log(self) -> Path:
        return self._directory / "etcd.log"

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"etcd did not start:\n{self.log.read_text()[-4_000:]}")
        try:
            with urllib.request.urlopen(f"http://{ports.LOOPBACK}:{self.port}/health", timeout=2) as answer:
                return b"true" in answer.read()
        except (OSError, urllib.error.URLError):
            return False
