"""Django's tasks: `django.tasks` where Django has it (6 and newer), the package `django-tasks` elsewhere. Their names differ a little."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

NATIVE = find_spec("django.tasks") is not None

TaskContext: Any
task: Any
if NATIVE:
    from django.tasks import TaskContext, TaskResultStatus, default_task_backend, task, task_backends
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    from django_tasks import TaskContext, TaskResultStatus, default_task_backend, task, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started

__all__ = [
    "NATIVE",
    "InvalidTask",
    "TaskContext",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "default_task_backend",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
