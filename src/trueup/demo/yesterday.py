"""Yesterday, when everything was still fine, by a clock that is slow.

Its users are ordinary ones, some with names that have broken other programs, and one whose messages are always refused. They are
created as the API creates them. A worker starts, sends what is due, which is nothing yet, and stops. That is the last heartbeat of
the fleet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from trueup.demo import application
from trueup.testing.clock import ManualClock

SWEPT_WITHIN = 60.0  # seconds
FOR_LATER = 40  # users whose birthday is after the downtime: nothing may be sent to them
AWKWARD = (
    ("Robert'); drop table", "events;--"),
    ('Zoë "Ζώη"', "O’Neill"),
    ("🎂 {first_name}", "%s \\n"),
)
UNWANTED = "Nobody Home"  # the receiver refuses messages with this name for good


class DemoUser(NamedTuple):
    first_name: str
    last_name: str
    born: date
    timezone: str
    fate: str


def everybody(seed: Any, users: int, yesterday: datetime) -> Iterator[DemoUser]:
    """Users whose birthday began within the day after that moment, the special ones among them; and some whose birthday is
    after it. `seed` is the application's own module that makes up users."""
    # The first one lives where clocks are never changed: that message is due for sure.
    special = [(*UNWANTED.split(), "dead"), *((*name, "delivered") for name in AWKWARD)]
    for number, made in enumerate(seed.made_up(users, yesterday, days=1)):
        first_name, last_name, fate = (
            special[number] if number < len(special) else (made.first_name, made.last_name, "delivered")
        )
        yield DemoUser(first_name, last_name, made.born, made.timezone, fate)
    for made in seed.made_up(FOR_LATER, yesterday + timedelta(days=2), days=1):
        yield DemoUser(made.first_name, made.last_name, made.born, made.timezone, "later")


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
