"""python -m apps.payments demo: a chain, replicas, payments of every kind, a replica killed, a node that hangs and lies, a
reorganisation, and the proof.

Everything runs on this machine and in a directory of its own, and is gone afterwards. With TRUEUP_DATABASE_URL that database is used.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from apps.chain.anvil import Anvil
from apps.chain.hostile import LIES, Hostile, hostile_to
from apps.own_database import own_database
from apps.rounds import rounds
from trueup import ConfigError
from trueup.web.database import prepare_database
from trueup.web.service import own_app

from . import migrate, requests
from .check import Checked, check
from .token import deploy, transfer

ROOT = Path(__file__).parents[2]
CHAIN = "eip155:31337"
REPLICAS = 3
REORG_DEPTH = 4
HANGS_FOR = 6  # seconds: longer than an observer waits
LIES_FOR = 5  # seconds
PROGRESS_EVERY = 10  # seconds
STOPPED_WITHIN = 30  # seconds
SETTLED_WITHIN = 45  # seconds after the last payment: a lease, a few looks, and a machine that may be busy
KINDS = ("exact", "token", "any amount", "two parts", "overpaid", "underpaid", "unpaid", "late")
SETTINGS = {
    "PAYMENT_REQUEST_RECONCILER_POLL_INTERVAL_SECONDS": "1",
    "PAYMENT_REQUEST_RECONCILER_LEASE_SECONDS": "3",  # usually half a minute; so that a takeover can be watched
    "PAYMENT_REQUEST_RECONCILER_EVM_MIN_CONFIRMATIONS": "2",
    "TRUEUP_LEASE_FOR": "3s",
    # Connections: 9 of a replica, one for each request that it looks at, and its pool; those of a killed one are there for a while,
    # beside its successor's, and the server has a hundred.
    "PAYMENT_REQUEST_RECONCILER_CONCURRENCY": "8",
    "TRUEUP_POOL_SIZE": "5",
    "TRUEUP_LOG_FORMAT": "json",
}


@dataclass(frozen=True)
class Asked:
    id: UUID
    kind: str
    address: str
    token: str | None
    amount: int
    expires_at: datetime


def run(seconds: int, count: int) -> int:
    """0 when the books balance at the end, 1 when they do not. Nothing is left behind but, after a failure, the logs."""
    directory = Path(tempfile.mkdtemp(prefix="payments-demo-"))
    directory.chmod(0o711)  # as root PostgreSQL runs as the user nobody, who needs access
    status = 1
    try:
        with ExitStack() as stack:
            anvil = stack.enter_context(Anvil("--block-time", "1"))
            node = stack.enter_context(hostile_to(anvil.url))
            status = asyncio.run(Demo(anvil, node, directory, stack, max(10, seconds), count).play())
    except KeyboardInterrupt:
        status = 130
    except ConfigError:
        status = 2
        raise
    finally:
        if (directory / "postgres").exists():
            stop = [sys.executable, "-m", "trueup.cli", "postgres", "stop"]
            subprocess.run(stop, env=_environment(directory), capture_output=True, timeout=30)
        if status == 1:
            print(f"The logs are in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return status


def _environment(directory: Path) -> dict[str, str]:
    """Of the demo's processes: what the user has set for the application does not reach them."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PAYMENT_REQUEST_")}
    return {**inherited, **SETTINGS, "TRUEUP_DATA_DIR": str(directory / "postgres")}


