"""The HTTP API: ask for a reconciliation, and see what became of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Path, Query
from psycopg.errors import UniqueViolation
from pydantic import BaseModel, ConfigDict

from apps.plain_api import plain_api

from . import books, jobs
from .chains import Mode, mistyped, unknown, well_formed
from .service import Service

TRIES = 3  # when another process makes a job for the same address at the same moment

ChainName = Annotated[str, Path(pattern="^[a-z0-9-]{1,32}$")]
Address = Annotated[str, Path(pattern="^[!-~]{1,128}$")]
JobId = Annotated[int, Path(ge=1, le=2**63 - 1)]
Before = Annotated[int | None, Query(ge=1, le=2**63 - 1)]
Most = Annotated[int, Query(ge=1, le=1000)]
Status = Literal["pending", "running", "completed", "failed"]


class LeaseRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    mode: Mode = "partial"


class JobOut(BaseModel):
    id: int
    address: str
    chain: str
    mode: Mode
    effective_mode: Mode | None
    status: Status
    tick: datetime | None
    from_block: int | None
    to_block: int | None
    next_block: int | None
    final_block: int | None
    checked: int
    added: int
    soft_deleted: int
    discrepancies: int
    attempts: int
    error: str | None
    replaced_by: int | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None


class JobsOut(BaseModel):
    """`next` is what to ask for as `before` to get those that follow; null at the end."""

    jobs: list[JobOut]
    next: int | None


def make_api(service: Service) -> FastAPI:
    """What is enabled, the scheduler or the worker, runs in this process, too."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.prepare()
        try:
            async with AsyncExitStack() as stack:
                if service.has_work:
                    await stack.enter_async_context(service.worker())
                yield
        finally:
            await service.close()

    app = service.app
    api = plain_api("Addresses", lifespan, version="2", invalid=400)

    @api.post("/v2/addresses/{address}/chains/{chain}/reconcile", status_code=202, response_model=JobOut)
    async def reconcile(address: Address, chain: ChainName, wish: LeaseRequest | None = None) -> dict[str, Any]:
        if why := unknown(chain):
            raise HTTPException(400, why)
        if not well_formed(chain, address):
            raise HTTPException(400, f"this is not an address of {chain}")
        if mistyped(address):
            raise HTTPException(400, "the address is mistyped: its upper and lower case do not fit its digits")
        return await _request(service, address, chain, (wish or LeaseRequest()).mode)

    @api.get("/v2/reconciliation-jobs/{job_id}", response_model=JobOut)
    async def read_job(job_id: JobId) -> dict[str, Any]:
        async with app.transaction() as tx:
            job = await jobs.get(tx, job_id)
        if job is None:
            raise HTTPException(404, f"there is no job {job_id}")
        return job

    @api.get("/v2/reconciliation-jobs", response_model=JobsOut)
    async def list_jobs(
        status: Status | None = None,
        mode: Mode | None = None,
        chain: Annotated[str | None, Query(pattern="^[a-z0-9-]{1,32}$")] = None,
        address: Annotated[str | None, Query(pattern="^[!-~]{1,128}$")] = None,
        before: Before = None,
        most: Most = 100,
    ) -> dict[str, Any]:
        async with app.transaction() as tx:
            found = await jobs.newest(
                tx, before=before, most=most, status=status, mode=mode, chain=chain, address=address
            )
        return {"jobs": found, "next": found[-1]["id"] if len(found) == most else None}

    @api.get("/v2/reconciliation-jobs/{job_id}/audit")
    async def read_audit(
        job_id: JobId, after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0, most: Most = 100
    ) -> list[dict[str, Any]]:
        await read_job(job_id)
        async with app.transaction() as tx:
            return await books.audit(tx, job_id, after=after, most=most)

    return api


async def _request(service: Service, address: str, chain: str, mode: Mode) -> dict[str, Any]:
    for left in reversed(range(TRIES)):
        try:
            async with service.app.transaction() as tx:
                return await jobs.request(tx, address, chain, mode)
        except jobs.NotMonitored as error:
            raise HTTPException(404, str(error)) from None
        except jobs.AlreadyRunning as error:
            raise HTTPException(409, str(error)) from None
        except UniqueViolation:
            if not left:
                raise HTTPException(409, "a job for this address is being made") from None
    raise AssertionError("the last try raises")
