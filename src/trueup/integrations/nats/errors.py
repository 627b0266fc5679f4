"""What can go wrong with NATS.

NatsUnavailable               not now: no connection, no answer, no stream, no room; another attempt may work
NatsRefused (ConfigError)     it does not let us: a login or a permission is missing

Texts name the server's host and port. Users, passwords and tokens are never part of them.
"""

from __future__ import annotations

from trueup.errors import ConfigError, TrueupError


class NatsUnavailable(TrueupError):
    """NATS was unreachable, did not answer in time, or cannot store anything now. A message may have arrived."""


class NatsRefused(ConfigError):
    """The server refused the login, or does not permit this to the one who logged in."""
