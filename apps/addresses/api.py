"""The HTTP API: ask for a reconciliation, and see what became of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from html import escape
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from psycopg.errors import UniqueViolation
from pydantic import BaseModel, ConfigDict

from trueup.errors import DatabaseUnavailable

from . import books, jobs
from .chains import Mode, well_formed
from .service import Service

TRIES = 3  # when somebody else makes a job for the same address in the same moment

ChainName = Annotated[str, Path(pattern="^[a-z0-9-]{1,32}$")]
Address = Annotated[str, Path(pattern="^[!-~]{1,128}$")]
JobId = Annotated[int, Path(ge=1, le=2**63 - 1)]
Before = Annotated[int | None, Query(ge=1, le=2**63 - 1)]
Most = Annotated[int, Query(ge=1, le=1000)]
Status = Literal["pending", "running", "completed", "failed"]


class Wish(BaseModel):
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

    api = FastAPI(title="Addresses", version="2", lifespan=lifespan, docs_url=None, redoc_url=None)
    api.add_api_route("/docs", lambda: HTMLResponse(described(api)), include_in_schema=False)
    app = service.app

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # Without what was given: it may be what JSON cannot say, and need not be repeated.
        told = [{"loc": each["loc"], "msg": each["msg"], "type": each["type"]} for each in error.errors()]
        return JSONResponse({"detail": told}, status_code=400)

    @api.exception_handler(DatabaseUnavailable)
    async def unavailable(_: Request, error: DatabaseUnavailable) -> JSONResponse:
        return JSONResponse({"detail": "the database cannot be reached"}, status_code=503)

    @api.post("/v2/addresses/{address}/chains/{chain}/reconcile", status_code=202, response_model=JobOut)
    async def reconcile(address: Address, chain: ChainName, wish: Wish | None = None) -> dict[str, Any]:
        if not well_formed(chain, address):
            raise HTTPException(400, f"this is not an address of {chain}")
        return await _request(service, address, chain, (wish or Wish()).mode)

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


def described(api: FastAPI) -> str:
    """What can be asked for, as a page that loads nothing from elsewhere."""
    rows = "".join(
        f"<tr><td>{method.upper()}</td><td><code>{escape(path)}</code></td><td>{escape(operation['summary'])}</td></tr>"
        for path, operations in api.openapi()["paths"].items()
        for method, operation in operations.items()
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(api.title)}</title>"
        "<style>body{font:16px system-ui;margin:2rem}td{padding:.3rem 1rem .3rem 0;border-top:1px solid #ddd}</style>"
        f'<h1>{escape(api.title)}</h1><table>{rows}</table><p>In full: <a href="/openapi.json">/openapi.json</a></p></html>'
    )
