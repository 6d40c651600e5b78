"""Inputs to begin with for HTTP: requests of every route, and the ways in which a request can be framed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.protocols.http.harness import request
from tests.support.wire import Kind
from tests.support.wire import request as packet

from fuzz.access import TOKENS
from switchgear.protocols.http.routes import ROUTES
from switchgear.verbs.access import Role

__all__ = ["gearmand_http_scripts", "http_access_scripts", "http_scripts", "http_streams"]

Said = tuple[str, str, Any]

BODIES = {
    "/v1/jobs": b'{"function": "f", "payload": "x", "priority": "high", "unique": "u", "unique_for": 60}',
    "/v1/jobs/batch": b'{"function": "f"}\n{"function": "g", "after": ["H:t:1"]}\n?\n',
    "/v1/workers": b'{"functions": ["f", "g"], "name": "robot", "tags": ["gpu"], "lease": 5}',
    "/v1/functions/f": b'{"paused": true, "concurrency": 1, "rate": [1, 1.0]}',
    "/v1/schedules/s": b'{"function": "f", "every_seconds": 60, "options": {"priority": "high"}}',
    "/v1/bulk": b'{"action": "cancel", "filter": {"function": "f"}}',
    "/v1/jobs/1/fail": b'{"error": "no paper", "retry_in": 2}',
    "/v1/jobs/1/progress": b'{"numerator": 1, "denominator": 2, "message": "half"}',
}


def target_of(path: str) -> str:
    names = {"{handle}": "1", "{function}": "f", "{name}": "s", "{id}": "w-fuzz-1"}
    for name, value in names.items():
        path = path.replace(name, value)
    return path


def http_streams() -> Iterator[bytes]:
    """Streams of requests."""
    simple = request("GET", "/livez")
    yield simple + request("POST", "/v1/functions/f/jobs", b"payload") + simple
    yield request(
        "POST", "/", b"3\r\nabc\r\n0a;x=y\r\n0123456789\r\n0\r\nA: b\r\n\r\n", {"Transfer-Encoding": "chunked"}
    )
    yield request("PUT", "/", b"abc", {"Expect": "100-continue"}) + simple
    yield request("GET", "/", None, {"Connection": "close"}) + simple
    yield b"\r\n" + simple + b"GET /old HTTP/1.0\r\n\r\n"
    yield b"GET / HTTP/1.0\r\nConnection: keep-alive\r\nHost: a\r\n\r\n" + simple
    yield b"GET / HTTP/1.1\nHost: a\n\n"
    yield b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n"
    yield b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 301\r\n\r\n"
    yield b"GET http://localhost/x?y=z HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"


def http_scripts() -> Iterator[list[Said]]:
    """Conversations: each route once, a job from its submission to its end, and waiting."""
    attempt = {"Switchgear-Attempt": "1"}
    everything: list[Said] = []
    for route in ROUTES:
        target = target_of(route.path)
        body = BODIES.get(target, b"" if route.method in ("POST", "PUT") else None)
        everything.append(("a", "SEND", request(route.method, target, body, attempt)))
    yield everything[:20]
    yield everything[20:]
    submit = request("POST", "/v1/functions/f/jobs", b"payload", {"Prefer": "wait=2", "Idempotency-Key": "k"})
    take = request("POST", "/v1/functions/f/take?wait=3&lease=5")
    result = request("PUT", "/v1/jobs/1/result", b"result", attempt)
    look = request("GET", "/v1/jobs/1?wait=2") + request("GET", "/v1/jobs/1/events")
    yield [("b", "SEND", take), ("a", "SEND", submit), ("c", "SEND", look), ("b", "SEND", result), ("c", "pass", 3)]
    yield [("a", "SEND", submit * 2), ("c", "SEND", look), ("a", "pass", 3), ("b", "SEND", take), ("b", "LEAVE", b"")]
    yield [
        ("a", "SEND", submit),
        ("b", "SEND", take),
        ("b", "pass", 6),
        ("c", "SEND", take + result),
        ("a", "pass", 30),
    ]
    register = request("POST", "/v1/workers", BODIES["/v1/workers"])
    poll = request("POST", "/v1/workers/w-fuzz-1/poll?max=3&wait=3")
    batch = request("POST", "/v1/jobs/batch", BODIES["/v1/jobs/batch"])
    atomic = request("POST", "/v1/jobs/batch?atomic=1", b'{"function":"f"}\n{"function":"f","name":"n"}\n')
    yield [("b", "SEND", register + poll), ("a", "SEND", batch + atomic), ("b", "SEND", poll), ("b", "pass", 6)]
    yield [("a", "SEND", look), ("a", "STOP_SENDING", b""), ("b", "SEND", b"GET / HTTP/1.1\nx\n\n")]
    yield [
        ("a", "SEND", request("POST", "/v1/jobs", json.dumps({"function": "f"}).encode(), {"Expect": "100-continue"}))
    ]


def http_access_scripts() -> Iterator[list[Said]]:
    """Conversations with a server that demands identities, and hides the passwords in payloads."""
    tokens = {role: {"Authorization": f"Bearer {token.decode()}"} for role, token in TOKENS.items()}
    for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic dG9rLWFkbWlu"}, *tokens.values()):
        said: list[Said] = []
        for route in ROUTES:
            target = target_of(route.path)
            body = BODIES.get(target, b"" if route.method in ("POST", "PUT") else None)
            said.append(("a", "SEND", request(route.method, target, body, {**given, "Switchgear-Attempt": "1"})))
        for start in range(0, len(said), 20):
            yield said[start : start + 20]
    payload = b'{"user": "a", "login": [{"password": 1}]}'
    submit = request("POST", "/v1/functions/f/jobs", payload, tokens[Role.SUBMIT])
    take = request("POST", "/v1/functions/f/take?lease=5", b"", tokens[Role.WORK])
    result = request("PUT", "/v1/jobs/1/result", payload, {**tokens[Role.WORK], "Switchgear-Attempt": "1"})
    for role in (Role.READ, Role.SUBMIT, Role.ADMIN):
        targets = ("1?contents=1", "1/payload", "1/result", "1/events")
        look = b"".join(request("GET", f"/v1/jobs/{target}", None, tokens[role]) for target in targets)
        search = request("GET", "/v1/jobs?q=user", None, tokens[role])
        wait = request("POST", "/v1/jobs/wait", b'{"jobs": [{"handle": "H:t:1"}]}', tokens[role])
        yield [("a", "SEND", submit), ("b", "SEND", take + result), ("c", "SEND", search + wait + look)]
        yield [("a", "SEND", submit), ("c", "SEND", look), ("b", "SEND", take), ("b", "SEND", result)]
    session = request("POST", "/v1/session", b"", tokens[Role.OPERATE])
    cookie = request("DELETE", "/v1/session", None, {"Cookie": "switchgear_session=c", "Origin": "http://localhost"})
    yield [("a", "SEND", session + cookie + request("GET", "/v1/session"))]


def gearmand_http_scripts() -> Iterator[list[Said]]:
    """Conversations with gearmand's HTTP interface; the worker speaks Gearman."""
    background = request("POST", "/f", b"later", {"X-Gearman-Background": "true", "X-Gearman-Priority": "low"})
    submit = request("POST", "/f", b"payload", {"X-Gearman-Unique": "u"})
    ready = packet(Kind.CAN_DO, b"f") + packet(Kind.GRAB_JOB_UNIQ)
    data = packet(Kind.WORK_DATA, b"H:t:1", b"part")
    done = packet(Kind.WORK_COMPLETE, b"H:t:1", b"result")
    yield [("a", "SEND", submit), ("b", "SEND", b"GE"), ("c", "SEND", ready), ("c", "SEND", data + done)]
    yield [("a", "SEND", background), ("b", "SEND", submit), ("c", "SEND", ready + packet(Kind.WORK_FAIL, b"H:t:1"))]
    yield [("a", "SEND", submit), ("b", "SEND", submit), ("a", "LEAVE", b""), ("c", "SEND", ready + done)]
    yield [("a", "SEND", request("HEAD", "/")), ("b", "SEND", request("TRACE", "/f"))]
    announced = request("PUT", "/f", b"body", {"Expect": "100-continue"})
    yield [("a", "SEND", announced[:-4]), ("b", "SEND", b"x"), ("a", "SEND", b"body"), ("c", "SEND", ready + done)]
    yield [("a", "SEND", request("GET", "/f", None, {"Origin": "http://elsewhere"})), ("b", "SEND", submit[:-3])]
