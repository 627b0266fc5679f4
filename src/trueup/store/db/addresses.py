"""Looks up the names of database servers in a thread of its own.

psycopg looks them up in the event loop's default executor, which has few threads. Handlers that call `asyncio.to_thread` may keep all
of them, and then a connection that broke could not be made anew for as long as their calls take.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import psycopg

from trueup.aside import aside


async def with_addresses(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a connection with the addresses of its hosts, so that there is nothing left to look up.

    A host of which none is found is left out. Raises psycopg.OperationalError when no host is left.
    """
    hosts = str(settings.get("host") or "").split(",")
    ports = str(settings.get("port") or "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if settings.get("hostaddr") or not any(map(_is_name, hosts)) or len(ports) != len(hosts):
        return dict(settings)
    found = await aside(lambda: [*map(_addresses, hosts)], "trueup resolver")
    each = [
        (host, address, port)
        for host, port, addresses in zip(hosts, ports, found, strict=True)
        if not isinstance(addresses, OSError)
        for address in addresses
    ]
    if not each:
        raise psycopg.OperationalError(f"failed to resolve host {hosts[-1]!r}: {found[-1]}")
    return {**settings, **dict(zip(("host", "hostaddr", "port"), map(",".join, zip(*each, strict=True)), strict=True))}


def _is_name(host: str) -> bool:
    return bool(host) and not host.startswith(("/", "@"))


def _addresses(host: str) -> list[str] | OSError:
    if not _is_name(host):
        return [""]
    try:
        return [*dict.fromkeys(str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))]
    except OSError as error:
        return error
    except UnicodeError as error:  # a label that is empty or too long
        return OSError(str(error))
