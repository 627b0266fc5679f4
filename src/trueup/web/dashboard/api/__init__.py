"""The JSON API, version 1."""

from __future__ import annotations

from starlette.routing import Route

from trueup.web.dashboard.site import Site


def routes(site: Site) -> list[Route]:
    return []
