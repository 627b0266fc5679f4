"""Connection URLs as libpq reads them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode


def connection_url(parameters: Mapping[str, object]) -> str:
    """The URL that means these connection parameters (`host`, `port`, `user`, `dbname`, and any other libpq knows)."""
    rest = {name: str(value) for name, value in parameters.items() if value is not None}
    user, password, database = (quote(rest.pop(name, ""), safe="") for name in ("user", "password", "dbname"))
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    server = f"{rest.pop('host')}:{rest.pop('port', 5432)}" if names_one_machine(rest.get("host", "")) else ""
    options = f"?{urlencode(rest, quote_via=quote, safe='/')}" if rest else ""
    return f"postgresql://{login}{server}/{database}{options}"


def names_one_machine(host: str) -> bool:
    """Whether this is not a directory of sockets, nor a list of servers: those are written as options of the URL."""
    return host != "" and not host.startswith("/") and "," not in host
