"""The message, and its way to the webhook."""

from __future__ import annotations

from trueup import ConfigError
from trueup.integrations.webhooks import DeliveryFailed, DeliveryRefused, TargetRefused, Webhook

from .config import Config
from .people import User

# The address, or who we are there, is wrong: it would be for any other message, too. A gateway says so of a receiver that is away.
NOT_ABOUT_THE_MESSAGE = frozenset({*range(300, 400), 401, 402, 403, 404, 405, 407, 410, 421, 423, 426, 428, 451, 511})


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
