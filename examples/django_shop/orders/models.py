from django.db import models
from django.utils import timezone


class Order(models.Model):
    class State(models.TextChoices):
        PLACED = "placed"
        PAID = "paid"
        SHIPPED = "shipped"

    email = models.EmailField()
    total = models.DecimalField(max_digits=8, decimal_places=2)
    state = models.TextField(choices=State.choices, default=State.PLACED)
    state_changed_at = models.DateTimeField(default=timezone.now)
    tracking_number = models.TextField(default="", blank=True)

    class Meta:
        indexes = [models.Index(fields=["state", "state_changed_at", "id"])]

    def __str__(self):
        return f"order {self.pk} ({self.state})"
