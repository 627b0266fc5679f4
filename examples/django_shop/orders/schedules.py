from datetime import timedelta

from django.utils import timezone

from orders.models import Order
from trueup.django import app


@app.cron("0 3 * * *", tz="Europe/Vienna")
def forget_abandoned_orders() -> int:
    old = timezone.now() - timedelta(days=30)
    deleted, _ = Order.objects.filter(state=Order.State.PLACED, state_changed_at__lt=old).delete()
    return deleted
