from __future__ import annotations

from asgiref.sync import sync_to_async
from django.db import connection

from tests.django.shop.models import Order
from trueup import Context, Discard, Retry, Snooze
from trueup.django import app


@app.job
def pay(number: int) -> int:
    Order.objects.filter(number=number).update(state="paid")
    return Order.objects.filter(state="paid").count()


@app.job
async def ship(number: int) -> None:
    await Order.objects.filter(number=number).aupdate(state="shipped")


@app.job
def note(ctx: Context, text: str) -> str:
    return text


@app.job(retry=Retry(max_attempts=1))
def lose_connection() -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(pg_backend_pid())")


@app.job
def backend() -> int:
    """The process of the server that Django's connection of this thread talks to."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return int(cursor.fetchone()[0])


@app.job
def leave() -> None:
    connection.close()


@app.job
async def backend_async() -> int:
    return await sync_to_async(backend.function)()


@app.job(retry=Retry(max_attempts=1))
async def lose_connection_async() -> None:
    await sync_to_async(lose_connection.function)()


@app.job
async def enqueues(text: str) -> None:
    await note.enqueue(text)


@app.job
def chain(left: int) -> None:
    if left:
        chain.enqueue_sync(left - 1)


@app.job(retry=Retry(max_attempts=2))
def fail_after_writing(number: int) -> None:
    Order.objects.create(number=number)
    raise RuntimeError("after writing")


@app.job
def spoil(number: int) -> None:
    Order.objects.create(id=number, number=number)
    Order.objects.create(id=number, number=number)


@app.job
def snoozes() -> None:
    raise Snooze("1h")


@app.job
def declines() -> None:
    raise Discard("not needed")


@app.job
def progresses(ctx: Context, transacts: bool) -> None:
    ctx.progress_sync(50)
    if transacts:
        ctx.transaction()


@app.job(retry=Retry(max_attempts=1))
def doomed() -> None:
    raise LookupError("not there")
