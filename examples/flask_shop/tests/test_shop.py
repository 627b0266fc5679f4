import pytest
from shop.database import Base, Order, engine, engine_for, sessions
from shop.jobs import charge
from shop.web import web


@pytest.fixture
def client(trueup_sync, trueup_database_url):
    """Requests to the shop, whose orders are in the same database as its jobs."""
    of_test = engine_for(trueup_database_url)
    Base.metadata.create_all(of_test)
    sessions.configure(bind=of_test)
    yield web.test_client()
    sessions.configure(bind=engine)
    of_test.dispose()


def place(client, email="ada@example.com"):
    return client.post("/orders", json={"email": email})


def test_an_order_is_charged_and_shipped(client, trueup_sync):
    order = place(client).json["order"]
    trueup_sync.assert_enqueued(charge, order_id=order, times=1)
    assert trueup_sync.drain() == 1
    assert client.get(f"/orders/{order}").json["state"] == "paid"

    assert trueup_sync.sweep("ship").changed == 1
    assert client.get(f"/orders/{order}").json == {"state": "shipped", "tracking_number": f"AT-{order:08}"}


def test_an_order_that_is_refused_leaves_no_job(client, trueup_sync):
    assert place(client, "nobody").status_code == 422
    assert trueup_sync.enqueued() == []
    with sessions() as session:
        assert session.get(Order, 1) is None


def test_charging_may_be_repeated(client, trueup_sync):
    order = place(client).json["order"]
    trueup_sync.assert_idempotent({"charge": (order,)}, observe=lambda: client.get(f"/orders/{order}").json["state"])
