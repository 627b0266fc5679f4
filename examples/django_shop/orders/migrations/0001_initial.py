import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("email", models.EmailField(max_length=254)),
                ("total", models.DecimalField(decimal_places=2, max_digits=8)),
                (
                    "state",
                    models.TextField(
                        choices=[("placed", "Placed"), ("paid", "Paid"), ("shipped", "Shipped")], default="placed"
                    ),
                ),
                ("state_changed_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("tracking_number", models.TextField(blank=True, default="")),
            ],
            options={
                "indexes": [
                    models.Index(fields=["state", "state_changed_at", "id"], name="orders_orde_state_36d0e4_idx")
                ],
            },
        ),
    ]
