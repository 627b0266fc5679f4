"""`trueup dashboard`: pages and a JSON API over the App, for operators."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from trueup.cli.options import option, with_session
from trueup.cli.session import Session
from trueup.errors import ConfigError

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.web.dashboard.auth import Auth

PORT = 8321
TOKENS = {"TRUEUP_DASHBOARD_TOKEN": "operator", "TRUEUP_DASHBOARD_VIEWER_TOKEN": "viewer"}


@with_session
def dashboard(
    session: Session,
    host: Annotated[str, option("--host", "ADDRESS", "Where to listen.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "PORT", "Port to listen on; 0 picks a free one.", min=0, max=65_535)] = PORT,
    also: Annotated[
        list[str] | None, option("--also", "NAME=MODULE:ATTR", "Another App to show. May be repeated.")
    ] = None,
) -> None:
    """Serve the dashboard: what needs attention, jobs, reconcilers, schedules, the fleet, recovery.

    Without a login it listens on loopback only. Set TRUEUP_DASHBOARD_TOKEN (and TRUEUP_DASHBOARD_VIEWER_TOKEN for read-only
    users) to listen elsewhere, and HTTP_HOSTS to the host names under which it is reached. Several tokens of a role, an old and
    a new one for instance, are separated by commas. Needs the extra `web`.
    """
    import asyncio

    raise typer.Exit(asyncio.run(serve(_apps(session, also or []), host, port)))


async def serve(apps: Mapping[str, App], host: str, port: int) -> int:
    """Serve until a signal asks to stop; returns the exit status. Raises ConfigError rather than serve without a login."""
    try:
        from trueup.web import dashboard as pages
        from trueup.web.guard import Rules
        from trueup.web.serving import Server
    except ModuleNotFoundError as error:
        raise ConfigError(f'the dashboard needs the package {error.name}: pip install "trueup[web]"') from None
    auth = auth_from(os.environ)
    check_bind(host, auth)
    hosts = [*Rules.from_environment().hosts, host]
    application = pages.asgi(apps, auth, hosts=hosts, closes=True)

    async def ready() -> dict[str, str]:
        return {name: "away" for name, app in apps.items() if await app.now() is None}

    # The application has a guard of its own: hosts are checked there, and probes bring none.
    server = Server("trueup dashboard", application, ready, Rules(hosts=hosts, csp=pages.CSP), host, port)
    return await server.run_until_stopped()


def auth_from(environment: Mapping[str, str]) -> Auth | None:
    """By the tokens of the environment, several of a role separated by commas; None when there is none.

    Raises ConfigError for one that is empty or could be guessed, and for one that would give viewers the role of operators. An
    empty one must not mean that no login is needed: a proxy on the same machine would let every visitor in.
    """
    from trueup.web.dashboard.auth import Tokens

    tokens: dict[str, str | tuple[str, str]] = {}
    for variable, role in TOKENS.items():
        if variable not in environment:
            continue
        for token in map(str.strip, environment[variable].split(",")):
            if not token:
                raise ConfigError(f"{variable} is empty, or one of its tokens is; remove it or give it a value")
            if tokens.get(token, role) != role:
                raise ConfigError(f"{' and '.join(TOKENS)} are the same; viewers need a different token")
            tokens[token] = role
            try:
                Tokens({token: role})
            except ConfigError as error:
                raise ConfigError(f"{variable}: {str(error).removeprefix('auth: ')}") from None
    return Tokens(tokens) if tokens else None


def check_bind(host: str, auth: Auth | None) -> None:
    """Raises ConfigError when other machines could reach a dashboard without a login."""
    from trueup.web.guard import is_loopback

    if auth is None and not is_loopback(host):
        raise ConfigError(
            f"host {host}: other machines could reach this dashboard, and it has no login; set TRUEUP_DASHBOARD_TOKEN to a "
            "secret of 16 or more characters, or serve on 127.0.0.1"
        )


def _apps(session: Session, also: list[str]) -> dict[str, App]:
    from trueup.cli.loading import load_app

    first = session.app()
    apps = {first.settings.schema: first}
    for written in also:
        name, equals, place = written.partition("=")
        if not equals or name in apps:
            raise ConfigError(f"--also {written}: give NAME=MODULE:ATTR with a name that is not taken")
        apps[name] = load_app(place)
    return apps