class Demo:
    """`node` is what the replicas see of `anvil`."""

    def __init__(
        self, anvil: Anvil, node: Hostile, directory: Path, stack: ExitStack, seconds: int, count: int
    ) -> None:
        self.anvil = anvil
        self.node = node
        self.directory = directory
        self.seconds = seconds
        self.count = count
        self.random = random.Random(7)  # noqa: S311 - the same story each time
        self.environment = {**_environment(directory), "PAYMENT_REQUEST_CHAINS": f"{CHAIN}={node.url}"}
        self.app = own_app("payments", tables="app", data_dir=directory / "postgres")
        self.replicas: list[subprocess.Popen[bytes]] = []
        self.sent: list[tuple[Asked, int, str]] = []  # what was paid, and the transaction's hash
        self.unpaid = 0  # payments that a reorganisation removed and that were not sent again
        self._stack = stack

    async def play(self) -> int:
        async with self.app:
            await asyncio.to_thread(self.app.store.migrate)
            await prepare_database(self.app, migrate.migrate)
            if await self.statuses():
                raise ConfigError(
                    "TRUEUP_DATABASE_URL: there are payment requests already, and the demo is not about those"
                )
            asked = await self.ask()
            self.say(f"{len(asked)} payment requests of {len(KINDS)} kinds, {REPLICAS} replicas, one block a second")
            self.say(f"payments come for {self.seconds} s; how the requests stand, every {PROGRESS_EVERY} s:")
            for _ in range(REPLICAS):
                self.start()
            await self.traffic(asked)
            await self.settle()
            await asyncio.to_thread(self.stop)
            return self.tell(await self.check(stopped=True))

    # -- the cast -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        log = self._stack.enter_context((self.directory / "replicas.log").open("ab"))
        command = [sys.executable, "-m", "apps.payments.reconciler"]
        replica = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        self.replicas.append(replica)
        self._stack.callback(_end, replica)

    def stop(self) -> None:
        """In order, so that they give back what they have in hand."""
        for replica in self.replicas:
            replica.terminate()
        for replica in self.replicas:
            if replica.wait(STOPPED_WITHIN) != 0:
                raise RuntimeError(f"replica {replica.pid} ended with status {replica.returncode}")

    async def ask(self) -> list[Asked]:
        """A request of each kind in turn. Those that are to expire do so in the middle."""
        token = await asyncio.to_thread(deploy, self.anvil, self.anvil.accounts()[0], lambda: self.anvil.mine(1))
        asked = []
        async with self.app.transaction() as tx:
            now = await self.app.now(tx)
            for number in range(self.count):
                kind = KINDS[number % len(KINDS)]
                address = f"0x{self.random.getrandbits(160):040x}"
                expires = self.seconds * 0.5 if kind in ("underpaid", "unpaid", "late") else 3600
                expires_at = now + timedelta(seconds=expires)
                amount = self.random.randrange(10**6, 10**15)
                coin = token if kind == "token" else None
                made = await requests.create(
                    tx, CHAIN, address, coin, None if kind == "any amount" else amount, expires_at
                )
                assert made is not None
                asked.append(Asked(made["id"], kind, address, coin, amount, expires_at))
        return asked

    # -- what happens -------------------------------------------------------------------------------------------------

    async def traffic(self, asked: list[Asked]) -> None:
        """Payments at their moments; in each round a replica is killed, the node hangs and lies, and blocks are replaced."""
        begun = asyncio.get_running_loop().time()
        plan = [(at, self.payment(each, amount)) for each in asked for at, amount in self.payments(each)]
        for each in rounds(self.seconds):
            plan += [(each.at(0.3), self.kill), (each.at(0.4), self.hang)]
            plan += [
                (each.at(0.6), self.reorganise),
                (each.at(0.7), self.lie),
                (each.at(0.7) + LIES_FOR, self.be_honest),
            ]
        plan += [(second, self.progress(second)) for second in range(PROGRESS_EVERY, self.seconds, PROGRESS_EVERY)]
        for at, act in sorted(plan, key=lambda each: each[0]):
            await asyncio.sleep(max(0.0, begun + at - asyncio.get_running_loop().time()))
            await act()

    def payments(self, asked: Asked) -> list[tuple[float, int]]:
        """When, in seconds from the start, and how much. Nothing comes within moments of an expiry: that would be a toss-up."""
        early = self.random.uniform(0.05, 0.35) * self.seconds
        later = self.random.uniform(0.4, 0.95) * self.seconds
        match asked.kind:
            case "exact" | "token" | "any amount":
                return [(self.random.choice((early, later)), asked.amount)]
            case "two parts":
                return [(early, asked.amount // 3), (later, asked.amount - asked.amount // 3)]
            case "overpaid":
                return [(later, asked.amount + 5)]
            case "underpaid":
                return [(early, asked.amount - 1)]
            case "late":
                return [(self.random.uniform(0.7, 0.95) * self.seconds, asked.amount)]
            case _:
                return []

    def payment(self, asked: Asked, amount: int) -> Callable[[], Awaitable[None]]:
        async def pay() -> None:
            payer = self.random.choice(self.anvil.accounts())
            if asked.token is not None:
                sent = await asyncio.to_thread(transfer, self.anvil, payer, asked.token, asked.address, amount)
            else:
                sent = await asyncio.to_thread(self.anvil.send, payer, asked.address, amount)
            self.sent.append((asked, amount, sent))

        return pay

    async def kill(self) -> None:
        killed = self.replicas.pop(0)
        _end(killed)
        self.say(
            f"replica {killed.pid} was killed; the others take over when its leases have passed, and a new one starts"
        )
        self.start()

    async def hang(self) -> None:
        self.say(f"the node takes requests and answers none for {HANGS_FOR} s")
        with self.anvil.hanging():
            await asyncio.sleep(HANGS_FOR)

    async def lie(self) -> None:
        lie = self.random.choice(list(LIES))
        self.say(f"the node lies to the replicas for {LIES_FOR} s: {lie}")
        self.node.mode = lie

    async def be_honest(self) -> None:
        self.node.mode = None

    async def reorganise(self) -> None:
        """The chain forgets its last blocks. Two of three payers notice and pay again."""
        await asyncio.to_thread(self.anvil.reorganise, REORG_DEPTH)
        lost = [
            each
            for each in self.sent
            if await asyncio.to_thread(self.anvil.call, "eth_getTransactionByHash", each[2]) is None
        ]
        self.sent = [each for each in self.sent if each not in lost]
        self.say(f"{REORG_DEPTH} blocks were replaced, and {len(lost)} payments are gone; two of three are sent again")
        for number, (asked, amount, _) in enumerate(lost):
            if number % 3:
                await self.payment(asked, amount)()
            else:
                self.unpaid += 1

    # -- what is seen -------------------------------------------------------------------------------------------------

    async def statuses(self) -> Counter[str]:
        async with self.app.transaction() as tx:
            cursor = await tx.execute("select status, count(*) from app.payment_requests group by status")
            return Counter(dict(await cursor.fetchall()))

    def progress(self, second: int) -> Callable[[], Awaitable[None]]:
        async def tell() -> None:
            self.say(f"{second:4} s  {_counted(await self.statuses())}")

        return tell

    async def check(self, *, stopped: bool) -> Checked:
        """By code that shares nothing with the application."""
        database = await own_database(self.app)
        return await asyncio.to_thread(
            check, database, self.anvil.url, CHAIN, stopped=stopped, schema=self.app.settings.schema
        )

    async def settle(self) -> None:
        """Until the books balance, or that takes too long. A payment that is not in a block yet is not in the books."""
        self.say("the last payment was made; now the books must come to balance")
        deadline = asyncio.get_running_loop().time() + SETTLED_WITHIN
        mined = await asyncio.to_thread(self.anvil.height) + 2
        while asyncio.get_running_loop().time() < deadline:
            if await asyncio.to_thread(self.anvil.height) >= mined and not (await self.check(stopped=False)).wrong:
                return
            await asyncio.sleep(1)

    def tell(self, found: Checked) -> int:
        for wrong in found.wrong:
            self.say(f"wrong: {wrong}")
        if found.wrong:
            self.say(f"THE BOOKS DO NOT BALANCE: {found.settled} settled, {found.received} received")
            return 1
        self.say(
            f"the books balance, by an independent check of tables and node: {found.statuses.total()} requests stand as the"
            f" chain has them ({_counted(found.statuses)}), settlements of {found.settled} = {found.received} received on it."
            f" What is pending or reorged waits for one of the {self.unpaid} payments that were not sent again"
        )
        return 0

    def say(self, text: str) -> None:
        print(text, flush=True)


def _end(replica: subprocess.Popen[bytes]) -> None:
    replica.kill()
    replica.wait()


def _counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
