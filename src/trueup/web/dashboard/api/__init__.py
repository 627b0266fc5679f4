"""The JSON API, version 1: the same as the pages, for programs. `endpoints.py` is the table that everything here is made from.

Programs send `Authorization: Bearer …`. What writes takes `Content-Type: application/json`, which no form of another site can send,
and needs an operator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, get_origin

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from trueup.errors import ConfigError, NotFound, TrueupError
from trueup.operate.acting import acting
from trueup.texts import describe
from trueup.web.dashboard.api import models
from trueup.web.dashboard.api.endpoints import ENDPOINTS, Endpoint
from trueup.web.dashboard.api.openapi import document
from trueup.web.dashboard.auth import Person
from trueup.web.dashboard.site import UNANSWERED, Site

PREFIX = "/api/v1"


def routes(site: Site) -> list[Route]:
    async def sources(request: Request) -> Response:
        if site.person(request) is None:
            return _stranger()
        return _json(200, models.Sources(sources=list(site.sources)).model_dump())

    async def openapi(request: Request) -> Response:
        if site.person(request) is None:
            return _stranger()
        return _json(200, document(str(request.scope.get("root_path") or "") + PREFIX))

    return [
        Route(f"{PREFIX}/openapi.json", openapi, methods=["GET"]),
        Route(f"{PREFIX}/sources", sources, methods=["GET"]),
        *(Route(f"{PREFIX}/{{source}}{each.path}", _endpoint(site, each), methods=[each.method]) for each in ENDPOINTS),
    ]


def _endpoint(site: Site, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        person = site.person(request)
        if person is None:
            return _stranger()
        if endpoint.body is not None and not person.may_act:
            return _problem(403, "this needs the role operator")
        try:
            query = endpoint.query.model_validate(_query(request, endpoint.query))
            body = None if endpoint.body is None else endpoint.body.model_validate(await _body(request))
            return _json(200, await _answered(site, request, person, endpoint, query, body))
        except _NotJson as error:
            return _problem(415, str(error))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return _problem(422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        except NotFound as error:
            return _problem(404, str(error))
        except UNANSWERED as error:
            return _problem(503, describe(error))
        except ConfigError as error:
            return _problem(409, str(error))
        except TrueupError as error:
            return _problem(409, describe(error))

    return respond


async def _answered(
    site: Site, request: Request, person: Person, endpoint: Endpoint, query: BaseModel, body: BaseModel | None
) -> Any:
    visit = await site.visit(request, person)
    async with visit.source.explained():
        with acting(person.name, "web"):
            answer = await endpoint.answer(visit, query, body)
    if body is not None:
        visit.source.forget()
    return answer.model_dump(mode="json")


class _NotJson(Exception):
    pass


async def _body(request: Request) -> Any:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise _NotJson("send Content-Type: application/json")
    try:
        return orjson.loads(await request.body())
    except ValueError:
        raise _NotJson("the body is not JSON") from None


def _query(request: Request, model: type[BaseModel]) -> Mapping[str, Any]:
    """Lists where the model has one, single values elsewhere."""
    lists = {name for name, field in model.model_fields.items() if get_origin(field.annotation) is list}
    params = request.query_params
    return {name: params.getlist(name) if name in lists else params[name] for name in params}


def _stranger() -> Response:
    response = _problem(401, "send Authorization: Bearer with a token of this dashboard")
    response.headers["www-authenticate"] = "Bearer"
    return response


def _problem(status: int, error: str) -> Response:
    return _json(status, models.Problem(error=error).model_dump())


def _json(status: int, answer: Any) -> Response:
    # Not orjson: integers in arguments may be longer than 64 bits.
    return Response(to_json(answer, inf_nan_mode="null"), status, media_type="application/json")
