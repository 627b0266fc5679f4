"""Just enough of PostgreSQL's wire protocol to tell, from the bytes that pass, which request an answer belongs to."""

from __future__ import annotations

from typing import NamedTuple

QUERY, FUNCTION_CALL, PARSE, BIND, SYNC = b"Q", b"F", b"P", b"B", b"S"
ENDS_OF_ROUND = (QUERY, FUNCTION_CALL, SYNC)
READY_FOR_QUERY = b"Z"

STARTUP = b""
ENCRYPTION_REQUESTS = (80877103, 80877104)  # SSLRequest, GSSENCRequest
MAX_STARTUP = 10_000  # the server refuses longer ones; here it tells that the stream is TLS, or another protocol


class Message(NamedTuple):
    kind: bytes
    body: bytes


class Frames:
    """Cuts one direction of a connection into messages, in whatever pieces the bytes arrive.

    The client's direction opens with a startup packet, which has no kind. A stream that turns out not to be PostgreSQL's
    protocol in clear becomes unreadable, and gives nothing from then on.
    """

    def __init__(self, *, startup: bool) -> None:
        self.readable = True
        self._startup = startup
        self._buffer = bytearray()
        self._unframed = 0

    def skip(self, size: int) -> None:
        """The next bytes of the stream are no message."""
        self._unframed += size

    def feed(self, data: bytes) -> list[Message]:
        """The messages that these bytes complete."""
        if not self.readable:
            return []
        self._buffer += data[self._unframed :]
        self._unframed = max(0, self._unframed - len(data))
        return list(iter(self._next, None))

    def _next(self) -> Message | None:
        start = 0 if self._startup else 1
        if len(self._buffer) < start + 4:
            return None
        length = int.from_bytes(self._buffer[start : start + 4])
        if length < 4 or (self._startup and length > MAX_STARTUP):
            self.readable = False
            self._buffer.clear()
            return None
        end = start + length
        if len(self._buffer) < end:
            return None
        message = Message(bytes(self._buffer[:start]), bytes(self._buffer[start + 4 : end]))
        del self._buffer[:end]
        self._startup = self._startup and asks_for_encryption(message)
        return message


class Conversation:
    """What was requested and what was answered on one connection, counted in rounds.

    A round is what ends with one ReadyForQuery: a simple query, or a series of extended messages up to their Sync.
    """

    def __init__(self) -> None:
        self.requested = 0
        self.answered = -1  # the first ReadyForQuery ends the login
        self._client = Frames(startup=True)
        self._server = Frames(startup=False)

    def client_sent(self, data: bytes) -> list[tuple[Message, int]]:
        """The messages that these bytes complete, each with the round that will answer it."""
        return [(message, self._round_of(message)) for message in self._client.feed(data)]

    def _round_of(self, message: Message) -> int:
        if message.kind in ENDS_OF_ROUND:
            self.requested += 1
            return self.requested
        if asks_for_encryption(message):
            self._server.skip(1)
        return self.requested + 1

    def server_sent(self, data: bytes) -> None:
        """Count the rounds that this ends."""
        if self._client.readable:
            self.answered += sum(message.kind == READY_FOR_QUERY for message in self._server.feed(data))


def asks_for_encryption(message: Message) -> bool:
    """Whether the server will answer with a single byte, and the client then start anew."""
    return message.kind == STARTUP and int.from_bytes(message.body[:4]) in ENCRYPTION_REQUESTS
