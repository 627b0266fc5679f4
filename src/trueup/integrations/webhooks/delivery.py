"""Makes one POST within one deadline, and interprets its answer; and the durable job that tries until the receiver accepts it.

A status that has arrived counts, whatever happens to the rest of the answer: the receiver has decided. Everything before that may
have reached the receiver or not, and is worth another attempt with the same key and the same bytes.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address
from typing import Any, Self, TypedDict
from uuid import UUID

import httpx

from trueup.app import App
from trueup.backoff import Retry
from trueup.clock import elapsed
from trueup.durations import Duration, duration_of, format_duration
from trueup.errors import ConfigError, InvalidArguments
from trueup.integrations.webhooks.errors import POSTPONE_FOR, DeliveryFailed, DeliveryPostponed, DeliveryRefused
from trueup.integrations.webhooks.guard import AddressGuard
from trueup.integrations.webhooks.retry_after import retry_after
from trueup.integrations.webhooks.signing import signature_headers, signing_keys
from trueup.integrations.webhooks.target import checked_headers, header_of, parse_url, shown, without_secrets
from trueup.integrations.webhooks.transport import GuardedTransport, default_tls
from trueup.jobs.context import Context
from trueup.jobs.definition import Job
from trueup.jobs.outcome import Snooze
from trueup.texts import clean

# The 4xx answers that are transient. 409: a request under this key is still being processed.
_NOT_NOW = frozenset({408, 409, 425, 429})
_SIZE = re.compile("([0-9]{1,9})(B|KiB|MiB)")
_SIZE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
MAX_READ = 16 << 20


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver accepted it. `body_excerpt` is the part of its answer that was read."""

    status: int
    body_excerpt: str
    duration: timedelta


