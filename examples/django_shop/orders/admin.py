from django.contrib import admin

from orders.models import Order

admin.site.register(Order, list_display=["id", "email", "total", "state", "tracking_number"], list_filter=["state"])
