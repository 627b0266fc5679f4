import httpx
import pytest
import pytest_asyncio
from shop.api import api
from shop.database import Base, Order, connected, sessions
from shop.jobs import charge


@pytest_asyncio.fixture
async def client(trueup_async, trueup_database_url, monkeypatch):
    """Requests to the shop, whose orders are in the same database as its jobs."""
    monkeypatch.setenv("DATABASE_URL", trueup_database_url)
    async with connected():
        async with sessions.begin() as session:
            await (await session.connection()).run_sync(Base.metadata.create_all)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as client:
            yield client


async def place(client, email="ada@example.com"):
    return await client.post("/orders", json={"email": email})


async def test_an_order_is_charged_and_shipped(client, trueup_async):
    order = (await place(client)).json()["order"]
    await trueup_async.assert_enqueued(charge, order_id=order, times=1)
    assert await trueup_async.drain() == 1
    assert (await client.get(f"/orders/{order}")).json()["state"] == "paid"

    assert (await trueup_async.sweep("ship")).changed == 1
    shown = (await client.get(f"/orders/{order}")).json()
    assert shown == {"state": "shipped", "tracking_number": f"AT-{order:08}"}


@pytest.mark.parametrize("email", ["nobody", "ada@example.invalid"])
async def test_an_order_that_is_refused_leaves_no_job(client, trueup_async, email):
    assert (await place(client, email)).status_code == 422
    assert await trueup_async.enqueued() == []
    async with sessions() as session:
        assert await session.get(Order, 1) is None


async def test_charging_may_be_repeated(client, trueup_async):
    order = (await place(client)).json()["order"]

    async def state():
        return (await client.get(f"/orders/{order}")).json()["state"]

    await trueup_async.assert_idempotent({"charge": (order,)}, state)
