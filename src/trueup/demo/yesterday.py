"""Yesterday, when everything was still fine, by a clock that is slow.

The users are created as the API creates them. A worker starts, sends what is due, which is nothing yet, and stops. That is the
last heartbeat of the fleet.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from trueup.demo import application
from trueup.demo.people import everybody
from trueup.testing.clock import ManualClock

SWEPT_WITHIN = 60.0  # seconds


async def relive(ago: timedelta, users: int) -> None:
    then = datetime.now(UTC) - ago
    service = application.build(ManualClock(then))
    await service.prepare()
    try:
        async with service.app.transaction() as tx:
            await _seed(tx, service, users, then, ago)
        async with service.app.worker(), asyncio.timeout(SWEPT_WITHIN):
            while await _never_swept(service.app):  # noqa: ASYNC110 - only the database tells
                await asyncio.sleep(0.05)
    finally:
        await service.close()


async def _seed(tx: Any, service: Any, users: int, then: datetime, ago: timedelta) -> None:
    people, rules = application.part("people"), service.config.rules
    until = then + ago  # where clocks are put back, the next nine o'clock may be 25 hours away
    for person in everybody(application.part("seed"), users, then):
        user = await people.create(
            tx, rules, person.first_name, person.last_name, person.born, person.timezone, now=then
        )
        await tx.execute(
            "insert into demo.expected select id, user_id, target_timestamp_utc,"
            " case when target_timestamp_utc <= %s then %s else 'later' end from events where user_id = %s",
            [until, person.fate, user.id],
        )


async def _never_swept(app: Any) -> bool:
    return all(each["last_swept_at"] is None for each in await app.reconcilers.list())
