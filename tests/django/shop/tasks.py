"""Tasks as Django's own tests of task backends have them."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async

from tests.django.shop.framework import TaskContext, task
from tests.django.shop.models import Order


@task()
def noop(*args: Any, **kwargs: Any) -> None:
    return None


@task
async def noop_async(*args: Any, **kwargs: Any) -> None:
    return None


@task(priority=5, queue_name="special")
def meaning_of_life() -> int:
    return 42


@task
def value_error() -> None:
    raise ValueError("This task failed due to ValueError")


@task
def system_exit() -> None:
    raise SystemExit("This task failed due to SystemExit")


class Refused(Exception):
    pass


@task
def own_error() -> None:
    raise Refused("not today")


@task
async def async_error() -> None:
    raise LookupError("not there")


@task
def complex_return_value() -> Any:
    return lambda: True


@task(takes_context=True)
def get_task_id(context: TaskContext) -> str:
    return context.task_result.id


@task(takes_context=True)
async def check_context(context: TaskContext, attempt: int) -> str:
    assert isinstance(context, TaskContext)
    assert context.attempt == attempt
    return str(context.task_result.status)


@task(backend="patient")
def fails_once(number: int) -> int:
    order, created = Order.objects.get_or_create(number=number)
    if created:
        raise ConnectionError("try again")
    return order.number


@task
async def count_orders() -> int:
    return await Order.objects.acount() + await sync_to_async(Order.objects.count)()
