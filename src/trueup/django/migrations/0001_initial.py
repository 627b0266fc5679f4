from django.db import migrations, models

from trueup.django.migrating import ApplySteps
from trueup.django.models import table

SHARED = [
    ("id", models.BigIntegerField(primary_key=True, serialize=False)),
    ("kind", models.TextField()),
    ("queue", models.TextField()),
    ("lane", models.TextField()),
    ("state", models.TextField()),
    ("priority", models.IntegerField()),
    ("run_at", models.DateTimeField()),
    ("args", models.JSONField()),
    ("unique_key", models.TextField(null=True)),
    ("attempt", models.IntegerField()),
    ("max_attempts", models.IntegerField()),
    ("holder", models.UUIDField(null=True)),
    ("enqueued_at", models.DateTimeField()),
    ("claimed_at", models.DateTimeField(null=True)),
    ("progress", models.JSONField(null=True)),
    ("errors", models.JSONField()),
    ("schedule", models.TextField(null=True)),
]


class Migration(migrations.Migration):
    initial = True
    atomic = False
    operations = [
        ApplySteps("0015_pre_walks"),
        migrations.CreateModel(
            name="LiveJob",
            fields=[*SHARED, ("cancel_requested_at", models.DateTimeField(null=True))],
            options={
                "verbose_name": "live job",
                "db_table": table("jobs"),
                "managed": False,
                "default_permissions": ("view", "change"),
            },
        ),
        migrations.CreateModel(
            name="EndedJob",
            fields=[
                *SHARED,
                ("finished_at", models.DateTimeField()),
                ("result", models.JSONField(null=True)),
                ("reason", models.TextField(null=True)),
            ],
            options={
                "verbose_name": "ended job",
                "db_table": table("history"),
                "managed": False,
                "default_permissions": ("view", "change"),
            },
        ),
        migrations.CreateModel(
            name="QuarantinedRow",
            fields=[
                ("term", models.BigIntegerField(primary_key=True, serialize=False)),
                ("reconciler", models.TextField()),
                ("key", models.TextField()),
                ("state", models.TextField()),
                ("was_state", models.TextField(null=True)),
                ("attempt", models.IntegerField()),
                ("changed_at", models.DateTimeField()),
                ("reason", models.TextField(null=True)),
                ("errors", models.JSONField()),
            ],
            options={
                "verbose_name": "quarantined row",
                "db_table": table("rows"),
                "managed": False,
                "default_permissions": ("view", "change"),
            },
        ),
    ]
