"""Ports on loopback that nobody else can take."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def reserve(port: int = 0) -> socket.socket:
    """A socket that owns the port, or a free one if none is named, and refuses who connects to it.

    It may begin to listen itself, or another program may listen on the port while the socket stays open, provided that the
    program sets SO_REUSEADDR, as servers do. Nobody is given the port by chance, also not while that program is down.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((LOOPBACK, port))
    return reserved


def number(reserved: socket.socket) -> int:
    port: int = reserved.getsockname()[1]
    return port
