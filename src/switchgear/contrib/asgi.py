"""The dashboard as a part of an ASGI site: FastAPI, Starlette, Django and others.

```python
app.mount("/jobs", dashboard("http://127.0.0.1:4740", authorize=role_of_visitor))
```

The site decides who may see it.  Requests are passed on to the server, whose HTTP listener needs to be reachable only
by the site.  A visitor may look, and nothing else, unless `authorize` says more.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httptools

from switchgear.protocols.http.browser_guard import BrowserGuard
from switchgear.protocols.http.messages import RequestHead
from switchgear.protocols.http.problems import HttpProblem, problem_body
from switchgear.protocols.http.routes import DASHBOARD_ROUTES, ROUTES
from switchgear.protocols.http.routing import Route, Router
from switchgear.verbs.access import Role

__all__ = ["MountedDashboard", "at_path", "dashboard"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApplication = Callable[[Scope, Receive, Send], Awaitable[None]]
Authorize = Callable[[Scope], "str | Awaitable[str | None] | None"]

# What each word of `authorize` allows.
GRANTED: Final = {
    "read": frozenset({Role.READ}),
    "submit": frozenset({Role.READ, Role.SUBMIT}),
    "operate": frozenset({Role.READ, Role.SUBMIT, Role.OPERATE}),
    "admin": frozenset(Role),
}
# Longer bodies are refused: a page submits jobs one by one.
MOST_BODY_BYTES: Final = 16 * 1024 * 1024
CONNECT_SECONDS: Final = 10.0
READ_BYTES: Final = 65_536
# What a browser tells about the site, or what belongs to one connection, is not passed on.
NOT_PASSED_ON: Final = frozenset(
    {
        b"authorization", b"connection", b"content-length", b"cookie", b"expect", b"host", b"keep-alive", b"origin",
        b"proxy-authorization", b"referer", b"sec-fetch-site", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
NOT_PASSED_BACK: Final = frozenset({b"connection", b"keep-alive", b"set-cookie", b"transfer-encoding", b"date"})
SESSION_PATH: Final = b"/v1/session"
ROUTER: Final = Router((*ROUTES, *DASHBOARD_ROUTES), BrowserGuard(()))


def dashboard(
    url: str = "http://127.0.0.1:4740", *, token: str = "", authorize: Authorize | None = None
) -> MountedDashboard:
    """An ASGI application that shows the dashboard of the server at `url`.

    `authorize` is called with the scope of each request and returns what the visitor may do: "read", "submit",
    "operate", "admin", or None for nothing at all.  It may be asynchronous.  Without it, every visitor may read.
    `token` identifies the site to the server, if the server needs that.
    """
    return MountedDashboard(url, token, authorize)


def at_path(path: str, application: AsgiApplication, otherwise: AsgiApplication) -> AsgiApplication:
    """An ASGI application that passes requests below a path on to one application, and all others to another one.

    For frameworks that mount nothing themselves, such as Django.
    """
    prefix = "/" + path.strip("/")

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope.get("path", "")
        if scope["type"] == "http" and (asked == prefix or asked.startswith(prefix + "/")):
            await application({**scope, "root_path": scope.get("root_path", "") + prefix}, receive, send)
        else:
            await otherwise(scope, receive, send)

    return choose


class MountedDashboard:
    """The ASGI application that `dashboard` returns."""

    def __init__(self, url: str, token: str, authorize: Authorize | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"{url!r} is not of the form http://HOST:PORT")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 4740)
        self._authority = parts.netloc.rpartition("@")[2]
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._token = token
        self._authorize = authorize

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"the dashboard does not speak {scope['type']}")
        try:
            path = path_below(scope)
            if not path:
                await redirect_to_folder(scope, send)
                return
            roles = await self._roles(scope)
            check(scope, path, roles)
            if path == SESSION_PATH:
                await answer_json(
                    send, {"identity": "anonymous", "roles": sorted(role.value for role in roles), "functions": []}
                )
            else:
                await self._pass_on(scope, path, await whole_body(receive), receive, send)
        except HttpProblem as problem:
            await answer_problem(send, problem)

    async def _roles(self, scope: Scope) -> frozenset[Role]:
        word: Any = "read"
        if self._authorize is not None:
            word = self._authorize(scope)
            if inspect.isawaitable(word):
                word = await word
        if word is None:
            raise HttpProblem(403, "not_allowed", "this site does not show you its jobs")
        if word not in GRANTED:
            raise ValueError(f"authorize returned {word!r}; it is one of {', '.join(GRANTED)}, or None")
        return GRANTED[word]

    # --- the server ---

    async def _pass_on(self, scope: Scope, path: bytes, body: bytes, receive: Receive, send: Send) -> None:
        try:
            opening = asyncio.open_connection(self._host, self._port, ssl=self._tls)
            reader, writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
        except (OSError, TimeoutError):
            raise HttpProblem(502, "unreachable", "the job server cannot be reached") from None
        leaving = asyncio.create_task(until_gone(receive))
        answering = asyncio.create_task(self._exchange(reader, writer, self._request(scope, path, body), send))
        try:
            await asyncio.wait({leaving, answering}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            for task in (leaving, answering):
                task.cancel()
            await asyncio.gather(leaving, answering, return_exceptions=True)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _request(self, scope: Scope, path: bytes, body: bytes) -> bytes:
        query = scope.get("query_string", b"")
        target = path + (b"?" + query if query else b"")
        lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), target), b"Host: " + self._authority.encode()]
        lines += [b"%b: %b" % (name, value) for name, value in scope["headers"] if name.lower() not in NOT_PASSED_ON]
        if self._token:
            lines.append(b"Authorization: Bearer " + self._token.encode())
        if body or scope["method"] not in ("GET", "HEAD"):
            lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join([*lines, b"Connection: close", b"", body])

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, send: Send
    ) -> None:
        """Send the request, and pass the answer on as it comes; server-sent events have no end."""
        answer = PassedAnswer()
        writer.write(request)
        await writer.drain()
        while not answer.is_complete:
            data = await reader.read(READ_BYTES)
            if not data:
                break
            answer.parser.feed_data(data)
            for message in answer.take():
                await send(message)
        if not answer.has_started:
            raise HttpProblem(502, "unreachable", "the job server has closed the connection")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class PassedAnswer:
    """An answer of the server, read by httptools, as messages of ASGI."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.has_started = False
        self.is_complete = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._messages: list[MutableMapping[str, Any]] = []

    def take(self) -> list[MutableMapping[str, Any]]:
        messages, self._messages = self._messages, []
        return messages

    # --- called by the parser ---

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in NOT_PASSED_BACK:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.has_started = True
        status = self.parser.get_status_code()
        self._messages.append({"type": "http.response.start", "status": status, "headers": self._headers})

    def on_body(self, body: bytes) -> None:
        self._messages.append({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        self.is_complete = True


# --- requests ---


def path_below(scope: Scope) -> bytes:
    """The path below the place where the dashboard is mounted, as the browser has encoded it; empty for the place
    itself without a slash."""
    root = scope.get("root_path", "")
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    raw = raw.partition(b"?")[0]
    for prefix in (root.encode(), quote(root).encode()):
        if prefix and raw.startswith(prefix):
            return raw[len(prefix) :]
    return raw


def check(scope: Scope, path: bytes, roles: frozenset[Role]) -> None:
    """Raise HttpProblem unless the visitor may make this request."""
    headers = {name.lower(): value for name, value in scope["headers"]}
    head = RequestHead(scope["method"], path, headers, is_version_1_0=True, keeps_alive=False)
    host = headers.get(b"host", b"").decode("latin-1")
    # The site knows by which names it is called; what matters here is that no other site changes anything.
    problem = BrowserGuard([host.rpartition(":")[0] or host, host]).problem(head)
    if problem is not None:
        raise problem
    route = route_of(scope["method"], path)
    if route is None:
        raise HttpProblem(404, "not_found", "there is nothing here")
    if not route.roles & roles:
        needed = " or ".join(sorted(role.value for role in route.roles))
        raise HttpProblem(403, "not_allowed", f"{route.method} {route.path} needs the role {needed}")


def route_of(method: str, path: bytes) -> Route | None:
    """The row of the route table for a request."""
    if path == SESSION_PATH:
        return next((route for route in ROUTES if route.path == "/livez"), None) if method == "GET" else None
    route = ROUTER.route_of(method, path)
    # Requests are passed on with the token of the program: a session or a login code of its identity is not for pages.
    return None if route is not None and route.path.startswith(SESSION_PATH.decode()) else route


async def whole_body(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body
        body += message.get("body", b"")
        if len(body) > MOST_BODY_BYTES:
            raise HttpProblem(413, "body_too_large", f"more than {MOST_BODY_BYTES} bytes are not passed on")
        if not message.get("more_body", False):
            return body


async def until_gone(receive: Receive) -> None:
    """Wait until the browser has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


# --- own answers ---


async def answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    await send(
        {"type": "http.response.start", "status": status, "headers": [*headers, (b"cache-control", b"no-store")]}
    )
    await send({"type": "http.response.body", "body": body})


async def answer_json(send: Send, value: Any) -> None:
    await answer(send, 200, json.dumps(value).encode(), (b"content-type", b"application/json"))


async def answer_problem(send: Send, problem: HttpProblem) -> None:
    await answer(send, problem.status, problem_body(problem, ""), (b"content-type", b"application/problem+json"))


async def redirect_to_folder(scope: Scope, send: Send) -> None:
    """The page names its files relative to itself, so its own path needs the slash at its end."""
    place = quote(scope.get("root_path", "")).rpartition("/")[2]
    await answer(send, 307, b"", (b"location", f"{place}/".encode()))
