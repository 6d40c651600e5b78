"""The OpenAPI document is valid, and has every route."""

from __future__ import annotations

import json

import msgspec
from openapi_spec_validator import validate

from switchgear.protocols.http.openapi import openapi_document
from switchgear.protocols.http.routes import ROUTES
from switchgear.protocols.http.schemas import SUBMISSION_OPTIONS
from tests.protocols.http.harness import HttpHarness


def test_the_document_is_valid() -> None:
    validate(openapi_document(ROUTES))


def test_it_is_served() -> None:
    served = HttpHarness().ask("c", "GET", "/openapi.json")
    assert served.json == json.loads(msgspec.json.encode(openapi_document(ROUTES)))


def test_it_has_every_route_and_every_job_option() -> None:
    document = openapi_document(ROUTES)
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    properties = document["components"]["schemas"]["JobSubmission"]["properties"]
    assert {option.name for option in SUBMISSION_OPTIONS} < set(properties)
