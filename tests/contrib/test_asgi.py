"""The dashboard in sites of FastAPI and Django, behind a real ASGI server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from switchgear.contrib.asgi import MountedDashboard, at_path, dashboard
from tests.support.http_client import HttpClient
from tests.support.servers import HOST, free_port, running_switchgear
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

FASTAPI_SITE = """
import os
from fastapi import FastAPI
from switchgear.contrib.asgi import dashboard

def role_of_visitor(scope):
    headers = dict(scope["headers"])
    return {b"boss": "operate", b"guest": "read"}.get(headers.get(b"x-visitor", b"guest"))

app = FastAPI()
app.mount("/tools/jobs", dashboard(os.environ["JOBS"], authorize=role_of_visitor))
"""

DJANGO_SITE = """
import os
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse
from django.urls import path
from switchgear.contrib.asgi import at_path, dashboard

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="test")
urlpatterns = [path("", lambda request: HttpResponse("the shop"))]

async def role_of_visitor(scope):
    return {b"boss": "operate", b"guest": "read"}.get(dict(scope["headers"]).get(b"x-visitor", b"guest"))

app = at_path("/tools/jobs", dashboard(os.environ["JOBS"], authorize=role_of_visitor), get_asgi_application())
"""


@contextmanager
def site(tmp_path: Path, text: str, jobs: str) -> Iterator[HttpClient]:
    (tmp_path / "site_app.py").write_text(text)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "site_app:app", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "JOBS": jobs})
    client = HttpClient(f"http://{HOST}:{port}")
    try:
        eventually(lambda: answers(client, process), "the site answers", 60)
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait(10)


def answers(client: HttpClient, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    try:
        return client.call("GET", "/").status > 0
    except OSError:
        client.close()
        return False


@pytest.fixture(scope="module", params=["fastapi", "django"])
def mounted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpClient]:
    jobs = f"http://{HOST}:{free_port()}"
    text = FASTAPI_SITE if request.param == "fastapi" else DJANGO_SITE
    with running_switchgear("--listen", jobs), site(tmp_path_factory.mktemp("site"), text, jobs) as client:
        yield client


def send(client: HttpClient, method: str, path: str, body: Any = None, **headers: str) -> Any:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        given["Content-Type"] = "application/json"
    return client.call(method, f"/tools/jobs{path}", data, given)


def test_the_page_and_its_files(mounted: HttpClient) -> None:
    page = send(mounted, "GET", "/")
    assert page.status == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    name = page.body.decode().split('src="')[1].split('"')[0]
    script = send(mounted, "GET", f"/{name}")
    assert (script.status, script.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert send(mounted, "GET", "").status in (307, 200)


def test_visitors_only_read(mounted: HttpClient) -> None:
    assert send(mounted, "GET", "/v1/functions").status == 200
    assert send(mounted, "GET", "/v1/session").json["roles"] == ["read"]
    refused = send(mounted, "POST", "/v1/jobs", {"function": "f"})
    assert (refused.status, refused.json["code"]) == (403, "not_allowed")
    assert send(mounted, "DELETE", "/v1/session").status == 404
    for path in ("/v1/session/codes", "/v1/session/%63odes", "/v1/session"):
        # They would get the identity of the program.
        assert send(mounted, "POST", path).status == 404
        assert send(mounted, "POST", path, X_Visitor="boss").status == 404


def test_some_do_more(mounted: HttpClient) -> None:
    made = send(mounted, "POST", "/v1/jobs", {"function": "a/b", "payload": "x"}, X_Visitor="boss")
    assert made.status == 201
    changed = send(mounted, "PATCH", "/v1/functions/a%2Fb", {"paused": True}, X_Visitor="boss")
    assert (changed.status, changed.json["paused"]) == (200, True)
    assert send(mounted, "POST", "/v1/functions/a%2Fb/take", X_Visitor="boss").status == 403  # that is for workers


def test_strangers_see_nothing(mounted: HttpClient) -> None:
    assert send(mounted, "GET", "/", X_Visitor="stranger").status == 403


def test_other_sites_change_nothing(mounted: HttpClient) -> None:
    headers = {"X_Visitor": "boss", "Sec_Fetch_Site": "cross-site"}
    assert send(mounted, "POST", "/v1/jobs", {"function": "f"}, **headers).json["code"] == "cross_site"


def test_events_come_as_they_happen(mounted: HttpClient) -> None:
    events = mounted.events("/tools/jobs/v1/events?topics=overview")
    kind, first = next(events)
    assert (kind, first["kind"]) == ("overview", "snapshot")
    send(mounted, "POST", "/v1/jobs", {"function": "seen", "payload": ""}, X_Visitor="boss")
    assert any("jobs" in message["data"] or "counts" in message["data"] for _, message in events if message)
    events.close()  # type: ignore[attr-defined]


def test_a_server_that_is_gone() -> None:
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def tell(message: Any) -> None:
        told.append(message)

    scope = {"type": "http", "method": "GET", "path": "/v1/server", "root_path": "", "headers": [], "query_string": b""}
    asyncio.run(dashboard(f"http://{HOST}:{free_port()}")(scope, receive, tell))
    assert told[0]["status"] == 502


@pytest.mark.parametrize("url", ["gearman://localhost:4730", "localhost:4740", "http://localhost:4740/jobs"])
def test_a_wrong_url(url: str) -> None:
    with pytest.raises(ValueError, match="is not of the form"):
        MountedDashboard(url, "", None)


def test_other_paths_go_to_the_other_application() -> None:
    asked: list[str] = []

    async def other(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])

    chosen = at_path("jobs", dashboard(), other)
    for path in ("/", "/jobsite", "/shop/jobs"):
        asyncio.run(chosen({"type": "http", "path": path}, None, None))  # type: ignore[arg-type]
    assert asked == ["/", "/jobsite", "/shop/jobs"]
