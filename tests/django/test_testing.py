"""Jobs in Django's own test cases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.utils import timezone

from tests.django.shop import tasks
from tests.django.shop.jobs import chain, declines, fail_after_writing, note, pay, progresses, ship, snoozes, spoil
from tests.django.shop.models import Order
from trueup import ConfigError
from trueup.django import get_app
from trueup.django.application import DjangoApp
from trueup.django.models import EndedJob, LiveJob
from trueup.django.testing import assert_enqueued, assert_not_enqueued, clear_jobs, enqueued, run_jobs


@pytest.fixture
def case(project: DjangoApp) -> Iterator[DjangoApp]:
    """As in a TestCase: a transaction around the test, and one around each of its parts."""
    with transaction.atomic():
        yield project
        assert committed(project) == 0, "something left the transaction of the test"
        transaction.set_rollback(True)


def committed(app: DjangoApp) -> int:
    with psycopg.connect(app.store.url) as own:
        return int(own.execute("select count(*) from trueup.jobs").fetchone()[0])  # type: ignore[index]


def test_jobs_can_be_asserted(case: DjangoApp) -> None:
    assert enqueued() == []
    assert_not_enqueued(pay)
    pay.enqueue_sync(1)
    pay.enqueue_sync(number=2)
    note.enqueue_sync("text")
    assert [job.args for job in assert_enqueued(pay)] == [{"number": 1}, {"number": 2}]
    assert_enqueued(pay, number=2, times=1)
    assert_not_enqueued(pay, number=3)
    with pytest.raises(AssertionError, match=r"(?s)pay with \{'number': 3\}: at least one expected, 0 enqueued.*note"):
        assert_enqueued(pay, number=3)
    with pytest.raises(AssertionError, match=r"pay: 3 expected, 2 enqueued"):
        assert_enqueued(pay, times=3)


def test_jobs_run_inside_the_transaction_of_the_test(case: DjangoApp) -> None:
    Order.objects.create(number=1)
    pay.enqueue_sync(1)
    [ran] = run_jobs()
    assert (ran.kind, ran.result, ran.error, ran.attempt) == ("pay", 1, None, 1)
    assert Order.objects.get().state == "paid"
    assert EndedJob.objects.get().state == "done"
    ship.enqueue_sync(1)
    run_jobs()
    assert Order.objects.get().state == "shipped"


def test_jobs_that_jobs_enqueue_run_too(case: DjangoApp) -> None:
    chain.enqueue_sync(2)
    assert [ran.kind for ran in run_jobs()] == ["chain", "chain", "chain"]
    assert run_jobs() == []


def test_delayed_jobs_run_when_time_is_moved(case: DjangoApp) -> None:
    note.using(delay="1h").enqueue_sync("later")
    assert run_jobs() == []
    assert len(run_jobs(now=timezone.now() + timedelta(hours=2))) == 1


def test_an_error_of_a_handler_is_raised_and_written(case: DjangoApp) -> None:
    fail_after_writing.enqueue_sync(5)
    with pytest.raises(RuntimeError, match="after writing"):
        run_jobs()
    job = LiveJob.objects.get()
    assert (job.state, job.attempt, job.errors[0]["type"]) == ("queued", 1, "RuntimeError")
    assert Order.objects.filter(number=5).exists()  # as with a worker
    [ran] = run_jobs(now=timezone.now() + timedelta(hours=1), reraise=False)
    assert isinstance(ran.error, RuntimeError)
    assert EndedJob.objects.get().state == "dead"


def test_a_statement_that_fails_does_not_spoil_the_test(case: DjangoApp) -> None:
    spoil.enqueue_sync(7)
    with pytest.raises(IntegrityError):
        run_jobs()
    assert not Order.objects.exists()
    assert LiveJob.objects.get().errors[0]["type"] == "django.db.utils.IntegrityError"


def test_snoozed_and_discarded_jobs_are_no_errors(case: DjangoApp) -> None:
    snoozes.enqueue_sync()
    declines.enqueue_sync()
    assert len(run_jobs()) == 2
    assert LiveJob.objects.get().kind == "snoozes"
    assert EndedJob.objects.get().state == "cancelled"


def test_a_handler_has_its_context(case: DjangoApp) -> None:
    progresses.enqueue_sync(transacts=False)
    run_jobs()
    assert EndedJob.objects.get().progress["percent"] == 50
    progresses.enqueue_sync(transacts=True)
    with pytest.raises(ConfigError, match=r"run_jobs has no ctx.transaction\(\)"):
        run_jobs()


def test_tasks_are_asserted_and_run_too(case: DjangoApp) -> None:
    assert_not_enqueued(tasks.meaning_of_life)
    result = tasks.meaning_of_life.enqueue()
    tasks.check_context.enqueue(1)
    assert_enqueued(tasks.meaning_of_life, times=1)
    assert_enqueued(tasks.check_context, attempt=1)
    with pytest.raises(
        AssertionError, match=r"shop.tasks.check_context with \{'attempt': 2\}: at least one expected, 0"
    ):
        assert_enqueued(tasks.check_context, attempt=2)
    run_jobs()
    result.refresh()
    assert result.return_value == 42


def test_without_a_transaction_everything_is_committed_and_can_be_forgotten(project: DjangoApp) -> None:
    Order.objects.create(number=1)
    pay.enqueue_sync(1)
    note.using(delay="1h").enqueue_sync("later")
    run_jobs()
    assert committed(project) == 1
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from trueup.workers")
        assert cursor.fetchone() == (0,)
    clear_jobs()
    assert (LiveJob.objects.count(), EndedJob.objects.count()) == (0, 0)


@pytest.mark.parametrize("model", [LiveJob, EndedJob])
def test_trueups_tables_are_read_only(case: DjangoApp, model: type[LiveJob]) -> None:
    for write in (
        lambda: model(id=1).save(),
        lambda: model(id=1).delete(),
        lambda: model.objects.create(id=1),
        lambda: model.objects.update(kind="x"),
        lambda: model.objects.all().delete(),
        lambda: model.objects.bulk_create([model(id=1)]),
    ):
        with pytest.raises(TypeError, match="read-only for Django"):
            write()


def test_the_runner_can_drop_the_test_database_whatever_tests_left_open(empty: str) -> None:
    connection, name = connections["default"], connections["default"].settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    note.enqueue_sync("on a pool for threads")
    asyncio.run(get_app().now())  # as an async test: its event loop has ended, and its pool was not closed
    connection.creation.destroy_test_db(name, verbosity=0)
    with psycopg.connect(empty) as own:
        assert own.execute("select from pg_database where datname = %s", [f"test_{name}"]).fetchall() == []
