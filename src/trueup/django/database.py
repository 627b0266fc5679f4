"""The PostgreSQL of a Django alias, as a connection string for trueup's own connections."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist
from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo

from trueup.errors import ConfigError


def wrapper(alias: str) -> Any:
    """Django's connection of this thread. Raises ConfigError unless it leads to PostgreSQL."""
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist:
        known = ", ".join(map(repr, connections))
        raise ConfigError(f"TRUEUP['DATABASE'] = {alias!r} is not in settings.DATABASES, which has {known}") from None
    if connection.vendor != "postgresql":
        raise ConfigError(
            f"trueup needs PostgreSQL, and settings.DATABASES[{alias!r}] is {connection.display_name}; "
            "name another alias in settings.TRUEUP['DATABASE']"
        )
    return connection


def database_url(alias: str) -> str:
    """The current database of the alias, which the test runner changes. Contains everything of HOST, PORT and OPTIONS that libpq
    supports. Raises ConfigError when the alias cannot be used.
    """
    connection = wrapper(alias)
    try:
        given = connection.get_connection_params()
    except ImproperlyConfigured as error:
        raise ConfigError(f"settings.DATABASES[{alias!r}]: {error}") from None
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    params = {name: str(value) for name, value in given.items() if name in known and value is not None}
    role = connection.settings_dict["OPTIONS"].get("assume_role")
    if role:  # Django sends SET ROLE on each new connection
        quoted = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        params["options"] = f"{params.get('options', '')} -c role={quoted}".strip()
    return make_conninfo("", **params)


def name_of(alias: str) -> Any:
    """The current name of the alias's database; cheap enough to read at every use."""
    return connections.settings[alias].get("NAME")
