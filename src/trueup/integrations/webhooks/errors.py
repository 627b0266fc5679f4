"""The ways in which a delivery can fail.

DeliveryError
├── DeliveryFailed        no usable answer, or a server's error: try again
├── DeliveryPostponed     the receiver said when to try again
└── DeliveryRefused       the receiver does not want it: trying again cannot help
    └── TargetRefused     its address is none that may be connected to; nothing was sent

BadSignature is for receivers.

Texts name the scheme, host and port of the target. Its path and query, and the values of headers, are left out of them.
"""

from __future__ import annotations

from datetime import timedelta

from trueup.durations import Duration, parse_duration
from trueup.errors import TrueupError
from trueup.integrations.webhooks.retry_after import MAX_POSTPONEMENT, MIN_POSTPONEMENT

POSTPONE_FOR = timedelta(days=1)  # receivers are rarely down for longer; after that a person should know
MAX_SHOWN = 200  # characters of an answer in an error's text; `excerpt` has the rest


class DeliveryError(TrueupError):
    """The delivery failed. The subclass says whether to try again."""


class DeliveryFailed(DeliveryError):
    """Perhaps next time: a server's error, a timeout, a broken connection. The message may still have arrived.

    `status` is None when there was no answer.
    """

    def __init__(self, reason: str, status: int | None = None, excerpt: str = "") -> None:
        super().__init__(reason + _quoted(excerpt))
        self.reason = reason
        self.status = status
        self.excerpt = excerpt


class DeliveryPostponed(DeliveryError):
    """The receiver asks to be left alone for `after`, which is from one second to one hour.

    `raise Snooze(error.delay(ctx.snoozed_for))` heeds it without spending an attempt, for a day at most.
    """

    def __init__(self, after: timedelta, status: int, reason: str = "postponed") -> None:
        super().__init__(f"{reason}, again after {after.total_seconds():g} s")
        self.after = after
        self.status = status

    def delay(self, waited: timedelta, *, within: Duration = POSTPONE_FOR) -> timedelta:
        """How long to wait now, when this message has been put off for `waited` already. Raises this error after `within`.

        At least what the receiver asked for, and at least half of `waited`, up to an hour: a receiver that says "in a second"
        for ever is asked less and less often. After `within` the postponement counts as a failed attempt like any other.
        """
        left = parse_duration(within) - waited
        if left <= timedelta():
            raise self
        growing = min(max(self.after, waited / 2), MAX_POSTPONEMENT)
        return max(min(growing, left), MIN_POSTPONEMENT)


class DeliveryRefused(DeliveryError):
    """The receiver refused the message. `excerpt` is the beginning of its answer."""

    def __init__(self, status: int | None, excerpt: str, reason: str = "refused") -> None:
        super().__init__(reason + _quoted(excerpt))
        self.status = status
        self.excerpt = excerpt


class TargetRefused(DeliveryRefused):
    """The host has an address that may not be connected to. The text names it: keep it from those who chose the URL."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, "", reason)


class BadSignature(TrueupError):
    """A request that was not signed with any of these secrets, or not recently."""


def _quoted(excerpt: str) -> str:
    if not excerpt:
        return ""
    return f": {excerpt[:MAX_SHOWN]!r}" + ("…" if len(excerpt) > MAX_SHOWN else "")
