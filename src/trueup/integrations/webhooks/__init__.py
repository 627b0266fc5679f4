"""Webhooks: a signed POST to another party's server, from jobs and reconcilers.

`Webhook.deliver` reports the result by the error that it raises, so that a handler needs three lines to be retried, postponed or
given up. Whether it may connect is decided after the name was resolved; see `guard`.
"""

from __future__ import annotations

from trueup.errors import ConfigError

try:
    import httpx as _needed  # noqa: F401  # looked for here, before any of the parts
except ImportError as error:
    raise ConfigError('webhooks need httpx: pip install "trueup[webhooks]"') from error

from trueup.integrations.webhooks.delivery import Delivered, Receipt, Webhook, delivery_job
from trueup.integrations.webhooks.errors import (
    BadSignature,
    DeliveryError,
    DeliveryFailed,
    DeliveryPostponed,
    DeliveryRefused,
    TargetRefused,
)
from trueup.integrations.webhooks.signing import verify

__all__ = [
    "BadSignature",
    "Delivered",
    "DeliveryError",
    "DeliveryFailed",
    "DeliveryPostponed",
    "DeliveryRefused",
    "Receipt",
    "TargetRefused",
    "Webhook",
    "delivery_job",
    "verify",
]
