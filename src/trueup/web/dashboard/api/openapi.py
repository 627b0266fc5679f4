"""The OpenAPI document, made from the table of endpoints."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from trueup.web.dashboard.api import models
from trueup.web.dashboard.api.endpoints import ENDPOINTS, Endpoint

REF = "#/components/schemas/{model}"
REFUSALS = {
    "401": "Not logged in",
    "403": "The role is viewer, or the request comes from another site",
    "404": "There is no such App, job, schedule, reconciler or row",
    "409": "The current state does not allow it",
    "415": "The body is not JSON",
    "422": "A parameter or the body is invalid",
    "503": "The database does not answer",
}


def document(prefix: str) -> dict[str, Any]:
    listed: set[type[BaseModel]] = {models.Problem, models.Sources}
    for endpoint in ENDPOINTS:
        listed |= {endpoint.answers, *([] if endpoint.body is None else [endpoint.body])}
    ordered = sorted(listed, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in ordered], ref_template=REF)
    paths: dict[str, Any] = {"/sources": {"get": _operation("sources", "The Apps shown", models.Sources)}}
    for endpoint in ENDPOINTS:
        paths.setdefault(f"/{{source}}{endpoint.path}", {})[endpoint.method.lower()] = _described(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "trueup dashboard", "version": "1"},
        "servers": [{"url": prefix}],
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _described(endpoint: Endpoint) -> dict[str, Any]:
    path = f"/{{source}}{endpoint.path}"
    name = re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_")
    described = _operation(name, endpoint.summary, endpoint.answers)
    described["parameters"] = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for part in re.findall(r"\{(\w+)\}", path)
    ]
    described["parameters"] += _query(endpoint.query)
    if endpoint.body is not None:
        described["requestBody"] = {"required": True, "content": _content(endpoint.body)}
    return described


def _operation(name: str, summary: str, answers: type[BaseModel]) -> dict[str, Any]:
    refused = {status: {"description": why, "content": _content(models.Problem)} for status, why in REFUSALS.items()}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "Done", "content": _content(answers)}, **refused},
    }


def _query(model: type[BaseModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema(ref_template=REF)
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in schema.get("properties", {}).items()
    ]


def _content(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}
