"""Signatures by the Standard Webhooks specification: they prove the sender, the content and the time of a message.

The text "{id}.{timestamp}.{body}" is signed with HMAC-SHA256. A signature per secret is sent, so that a secret can be
replaced: add the new one on both sides, then take the old one away.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError
from trueup.integrations.webhooks.errors import BadSignature

PREFIX = "whsec_"
VERSION = "v1"


def signing_keys(secret: str | Sequence[str]) -> tuple[bytes, ...]:
    """`whsec_` and base64, or else the text as it is. Raises ConfigError, which does not quote it."""
    keys = tuple(_key(one) for one in ((secret,) if isinstance(secret, str) else secret))
    if not keys:
        raise ConfigError("secret=: at least one is needed")
    return keys


def _key(secret: object) -> bytes:
    if not isinstance(secret, str):
        raise ConfigError(f"secret=: a text is needed, not {type(secret).__name__}")
    try:
        encoded = secret.removeprefix(PREFIX)
        key = b64decode(encoded, validate=True) if encoded != secret else secret.encode()
    except ValueError:
        raise ConfigError(f"secret=: what follows {PREFIX} is not base64") from None
    if not key:
        raise ConfigError("secret=: it is empty, so anyone could sign with it")
    return key


def signature_headers(keys: Iterable[bytes], key: str, sent_at: datetime, body: bytes) -> dict[str, str]:
    timestamp = str(int(sent_at.timestamp()))
    signatures = " ".join(_signature(secret, key, timestamp, body) for secret in keys)
    return {"webhook-id": key, "webhook-timestamp": timestamp, "webhook-signature": signatures}


def _signature(secret: bytes, key: str, timestamp: str, body: bytes) -> str:
    digest = hmac.digest(secret, f"{key}.{timestamp}.".encode() + body, "sha256")
    return f"{VERSION},{b64encode(digest).decode()}"


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secret: str | Sequence[str],
    tolerance: Duration = timedelta(minutes=5),
    *,
    now: datetime | None = None,
) -> str:
    """For receivers: the message's id, if it was signed with one of the secrets, and recently.

    `body` must be the bytes as they came, before anything has parsed them. The same id may come again: deliveries are at
    least once. Raises BadSignature, whose text says why and must not be sent back to the client.
    """
    keys = signing_keys(secret)
    leeway = duration_of("tolerance", tolerance)
    given = {name.lower(): value for name, value in headers.items()}
    key, timestamp, signatures = (given.get(f"webhook-{part}", "") for part in ("id", "timestamp", "signature"))
    if not (key and timestamp and signatures):
        raise BadSignature("the headers Webhook-Id, Webhook-Timestamp and Webhook-Signature are not all present")
    # A framework may decode a client's bytes to half a surrogate pair; such an id was never signed.
    if _is_broken(key):
        raise BadSignature("Webhook-Id is not valid text")
    # Digits are counted before they are parsed: a long row of them is a time that Python has no date for.
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 11):
        raise BadSignature("Webhook-Timestamp is not a time")
    age = (now or datetime.now(UTC)) - datetime.fromtimestamp(int(timestamp), UTC)
    if abs(age) > leeway:
        raise BadSignature(f"Webhook-Timestamp is off by {abs(age)}, more than {leeway}")
    expected = [_signature(one, key, timestamp, body).encode() for one in keys]
    found = [one.encode("utf-8", "replace") for one in signatures.split(" ")]
    if not any(hmac.compare_digest(one, other) for one in found for other in expected):
        raise BadSignature("no signature matches")
    return key
