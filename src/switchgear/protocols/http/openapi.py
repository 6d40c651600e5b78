"""The OpenAPI 3.1 document, generated from the route table at the first request. Not compiled, because it runs once."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from switchgear.protocols.http.problems import PROBLEM_TYPE
from switchgear.protocols.http.routing import Route, RouteAnswer
from switchgear.version import VERSION

__all__ = ["openapi_document"]

REFERENCE: Final = "#/components/schemas/{name}"
PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "What is wrong, as RFC 9457 has it.",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri", "examples": [PROBLEM_TYPE + "job_not_found"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "instance": {"type": "string"},
        "error": {"description": "What the worker said of a job that failed."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "A JSON pointer into the body."},
                    "parameter": {"type": "string", "description": "A parameter of the query."},
                    "header": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}
PROBLEM_ANSWER: Final[dict[str, Any]] = {
    "description": "A problem.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document, made from the table of routes."""
    kinds = [answer.json for route in routes for answer in route.answers if answer.json is not None]
    kinds += [route.body.json for route in routes if route.body is not None and route.body.json is not None]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schema_of = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Switchgear",
            "version": VERSION,
            "summary": "A job server",
            "description": "Jobs are named by handles. Times are seconds since the epoch. Bytes that are not UTF-8 are"
            " objects with the one key base64.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": {**components, "Problem": PROBLEM_SCHEMA}},
    }


def operation(route: Route, schema_of: dict[int, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.handler.__name__.removeprefix("on_"),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": parameters(route),
        "responses": {**answer_objects(route, schema_of), "default": PROBLEM_ANSWER},
        "x-roles": sorted(role.value for role in route.roles),
    }
    if route.body is not None:
        schema = schema_of[id(route.body.json)] if route.body.json is not None else {}
        if route.body.media == "application/x-ndjson":
            schema = {"type": "string", "description": "On each line an object like that of POST /v1/jobs."}
        described["requestBody"] = {
            "required": route.body.is_required,
            "content": {route.body.media: {"schema": schema}},
        }
    return described


def parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": segment[1:-1], "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for segment in route.segments
        if segment.startswith("{")
    ]
    for parameter in route.query:
        schema = parameter.kind.schema()
        if parameter.default is not None:
            schema = {**schema, "default": parameter.default}
        one: dict[str, Any] = {"name": parameter.name, "in": "query", "description": parameter.help, "schema": schema}
        if schema.get("type") == "array":
            one |= {"style": "form", "explode": False}
        found.append(one)
    for name, text in route.headers.items():
        is_required = name == "Switchgear-Attempt"
        found.append(
            {"name": name, "in": "header", "required": is_required, "description": text, "schema": {"type": "string"}}
        )
    return found


def answer_objects(route: Route, schema_of: dict[int, Any]) -> dict[str, Any]:
    """The answers of a route by their status; one may have bodies of several types."""
    found: dict[str, Any] = {}
    for answer in route.answers:
        described = answer_object(answer, schema_of)
        earlier = found.setdefault(str(answer.status), described)
        if earlier is not described:
            earlier["content"] |= described["content"]
    return found


def answer_object(answer: RouteAnswer, schema_of: dict[int, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": answer.help}
    if answer.media == "application/x-ndjson":
        described["content"] = {answer.media: {"schema": {"type": "string"}}}
    elif answer.json is not None:
        described["content"] = {"application/json": {"schema": schema_of[id(answer.json)]}}
    elif answer.media:
        described["content"] = {answer.media: {"schema": {}}}
    if answer.status >= 400:
        described["content"] |= PROBLEM_ANSWER["content"]
    if answer.headers:
        described["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in answer.headers.items()
        }
    return described
