"""Whether each server of NATS can be reached, for `trueup doctor`."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from trueup.integrations.nats.connection import Connection
from trueup.integrations.nats.errors import NatsRefused, NatsUnavailable
from trueup.integrations.nats.servers import Servers
from trueup.operate.checks import Finding


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
