"""What happens to orders after the request: a worker runs this."""

import logging

from shop.database import Order
from trueup import App, Context, Retry, Row, To

log = logging.getLogger(__name__)
log.setLevel(logging.INFO)
app = App()  # DATABASE_URL
orders = app.table(Order, state="state", changed_at="state_changed_at")


@app.job(retry=Retry(max_attempts=8, first="5s"))
async def charge(ctx: Context, order_id: int) -> None:
    # The payment provider would be called here, with ctx.idempotency_key.
    async with ctx.transaction() as tx:  # the order is paid and the job is done, or neither
        await tx.execute(
            "update orders set state = 'paid', state_changed_at = now() where id = %s and state = 'placed'", (order_id,)
        )
    log.info("order %s is paid", order_id)  # `trueup worker` writes it beside its own lines


@orders.reconcile("paid", every="1s")
async def ship(order: Row) -> To:
    return To("shipped", tracking_number=f"AT-{order.id:08}")
