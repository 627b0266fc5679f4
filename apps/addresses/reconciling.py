"""One job: the chain is read page by page, the local copy is made to agree, and progress is kept as it goes.

What is found on the chain is marked as seen by the job. Only when every block of the window has been read, what has no such mark is
soft-deleted: so nothing is deleted because of an error, an empty answer, or a restart in the middle. A job that was interrupted goes
on from its last page; the marks of what was read before are still there. If blocks were replaced meanwhile, it goes back as far as they
may have been: a transaction may have moved to where it has read already.

Every transaction ends with an update of the job's row that names the version of this claim. A worker that has lost the claim is refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any

from apps.chain.blocks import Inconsistent, Place
from apps.chain.kept import Reorganised
from trueup import Again, App, Context, LostClaim, To

from . import books, jobs
from .books import Counts, Unseen
from .bounded import bounded
from .chains import NodeBehind, Window, check_caught_up, known, window
from .compare import compare
from .jobs import Job
from .provider import Page, Provider

log = logging.getLogger("addresses")

BATCH = 100  # transactions between two times that progress is saved
ALL = 2**62  # blocks
MAX_TEXT = 2000


def printable(text: str) -> str:
    """What a node may have said, so that it can be stored."""
    return "".join(each if each.isprintable() else "�" for each in text[:MAX_TEXT])


class Contradiction(Inconsistent):
    """What was read cannot be right: the node has transactions in blocks that it has shown without them."""


class NoProvider(Exception):
    """There is no provider for this chain."""


class Reconciliation:
    """`turn_for`: how long a job may keep others waiting before it lets them go first. `silence`: how long it may be silent in
    the middle of a transaction; as long as its lease, because then another one takes over."""

    def __init__(self, app: App, providers: Mapping[str, Provider], *, turn_for: timedelta, silence: timedelta) -> None:
        self._app = app
        self._providers = providers
        self._turn_for = turn_for.total_seconds()
        self._silence = silence

    async def run(self, job: Job, ctx: Context) -> Again | None:
        """Raises ChainError, NoProvider, NotMonitored, NodeBehind: then nothing is deleted, and the checkpoint stays."""
        try:
            return await self._run(job, ctx)
        except LostClaim:
            raise
        except (Reorganised, Contradiction) as error:
            blocks = known(job.chain).reorg_depth if isinstance(error, Reorganised) else ALL
            async with bounded(self._app, self._silence) as tx:
                await jobs.go_back(tx, job, blocks)
            await self._note(job, error)
            raise
        except Exception as error:
            await self._note(job, error)
            raise

    async def _run(self, job: Job, ctx: Context) -> Again | None:
        provider = self._providers.get(job.chain)
        if provider is None:
            raise NoProvider(f"no provider for chain {job.chain}: RECONCILIATION_PROVIDERS names none")
        started = self._app.clock.elapsed()
        tip = await provider.tip()
        window = job.window or await self._begin(job, tip, ctx)
        if tip.number < window.to_block:
            window = await self._shorten(job, window, tip, ctx)
        first = window.from_block if job.next_block is None else job.next_block
        async with aclosing(provider.pages(job.address, first, window.to_block, parent=job.next_parent)) as pages:
            async for page in pages:
                await self._agree(job, page)
                if page.last < window.to_block and self._app.clock.elapsed() - started > self._turn_for:
                    return Again(timedelta())
        await self._delete(job, window, provider)
        async with ctx.transaction(
            To("completed", final_block=window.to_block, attempts=ctx.attempt, error=None)
        ) as tx:
            await jobs.reach(tx, job, window.to_block)
            counted = await jobs.get(tx, job.id)
        _tell(counted, ctx.attempt)
        return None

    async def _begin(self, job: Job, tip: Place, ctx: Context) -> Window:
        async with bounded(self._app, self._silence) as tx:
            checkpoint, first_block = await jobs.known_blocks(tx, job)
            if checkpoint is None:
                check_caught_up(job.chain, tip.at, ctx.now)
            decided = window(job.mode, checkpoint, known(job.chain).reorg_depth, tip.number, first_block)
            await jobs.begin(tx, job, decided)
        return decided

    async def _shorten(self, job: Job, window: Window, tip: Place, ctx: Context) -> Window:
        """The node is not where it said that it was when the job began. What was read of it proves where it has been: raises
        NodeBehind; a height that it only named proves nothing, and would keep the job waiting for ever."""
        read = window.from_block if job.next_block is None else job.next_block
        if read == window.from_block:
            return await self._begin(job, tip, ctx)
        if tip.number < read - 1:
            raise NodeBehind(f"the node is at block {tip.number}, and we have been at {read - 1}")
        async with bounded(self._app, self._silence) as tx:
            await jobs.shorten(tx, job, tip.number)
        return replace(window, to_block=tip.number)

    async def _agree(self, job: Job, page: Page) -> None:
        """Make the local copy agree with a page. The next one comes only after the last part of it."""
        found = page.transactions
        for start in range(0, max(len(found), 1), BATCH):
            part, whole = found[start : start + BATCH], start + BATCH >= len(found)
            async with bounded(self._app, self._silence) as tx:
                here = await books.local(tx, job.chain, [transaction.key for transaction in part])
                counts = await books.write(tx, job.id, job.chain, part, compare(part, here))
                await jobs.advance(tx, job, counts, *((page.last + 1, page.last_hash) if whole else ()))

    async def _delete(self, job: Job, window: Window, provider: Provider) -> None:
        first, last, after = window.from_block, window.to_block, 0
        while True:
            async with self._app.transaction() as tx:  # it locks nothing
                unseen = await books.unseen(tx, job.id, job.chain, job.address, first, last, after=after, most=BATCH)
            if not unseen:
                return
            gone = await self._gone(unseen, window, provider)
            async with bounded(self._app, self._silence) as tx:
                deleted = await books.delete(tx, job.id, gone)
                await jobs.advance(tx, job, Counts(soft_deleted=deleted))
            after = unseen[-1].id

    async def _gone(self, unseen: Sequence[Unseen], window: Window, provider: Provider) -> list[int]:
        """Of rows that were not found, those that are gone: the node is asked by name before.

        One that it has in a block beyond the window has moved there, and a later job corrects it.
        """
        names = sorted({each.hash for each in unseen if re.fullmatch("0x[0-9a-f]{64}", each.hash)})
        where = dict(zip(names, await provider.find(names), strict=True))
        gone = []
        for each in unseen:
            there = where.get(each.hash)
            if there is None or there.block is None:
                gone.append(each.id)
            elif window.from_block <= there.block <= window.to_block:
                if not each.transfer:
                    provider.forget()
                    raise Contradiction(
                        f"the node has transaction {each.hash} in block {there.block}, and shows that block without it"
                    )
                gone.append(each.id)  # the transaction is there, mined again, and moves no such token any more
        return gone

    async def _note(self, job: Job, error: Exception) -> None:
        said = printable(f"{type(error).__name__}: {error}")
        facts = {"job": job.id, "address": job.address, "chain": job.chain}
        log.warning("Reconciliation failed", extra={**facts, "error": said})
        try:
            async with bounded(self._app, self._silence) as tx:
                await books.note_error(tx, job.id, said)
                await jobs.advance(tx, job, Counts())
        except Exception as unnoted:  # the database is away, say, which is why it failed: that counts, not this
            log.warning("Failure not noted", extra={"job": job.id, "error": f"{type(unnoted).__name__}: {unnoted}"})


def _tell(job: Any, attempts: int) -> None:
    names = ["address", "chain", "effective_mode", "from_block", "to_block", "checked", "added", "soft_deleted"]
    facts = {name: job[name] for name in [*names, "discrepancies"]}
    log.info("Reconciliation completed", extra={"job": job["id"], **facts, "attempts": attempts})
