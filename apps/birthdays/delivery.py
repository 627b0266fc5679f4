"""The message, and its way to the webhook."""

from __future__ import annotations

from trueup import ConfigError
from trueup.integrations.webhooks import DeliveryFailed, DeliveryRefused, TargetRefused, Webhook

from .config import Config
from .people import User

# The address, or who we are there, is wrong: it would be for any other message, too. A gateway says so of a receiver that is away.
NOT_ABOUT_THE_MESSAGE = frozenset({*range(300, 400), 401, 402, 403, 404, 405, 407, 410, 421, 423, 426, 428, 451, 511})


PUT_OFF_ALONE = 2  # times that a message is put off while others are taken
MAX_PUT_OFF = 1000  # messages to remember


class ReceiverAtFault(DeliveryFailed):
    """The receiver refuses, but not because of this message: that must cost none of those that wait."""


def message(user: User) -> str:
    return f"Hey, {user.first_name} {user.last_name} it's your birthday"


def webhook(config: Config) -> Webhook:
    """Raises ConfigError naming the variables."""
    try:
        return Webhook(
            config.webhook_url,
            secret=config.webhook_secret,
            timeout=config.webhook_timeout,
            allow=config.webhook_allow,
        )
    except ConfigError as error:
        names = "BIRTHDAYS_WEBHOOK_URL, BIRTHDAYS_WEBHOOK_SECRET or BIRTHDAYS_WEBHOOK_ALLOW"
        raise ConfigError(f"{names}: {error}") from None


class Patience:
    """Whether "not now" is about every message or about one of them.

    A receiver that puts the same message off again and again, and takes others in between, means that message: it must not keep
    the others waiting for ever.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._put_off: dict[str, tuple[int, int]] = {}  # how often while others were taken, and how many were by then

    def took(self, event_id: str) -> None:
        self._taken += 1
        self._put_off.pop(event_id, None)

    def is_about_everybody(self, event_id: str) -> bool:
        """To be asked each time that this one is put off."""
        times, taken = self._put_off.pop(event_id, (0, self._taken))
        times += self._taken > taken
        self._put_off[event_id] = times, self._taken
        while len(self._put_off) > MAX_PUT_OFF:
            del self._put_off[next(iter(self._put_off))]
        return times < PUT_OFF_ALONE


async def send(hook: Webhook, user: User, event_id: str) -> None:
    """However often it is tried, the key is the same: so the receiver can tell a second one.

    Raises DeliveryRefused when the receiver will not have this message, ReceiverAtFault when it would refuse any.
    """
    body = {"message": message(user), "idempotencyKey": event_id, "eventId": event_id}
    try:
        await hook.deliver(body, key=event_id)
    except (DeliveryRefused, DeliveryFailed) as error:
        if error.status in NOT_ABOUT_THE_MESSAGE or isinstance(error, TargetRefused):
            raise ReceiverAtFault(str(error), error.status) from None
        raise
