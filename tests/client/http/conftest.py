"""A server with an HTTP listener beside the Gearman one, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.http.stage import HttpServer, running_http_server


@pytest.fixture(scope="module")
def http_server() -> Iterator[HttpServer]:
    with running_http_server() as server:
        yield server
