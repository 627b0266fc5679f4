"""The App of a Django project: made from settings, on the database of an alias, taking part in Django's transactions."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import ENVIRONMENT_VARIABLE, settings

from trueup.app import App
from trueup.clock import Clock
from trueup.config import SETTINGS
from trueup.django.database import database_url, name_of
from trueup.django.handlers import in_handler
from trueup.django.transactions import checked, open_transaction
from trueup.dsn import Secret
from trueup.errors import ConfigError
from trueup.events import JobsEnqueued
from trueup.jobs.handle import Enqueued, Handle
from trueup.jobs.job import Draft
from trueup.program import typed
from trueup.store.db.callers import is_django
from trueup.store.store import Store
from trueup.work.worker import Worker

T = TypeVar("T")

OWN = ("DATABASE", "AUTODISCOVER")  # keys of settings.TRUEUP that are not settings of trueup
NOWHERE = "postgresql:///"  # replaces an alias that cannot be used; the first use raises the reason

_making = threading.RLock()
_made: DjangoApp | None = None


def project_app() -> DjangoApp:
    global _made
    with _making:
        if not apps.ready and not apps.loading:
            if not settings.configured and ENVIRONMENT_VARIABLE not in os.environ:
                raise ConfigError(
                    f"trueup.django needs the project's settings: use `manage.py trueup`, or set {ENVIRONMENT_VARIABLE}"
                )
            django.setup()
        if _made is None:
            given = dict(project_settings())
            _made = DjangoApp(given.pop("DATABASE", "default"), **_arguments(given))
    return _made


def project_settings() -> Mapping[str, Any]:
    given = getattr(settings, "TRUEUP", {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"settings.TRUEUP is a dict of settings, not {type(given).__name__}")
    return given


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    wrong = [name for name in given if name not in OWN and (not name.isupper() or name.lower() not in SETTINGS)]
    if "DATABASE_URL" in given:
        raise ConfigError(
            "settings.TRUEUP['DATABASE_URL']: name an alias of settings.DATABASES in TRUEUP['DATABASE'] instead, "
            "so that jobs are in the database of Django's transactions, and in the test database in tests"
        )
    if wrong:
        raise ConfigError(
            f"settings.TRUEUP has no {', '.join(map(repr, wrong))}; it takes {', '.join(OWN)} and trueup's settings in upper "
            f"case (`{typed('trueup config')}` lists them)"
        )
    return {name.lower(): value for name, value in given.items() if name not in OWN}


class DjangoApp(App):
    """An App on the database of an alias. It follows the alias to the test database."""

    def __init__(self, alias: str = "default", *, clock: Clock | None = None, **given: Any) -> None:
        self.alias = alias
        self.task_queues: set[str] = set()  # those of Django's tasks
        self._open_store: Store | None = None
        self._database: Any = None
        super().__init__(self._where(), clock=clock, **given)

    def _where(self) -> str:
        try:
            url = database_url(self.alias)
        except ConfigError:  # commands that need no database must run; `check` reports it
            return NOWHERE
        self._database = name_of(self.alias)
        return url

    def _url(self) -> str:
        if self._database is None:
            database_url(self.alias)  # raises the reason
        return super()._url()

    # App keeps its store here. Each use of it makes sure that Django's alias still leads to the same database.
    @property
    def _store(self) -> Store | None:
        if self._database is not None and name_of(self.alias) != self._database:
            self._move()
        return self._open_store

    @_store.setter
    def _store(self, store: Store | None) -> None:
        self._open_store = store

    def _move(self) -> None:
        """Switch to another database: the test runner has created one, or has returned to the project's own."""
        secret = Secret(self._where())
        if self._open_store is not None:
            self._open_store.close_sync()
        self._open_store = None
        self.settings = dataclasses.replace(self.settings, database_url=secret)

    def worker(
        self, *, queues: str | Iterable[str] | Mapping[str, int | None] | None = None, concurrency: int | None = None
    ) -> Worker:
        """As `App.worker`; unless queues are named, it also serves those of Django's tasks."""
        if queues is None and self.settings.queues is None and self.task_queues:
            queues = sorted({*self.registry.queues(), *self.task_queues})
        return super().worker(queues=queues, concurrency=concurrency)

    # -- enqueueing in Django's transaction -----------------------------------------------------------------------------

    def put_sync(self, draft: Draft, tx: Any) -> Handle[Any]:
        return super().put_sync(draft, self._transaction(tx))

    def put_many_sync(self, template: Draft, drafts: Iterable[Draft], tx: Any) -> Enqueued:
        return super().put_many_sync(template, drafts, self._transaction(tx))

    async def put(self, draft: Draft, tx: Any) -> Handle[Any]:
        stored = await self._in_callers_thread(tx, lambda found: super(DjangoApp, self).put_sync(draft, found))
        return await super().put(draft, tx) if stored is None else stored

    async def put_many(self, template: Draft, drafts: Iterable[Draft], tx: Any) -> Enqueued:
        stored = await self._in_callers_thread(
            tx, lambda found: super(DjangoApp, self).put_many_sync(template, drafts, found)
        )
        return await super().put_many(template, drafts, tx) if stored is None else stored

    def _transaction(self, tx: Any) -> Any:
        return open_transaction(self.alias) if tx is None else checked(tx, self.alias)

    async def _in_callers_thread(self, tx: Any, put: Callable[[Any], T]) -> T | None:
        """Stores in the transaction of the sync code that called this async code; None when it has none. Handlers are not called
        by sync code.
        """
        if tx is not None or in_handler.get():
            return None

        def look() -> T | None:
            found = open_transaction(self.alias)
            return None if found is None else put(found)

        return await sync_to_async(look)()

    def _enqueued(self, draft: Draft, created: int, kept: int, tx: Any) -> None:
        if is_django(tx) and self.events.wants(JobsEnqueued):
            event = JobsEnqueued(draft.kind, draft.queue, created, kept)
            tx.on_commit(lambda: self.events.emit(event), robust=True)
        else:
            super()._enqueued(draft, created, kept, tx)
