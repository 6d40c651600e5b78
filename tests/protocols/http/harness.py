"""A server without a wire for connections that speak HTTP: one engine, a clock that stands still, and a store.

harness = HttpHarness()
answer = harness.ask("client", "POST", "/v1/functions/f/jobs", b"payload")
assert answer.status == 201

With `keeps`, answers that tell of durable changes wait until `keep` or `fail_to_keep` is called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import h11

from switchgear.access.identities import OPEN_ACCESS
from switchgear.engine.engine import EngineSettings
from switchgear.net.hub import Hub
from switchgear.net.operations.dispatcher import Operations
from switchgear.protocols.http.browser_guard import BrowserGuard
from switchgear.protocols.http.identity import check_request
from switchgear.protocols.http.listener import HttpState
from switchgear.protocols.http.routes import ROUTES
from switchgear.protocols.http.routing import Router
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.session_setup import HttpSetup
from tests.protocols.message_harness import MessageHarness
from tests.protocols.recording_transport import RecordingTransport

PACKET_BYTES = 10_000
NAME_BYTES = 64


@dataclass
class Answer:
    """One answer, as h11 reads it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def code(self) -> str:
        """The code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        code: str = self.json["code"]
        assert self.json["status"] == self.status
        assert self.json["type"] == f"urn:switchgear:problem:{code}"
        return code


def request(
    method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, version: str = "1.1"
) -> bytes:
    """The bytes of a request."""
    given = {"Host": "localhost", **(headers or {})}
    if body is not None and "Transfer-Encoding" not in given:
        given.setdefault("Content-Length", str(len(body)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {target} HTTP/{version}\r\n{lines}\r\n".encode() + (body or b"")


class HttpHarness(MessageHarness):
    """A hub without event loop and sockets, for HTTP connections."""

    def __init__(
        self, *, keeps: bool = False, settings: EngineSettings | None = None, hosts: tuple[str, ...] = ()
    ) -> None:
        super().__init__(keeps=keeps, settings=settings)
        self.operator = Operations(cast(Hub, self), "H:t:")
        self.setup = HttpSetup(Router(ROUTES, BrowserGuard(hosts)), b"H:t:", PACKET_BYTES, NAME_BYTES)
        self.setup.share(HttpState(self.engine))
        self.setup.check_request = check_request
        self.access = OPEN_ACCESS  # of connections that are made from now on
        self.connections: dict[str, HttpPeer] = {}

    def peer(self, name: str) -> HttpPeer:
        """Whoever goes by this name, connected now if not before."""
        if name not in self.connections or self.connections[name].wire.is_closed:
            self.connections[name] = HttpPeer(self)
        return self.connections[name]

    def send(
        self, name: str, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a request, without looking for an answer."""
        self.peer(name).send(request(method, target, body, headers), method)

    def ask(
        self,
        name: str,
        method: str,
        target: str,
        body: bytes | dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request, and the one answer to it."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        self.send(name, method, target, data, headers)
        (answer,) = self.heard(name)
        return answer

    def heard(self, name: str) -> list[Answer]:
        return self.connections[name].heard()

    def leave(self, name: str) -> None:
        self.connections.pop(name).session.closed()
        self.turn()


class HttpPeer:
    """One connection, seen from the other end."""

    def __init__(self, harness: HttpHarness) -> None:
        self.harness = harness
        self.wire = RecordingTransport(harness, "127.0.0.1")
        self.wire.access = harness.access
        self.wire.permissions = harness.access.anonymous()
        self.session = self.wire.session = HttpSession(harness, self.wire, harness.setup)
        self.methods: list[str] = []

    def send(self, data: bytes, *methods: str) -> None:
        """Send this in one piece, and let the server have its turn; `methods` are those of the requests in it."""
        self.methods += methods
        self.harness.engine.advance(self.harness.clock.now_us())
        self.session.receive(data)
        self.harness.turn()

    def heard(self) -> list[Answer]:
        """The complete answers heard since the last time."""
        answers: list[Answer] = []
        data = self.wire.written
        while data and self.methods:
            read = read_answer(data, self.methods[0], is_over=self.wire.is_closed)
            if read is None:
                break
            answer, data = read
            self.methods.pop(0)
            answers.append(answer)
        self.wire.written = data
        return answers

    def heard_raw(self) -> bytes:
        data, self.wire.written = self.wire.written, b""
        return data


def read_answer(data: bytes, method: str, *, is_over: bool = False) -> tuple[Answer, bytes] | None:
    """The first answer in these bytes and what follows it; None if it is not complete."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    head: h11.Response | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if not is_over:
                return None
            is_over = False
            connection.receive_data(b"")
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Answer(head.status_code, headers, body), connection.trailing_data[0]
        else:
            assert isinstance(event, h11.InformationalResponse), event
