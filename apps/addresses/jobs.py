"""Jobs that compare one address with its chain, as rows. Everything here runs in a transaction of the caller's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg.rows import dict_row

from trueup import LostClaim

from .books import Counts, Tx
from .chains import Mode, Window, canonical


@dataclass(frozen=True)
class Job:
    """As it was claimed. `version` is the claim's: it is what every write of this claim names."""

    id: int
    address: str
    chain: str
    mode: Mode
    effective_mode: Mode | None
    from_block: int | None
    to_block: int | None
    next_block: int | None
    next_parent: str | None
    version: int

    @property
    def window(self) -> Window | None:
        """What an earlier attempt has decided to compare."""
        if self.effective_mode is None or self.from_block is None or self.to_block is None:
            return None
        return Window(self.effective_mode, self.from_block, self.to_block)


class NotMonitored(Exception):
    """There is no such address among the monitored ones."""


class AlreadyRunning(Exception):
    """A worker has it."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} is running")
        self.job_id = job_id


# -- asked for by people ----------------------------------------------------------------------------------------------


async def request(tx: Tx, address: str, chain: str, mode: Mode) -> dict[str, Any]:
    """A job for this address; one that waits is replaced by it. Raises NotMonitored or AlreadyRunning.

    Also UniqueViolation, when another process has just made one: try again.
    """
    address = canonical(address)
    cursor = await tx.execute(
        "select from addresses where chain = %s and canonical = %s and is_monitored for key share",
        [chain, address],
    )
    if await cursor.fetchone() is None:
        raise NotMonitored(f"{address} is not a monitored address of {chain}")
    cursor = await tx.execute(
        "select id, status from reconciliation_jobs where address = %s and chain = %s and status in ('pending', 'running')"
        " for update",
        [address, chain],
    )
    active = await cursor.fetchone()
    if active is not None and active[1] == "running":
        raise AlreadyRunning(active[0])
    if active is not None:
        # Out of the way before the new one comes: one is active at a time.
        await tx.execute(
            "update reconciliation_jobs set status = 'failed', error = 'replaced', version = version + 1 where id = %s",
            [active[0]],
        )
    async with tx.cursor(row_factory=dict_row) as rows:
        await rows.execute(
            "insert into reconciliation_jobs (address, chain, mode) values (%s, %s, %s) returning *",
            [address, chain, mode],
        )
        made = await rows.fetchone()
    assert made is not None
    if active is not None:
        await tx.execute("update reconciliation_jobs set replaced_by = %s where id = %s", [made["id"], active[0]])
    return made


async def get(tx: Tx, job_id: int) -> dict[str, Any] | None:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute("select * from reconciliation_jobs where id = %s", [job_id])
        return await cursor.fetchone()


async def newest(
    tx: Tx,
    *,
    before: int | None,
    most: int,
    status: str | None,
    mode: str | None,
    chain: str | None,
    address: str | None,
) -> list[dict[str, Any]]:
    """The newest first, older than job `before`."""
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "select * from reconciliation_jobs where (%(before)s::bigint is null or id < %(before)s)"
            " and (%(status)s::text is null or status = %(status)s) and (%(mode)s::text is null or mode = %(mode)s)"
            " and (%(chain)s::text is null or chain = %(chain)s) and (%(address)s::text is null or address = %(address)s)"
            " order by id desc limit %(most)s",
            {
                "before": before,
                "most": most,
                "status": status,
                "mode": mode,
                "chain": chain,
                "address": None if address is None else canonical(address),
            },
        )
        return await cursor.fetchall()


# -- by the one who has claimed it ------------------------------------------------------------------------------------


async def begin(tx: Tx, job: Job, window: Window) -> None:
    """What is going to be compared. The height is that of now, however long it takes. Raises LostClaim."""
    await _fenced(
        tx,
        job,
        "effective_mode = %(mode)s, from_block = %(first)s, to_block = %(last)s, next_block = %(first)s",
        {"mode": window.effective_mode, "first": window.from_block, "last": window.to_block},
    )


async def shorten(tx: Tx, job: Job, height: int) -> None:
    """It ends at this block. Raises LostClaim."""
    await _fenced(tx, job, "to_block = %(last)s", {"last": height})


async def advance(
    tx: Tx, job: Job, counts: Counts, next_block: int | None = None, next_parent: str | None = None
) -> None:
    """Note what this transaction does, and how far the job has come with it. Raises LostClaim: then nothing is done."""
    await _fenced(
        tx,
        job,
        "checked = checked + %(checked)s, added = added + %(added)s, soft_deleted = soft_deleted + %(soft_deleted)s,"
        " discrepancies = discrepancies + %(discrepancies)s, next_block = coalesce(%(next)s, next_block),"
        " next_parent = case when %(next)s::bigint is null then next_parent else %(parent)s end",
        {**counts.__dict__, "next": next_block, "parent": next_parent},
    )


async def go_back(tx: Tx, job: Job, blocks: int) -> None:
    """Blocks were replaced: this many of the last that were read are to be read again. Raises LostClaim."""
    await _fenced(
        tx, job, "next_block = greatest(from_block, next_block - %(blocks)s), next_parent = null", {"blocks": blocks}
    )


async def _fenced(tx: Tx, job: Job, assignments: str, params: dict[str, Any]) -> None:
    """The row is locked from here to the commit, so it cannot be taken over in between."""
    cursor = await tx.execute(
        f"update reconciliation_jobs set {assignments} where id = %(id)s and status = 'running' and version = %(version)s",  # noqa: S608 - our own text
        {**params, "id": job.id, "version": job.version},
    )
    if cursor.rowcount != 1:
        raise LostClaim(f"reconciliation job {job.id}: another worker has it; nothing was changed")


async def known_blocks(tx: Tx, job: Job) -> tuple[int | None, int | None]:
    """The height up to which the address is reconciled, None when it never was; and the block that its history begins with,
    None when it is not known. Raises NotMonitored when it was removed."""
    cursor = await tx.execute(
        "select last_reconciled_block, first_block from addresses where chain = %s and canonical = %s",
        [job.chain, job.address],
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotMonitored(f"{job.address} is not an address of {job.chain} any more")
    return row[0], row[1]


async def reach(tx: Tx, job: Job, height: int) -> None:
    """Set the checkpoint. It never goes back."""
    await tx.execute(
        "update addresses set last_reconciled_block = greatest(coalesce(last_reconciled_block, 0), %s)"
        " where chain = %s and canonical = %s",
        [height, job.chain, job.address],
    )
