"""What happens to orders after the request: a worker runs this."""

from sqlalchemy import func

from shop.database import URL, Order, sessions
from trueup import App, Retry, Row, To

app = App(URL)
orders = app.table(Order, state="state", changed_at="state_changed_at")


@app.job(retry=Retry(max_attempts=8, first="5s"))
def charge(order_id: int) -> None:
    """A plain function: it runs in a thread of the worker."""
    with sessions.begin() as session:
        order = session.get(Order, order_id, with_for_update=True)
        if order is not None and order.state == "placed":  # otherwise an earlier attempt has charged it
            order.state, order.state_changed_at = "paid", func.now()


@orders.reconcile("paid", every="1s")
def ship(order: Row) -> To:
    return To("shipped", tracking_number=f"AT-{order.id:08}")
