"""Jobs are stored with the rows of Django's transaction, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import path

from tests.django.shop.jobs import note
from tests.django.shop.models import Order
from tests.support.django_project import leads_to
from trueup import ConfigError
from trueup.django.application import DjangoApp
from trueup.events import JobsEnqueued


def stored(app: DjangoApp) -> list[str]:
    """The texts of the jobs that others see."""
    with psycopg.connect(app.store.url) as own:
        return [text for (text,) in own.execute("select args->>'text' from trueup.jobs order by id")]


def sync_one(text: str) -> None:
    note.enqueue_sync(text)


def sync_many(text: str) -> None:
    note.enqueue_many_sync([(text,)])


def async_one(text: str) -> None:
    async_to_sync(note.enqueue)(text)


def async_many(text: str) -> None:
    async_to_sync(note.enqueue_many)([(text,)])


def named(text: str) -> None:
    note.using(tx=connection).enqueue_sync(text)


def drivers(text: str) -> None:
    note.using(tx=connection.connection).enqueue_sync(text)


WAYS: list[Callable[[str], None]] = [sync_one, sync_many, async_one, async_many, named, drivers]


class Undo(Exception):
    pass


@pytest.mark.parametrize("enqueue", WAYS, ids=lambda way: way.__name__)
def test_a_job_shares_the_fate_of_the_transaction(project: DjangoApp, enqueue: Callable[[str], None]) -> None:
    with transaction.atomic():
        Order.objects.create(number=1)
        enqueue("kept")
        with pytest.raises(Undo), transaction.atomic():  # a savepoint
            enqueue("undone with its savepoint")
            raise Undo
        assert stored(project) == []
    assert stored(project) == ["kept"]
    with pytest.raises(Undo), transaction.atomic():
        enqueue("undone")
        raise Undo
    assert stored(project) == ["kept"]


@pytest.mark.parametrize("enqueue", WAYS[:4], ids=lambda way: way.__name__)
def test_outside_of_a_transaction_a_job_is_stored_at_once(project: DjangoApp, enqueue: Callable[[str], None]) -> None:
    enqueue("now")
    assert stored(project) == ["now"]
    with transaction.atomic():
        transaction.on_commit(lambda: enqueue("after the commit"))
    assert stored(project) == ["now", "after the commit"]
    with transaction.atomic(using="lite"):
        enqueue("not this one's business")
        assert len(stored(project)) == 3


@contextmanager
def by_hand() -> Iterator[None]:
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@contextmanager
def by_settings() -> Iterator[None]:
    connection.close()
    connection.settings_dict["AUTOCOMMIT"] = False
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["AUTOCOMMIT"] = True


@pytest.mark.parametrize("off", [by_hand, by_settings])
def test_without_autocommit_a_job_waits_for_the_commit(project: DjangoApp, off: Any) -> None:
    with off():
        note.enqueue_sync("undone")
        assert stored(project) == []
        transaction.rollback()
        note.enqueue_sync("kept")
        transaction.commit()
        assert stored(project) == ["kept"]


@pytest.mark.parametrize("enqueue", [sync_one, async_one, named], ids=lambda way: way.__name__)
def test_a_broken_transaction_is_refused(project: DjangoApp, enqueue: Callable[[str], None]) -> None:
    with (
        pytest.raises(ConfigError, match="already failed; roll it back first"),
        transaction.atomic(),
    ):
        with pytest.raises(Undo), transaction.atomic(savepoint=False):
            Order.objects.create(number=1)
            raise Undo
        enqueue("lost")
    assert stored(project) == []


def test_a_connection_to_another_database_is_refused(project: DjangoApp, empty_database_url: str) -> None:
    with leads_to(empty_database_url, "other"), transaction.atomic(using="other"):
        with pytest.raises(ConfigError, match=r"connection 'other' connects to another database than 'default'"):
            note.using(tx=connections["other"]).enqueue_sync("astray")
        with leads_to(project.store.url, "other"):
            pass


def test_another_alias_of_the_same_database_may_be_named(project: DjangoApp) -> None:
    with leads_to(project.store.url, "other"):
        with pytest.raises(Undo), transaction.atomic(using="other"):
            note.using(tx=connections["other"]).enqueue_sync("undone")
            raise Undo
        assert stored(project) == []


def test_jobs_are_reported_when_they_are_committed(project: DjangoApp) -> None:
    said: list[Any] = []
    unsubscribe = project.events.subscribe(said.append, JobsEnqueued)
    try:
        with pytest.raises(Undo), transaction.atomic():
            note.enqueue_sync("undone")
            raise Undo
        with transaction.atomic():
            note.enqueue_sync("kept")
            assert said == []
        assert len(said) == 1
    finally:
        unsubscribe()


def place(request: HttpRequest) -> HttpResponse:
    note.enqueue_sync(request.GET["text"])
    if "fail" in request.GET:
        raise Undo
    return HttpResponse("placed")


urlpatterns = [path("place", place)]


@override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"])
def test_a_view_under_atomic_requests_takes_its_job_back_when_it_fails(project: DjangoApp) -> None:
    from django.core.handlers.base import BaseHandler

    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        handler = BaseHandler()
        handler.load_middleware()
        get = RequestFactory(raise_request_exception=False).get
        handler.get_response(get("/place", {"text": "undone", "fail": "1"}))
        assert stored(project) == []
        assert handler.get_response(get("/place", {"text": "kept"})).content == b"placed"
        assert stored(project) == ["kept"]
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
