"""The HTTP API: make a request for a payment, and see how it stands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from apps.plain_api import plain_api

from . import requests
from .judge import Settlement, Status
from .observe import Observer, ObserverError
from .service import Service

MAX_AMOUNT = 2**256 - 1
MAX_LIFETIME = timedelta(days=3650)
SHOWN = (
    "id",
    "chain_id",
    "address",
    "token",
    "expected_amount",
    "status",
    "expires_at",
    "created_at",
    "status_changed_at",
    "received_amount",
    "late_amount",
    "excess_amount",
    "observed_at",
)


def _written(value: object) -> object:
    if not isinstance(value, str):  # a number would be taken for seconds since 1970, or lose digits on its way
        raise ValueError("text is needed")
    return value


def _amount(value: object) -> object:
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or len(value) > 78:
        raise ValueError("a whole number in the smallest unit is needed, as text")
    return int(value)


Amount = Annotated[int, BeforeValidator(_amount), Field(ge=1, le=MAX_AMOUNT, examples=["1000000000000000000"])]
Moment = Annotated[AwareDatetime, BeforeValidator(_written), Field(examples=["2031-01-31T12:00:00Z"])]
Text = Annotated[str, Field(min_length=1, max_length=100)]
Word = Annotated[str | None, Query(pattern="^[-_:a-zA-Z0-9]{1,100}$")]
Most = Annotated[int, Query(ge=1, le=1000)]


class NewRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    chain_id: Text = Field(examples=["eip155:1"])
    address: Text
    token: Text | None = None
    expected_amount: Amount | None = None
    expires_at: Moment


def make_api(service: Service, *, embedded_worker: bool = False) -> FastAPI:
    """With `embedded_worker` this process reconciles, too."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.prepare()
        try:
            if embedded_worker:
                service.tell("Reconciler started")
                async with service.app.worker():
                    yield
                service.tell("Reconciler stopped")
            else:
                yield
        finally:
            await service.close()

    app = service.app
    api = plain_api("Payment requests", lifespan)

    @api.exception_handler(ObserverError)
    async def unseen(_: Request, error: ObserverError) -> JSONResponse:
        told = "the node that could check the address cannot be asked; without upper case there is nothing to check"
        return JSONResponse({"detail": told}, status_code=503)

    @api.post("/payment-requests", status_code=201)
    async def create_request(new: NewRequest) -> dict[str, Any]:
        observer = service.observers.get(new.chain_id)
        if observer is None:
            raise HTTPException(
                400, f"there is no node for chain {new.chain_id!a}: PAYMENT_REQUEST_CHAINS names the nodes"
            )
        address = await _address(observer, "address", new.address)
        token = None if new.token is None else await _address(observer, "token", new.token)
        async with app.transaction() as tx:
            now = await app.now(tx)
            if not now < new.expires_at <= now + MAX_LIFETIME:
                raise HTTPException(422, f"expires_at: a moment within the {MAX_LIFETIME.days} days to come is needed")
            made = await requests.create(
                tx, new.chain_id, address, token, new.expected_amount, new.expires_at, now=app.clock.now()
            )
        if made is None:
            raise HTTPException(409, "there is a request for this address already: each needs one of its own")
        return shown(made)

    @api.get("/payment-requests")
    async def list_requests(
        status: Status | None = None,
        chain_id: Word = None,
        address: Word = None,
        after: UUID | None = None,
        most: Most = 100,
    ) -> list[dict[str, Any]]:
        if address is not None and address[:2].lower() == "0x":
            address = address.lower()
        async with app.transaction() as tx:
            found = await requests.every(tx, status=status, chain_id=chain_id, address=address, after=after, most=most)
        return [shown(each) for each in found]

    @api.get("/payment-requests/{request_id}")
    async def read_request(request_id: UUID) -> dict[str, Any]:
        async with app.transaction() as tx:
            found = await requests.get(tx, request_id)
            if found is None:
                raise HTTPException(404, f"there is no payment request {request_id}")
            settlements = await requests.settlements(tx, request_id)
        return {**shown(found), "settlements": [_settlement(each) for each in settlements]}

    return api


async def _address(observer: Observer, name: str, text: str) -> str:
    try:
        return await observer.address(text)
    except ValueError as error:
        raise HTTPException(422, f"{name}: {error}") from None


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Amounts as text: they are longer than what JSON's readers keep of a number."""
    return {name: f"{row[name]:f}" if isinstance(row[name], Decimal) else row[name] for name in SHOWN}


def _settlement(settlement: Settlement) -> dict[str, Any]:
    place = settlement.place
    return {
        "tx_hash": settlement.tx_hash,
        "amount": str(settlement.amount),
        "seen_in": "nowhere" if settlement.gone else "mempool" if place is None else "block",
        "block_number": None if place is None else place.number,
        "block_hash": None if place is None else place.hash,
        "confirmations": settlement.confirmations,
        "first_seen_at": settlement.first_seen_at,
        "late": settlement.late,
    }
