"""The application: what it is made of, and in which order it comes and goes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from trueup import App

from . import orphans, rows, sweeps
from .config import Config
from .gallery import Gallery
from .intake import Intake
from .orphans import Orphans
from .publishing import Publisher
from .reconciliation import Reconciliation
from .storage import Storage
from .watch import Watch


@dataclass(frozen=True)
class Service:
    app: App
    config: Config
    storage: Storage
    publisher: Publisher
    intake: Intake
    orphans: Orphans
    watch: Watch
    reconciliation: Reconciliation

    async def prepare(self) -> None:
        """Make the tables; any number of processes may do so at once. Raises ConfigError when trueup's own are not there.

        Neither the storage nor NATS need be up.
        """
        store = await self.app.open()
        await asyncio.to_thread(store.check_schema)
        async with self.app.transaction() as tx:
            await rows.make_tables(tx)
        await self.publisher.prepare()

    async def close(self) -> None:
        """The sweeps stop first, then what they used is closed."""
        await self.reconciliation.stop()
        await self.publisher.aclose()
        await self.storage.aclose()
        await self.app.close()


def build(config: Config, app: App | None = None) -> Service:
    """Raises ConfigError when it cannot be configured so."""
    app = app or App()
    storage = Storage(config.storage)
    gallery = Gallery(storage)
    publisher = Publisher(app, config)
    sweeps.declare(app, config, gallery, publisher)
    unneeded = Orphans(app, storage, config)
    orphans.declare(app, config, unneeded)
    watch = Watch(app, config.processing_for)
    return Service(
        app=app,
        config=config,
        storage=storage,
        publisher=publisher,
        intake=Intake(app, gallery, publisher),
        orphans=unneeded,
        watch=watch,
        reconciliation=Reconciliation(app, watch),
    )
