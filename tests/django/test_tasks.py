"""The backend for Django's tasks, by the framework's contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.db import connections, transaction
from django.test import override_settings
from django.utils import timezone

from tests.django.shop import tasks
from tests.django.shop.framework import (
    NATIVE,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    default_task_backend,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.django.shop.jobs import note
from tests.django.shop.models import Order
from trueup.django.application import DjangoApp
from trueup.django.tasks import FRAMEWORK, TrueupBackend
from trueup.errors import NotFound
from trueup.testing.worker import ManualWorker

BACKEND = "trueup.django.tasks.TrueupBackend"


def work(app: DjangoApp) -> int:
    """Run what is due, with a worker that serves what a worker serves by default. Returns how many jobs it ran."""

    async def main() -> int:
        worker = ManualWorker(app)
        await worker.begin()
        try:
            return await worker.run_pending()
        finally:
            await worker.end()
            await app.close()

    return asyncio.run(main())


@pytest.fixture
def said() -> Iterator[list[tuple[str, str]]]:
    """The signals, as (name, status)."""
    heard: list[tuple[str, str]] = []
    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}

    def listen(name: str) -> Any:
        def hear(sender: Any, task_result: Any, **_: Any) -> None:
            assert sender is TrueupBackend
            heard.append((name, str(task_result.status)))

        return hear

    listeners = {name: listen(name) for name in signals}
    for name, signal in signals.items():
        signal.connect(listeners[name])
    yield heard
    for name, signal in signals.items():
        signal.disconnect(listeners[name])


def test_the_backend_supports_everything() -> None:
    backend = default_task_backend
    assert ("django.tasks" if NATIVE else "django_tasks") == FRAMEWORK
    assert isinstance(task_backends["default"], TrueupBackend)
    assert (backend.alias, backend.options) == ("default", {})
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


@pytest.mark.parametrize("task", [tasks.noop, tasks.noop_async], ids=["sync", "async"])
@pytest.mark.parametrize("how", ["enqueue", "aenqueue"])
def test_a_task_is_ready_and_then_successful(
    project: DjangoApp, task: Any, how: str, said: list[tuple[str, str]]
) -> None:
    enqueue = task.enqueue if how == "enqueue" else async_to_sync(task.aenqueue)
    result = enqueue(1, two=(3, {"four": None}))
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
    assert (result.args, result.kwargs) == ([1], {"two": [3, {"four": None}]})
    assert (result.task, result.backend) == (task, "default")
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    with pytest.raises(ValueError, match="has not finished"):
        result.return_value  # noqa: B018
    assert work(project) == 1
    if how == "enqueue":
        result.refresh()
    else:
        async_to_sync(result.arefresh)()
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.SUCCESSFUL, True, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert (result.return_value, result.task, result.last_attempted_at) == (None, task, result.started_at)
    assert (result.args, result.kwargs, result.errors) == ([1], {"two": [3, {"four": None}]}, [])
    assert said == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]


def test_a_result_can_be_had_by_its_id(project: DjangoApp) -> None:
    result = tasks.meaning_of_life.enqueue()
    assert work(project) == 1
    for got in (
        tasks.meaning_of_life.get_result(result.id),
        default_task_backend.get_result(result.id),
        async_to_sync(tasks.meaning_of_life.aget_result)(result.id),
    ):
        assert (got.id, got.return_value, got.task) == (result.id, 42, tasks.meaning_of_life)
        assert (got.task.queue_name, got.task.priority) == ("special", 5)
    with pytest.raises(TaskResultMismatch):
        tasks.noop.get_result(result.id)


@pytest.mark.parametrize("result_id", ["123", "", "-1", "abc", "9" * 64, "1e3", "٣"])
def test_a_result_that_is_not_there_is_missed(project: DjangoApp, result_id: str) -> None:
    for get in (default_task_backend.get_result, async_to_sync(default_task_backend.aget_result)):
        with pytest.raises(TaskResultDoesNotExist):
            get(result_id)


def test_a_job_that_is_no_task_has_no_result_here(project: DjangoApp) -> None:
    handle = note.enqueue_sync("x")
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(str(handle))


@pytest.mark.parametrize(
    ("task", "error", "ends"),
    [
        (tasks.value_error, ValueError, "ValueError: This task failed due to ValueError\n"),
        (tasks.system_exit, SystemExit, "SystemExit: This task failed due to SystemExit\n"),
        (tasks.own_error, tasks.Refused, "tests.django.shop.tasks.Refused: not today\n"),
        (tasks.async_error, LookupError, "LookupError: not there\n"),
        (tasks.complex_return_value, TypeError, "TypeError: Unsupported type: <class 'function'>\n"),
    ],
)
def test_a_task_that_raises_has_failed(
    project: DjangoApp, task: Any, error: type[BaseException], ends: str, said: list[tuple[str, str]]
) -> None:
    result = task.enqueue()
    assert work(project) == 1
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.FAILED, True, 1)
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018
    [found] = result.errors
    assert found.exception_class is error
    assert found.traceback.endswith(ends)
    assert result.started_at <= result.finished_at
    assert said[-1] == ("finished", "FAILED")


def test_a_backend_may_allow_more_attempts(project: DjangoApp, said: list[tuple[str, str]]) -> None:
    result = tasks.fails_once.enqueue(7)
    work(project)
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.READY, 1, 1)
    async_to_sync(hurry)(project, int(result.id))
    work(project)
    result.refresh()
    assert (result.status, result.attempts, result.return_value) == (TaskResultStatus.SUCCESSFUL, 2, 7)
    assert result.errors[0].exception_class is ConnectionError
    assert [name for name, _ in said] == ["enqueued", "started", "started", "finished"]


async def hurry(app: DjangoApp, job_id: int) -> None:
    await app.open()
    try:
        with suppress(NotFound):  # its delay has passed already
            await app.jobs.hurry([job_id])
    finally:
        await app.close()


def test_tasks_get_their_context(project: DjangoApp) -> None:
    first, second = tasks.get_task_id.enqueue(), tasks.check_context.enqueue(1)
    assert work(project) == 2
    first.refresh()
    second.refresh()
    assert (first.return_value, second.return_value) == (first.id, "RUNNING")


def test_async_tasks_use_the_orm(project: DjangoApp) -> None:
    Order.objects.create(number=1)
    result = tasks.count_orders.enqueue()
    work(project)
    result.refresh()
    assert result.return_value == 2


def test_a_deferred_task_waits_for_its_time(project: DjangoApp) -> None:
    later = timezone.now() + timedelta(hours=1)
    result = tasks.noop.using(run_after=later).enqueue()
    assert work(project) == 0
    got = default_task_backend.get_result(result.id)
    assert (got.status, got.task.run_after, got.task) == (TaskResultStatus.READY, later, result.task)
    with override_settings(USE_TZ=False):
        naive = tasks.noop.using(run_after=later.replace(tzinfo=None)).enqueue()
        assert default_task_backend.get_result(naive.id).status == TaskResultStatus.READY


def test_priorities_order_tasks(project: DjangoApp) -> None:
    low = tasks.noop.using(priority=-100).enqueue()
    middle = tasks.noop.enqueue()
    high = tasks.noop.using(priority=100).enqueue()
    started: list[str] = []

    def hear(sender: Any, task_result: Any, **_: Any) -> None:
        started.append(task_result.id)

    task_started.connect(hear)
    try:
        assert work(project) == 3
    finally:
        task_started.disconnect(hear)
    assert started == [high.id, middle.id, low.id]


class Undo(Exception):
    pass


def test_a_task_belongs_to_the_transaction_it_is_enqueued_in(project: DjangoApp) -> None:
    with pytest.raises(Undo), transaction.atomic():
        result = tasks.noop.enqueue()
        assert default_task_backend.get_result(result.id).status == TaskResultStatus.READY
        connections["default"].set_rollback(True)
        raise Undo
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(result.id)
    with transaction.atomic():
        result = tasks.noop.enqueue()
    assert work(project) == 1
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


@pytest.mark.parametrize("value", [object(), {1, 2}, timezone.now()], ids=["object", "set", "datetime"])
def test_arguments_that_are_not_json_are_refused(project: DjangoApp, value: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.noop.enqueue(value)


def test_queues_are_those_of_the_settings(project: DjangoApp) -> None:
    with pytest.raises(InvalidTask, match="Queue 'unknown' is not valid"):
        tasks.noop.using(queue_name="unknown")
    result = tasks.noop.using(queue_name="unknown", backend="any queue").enqueue()
    assert (result.task.queue_name, result.backend) == ("unknown", "any queue")


def test_a_cancelled_task_has_failed(project: DjangoApp) -> None:
    result = tasks.noop.enqueue()

    async def cancel() -> None:
        await project.open()
        await project.jobs.cancel([int(result.id)])
        await project.close()

    asyncio.run(cancel())
    result.refresh()
    assert (result.status, result.errors) == (TaskResultStatus.FAILED, [])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, []),
        ({"OPTIONS": {"MAX_ATTEMPTS": 3}, "QUEUES": ["a.b"]}, []),
        ({"OPTIONS": {"MAX_ATEMPTS": 3}}, ["trueup.E003"]),
        ({"OPTIONS": {"MAX_ATTEMPTS": 0}}, ["trueup.E004"]),
        ({"OPTIONS": {"MAX_ATTEMPTS": "many"}}, ["trueup.E004"]),
        ({"QUEUES": ["a queue"]}, ["trueup.E005"]),
    ],
)
def test_settings_are_checked(given: dict[str, Any], found: list[str]) -> None:
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, **given}}):
        ours = [each.id for each in run_checks() if str(each.id).startswith("trueup")]
    assert list(dict.fromkeys(ours)) == found  # Django 6 and its backport, both installed here, each ask for them
