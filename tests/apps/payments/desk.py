"""The application over a clock that tests move, on a real chain whose blocks are dated by it."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any
from uuid import UUID

from apps.chain.anvil import Anvil
from apps.payments import requests
from apps.payments.config import Config
from apps.payments.judge import Settlement
from apps.payments.service import RECONCILER, Service, build
from apps.payments.token import deploy
from trueup import App
from trueup.reconcile.counts import Counts
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

CHAIN = "eip155:31337"
BLOCK = 12  # seconds
POLL = 15
_addresses = itertools.count(1)


def new_address() -> str:
    """One that nobody has used."""
    return f"0x{0xA11CE << 140 | next(_addresses):040x}"


class Desk:
    def __init__(self, app: App, clock: ManualClock, anvil: Anvil, node: str | None = None, **variables: str) -> None:
        environment = {"PAYMENT_REQUEST_CHAINS": f"{CHAIN}={node or anvil.url}"}
        environment |= {f"PAYMENT_REQUEST_RECONCILER_{name}": value for name, value in variables.items()}
        self.app, self.clock, self.anvil = app, clock, anvil
        self.service: Service = build(Config.from_environment(environment), app)
        self.worker = ManualWorker(app)
        self.payer, self.other = anvil.accounts()[:2]

    async def begin(self) -> None:
        await self.service.prepare()
        await self.worker.begin()

    async def end(self) -> None:
        await self.worker.end()
        await self.service.close()

    # -- requests -----------------------------------------------------------------------------------------------------

    async def ask(
        self, expected: int | None = 1000, *, token: str | None = None, minutes: float = 60, chain: str = CHAIN
    ) -> UUID:
        """A request, for an address of its own, that expires so much later."""
        async with self.app.transaction() as tx:
            made = await requests.create(
                tx,
                chain,
                new_address(),
                token,
                expected,
                self.clock.now() + timedelta(minutes=minutes),
                now=self.clock.now(),
            )
        assert made is not None
        request_id: UUID = made["id"]
        return request_id

    async def look(self, seconds: float = POLL) -> Counts:
        """One cycle, so much later."""
        self.clock.advance(seconds=seconds)
        counts = await self.worker.sweep(RECONCILER)
        await self.worker.run_pending()
        return counts

    async def row(self, request_id: UUID) -> dict[str, Any]:
        async with self.app.transaction() as tx:
            cursor = await tx.execute("select to_jsonb(r) from app.payment_requests as r where id = %s", [request_id])
            row = await cursor.fetchone()
        assert row is not None
        found: dict[str, Any] = row[0]
        return found

    async def status(self, request_id: UUID) -> str:
        return str((await self.row(request_id))["status"])

    async def seen(self, request_id: UUID) -> str:
        """Its status after a look."""
        await self.look()
        return await self.status(request_id)

    async def settlements(self, request_id: UUID) -> list[Settlement]:
        async with self.app.transaction() as tx:
            return await requests.settlements(tx, request_id)

    async def do(self, statement: str, params: Any = None) -> None:
        async with self.app.transaction() as tx:
            await tx.execute(statement, params)

    # -- the chain ----------------------------------------------------------------------------------------------------

    async def pay(self, request_id: UUID, amount: int, *, sender: str | None = None, **fields: Any) -> str:
        """Sent, and waiting to be mined; its hash."""
        return self.anvil.send(sender or self.payer, (await self.row(request_id))["address"], amount, **fields)

    def mine(self, blocks: int = 1) -> None:
        """Blocks that are dated by the clock, which goes on meanwhile."""
        for _ in range(blocks):
            self.clock.advance(seconds=BLOCK)
            self.anvil.call("evm_setNextBlockTimestamp", int(self.clock.now().timestamp()))
            self.anvil.call("evm_mine")

    def mine_many(self, blocks: int) -> None:
        """As mine, in one go."""
        self.mine()
        self.clock.advance(seconds=BLOCK * (blocks - 1))
        self.anvil.call("anvil_mine", hex(blocks - 1), hex(BLOCK))

    def deploy_token(self) -> str:
        return deploy(self.anvil, self.payer, self.mine)
