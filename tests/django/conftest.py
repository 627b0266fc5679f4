from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.django.shop.models import Order
from tests.support.django_project import AROUND_HANDLERS, PROGRAM, leads_to
from trueup import program
from trueup.django import get_app
from trueup.django.application import DjangoApp
from trueup.work import calling


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "AROUND", AROUND_HANDLERS)
    monkeypatch.setattr(program, "name", PROGRAM)


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[str]:
    """The project's database, with nothing in it."""
    with leads_to(empty_database_url):
        yield empty_database_url
        get_app().close_sync()


@pytest.fixture
def project(database_url: str) -> Iterator[DjangoApp]:
    """The project's App on a database with trueup's tables and the shop's."""
    with leads_to(database_url):
        with connection.schema_editor() as editor:
            editor.create_model(Order)
        connection.close()
        app = get_app()
        yield app
        app.close_sync()
