from django.core.mail import send_mail
from django_tasks import task  # Django 6: from django.tasks import task

from orders.models import Order


@task(queue_name="mail", priority=10)
def send_receipt(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    send_mail("Your receipt", f"You paid {order.total}.", "shop@example.com", [order.email])
    return order.email
