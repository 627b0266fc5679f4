import logging
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, StringConstraints
from sqlalchemy.ext.asyncio import AsyncSession

from shop.database import Order, connected, get_session
from shop.jobs import app, charge
from trueup.integrations.fastapi import InSession, in_session, lifespan
from trueup.web import dashboard

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")

api = FastAPI(lifespan=lifespan(app, inside=connected))
api.mount("/jobs", dashboard.asgi({"shop": app}))  # without auth= it answers this machine only

Session = Annotated[AsyncSession, Depends(get_session, scope="function")]  # committed before the response is sent
Jobs = Annotated[InSession, Depends(in_session(get_session, scope="function"))]


class Wanted(BaseModel):
    email: Annotated[str, StringConstraints(pattern="@")]


@api.post("/orders", status_code=201)
async def place(wanted: Wanted, session: Session, jobs: Jobs) -> dict[str, int]:
    order = Order(email=wanted.email)
    session.add(order)
    await session.flush()
    job = await jobs.enqueue(charge, order.id)  # stored with the order, or not at all
    if order.email.endswith("@example.invalid"):
        raise HTTPException(422, "no mail can be sent to this address")  # after everything was written
    return {"order": order.id, "job": job.id}


@api.get("/orders/{order_id}")
async def show(order_id: int, session: Session) -> dict[str, str | None]:
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return {"state": order.state, "tracking_number": order.tracking_number}
