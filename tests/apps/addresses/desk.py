"""The application over a clock that tests move, with a real node."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from psycopg.rows import dict_row

from apps.addresses.config import Config
from apps.addresses.service import RECONCILER, SCHEDULE, Service, build
from apps.chain.anvil import Anvil
from trueup import App
from trueup.reconcile.counts import Counts
from trueup.testing.clock import NOON, ManualClock
from trueup.testing.worker import ManualWorker

GAS_PRICE = 2 * 10**9
FEE = 21_000 * GAS_PRICE
ENABLED = {"RECONCILIATION_SCHEDULER_ENABLED": "true", "RECONCILIATION_WORKER_ENABLED": "true"}


class Node(Anvil):
    """Ethereum, as far as anybody can tell. What is sent twice with the same nonce is the same transaction."""

    def __init__(self) -> None:
        now = max(int(time.time()), int(NOON.timestamp()))  # new by the desk's clock, and by that of real processes
        super().__init__("--no-mining", "--chain-id", "1", "--timestamp", str(now))

    def pay(self, sender: str, to: str, value: int, nonce: int | None = None) -> str:
        """Sent, and waiting to be mined; its hash."""
        fields = {"gasPrice": hex(GAS_PRICE)} | ({} if nonce is None else {"nonce": hex(nonce)})
        return self.send(sender, to, value, **fields)


class Desk:
    def __init__(self, app: App, clock: ManualClock, **variables: str) -> None:
        environment = {**ENABLED, "RECONCILIATION_PROVIDER_RATE": "10000/s"}
        environment |= {"RECONCILIATION_TIP_FRESH_FOR": "0s", **variables}
        self.app, self.clock = app, clock
        self.service: Service = build(Config.from_environment(environment), app)
        self.worker = ManualWorker(app)

    async def begin(self) -> None:
        await self.service.prepare()
        await self.worker.begin()

    async def end(self) -> None:
        await self.worker.end()
        await self.service.close()

    # -- what is done -------------------------------------------------------------------------------------------------

    async def monitor(self, *addresses: str, chain: str = "ethereum", checkpoint: int | None = None) -> None:
        for address in addresses:
            await self.do(
                "insert into addresses (address, chain, last_reconciled_block) values (%s, %s, %s)",
                [address, chain, checkpoint],
            )

    def forget(self) -> None:
        """What is kept of the chain, as a restart does."""
        for provider in self.service.providers.values():
            provider._blocks.clear()

    async def tick(self) -> Any:
        """The schedule fires now; what its run gave."""
        job = await self.app.schedules.trigger(SCHEDULE)
        await self.worker.run_pending()
        row = await self.one("select result from trueup.history where id = %s", [int(job)])
        return row["result"]

    async def job(self, address: str, mode: str = "partial", chain: str = "ethereum") -> int:
        """A job that waits."""
        row = await self.one(
            "insert into reconciliation_jobs (address, chain, mode) values (%s, %s, %s) returning id",
            [address, chain, mode],
        )
        return int(row["id"])

    async def sweep(self) -> Counts:
        return await self.worker.sweep(RECONCILER)

    async def reconcile(self, address: str, mode: str = "partial", chain: str = "ethereum") -> dict[str, Any]:
        """A job for it, and what became of that."""
        job = await self.job(address, mode, chain)
        await self.sweep()
        return await self.show(job)

    # -- what there is ------------------------------------------------------------------------------------------------

    async def show(self, job: int) -> dict[str, Any]:
        return await self.one("select * from reconciliation_jobs where id = %s", [job])

    async def jobs(self) -> list[dict[str, Any]]:
        return await self.all("select * from reconciliation_jobs order by id")

    async def here(self) -> dict[str, int]:
        """Block by hash of what is in the local copy."""
        rows = await self.all("select hash, block_number from transactions where deleted_at is null")
        return {row["hash"]: row["block_number"] for row in rows}

    async def audit(self, job: int | None = None) -> list[tuple[str, str]]:
        """Action and transaction, in order."""
        rows = await self.all(
            "select action, transaction from reconciliation_audit_log where (%(job)s::bigint is null or job = %(job)s) order by id",
            {"job": job},
        )
        return [(row["action"], row["transaction"]) for row in rows]

    async def checkpoint(self, address: str) -> int | None:
        row = await self.one("select last_reconciled_block as at from addresses where address = %s", [address])
        at: int | None = row["at"]
        return at

    async def do(self, statement: str, params: Any = None) -> None:
        async with self.app.transaction() as tx:
            await tx.execute(statement, params)

    async def all(self, query: str, params: Any = None) -> list[dict[str, Any]]:
        async with self.app.transaction() as tx, tx.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query, params)
            return await cursor.fetchall()

    async def one(self, query: str, params: Any = None) -> dict[str, Any]:
        (row,) = await self.all(query, params)
        return row


def counters(job: dict[str, Any]) -> tuple[Sequence[int], str]:
    """checked, added, soft-deleted, discrepancies; and the status."""
    return tuple(job[name] for name in ("checked", "added", "soft_deleted", "discrepancies")), job["status"]
