"""The application over a clock that tests move, with a receiver that does as it is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

from apps.birthdays import people
from apps.birthdays.config import Config
from apps.birthdays.service import RECONCILER, Service, build
from tests.integrations.sink import Exchange, Sink, says
from trueup import App
from trueup.reconcile.counts import Counts
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

ME = {"BIRTHDAYS_WEBHOOK_ALLOW": "127.0.0.1"}


class Receiver(Sink):
    """Takes everything, unless `answer` says otherwise for a message."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.answer: Callable[[str], Any] = lambda message: 200

    async def _answer(self, exchange: Exchange) -> None:
        answer = self.answer(json.loads(exchange.received.body)["message"])
        if hasattr(answer, "__await__"):
            answer = await answer
        await (says(answer) if isinstance(answer, int) else answer)(exchange)

    @property
    def bodies(self) -> list[dict[str, str]]:
        return [json.loads(received.body) for received in self.received]

    @property
    def messages(self) -> list[str]:
        return [body["message"] for body in self.bodies]

    def keys(self, who: str) -> list[str]:
        """The keys of the messages that name this person."""
        return [body["idempotencyKey"] for body in self.bodies if who in body["message"]]


class Desk:
    def __init__(self, app: App, clock: ManualClock, receiver: Receiver, **variables: str) -> None:
        environment = {"BIRTHDAYS_WEBHOOK_URL": receiver.url, **ME, **variables}
        self.app, self.clock, self.receiver = app, clock, receiver
        self.service: Service = build(Config.from_environment(environment), app)
        self.rules = self.service.config.rules
        self.worker = ManualWorker(app)

    async def begin(self) -> None:
        await self.service.prepare()
        await self.worker.begin()

    async def end(self) -> None:
        await self.worker.end()
        await self.service.close()

    async def sweep(self) -> Counts:
        return await self.worker.sweep(RECONCILER)

    # -- users and their messages -------------------------------------------------------------------------------------

    async def user(
        self, name: str = "Ada", born: date = date(1990, 6, 1), timezone: str = "UTC", *, now: datetime | None = None
    ) -> int:
        """Created at that moment, or else now."""
        async with self.app.transaction() as tx:
            user = await people.create(tx, self.rules, name, "L.", born, timezone, now=now or self.clock.now())
        return user.id

    async def due(self, name: str = "Ada", **ago: float) -> int:
        """A user whose message became due so long ago."""
        user_id = await self.user(name, born=date(1990, 1, 1))
        await self.do(
            "update events set target_year = 2026, target_timestamp_utc = %s where user_id = %s",
            [self.clock.now() - timedelta(**ago), user_id],
        )
        return user_id

    async def change(self, user_id: int, **changed: Any) -> None:
        async with self.app.transaction() as tx:
            assert await people.update(tx, self.rules, user_id, now=self.clock.now(), **changed) is not None

    async def delete(self, user_id: int) -> None:
        async with self.app.transaction() as tx:
            assert await people.delete(tx, user_id)

    async def requeue(self) -> int:
        async with self.app.transaction() as tx:
            return await people.requeue(tx, None)

    async def events(self, user_id: int | None = None) -> list[dict[str, Any]]:
        async with self.app.transaction() as tx:
            return await people.events(tx, user_id=user_id, most=1000)

    async def states(self, user_id: int | None = None) -> list[tuple[int, str]]:
        """Year and status, oldest first."""
        return [(event["target_year"], event["status"]) for event in await self.events(user_id)]

    async def moments(self, user_id: int) -> list[tuple[int, str]]:
        """Year and moment of what is not sent yet."""
        waiting = [event for event in await self.events(user_id) if event["status"] not in ("COMPLETED", "DEAD")]
        return [(event["target_year"], f"{event['target_timestamp_utc']:%Y-%m-%d %H:%M}") for event in waiting]

    async def do(self, statement: str, params: Any = None) -> None:
        async with self.app.transaction() as tx:
            await tx.execute(statement, params)
