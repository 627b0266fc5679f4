"""Finds the Django transaction that an enqueue takes part in.

Inside `transaction.atomic()`, and wherever else autocommit is off, that is the transaction of the App's alias in this thread.
Anything else is committed at once, by a connection of trueup's own. Django's transactions belong to a thread: async code is
inside one when sync code that holds one called it (`async_to_sync`, async tests of a TestCase), and Django runs such code's
queries in that thread, too.
"""

from __future__ import annotations

from typing import Any

from django.core import mail
from django.db import connections

from trueup.django.database import wrapper
from trueup.errors import ConfigError
from trueup.store.db.callers import is_django

WHERE = ("HOST", "PORT", "NAME")


def open_transaction(alias: str) -> Any | None:
    """Django's connection if it is in a transaction in this thread; None when every statement is committed by itself."""
    connection = wrapper(alias)
    if not connection.in_atomic_block:
        opened = connection.connection is not None
        if connection.autocommit if opened else connection.settings_dict["AUTOCOMMIT"]:
            ask_the_test(connection)
            return None
    return connection


def ask_the_test(connection: Any) -> None:
    """Raises the error of Django or pytest-django for a query if this test may not use the database. They cannot stop trueup's
    own connections, which would then lead to the project's database instead of the tests'.
    """
    if hasattr(mail, "outbox"):  # django.test.utils.setup_test_environment makes it
        connection.cursor().close()


def checked(tx: Any, alias: str) -> Any:
    """The given `tx=`. Raises ConfigError for a Django connection to another database."""
    if not is_django(tx) or tx.alias == alias:
        return tx
    ours, theirs = connections[alias].settings_dict, tx.settings_dict
    if any(ours[name] != theirs[name] for name in WHERE):
        raise ConfigError(
            f"tx=: Django's connection {tx.alias!r} connects to another database than {alias!r}, which holds the jobs; "
            "open the transaction there, or name the alias in settings.TRUEUP['DATABASE']"
        )
    return tx
