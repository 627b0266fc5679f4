"""The application: five schedules, each of whose runs takes its lock in Redis, and two reconcilers that they call.

A tick is fired once for the whole fleet, which is PostgreSQL's business. The lock keeps runs of one job apart, and its term
fences what a run writes: a process that was stopped for a while, or whose lock Redis forgot, is refused when another one runs by
then. What is done stays done: a project that was checked is not stale any more, a report that was made is not due, so a run
that is begun anew after a crash goes on where the one before it ended.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from trueup import App
from trueup.events import Event, RunHandledElsewhere
from trueup.web.database import prepare_database
from trueup.web.service import database_down, own_app

from . import checking, database, notices, reporting
from .config import Config
from .sending import Sender

log = logging.getLogger("pulse")


@dataclass(frozen=True)
class Service:
    app: App
    config: Config
    sender: Sender

    async def prepare(self) -> None:
        """Make the tables; any number of processes may do so at once. Raises ConfigError when trueup's own are not there."""
        await prepare_database(self.app, database.make_tables)

    async def down(self) -> dict[str, str]:
        """What cannot be reached, and why."""
        return await database_down(self.app)

    async def close(self) -> None:
        await self.sender.aclose()
        await self.app.close()


def build_configured() -> Service:
    """As the environment says. Raises ConfigError."""
    return build(Config.from_environment())


def build(config: Config, app: App | None = None) -> Service:
    """Raises ConfigError when it cannot be configured so."""
    app = app or own_app("pulse", **config.settings)
    app.events.subscribe(tell_of_another, RunHandledElsewhere)
    sender = Sender(app, config)
    checking.declare(app, config, sender)
    reporting.declare(app, config)
    notices.declare(app, config, sender)
    return Service(app, config, sender)


def tell_of_another(event: Event) -> None:
    assert isinstance(event, RunHandledElsewhere)
    facts = {"job": event.schedule, "tick": event.due_at, "reason": event.reason}
    log.debug("already running on another instance, skipping", extra=facts)
