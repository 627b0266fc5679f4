"""Delivers with a durable job: enqueued in the transaction of the event, and tried until the receiver accepts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict

from trueup.app import App
from trueup.backoff import Retry
from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError, InvalidArguments
from trueup.integrations.webhooks.delivery import Webhook
from trueup.integrations.webhooks.errors import POSTPONE_FOR, DeliveryPostponed, DeliveryRefused
from trueup.jobs.context import Context
from trueup.jobs.definition import Job
from trueup.jobs.outcome import Snooze
from trueup.texts import clean

# For most of a day: receivers are down for hours, and come back.
RETRY = Retry(max_attempts=20, first="5s", factor=2, cap="1h", jitter=True)
MAX_ANSWER = 500  # characters of it that are kept with the job
HOPELESS = (DeliveryRefused, ConfigError, InvalidArguments)


class Receipt(TypedDict):
    """What a delivery job returns: the receiver's status, and the beginning of its answer."""

    status: int
    answer: str


def delivery_job(
    app: App,
    webhook: Webhook,
    *,
    name: str = "deliver",
    queue: str = "default",
    retry: Retry = RETRY,
    postpone_for: Duration = POSTPONE_FOR,
) -> Job[..., Receipt]:
    """A job of (payload, key=None, headers=None) that delivers to this webhook.

    Without a `key` its idempotency key is that of the job; in either case every attempt has the same, and the same bytes. If the
    receiver says when to come back, the job waits without spending an attempt, at growing intervals and for up to `postpone_for`;
    after that, postponements count as failed attempts. A refusal, or an address that may not be connected to, ends the job.
    """
    patience = duration_of("postpone_for", postpone_for)
    retry = replace(retry, give_up_on=(*retry.give_up_on, *HOPELESS))

    @app.job(name=name, queue=queue, retry=retry)
    async def deliver(
        ctx: Context, payload: dict[str, Any], *, key: str | None = None, headers: dict[str, str] | None = None
    ) -> Receipt:
        try:
            delivered = await webhook.deliver(payload, key=key or ctx.idempotency_key, headers=headers, sent_at=ctx.now)
        except DeliveryPostponed as postponed:
            raise Snooze(postponed.delay(ctx.snoozed_for, within=patience)) from postponed
        return Receipt(status=delivered.status, answer=clean(delivered.body_excerpt, MAX_ANSWER))

    return deliver
