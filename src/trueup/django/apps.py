"""What `"trueup.django"` in INSTALLED_APPS brings."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

DISCOVERED = ("jobs", "reconcilers", "schedules")


class TrueupConfig(AppConfig):
    name = "trueup.django"
    label = "trueup"
    verbose_name = "trueup"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from trueup.django import checks  # noqa: F401 - registers them
        from trueup.django.application import project_settings
        from trueup.django.handlers import DjangoConnections
        from trueup.django.migrating import migrate_without_migrations
        from trueup.work.calling import AROUND

        AROUND.append(DjangoConnections())
        post_migrate.connect(migrate_without_migrations, sender=self)
        modules: Any = project_settings().get("AUTODISCOVER", DISCOVERED)
        if modules:
            autodiscover_modules(*modules)
