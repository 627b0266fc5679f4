"""The dashboard: pages and a JSON API over one or several Apps, to be mounted in any ASGI application.

    from trueup.web import dashboard

    site.mount("/trueup", dashboard.asgi(app, auth=dashboard.Tokens({TOKEN: "operator"}), hosts=["shop.example"]))

Needs the extra `web`. `trueup dashboard` serves the same on its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from trueup.app import App
from trueup.errors import ConfigError

try:
    import jinja2 as _needed  # noqa: F401
    import starlette as _needed_too  # noqa: F401
except ModuleNotFoundError as error:
    raise ConfigError(f'the dashboard needs the package {error.name}: pip install "trueup[web]"') from error

from trueup.web.dashboard.auth import Auth, Open, Person, ProxyHeader, Role, Tokens
from trueup.web.dashboard.bulk import UNDO_FOR
from trueup.web.dashboard.formats import Redact
from trueup.web.dashboard.site import Site, SlashesInNames
from trueup.web.dashboard.source import sources
from trueup.web.guard import LOOPBACK, Application, Guard, Receive, Rules, Scope, Send, is_loopback

__all__ = ["CSP", "Auth", "Open", "Person", "ProxyHeader", "Role", "Tokens", "asgi"]

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
MAX_BODY = 64 * 1024


def asgi(
    apps: App | Iterable[App] | Mapping[str, App],
    auth: Auth | None = None,
    *,
    hosts: Collection[str] = (),
    redact: Redact | None = None,
    undo_for: float = UNDO_FOR,
    closes: bool = False,
) -> Application:
    """The dashboard of one App or several, as an ASGI application.

    Without `auth` only this machine is answered: requests from other addresses get 403. `hosts` are the names that the server is
    called by, beside those of loopback. `redact(kind, arguments)` returns what may be shown of a payload; what looks like a secret
    is hidden in any case. Bulk actions begin after `undo_for` seconds. With `closes`, the Apps are closed when the server ends.
    """
    from trueup.web.dashboard.api import routes

    chosen = auth if auth is not None else Open()
    site = Site(sources(apps), chosen, redact, undo_for=undo_for, closes=closes)
    guarded: Application = Guard(
        SlashesInNames(site.application(routes(site))), Rules(hosts=hosts, max_body=MAX_BODY, csp=CSP)
    )
    return guarded if chosen.asks else _OnlyHere(guarded)


class _OnlyHere:
    """Answers this machine alone: for a dashboard without a login, wherever it is mounted."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if scope["type"] != "http" or (client is not None and (client[0] in LOOPBACK or is_loopback(client[0]))):
            await self._application(scope, receive, send)
            return
        body = b"this dashboard has no login and answers its own machine only; give asgi(auth=...)\n"
        headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": body})
