"""Telling people outside: reminders and alerts go to a webhook, signed, each by a job of its own.

The job is enqueued in the transaction that makes the reminder or the alert, so there is one for each, and none without. The
receiver can tell a second delivery by its key, which is the same for ever: `reminder:7:2026-06-01:ONE_DAY`, `alert:42`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trueup import App, ConfigError, Job
from trueup.integrations.webhooks import Receipt, Webhook, delivery_job

from .config import Config
from .database import Tx


class Sender:
    """Sends nothing when no webhook is configured: the rows are there to be read."""

    def __init__(self, app: App, config: Config) -> None:
        self._hook: Webhook | None = None
        self._deliver: Job[..., Receipt] | None = None
        if config.webhook_url is None:
            return
        try:
            self._hook = Webhook(config.webhook_url, secret=config.webhook_secret, allow=config.webhook_allow)
        except ConfigError as error:
            names = "PULSE_WEBHOOK_URL, PULSE_WEBHOOK_SECRET or PULSE_WEBHOOK_ALLOW"
            raise ConfigError(f"{names}: {error}") from None
        self._deliver = delivery_job(app, self._hook, name="pulse_notice")

    async def aclose(self) -> None:
        if self._hook is not None:
            await self._hook.aclose()

    async def remind(self, tx: Tx, reminders: Sequence[Mapping[str, Any]]) -> None:
        notices = [
            {
                "payload": {"event": "checkpoint.reminder", **each, "due_on": str(each["due_on"])},
                "key": f"reminder:{each['checkpoint_id']}:{each['due_on']}:{each['kind']}",
            }
            for each in reminders
        ]
        if self._deliver is not None and notices:
            await self._deliver.using(tx=tx).enqueue_many(notices)

    async def alert(self, tx: Tx, check_id: int, alert: Mapping[str, Any]) -> None:
        if self._deliver is not None:
            await self._deliver.using(tx=tx).enqueue({"event": "project.alert", **alert}, key=f"alert:{check_id}")
