"""The Django application `"trueup.django"`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules, import_string

from trueup import program

DISCOVERED = ("jobs", "reconcilers", "schedules")


class TrueupConfig(AppConfig):
    name = "trueup.django"
    label = "trueup"
    verbose_name = "trueup"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from trueup.django import checks  # noqa: F401 - registers them
        from trueup.django.application import project_settings
        from trueup.django.handlers import CONNECTIONS
        from trueup.django.migrating import after_migrate
        from trueup.work.calling import AROUND

        program.name = "python manage.py trueup"
        if CONNECTIONS not in AROUND:
            AROUND.append(CONNECTIONS)
        post_migrate.connect(after_migrate, sender=self)
        modules: Any = project_settings().get("AUTODISCOVER", DISCOVERED)
        if modules:
            autodiscover_modules(*modules)
        serve_tasks(getattr(settings, "TASKS", {}))


def serve_tasks(given: dict[str, Any]) -> None:
    """Have workers of this process run the tasks of trueup's backend, and of classes derived from it."""
    from trueup.django import get_app

    for params in given.values():
        with suppress(ImportError, KeyError):  # Django reports it when the backend is used
            import_string(params["BACKEND"])
    if tasks := sys.modules.get("trueup.django.tasks"):
        get_app().task_queues = tasks.queues_of_tasks(given)