class Webhook:
    """A receiver's URL, and how to deliver to it. Raises ConfigError when it cannot be one.

    `timeout` is for a whole delivery: resolving, connecting, sending and reading. `allow` names networks, addresses and hosts
    that are permitted although they are not public. `secret`, one or several, has deliveries signed. `tls` is for certificates of
    your own. `max_response` is how much of an answer is read.

    Each delivery has a connection of its own. A receiver's stray second answer can therefore never be taken for the answer to
    the next message.

    With a `client` of your own its proxies, certificates and authentication are used, and it is never closed here. Where it
    connects to is then not checked. Redirects are not followed with it either.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | Sequence[str] | None = None,
        timeout: Duration = timedelta(seconds=10),
        allow: Iterable[str] = (),
        headers: Mapping[str, str] | None = None,
        max_response: str | int = "64KiB",
        tls: ssl.SSLContext | None = None,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        self._url = parse_url(url)
        self._keys = () if secret is None else signing_keys(secret)
        self._timeout = duration_of("timeout", timeout)
        if not self._timeout:
            raise ConfigError(f"{self}: timeout={timeout!r} leaves no time for a delivery")
        self._guard = AddressGuard(allow)
        self._headers = checked_headers(headers)
        self._most_read = _size(max_response)
        self._tls = default_tls() if tls is None and client is None and self._url.scheme == "https" else tls
        self._client = client
        self._transport = GuardedTransport(self._guard, self._tls)
        if client is None:
            self._refuse_forbidden_literal()
        elif allow or tls is not None:
            raise ConfigError(f"{self}: allow= and tls= have no effect with client=, which connects by its own rules")

    def __repr__(self) -> str:
        return f"<Webhook {shown(self._url)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Does nothing: no connection stays open between deliveries, and the webhook can be used again."""

    async def deliver(
        self,
        payload: Mapping[str, Any],
        *,
        key: str,
        headers: Mapping[str, str] | None = None,
        sent_at: datetime | None = None,
    ) -> Delivered:
        """POST the payload as JSON, once. Returns when the receiver accepted it (2xx).

        Raises DeliveryRefused, DeliveryPostponed or DeliveryFailed otherwise, InvalidArguments when the payload is not
        JSON, ConfigError for headers or a key that cannot be sent. `key` goes along as Idempotency-Key: give the same one
        for every attempt, such as `ctx.idempotency_key`. The body's bytes depend on the payload alone.

        `sent_at` is the time to sign; this process's clock is asked without it. `ctx.now` is the database's.
        """
        request = self._request(payload, key, headers, sent_at)
        started = elapsed()
        deadline = asyncio.get_running_loop().time() + self._timeout.total_seconds()
        response = await self._answer(request, deadline)
        # A receiver may quote our request, the Authorization header included, in any answer.
        excerpt = without_secrets(await self._read(response, deadline), request)
        if not response.is_success:
            raise self._refusal(response, excerpt)
        return Delivered(response.status_code, excerpt, timedelta(seconds=elapsed() - started))

    def _request(
        self, payload: Mapping[str, Any], key: str, headers: Mapping[str, str] | None, sent_at: datetime | None
    ) -> httpx.Request:
        body = encode(payload)
        sent_key = header_of(key)
        together = {
            "accept": "*/*",
            "content-type": "application/json",
            "user-agent": "trueup-webhooks",
            **self._headers,
            **checked_headers(headers),
            "accept-encoding": "identity",  # an uncompressed answer cannot grow
            "connection": "close",
            "idempotency-key": sent_key,
        }
        if self._keys:
            moment = datetime.now(UTC) if sent_at is None else sent_at
            if moment.tzinfo is None:
                raise ConfigError(f"sent_at={moment.isoformat()}: it needs a time zone")
            together |= signature_headers(self._keys, sent_key, moment, body)
        # Reading and writing are bounded together, by the deadline; connecting needs to know its share of it.
        limits = {"connect": self._timeout.total_seconds()}
        return httpx.Request("POST", self._url, headers=together, content=body, extensions={"timeout": limits})

    async def _answer(self, request: httpx.Request, deadline: float) -> httpx.Response:
        try:
            async with asyncio.timeout_at(deadline):
                if self._client is not None:
                    return await self._client.send(request, stream=True, follow_redirects=False)
                return await self._transport.handle_async_request(request)
        except (TimeoutError, httpx.TimeoutException):
            within = format_duration(self._timeout)
            raise DeliveryFailed(f"{shown(self._url)} has not answered within {within}") from None
        except (httpx.HTTPError, OSError) as error:
            reason = without_secrets(str(error), request) or type(error).__name__
            raise DeliveryFailed(f"{shown(self._url)}: no answer: {reason}") from None

    async def _read(self, response: httpx.Response, deadline: float) -> str:
        """The beginning of the answer, as it came over the wire: nothing is unpacked."""
        read = bytearray()
        try:
            async with asyncio.timeout_at(deadline), aclosing(_parts(response)) as parts:
                async for part in parts:
                    read += part
                    if len(read) > self._most_read:
                        break
        except (TimeoutError, httpx.HTTPError, OSError):
            pass  # the part that was read is a sufficient excerpt
        finally:
            with suppress(httpx.HTTPError, OSError):
                await response.aclose()  # and with it the connection
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding != "identity" and read:
            return f"({encoding[:20]}, not unpacked)"
        # PostgreSQL holds no NUL, and an excerpt is likely to be stored.
        return read[: self._most_read].decode("utf-8", "replace").replace("\0", "\ufffd")

    def _refusal(self, response: httpx.Response, excerpt: str) -> Exception:
        status = response.status_code
        reason = f"{shown(self._url)} answered {status}"
        after = retry_after(response.headers) if status in (429, 503) else None
        if after is not None:
            return DeliveryPostponed(after, status, reason)
        if response.is_client_error and status not in _NOT_NOW:
            return DeliveryRefused(status, excerpt, reason)
        if response.is_redirect:
            reason += ", and redirects are not followed: give the URL it leads to"
        return DeliveryFailed(reason, status, excerpt)

    def _refuse_forbidden_literal(self) -> None:
        """An address in the URL needs no resolving: it is checked at once, so that a form can refuse it."""
        try:
            address = ip_address(self._url.host)
        except ValueError:
            return
        fault = self._guard.fault(self._url.host, address)
        if fault is not None:
            raise ConfigError(f"{self}: {fault}")


def _parts(response: httpx.Response) -> Any:
    # A test's artificial answer has been read already.
    return response.aiter_bytes() if response.is_stream_consumed else response.aiter_raw()


def _size(value: object) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    size = int(match[1]) * _SIZE_UNITS[match[2]] if match else value
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_READ:
        raise ConfigError(f'max_response={value!r:.80}: write it like "64KiB", up to "16MiB", or in bytes')
    return size


def encode(payload: Mapping[str, Any]) -> bytes:
    """The body of a delivery: the same bytes for the same payload, in every process and at every attempt. Compact JSON in UTF-8.

    Keys are sorted, because a later release, or the database, may return them in another order; moments are written in UTC, because
    each session has a time zone of its own. Sets are refused: their order differs from process to process. Raises InvalidArguments
    when the payload cannot be written as JSON.
    """
    if not isinstance(payload, Mapping):
        raise InvalidArguments(f"payload: a mapping is needed, not {type(payload).__name__}")
    try:
        return json.dumps(
            dict(payload), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(f"payload: it cannot be written as JSON: {error}") from None


def _plain(value: Any) -> Any:
    match value:
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case date() | time():
            return value.isoformat()
        case UUID() | Decimal():
            return str(value)
        case Enum():
            return value.value
        case Mapping():
            return dict(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


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
