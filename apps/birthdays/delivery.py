"""The message, and its way to the webhook."""

from __future__ import annotations

from trueup.integrations.webhooks import Webhook

from .config import Config
from .people import User


def message(user: User) -> str:
    return f"Hey, {user.first_name} {user.last_name} it's your birthday"


def webhook(config: Config) -> Webhook:
    secret, allow = config.webhook_secret, config.webhook_allow
    return Webhook(config.webhook_url, secret=secret, timeout="10s", allow=allow)


async def send(hook: Webhook, user: User, event_id: str) -> None:
    """The same bytes under the same key however often it is tried: the receiver can tell a second one."""
    body = {"message": message(user), "idempotencyKey": event_id, "eventId": event_id}
    await hook.deliver(body, key=event_id)
