"""NATS JetStream: messages published from jobs, each stored once however often its job is tried.

`Nats.publish` is a job like any other, so that a message can be enqueued in the transaction of what it is about. It waits for the
stream's ack, and each attempt carries the same `Nats-Msg-Id` and the same bytes; the stream's duplicate window drops a repetition
if an attempt's ack was lost after the message was stored.
"""

from __future__ import annotations

from trueup.errors import ConfigError

try:
    import nats as _needed  # noqa: F401  # looked for here, before any of the parts
except ImportError as error:
    raise ConfigError('publishing to NATS needs nats-py: pip install "trueup[nats]"') from error

from trueup.integrations.nats.errors import NatsRefused, NatsUnavailable
from trueup.integrations.nats.publisher import Nats, Published
from trueup.integrations.nats.stream import Stream

__all__ = ["Nats", "NatsRefused", "NatsUnavailable", "Published", "Stream"]
