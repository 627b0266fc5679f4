import orders
import pytest


@pytest.fixture
def jobs(trueup_sync):
    trueup_sync.run(orders.setup())
    return trueup_sync


def test_an_order_is_charged_and_shipped(jobs):
    order = jobs.run(orders.place("ada@example.com"))
    jobs.assert_enqueued(orders.charge, order_id=order, times=1)
    assert jobs.drain() == 1
    assert jobs.run(orders.show(order)) == ("paid", None)

    assert jobs.sweep("ship").changed == 1
    assert jobs.run(orders.show(order)) == ("shipped", f"AT-{order:08}")


def test_an_order_that_is_refused_leaves_no_job(jobs):
    with pytest.raises(ValueError, match="not an address"):
        jobs.run(orders.place("nobody"))
    assert jobs.enqueued() == []
    assert jobs.run(orders.show(1)) is None


def test_charging_may_be_repeated(jobs):
    order = jobs.run(orders.place("ada@example.com"))
    jobs.assert_idempotent({"charge": (order,)}, observe=lambda: orders.show(order))
