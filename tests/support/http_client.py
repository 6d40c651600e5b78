"""A client of HTTP made of Python's own library, which shares no code with the server."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

from tests.support.waiting import DEADLINE_SECONDS

__all__ = ["HttpAnswer", "HttpClient"]


class Headers(dict[str, str]):
    """Headers by their names as the server writes them."""

    def __init__(self, message: Message) -> None:
        super().__init__(message.items())


@dataclass
class HttpAnswer:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpClient:
    """One connection, which is made again if the server has closed it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._address = parts.hostname, parts.port
        self._connection = self._connected()

    def _connected(self) -> http.client.HTTPConnection:
        host, port = self._address
        return http.client.HTTPConnection(host, port, timeout=2 * DEADLINE_SECONDS)

    def call(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """Make a request, and wait for its answer."""
        self._connection.request(method, target, body, dict(headers or {}))
        response = self._connection.getresponse()
        return HttpAnswer(response.status, Headers(response.headers), response.read())

    def events(self, target: str) -> Iterator[tuple[str, Any]]:
        """Server-sent events, on a connection of their own."""
        connection = self._connected()
        try:
            connection.request("GET", target)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            kind = ""
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)
        finally:
            connection.close()

    def close(self) -> None:
        self._connection.close()
