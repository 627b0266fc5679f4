"""The backend for Django's tasks, of `django.tasks` (Django 6) and of the package `django-tasks` alike.

A task is a job of one of two kinds, one for functions and one for coroutine functions; its arguments are the path of the
function and what it is called with. It is stored in the caller's transaction, like any job. The framework knows one attempt, so
that is what a task has unless OPTIONS say otherwise.
"""

from __future__ import annotations

import builtins
from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from inspect import iscoroutinefunction
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import SuspiciousOperation
from django.db.models import DateTimeField, F, JSONField, Value
from django.utils import timezone
from django.utils.module_loading import import_string

from trueup.backoff import Retry
from trueup.django import get_app
from trueup.errors import ConfigError
from trueup.jobs.context import Context
from trueup.jobs.failure import Failure
from trueup.jobs.names import checked_name

SYNC_KIND = "django.task"
ASYNC_KIND = "django.async_task"
OPTIONS = ("MAX_ATTEMPTS",)

BACKPORT = "django_tasks" in settings.INSTALLED_APPS or find_spec("django.tasks") is None
FRAMEWORK = "django_tasks" if BACKPORT else "django.tasks"

_base: Any = import_module(f"{FRAMEWORK}.base")
_signals: Any = import_module(f"{FRAMEWORK}.signals")
_exceptions: Any = import_module(f"{FRAMEWORK}.exceptions")
BaseTaskBackend: Any = import_module(f"{FRAMEWORK}.backends.base").BaseTaskBackend
Status: Any = _base.TaskResultStatus

STATUS = {
    "queued": Status.READY,
    "running": Status.RUNNING,
    "done": Status.SUCCESSFUL,
    "dead": Status.FAILED,
    "cancelled": Status.FAILED,
}
SHARED = ("id", "kind", "queue", "state", "priority", "run_at", "args", "attempt", "holder")
READ = (*SHARED, "enqueued_at", "claimed_at", "errors", "ended_at", "returned")

app = get_app()


class TrueupBackend(BaseTaskBackend):
    """`TASKS = {"default": {"BACKEND": "trueup.django.tasks.TrueupBackend"}}`"""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def max_attempts(self) -> int:
        return int(self.options.get("MAX_ATTEMPTS", 1))

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store the task in Django's open transaction if there is one."""
        self.validate_task(task)
        given = {"args": _base.normalize_json(list(args)), "kwargs": _base.normalize_json(dict(kwargs))}
        job = run_async_task if iscoroutinefunction(task.func) else run_task
        wanted = job.using(
            run_at=_aware(task.run_after),
            priority=task.priority,
            queue=task.queue_name,
            max_attempts=self.max_attempts,
        )
        handle = wanted.enqueue_sync(
            path=task.module_path, backend=self.alias, deferred=task.run_after is not None, **given
        )
        result = _result(task, str(int(handle)), self.alias, **given, enqueued_at=timezone.now())
        _signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Raises TaskResultDoesNotExist, also when the history of the job has passed its retention."""
        record = _record(result_id)
        if record is None:
            raise _exceptions.TaskResultDoesNotExist(result_id)
        return _result_of(record)

    def check(self, **kwargs: Any) -> Iterable[Any]:
        yield from super().check(**kwargs)
        where = f"settings.TASKS[{self.alias!r}]"
        if "trueup.django" not in settings.INSTALLED_APPS:
            yield checks.Error("TrueupBackend needs 'trueup.django' in INSTALLED_APPS", id="trueup.E002")
        for name in self.options:
            if name not in OPTIONS:
                yield checks.Error(
                    f"{where} has an unknown option {name!r}; TrueupBackend takes {', '.join(OPTIONS)}",
                    id="trueup.E003",
                )
        try:
            Retry(max_attempts=self.max_attempts)
        except (ConfigError, TypeError, ValueError) as error:
            yield checks.Error(f"{where}['OPTIONS']['MAX_ATTEMPTS']: {error}", id="trueup.E004")
        for queue in sorted(self.queues):
            try:
                checked_name("queue", queue)
            except ConfigError as error:
                yield checks.Error(f"{where}['QUEUES']: {error}", id="trueup.E005")


def queues_of_tasks(given: Mapping[str, Any]) -> set[str]:
    """The queues that settings.TASKS names for backends of this class; a worker serves them unless told otherwise."""
    return {
        queue for params in given.values() if _is_ours(params["BACKEND"]) for queue in params.get("QUEUES", ["default"])
    }


def _is_ours(path: str) -> bool:
    try:
        return issubclass(import_string(path), TrueupBackend)
    except ImportError:
        return False


# -- in the worker ----------------------------------------------------------------------------------------------------


@app.job(name=SYNC_KIND)
def run_task(
    ctx: Context, path: str, backend: str, args: list[Any], kwargs: dict[str, Any], deferred: bool = False
) -> Any:
    result = _begun(ctx, path, backend, args, kwargs, deferred)
    with _ending(ctx, result) as end:
        end(result.task.call(*_context(result), *args, **kwargs))
    return result._return_value


@app.job(name=ASYNC_KIND)
async def run_async_task(
    ctx: Context, path: str, backend: str, args: list[Any], kwargs: dict[str, Any], deferred: bool = False
) -> Any:
    result = _begun(ctx, path, backend, args, kwargs, deferred)
    with _ending(ctx, result) as end:
        end(await result.task.acall(*_context(result), *args, **kwargs))
    return result._return_value


def _begun(ctx: Context, path: str, backend: str, args: list[Any], kwargs: dict[str, Any], deferred: bool) -> Any:
    job = ctx.job
    return _result(
        _task(path, backend, queue_name=job.queue, run_after=job.run_at if deferred else None),
        str(job.id),
        backend,
        args=args,
        kwargs=kwargs,
        status=Status.RUNNING,
        enqueued_at=job.enqueued_at,
        started_at=job.claimed_at,
        worker_ids=[str(job.holder)] * job.attempt,
    )


def _context(result: Any) -> list[Any]:
    return [_base.TaskContext(task_result=result)] if result.task.takes_context else []


@contextmanager
def _ending(ctx: Context, result: Any) -> Iterator[Any]:
    """Around the function: sends the signals. `task_finished` is not sent for a task that will be attempted again."""
    sender = type(result.task.get_backend())

    def end(value: Any) -> None:
        _set(result, _return_value=_base.normalize_json(value))

    _signals.task_started.send(sender=sender, task_result=result)
    try:
        yield end
    except BaseException as error:
        over = ctx.attempt >= ctx.job.max_attempts
        if over and not isinstance(error, KeyboardInterrupt | CancelledError):
            failure = Failure.of(error, ctx.attempt)
            result.errors.append(_error(failure.type, failure.traceback))
            _set(result, status=Status.FAILED, finished_at=timezone.now())
            _signals.task_finished.send(sender, task_result=result)
        raise
    _set(result, status=Status.SUCCESSFUL, finished_at=timezone.now())
    _signals.task_finished.send(sender, task_result=result)


# -- results ----------------------------------------------------------------------------------------------------------


def _record(result_id: str) -> dict[str, Any] | None:
    """Live or ended, as one statement sees it, in Django's transaction if there is one."""
    from trueup.django.models import EndedJob, LiveJob

    if not (isinstance(result_id, str) and result_id.isascii() and result_id.isdigit() and len(result_id) < 19):
        return None
    wanted = {"id": int(result_id), "kind__in": (SYNC_KIND, ASYNC_KIND)}
    live = LiveJob.objects.using(app.alias).filter(**wanted)
    ended = EndedJob.objects.using(app.alias).filter(**wanted)
    nothing = {"ended_at": Value(None, DateTimeField()), "returned": Value(None, JSONField())}
    found = (
        live.annotate(**nothing)
        .values_list(*READ)
        .union(ended.annotate(ended_at=F("finished_at"), returned=F("result")).values_list(*READ), all=True)
    )
    return next((dict(zip(READ, row, strict=True)) for row in found), None)


