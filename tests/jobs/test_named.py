"""Jobs enqueued by name, also those that only another program declares."""

from __future__ import annotations

from typing import Any

import pytest

from trueup import App, ConfigError, InvalidArguments
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio


@pytest.fixture
def producer(database_url: str) -> App:
    return App(database_url)


async def drained(app: App) -> int:
    worker = ManualWorker(app)
    await worker.begin()
    try:
        return await worker.run_pending()
    finally:
        await worker.end()


async def test_a_declared_job_is_found_by_its_name_and_its_arguments_are_checked(producer: App) -> None:
    @producer.job
    async def add(a: int, b: int = 2) -> int:
        return a + b

    async with producer:
        handle = await producer.enqueue("add", 1, b=3)
        with pytest.raises(InvalidArguments, match="c: is not one of its arguments"):
            await producer.enqueue("add", 1, c=3)
        assert producer.named("add") is add
        assert await drained(producer) == 1
        assert await handle.result() == 4


@pytest.mark.parametrize("options", [{}, {"limit": 1}, {"fair_by": "to"}], ids=str)
async def test_a_job_of_another_program_runs_there(producer: App, database_url: str, options: dict[str, Any]) -> None:
    consumer, sent = App(database_url), list[str]()

    @consumer.job(name="mail.send", **options)
    async def send(to: str) -> None:
        sent.append(to)

    async with producer, consumer:
        await producer.enqueue("mail.send", to="ada")
        producer.named("mail.send").using(priority=3, max_attempts=2).enqueue_sync(to="bob")
        producer.enqueue_sync("mail.send", to="eve")
        await drained(consumer)  # those of a limited kind are moved to its lane first
        assert sorted(sent) == ["ada", "bob", "eve"]
        producer.close_sync()


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((1,), {}, "name each argument"),
        ((), {"x": object()}, "elsewhere.x: object cannot be stored as JSON"),
        ((), {"x": float("nan")}, "elsewhere.x: nan is not a JSON number"),
        ((), {"x": "a\0b"}, "NUL"),
        ((), {"x": {1: "a", "1": "b"}}, "equal in JSON"),
        ((), {"x": "y" * 2_000_000}, "over the limit"),
    ],
)
async def test_what_json_cannot_hold_is_refused_by_name(
    producer: App, args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArguments, match=said):
        await producer.enqueue("elsewhere", *args, **kwargs)
    with pytest.raises(InvalidArguments, match=said):
        producer.enqueue_sync("elsewhere", *args, **kwargs)


async def test_arguments_that_do_not_fit_bury_the_job_where_it_runs(producer: App, database_url: str) -> None:
    consumer = App(database_url)

    @consumer.job
    async def greet(name: str) -> None: ...

    async with producer, consumer:
        handle = await producer.enqueue("greet", nam="ada")
        assert await drained(consumer) == 1
        with pytest.raises(Exception, match="name: is missing"):
            await handle.result()


async def test_a_name_that_cannot_be_and_a_call_are_refused(producer: App) -> None:
    with pytest.raises(ConfigError, match="job name"):
        await producer.enqueue("no spaces please")
    with pytest.raises(ConfigError, match="can be enqueued but not called here"):
        producer.named("elsewhere")()
