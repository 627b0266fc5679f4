"""The application: what it is made of, and in which order it comes and goes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from trueup import App
from trueup.web.database import prepare_database
from trueup.web.service import own_app

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
        await prepare_database(self.app, rows.make_tables)
        await self.publisher.prepare()

    async def down(self) -> dict[str, str]:
        """What cannot be reached, and why: asked all at once."""
        asked = {
            "database": self._database_answers(),
            "storage": self.storage.find("wlpr_/"),  # there is none of that name: it is about the answer
            "nats": self.publisher.check(),
        }
        answers = await asyncio.gather(*asked.values(), return_exceptions=True)
        return {
            name: f"{type(answer).__name__}: {answer}"[:200]
            for name, answer in zip(asked, answers, strict=True)
            if isinstance(answer, BaseException)
        }

    async def _database_answers(self) -> None:
        async with self.app.transaction() as tx:
            await tx.execute("select 1")

    async def close(self) -> None:
        """The sweeps stop first, then what they used is closed."""
        await self.reconciliation.stop()
        await self.publisher.aclose()
        await self.storage.aclose()
        await self.app.close()


def build_configured() -> Service:
    """As the environment says. Raises ConfigError."""
    return build(Config.from_environment())


def build(config: Config, app: App | None = None) -> Service:
    """Raises ConfigError when it cannot be configured so."""
    app = app or own_app("wallpapers")
    storage = Storage(config.storage)
    gallery = Gallery(storage)
    publisher = Publisher(app, config)
    watch = Watch(app, config.processing_for)
    sweeps.declare(app, config, gallery, publisher)
    unneeded = Orphans(app, storage, config)
    orphans.declare(app, config, unneeded)
    return Service(
        app=app,
        config=config,
        storage=storage,
        publisher=publisher,
        intake=Intake(app, gallery, publisher, watch),
        orphans=unneeded,
        watch=watch,
        reconciliation=Reconciliation(app, watch),
    )