def _result_of(record: Mapping[str, Any]) -> Any:
    given = record["args"]
    task = _task(
        given["path"],
        given["backend"],
        queue_name=record["queue"],
        priority=record["priority"],
        run_after=record["run_at"] if given.get("deferred") else None,
    )
    result = _result(
        task,
        str(record["id"]),
        given["backend"],
        args=given["args"],
        kwargs=given["kwargs"],
        status=STATUS[record["state"]],
        enqueued_at=record["enqueued_at"],
        started_at=record["claimed_at"],
        finished_at=record["ended_at"],
        errors=[_error(each["type"], each.get("traceback", "")) for each in record["errors"]],
        worker_ids=[str(record["holder"] or "unknown")] * record["attempt"],
    )
    _set(result, _return_value=record["returned"])
    return result


def _task(path: str, backend: str, **asked: Any) -> Any:
    task = import_string(path)
    if not isinstance(task, _base.Task):
        raise SuspiciousOperation(f"{path} is not a task")
    return task.using(backend=backend, **asked)


def _result(
    task: Any,
    result_id: str,
    backend: str,
    *,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    enqueued_at: datetime,
    status: Any = Status.READY,
    started_at: datetime | None = None,
    finished_at: datetime | None = None,
    errors: Sequence[Any] = (),
    worker_ids: Sequence[str] = (),
) -> Any:
    return _base.TaskResult(
        task=task,
        id=result_id,
        status=status,
        enqueued_at=enqueued_at,
        started_at=started_at,
        last_attempted_at=started_at,
        finished_at=finished_at,
        args=list(args),
        kwargs=dict(kwargs),
        backend=backend,
        errors=list(errors),
        worker_ids=list(worker_ids),
    )


def _error(type_name: str, traceback: str) -> Any:
    if "." in type_name:
        path = type_name
    elif hasattr(builtins, type_name):
        path = f"builtins.{type_name}"
    else:  # trueup's own name for it, such as WorkerLost
        path = "trueup.errors.JobFailed"
    return _base.TaskError(exception_class_path=path, traceback=traceback)


def _set(result: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # results are frozen for all other code


def _aware(moment: datetime | None) -> datetime | None:
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment
