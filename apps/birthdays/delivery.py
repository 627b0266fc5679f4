"""The message, and its way to the webhook."""

from __future__ import annotations

from trueup import ConfigError
from trueup.integrations.webhooks import Webhook

from .config import Config
from .people import User


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
    """However often it is tried, the key is the same: so the receiver can tell a second one."""
    body = {"message": message(user), "idempotencyKey": event_id, "eventId": event_id}
    await hook.deliver(body, key=event_id)
