from django.db import transaction
from django.utils import timezone

from orders.models import Order
from orders.tasks import send_receipt
from trueup import Retry
from trueup.django import app


@app.job(retry=Retry(max_attempts=8, first="5s"))
def charge(order_id: int) -> None:
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        if order.state != Order.State.PLACED:
            return  # charged by an attempt before this one
        order.state, order.state_changed_at = Order.State.PAID, timezone.now()
        order.save()
        send_receipt.enqueue(order.pk)
