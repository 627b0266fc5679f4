"""What settings.DATABASES says is where trueup connects to."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.core.checks import run_checks
from django.db import connections
from django.test.utils import override_settings
from psycopg.conninfo import conninfo_to_dict

from tests.support.django_project import leads_to
from trueup.django import get_app
from trueup.django.application import DjangoApp, project_app, project_settings
from trueup.django.database import database_url
from trueup.errors import ConfigError


@pytest.fixture
def alias(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of an alias, to be changed."""
    given: dict[str, Any] = connections["other"].settings_dict
    monkeypatch.setattr(connections["other"], "settings_dict", dict(given))
    changed: dict[str, Any] = connections["other"].settings_dict
    return changed


HARD = "o'hare \\ 50% @/:"

WHERE: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a name alone": ({"NAME": "shop"}, {"dbname": "shop"}),
    "everything": (
        {"NAME": HARD, "USER": HARD, "PASSWORD": HARD, "HOST": "10.0.0.1", "PORT": 6432},
        {"dbname": HARD, "user": HARD, "password": HARD, "host": "10.0.0.1", "port": "6432"},
    ),
    "options of libpq": (
        {
            "NAME": "shop",
            "OPTIONS": {"sslmode": "verify-full", "sslrootcert": "/etc/ca.pem", "target_session_attrs": "read-write"},
        },
        {
            "dbname": "shop",
            "sslmode": "verify-full",
            "sslrootcert": "/etc/ca.pem",
            "target_session_attrs": "read-write",
        },
    ),
    "a service": (
        {"NAME": "", "OPTIONS": {"service": "shop", "passfile": ".pgpass"}},
        {"service": "shop", "passfile": ".pgpass"},
    ),
    "options of Django's own": (
        {
            "NAME": "shop",
            "OPTIONS": {
                "pool": {"min_size": 2},
                "isolation_level": 3,
                "server_side_binding": True,
                "prepare_threshold": 5,
            },
        },
        {"dbname": "shop"},
    ),
    "a role, and options that are there": (
        {"NAME": "shop", "OPTIONS": {"assume_role": "the shop", "options": "-c search_path=x"}},
        {"dbname": "shop", "options": "-c search_path=x -c role=the\\ shop"},
    ),
}


@pytest.mark.parametrize("case", WHERE)
def test_an_alias_is_a_connection_string(alias: dict[str, Any], case: str) -> None:
    given, expected = WHERE[case]
    alias.update(given)
    assert conninfo_to_dict(database_url("other")) == {**expected, "client_encoding": "UTF8"}


def test_a_role_that_django_assumes_is_assumed_by_trueup(project: DjangoApp) -> None:
    with psycopg.connect(database_url("default"), autocommit=True) as connection:
        connection.execute('create role "the shop"')
    try:
        connections["default"].settings_dict["OPTIONS"] = {"assume_role": "the shop"}
        with psycopg.connect(database_url("default")) as connection:
            assert connection.execute("select current_user").fetchone() == ("the shop",)
    finally:
        connections["default"].settings_dict["OPTIONS"] = {}
        with psycopg.connect(database_url("default"), autocommit=True) as connection:
            connection.execute('drop role "the shop"')


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lite", r"trueup needs PostgreSQL, and settings.DATABASES\['lite'\] is SQLite"),
        (
            "missing",
            r"TRUEUP\['DATABASE'\] = 'missing' is not in settings.DATABASES, which has 'default', 'other', 'lite'",
        ),
        ("nameless", r"settings.DATABASES\['other'\]: .*Please supply the NAME"),
    ],
)
def test_an_alias_that_cannot_be_used_is_explained_when_it_is_used(
    alias: dict[str, Any], name: str, message: str
) -> None:
    if name == "nameless":
        alias["NAME"], name = "", "other"
    app = DjangoApp(name)  # commands that need no database must start
    with pytest.raises(ConfigError, match=message):
        app.store  # noqa: B018


def test_the_system_check_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_checks(tags=["trueup"]) == []
    monkeypatch.setattr(get_app(), "alias", "lite")
    [found] = run_checks(tags=["trueup"])
    assert (found.id, "SQLite" in found.msg) == ("trueup.E001", True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"CONCURENCY": 5},
            r"settings.TRUEUP has no 'CONCURENCY'; it takes DATABASE, AUTODISCOVER and trueup's settings",
        ),
        ({"concurrency": 5}, r"has no 'concurrency'"),
        ({"DATABASE_URL": "postgresql:///x"}, r"name an alias of settings.DATABASES in TRUEUP\['DATABASE'\] instead"),
        ({"CONCURRENCY": 0}, "concurrency"),
        ([], "settings.TRUEUP is a dict of settings, not list"),
    ],
)
def test_settings_that_are_wrong_are_refused(monkeypatch: pytest.MonkeyPatch, given: Any, message: str) -> None:
    monkeypatch.setattr("trueup.django.application._made", None)
    with override_settings(TRUEUP=given), pytest.raises(ConfigError, match=message):
        project_app()


def test_settings_reach_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trueup.django.application._made", None)
    monkeypatch.setenv("DATABASE_URL", "postgresql:///elsewhere")
    with override_settings(TRUEUP={"DATABASE": "other", "CONCURRENCY": 7, "SCHEMA": "work"}):
        assert project_settings()["CONCURRENCY"] == 7
        app = project_app()
    assert (app.alias, app.settings.concurrency, app.settings.schema) == ("other", 7, "work")
    assert "nowhere" in app.settings.database_url.reveal()  # type: ignore[union-attr]


def test_the_app_follows_its_alias_to_another_database(project: DjangoApp, empty_database_url: str) -> None:
    first = project.store
    assert project.store is first
    with leads_to(empty_database_url):
        assert project.store.url != first.url
        assert project.settings.database_url.reveal() == project.store.url  # type: ignore[union-attr]
        project.close_sync()
    assert project.store.url == first.url


def test_modules_of_installed_apps_are_discovered() -> None:
    app = get_app()
    assert {"pay", "ship", "note", "nightly"} <= {job.kind for job in app.registry}
    assert "nightly" in app._schedules
