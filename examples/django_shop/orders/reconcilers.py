from orders.models import Order
from trueup import To
from trueup.django import app

orders = app.table(Order, state="state", changed_at="state_changed_at")


@orders.reconcile(Order.State.PAID, every="2s", batch=100)
def ship(order: Order):
    return To(Order.State.SHIPPED, tracking_number=f"AT-{order.pk:08}")
