"""The demo's users: ordinary ones, some with names that have broken other programs, and one whose messages are always refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

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
