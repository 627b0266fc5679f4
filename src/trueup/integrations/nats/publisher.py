"""Publishes with a job that ends when the stream has acknowledged its message."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Self, TypeAlias, TypedDict
from weakref import WeakSet

import nats.errors
import nats.js.errors
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from trueup.app import App
from trueup.backoff import JOB_RETRY, Retry
from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError
from trueup.events import DuplicateWindowShort
from trueup.integrations.nats import message
from trueup.integrations.nats.connection import Connection, Connections
from trueup.integrations.nats.errors import NatsRefused, NatsUnavailable
from trueup.integrations.nats.servers import Servers, parse_servers
from trueup.integrations.nats.stream import Stream, longest_gap
from trueup.integrations.nats.subjects import fault_in_subject
from trueup.jobs.context import Context
from trueup.jobs.outcome import GiveUp
from trueup.operate.checks import Finding

log = logging.getLogger("trueup.nats")

NOT_FOUND = 10059
IN_USE = 10058  # the name is taken by a stream with another configuration
REFUSALS = frozenset({400, 401, 403, 413})  # errors of the message; other codes are transient


def _checked(fault_in: Callable[[Any], str | None]) -> AfterValidator:
    """A validator of an argument from what finds the fault in it."""

    def check(value: Any) -> Any:
        fault = fault_in(value)
        if fault is not None:
            raise PydanticCustomError("refused", "{fault}", {"fault": fault})
        return value

    return AfterValidator(check)


Data: TypeAlias = Annotated[Any, _checked(message.fault_in_data)]
MessageId: TypeAlias = Annotated[str, _checked(message.fault_in_id)]
Headers: TypeAlias = Annotated[dict[str, str], _checked(message.fault_in_headers)]


class Published(TypedDict):
    """What a publishing job returns. With `duplicate` the stream had the message already, under this `seq`."""

    stream: str
    seq: int
    duplicate: bool
    message_id: str


class Nats:
    """A stream to publish to, and the job that does. Raises ConfigError when it cannot be one.

    `servers` is a URL, several separated by commas, or a list. `timeout` is for an answer, and for a connection. `connect`
    takes options of nats-py about logging in and TLS. `name`, `queue` and `retry` are the job's.

    A connection is opened when it is first needed, one for each event loop, and a new one after it was lost. `app.close`
    closes that of the running loop, and so does `aclose`.
    """

    def __init__(
        self,
        app: App,
        servers: str | Sequence[str],
        *,
        stream: Stream,
        name: str = "publish",
        queue: str = "default",
        retry: Retry | None = None,
        timeout: Duration = timedelta(seconds=5),
        connect: Mapping[str, Any] | None = None,
    ) -> None:
        self._stream = stream
        self._servers = parse_servers(servers, connect)
        self._timeout = duration_of("timeout", timeout)
        if not self._timeout:
            raise ConfigError(f"{self}: timeout={timeout!r} leaves no time to publish")
        retry = (retry or JOB_RETRY).with_defaults(JOB_RETRY)
        self._window = stream.window(retry, app.settings, self._timeout)
        self._gap = longest_gap(retry, app.settings, self._timeout)
        self._events = app.events
        self._looked_at: WeakSet[Connection] = WeakSet()
        self._connections = Connections(self._servers, self._timeout)

        Subject: TypeAlias = Annotated[str, _checked(self._fault_in_subject)]

        @app.job(name=name, queue=queue, retry=retry)
        async def publish(
            ctx: Context,
            subject: Subject,
            data: Data,
            *,
            message_id: MessageId | None = None,
            headers: Headers | None = None,
        ) -> Published:
            return await self._publish(subject, data, message_id or message.id_of(ctx.job), headers or {})

        self.publish = publish
        app.on_close(self.aclose)  # in `trueup worker` nothing else closes it
        app.on_examine(self.examine)

    @property
    def _later(self) -> float:
        """A timeout for nats-py that expires after ours."""
        return 2 * self._timeout.total_seconds()

    def __repr__(self) -> str:
        return f"<Nats {self._servers!r} stream={self._stream.name!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection of this event loop, within a second or two. It can be used again."""
        await self._connections.close()

    async def send(
        self, subject: str, data: Any, *, message_id: str, headers: Mapping[str, str] | None = None
    ) -> Published:
        """Publish now, without a job: for handlers that repeat it under the same `message_id` when they are retried.

        Raises ConfigError when the message cannot be published, NatsUnavailable, NatsRefused, or GiveUp when trying again cannot
        help.
        """
        given = dict(headers or {})
        faults = (self._fault_in_subject(subject), message.fault_in_data(data), message.fault_in_id(message_id))
        if fault := next(filter(None, (*faults, message.fault_in_headers(given))), None):
            raise ConfigError(f"{self}: {fault}")
        return await self._publish(subject, data, message_id, given)

    async def ensure_stream(self, *, update: bool = False) -> None:
        """Create the stream unless it exists. Any number of processes may do so at once. An existing one is only changed to
        remember ids for longer and, with `update`, to take further subjects. Raises ConfigError when the stream does not fit, or
        the server refuses, and NatsUnavailable.
        """
        found = await self._found()
        if found is None:
            answer = await self._call("CREATE", self._stream.created(self._window))
            if answer.get("error", {}).get("err_code") != IN_USE:
                self._config_in(answer)
                log.info("NATS stream created", extra={"stream": self._stream.name})
                return
            found = await self._found() or {}  # another process was faster
        wanted = self._stream.adjusted(found, self._window, update=update)
        if wanted != found:
            self._config_in(await self._call("UPDATE", wanted))
            log.info("NATS stream updated", extra={"stream": self._stream.name})

    async def examine(self) -> list[Finding]:
        """What `trueup doctor` finds: servers that cannot be reached, a stream that is missing or does not fit. Changes nothing."""
        found, reached = await examine_servers(self._servers, self._timeout, self.publish.kind)
        return [*found, *await self._examine_stream()] if reached else found

    async def _examine_stream(self) -> list[Finding]:
        name = self._stream.name
        try:
            config = await self._found()
        except NatsUnavailable as error:
            advice = (
                "enable JetStream on the server (nats-server -js) and for this account,"
                " or wait until the cluster has a leader"
            )
            return [Finding("nats", "error", f"NATS: JetStream does not answer: {error}", advice)]
        except ConfigError:  # its user may publish, but not read the stream's configuration
            return []
        if config is None:
            advice = "await ensure_stream() when you deploy, or create the stream; until then jobs fail and are retried"
            return [Finding("nats", "error", f"NATS stream {name} does not exist", advice)]
        try:
            wanted = self._stream.adjusted(config, self._window, update=False)
        except ConfigError as error:
            return [
                Finding(
                    "nats", "error", str(error), "ensure_stream(update=True) adds subjects; correct the rest by hand"
                )
            ]
        if wanted == config:
            return []
        problem = f"NATS stream {name} has a duplicate window that is shorter than a job's longest gap between attempts"
        return [Finding("nats", "warning", problem, "await ensure_stream(), which lengthens its duplicate window")]

    async def _found(self) -> dict[str, Any] | None:
        answer = await self._call("INFO")
        return None if answer.get("error", {}).get("err_code") == NOT_FOUND else self._config_in(answer)

    def _config_in(self, answer: dict[str, Any]) -> dict[str, Any]:
        if error := answer.get("error"):
            text = f"stream {self._stream.name}: {error.get('description')}"
            raise NatsUnavailable(text) if error.get("code") == 503 else ConfigError(text)
        config: dict[str, Any] = answer["config"]
        return config

    async def _call(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Bypasses nats-py's own calls: they drop unknown options from a stream's configuration, and would reset those."""
        connection = await self._connections.get()
        subject = f"$JS.API.STREAM.{verb}.{self._stream.name}"
        sent = b"" if body is None else json.dumps(body).encode()
        asking = connection.client.request(subject, sent, timeout=self._later)
        try:
            answer = await connection.ask(asking, subject, self._timeout)
            said: dict[str, Any] = json.loads(answer.data)
        except nats.errors.NoRespondersError:
            raise NatsUnavailable(f"{connection.server} has no JetStream, or not yet") from None
        except (nats.errors.Error, OSError, ValueError) as error:
            raise NatsUnavailable(f"{connection.server}: {error}") from None
        return said

    def _fault_in_subject(self, subject: str) -> str | None:
        if fault := fault_in_subject(subject):
            return fault
        if self._stream.takes(subject):
            return None
        return f"{subject!r:.120} is none of stream {self._stream.name}, which takes {', '.join(self._stream.subjects)}"

    async def _publish(self, subject: str, data: Any, message_id: str, headers: dict[str, str]) -> Published:
        body = message.body_of(data)
        sent = {**headers, message.ID_HEADER: message_id, message.STREAM_HEADER: self._stream.name}
        connection = await self._connections.get()
        most = connection.client.max_payload
        if (size := message.size_of(sent, body)) > most:
            raise GiveUp(f"{connection.server} takes messages of up to {most:,} bytes; this one has {size:,}")
        ack = await self._acknowledged(connection, subject, body, sent)
        await self._look_at_window(connection)
        published = Published(stream=ack.stream, seq=ack.seq, duplicate=bool(ack.duplicate), message_id=message_id)
        if published["duplicate"]:
            log.info("NATS had this message already", extra={"subject": subject, **published})
        else:
            log.debug("NATS message published", extra={"subject": subject, **published})
        return published

    async def _look_at_window(self, connection: Connection) -> None:
        """Emit an event, once per connection, if the stream forgets ids before an attempt may be repeated. Never fails.
        `ensure_stream` makes the window long enough, but another program may own the stream.
        """
        if connection in self._looked_at:
            return
        self._looked_at.add(connection)
        try:
            found = await self._found() or {}
        except (NatsUnavailable, ConfigError) as error:  # it may not be permitted to us
            log.info("NATS stream not checked", extra={"stream": self._stream.name, "error": str(error)})
            return
        window = timedelta(microseconds=found.get("duplicate_window", 0) / 1_000)
        if window <= self._gap:
            needed = self._gap.total_seconds()
            self._events.emit(DuplicateWindowShort(self._stream.name, window.total_seconds(), needed))

    async def _acknowledged(
        self, connection: Connection, subject: str, body: bytes, headers: dict[str, str]
    ) -> nats.js.api.PubAck:
        publishing = connection.jetstream.publish(subject, body, timeout=self._later, headers=headers)
        try:
            ack = await connection.ask(publishing, subject, self._timeout)
        except nats.js.errors.NoStreamResponseError:
            raise NatsUnavailable(
                f"{connection.server}: no stream takes {subject!r}; does {self._stream.name} exist? ensure_stream() creates it"
            ) from None
        except nats.js.errors.APIError as error:
            text = f"stream {self._stream.name}: {error.description}"
            raise GiveUp(text) if error.code in REFUSALS else NatsUnavailable(text) from None
        except (nats.errors.BadSubjectError, nats.errors.MaxPayloadError) as error:
            raise GiveUp(f"{connection.server}: {error}") from None
        except (nats.errors.Error, OSError) as error:
            raise NatsUnavailable(f"{connection.server}: {error}") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            ack = None
        if ack is None or ack.stream != self._stream.name:
            raise NatsUnavailable(f"{connection.server}: another subscriber of {subject!r} answered, not the stream")
        return ack


async def examine_servers(servers: Servers, timeout: timedelta, kind: str) -> tuple[list[Finding], bool]:
    """A finding for each server that refuses us or is unreachable, and whether any server accepts us. `kind` is of the jobs that
    publish.

    One server is enough to publish, so a part of a cluster that is away is a warning.
    """
    tried = await asyncio.gather(*(_failure(address, servers, timeout) for address in servers.addresses))
    failures = [failure for failure in tried if failure is not None]
    reached = len(failures) < len(tried)
    severity = "warning" if reached else "error"
    meanwhile = (
        "trueup publishes through the other servers" if reached else f"jobs of kind {kind!r} are retried meanwhile"
    )
    return [Finding("nats", severity, f"NATS: {each}", f"{_advice(each)}; {meanwhile}") for each in failures], reached


async def _failure(address: str, servers: Servers, timeout: timedelta) -> Exception | None:
    connection = Connection(address)
    try:
        await connection.open(servers.options, timeout)
    except (NatsRefused, NatsUnavailable) as error:
        return error
    await connection.close()
    return None


def _advice(failure: Exception) -> str:
    if isinstance(failure, NatsRefused):
        return "correct the user, password or token in its URL or in connect="
    return "start it, or check the servers in Nats(…) and the network"
