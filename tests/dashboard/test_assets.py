"""The files of the dashboard: how they are served, how large they are, and that those of others are unchanged."""

from __future__ import annotations

import gzip
import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

from switchgear.config import ListenUrl
from switchgear.dashboard.assets import file_names, load_assets, read_file
from switchgear.protocols.http.browser_guard import BrowserGuard
from switchgear.protocols.http.routes import DASHBOARD_ROUTES, ROUTES
from switchgear.protocols.http.routing import Router
from tests.protocols.http.harness import Answer, HttpHarness

STATIC = Path(str(files("switchgear.dashboard") / "static"))
MOST_COMPRESSED_BYTES = 100_000


def harness() -> HttpHarness:
    made = HttpHarness()
    made.setup.router = Router((*ROUTES, *DASHBOARD_ROUTES), BrowserGuard(()))
    return made


def get(target: str, **headers: str) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return harness().ask("browser", "GET", target, headers=given)


def file_path(name: str) -> str:
    return f"/static/{load_assets().digest}/{name}"


# --- the page ---


def test_the_page_names_its_files_relative_to_itself() -> None:
    answer = get("/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:href|src)="([^"]+)"', answer.body.decode())
    assert named
    for name in named:
        assert name.startswith(f"static/{load_assets().digest}/")
        assert name.split("/", 2)[2] in load_assets().files


def test_the_page_runs_nothing_of_others() -> None:
    policy = get("/").headers["content-security-policy"]
    for part in (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'",
        "worker-src 'self'",
        "frame-ancestors 'self'",
    ):  # fmt: skip
        assert part in policy.split("; ")
    assert b"<script>" not in load_assets().page.body
    assert b"style=" not in load_assets().page.body


def test_the_page_is_asked_for_each_time() -> None:
    answer = get("/")
    assert answer.headers["cache-control"] == "no-cache"
    again = get("/", If_None_Match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert get("/", If_None_Match='"other"').status == 200


# --- files ---


def test_files_never_change() -> None:
    answer = get(file_path("app.js"))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.body == read_file("app.js")


def test_files_of_others_are_sent_as_they_are() -> None:
    assert get(file_path("vendor/lit-html.js")).body == (STATIC / "vendor" / "lit-html.js").read_bytes()


def test_the_first_request_prepares_the_files_step_by_step() -> None:
    load_assets.cache_clear()
    read_file.cache_clear()
    answer = get("/")
    assert (answer.status, answer.body) == (200, load_assets().page.body)
    assert read_file.cache_info().misses == len(file_names())
    load_assets.cache_clear()
    assert get(file_path("no-such-file.js")).code == "not_found"
    load_assets.cache_clear()
    assert get("/static/0/no-such-file.js").code == "not_found"


def test_files_are_compressed_for_those_who_can_read_it() -> None:
    plain = get(file_path("vendor/uPlot.js"))
    packed = get(file_path("vendor/uPlot.js"), Accept_Encoding="br, gzip;q=0.8")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in get(file_path("app.js"), Accept_Encoding="gzip;q=0").headers


@pytest.mark.parametrize(
    "target",
    [
        "/static/0123456789abcdef/app.js",
        file_path("nothing.js"),
        file_path("..%2fassets.py"),
        file_path("..%2f..%2f__init__.py"),
        file_path("vendor/VENDORED.md"),
        file_path("index.html"),
        file_path("%ff"),
        "/index.html",
    ],
)
def test_nothing_else_is_served(target: str) -> None:
    assert get(target).code == "not_found"


def test_pages_cannot_be_posted_to() -> None:
    assert harness().ask("c", "POST", "/", b"{}").code == "method_not_allowed"


def test_a_listener_can_do_without_the_dashboard() -> None:
    assert ListenUrl.parse("http://127.0.0.1:4740").text("dashboard") == "yes"
    assert ListenUrl.parse("http://127.0.0.1:4740?dashboard=no").text("dashboard") == "no"
    with pytest.raises(ValueError, match="neither yes nor no"):
        ListenUrl.parse("http://127.0.0.1:4740?dashboard=maybe")
    assert HttpHarness().ask("c", "GET", "/").code == "not_found"


# --- what is in the package ---


def test_everything_together_is_small() -> None:
    assert load_assets().compressed_bytes < MOST_COMPRESSED_BYTES


def test_files_of_others_are_unchanged() -> None:
    listed = (STATIC / "vendor" / "VENDORED.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", listed, re.MULTILINE)
    there_are = {path.name for path in (STATIC / "vendor").iterdir()} - {"VENDORED.md"}
    assert {name for name, _ in rows} == there_are
    for name, digest in rows:
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest


def test_own_files_need_no_other_server_and_no_inline_style() -> None:
    for path in STATIC.rglob("*"):
        if path.suffix not in (".js", ".css", ".html", ".svg") or path.parent.name == "vendor":
            continue
        text = path.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), path
        assert not re.search(r"\sstyle=", text), f"{path}: the policy forbids style attributes; set .style"
        assert "innerHTML" not in text, path
        assert "eval(" not in text, path
        assert not re.search(r"""(?:fetch|get|post|EventSource)\(["'`]/""", text), f"{path}: a path must be relative"


def test_imports_name_files_that_exist() -> None:
    for path in STATIC.rglob("*.js"):
        if path.parent.name == "vendor":
            continue
        for name in re.findall(
            r'^(?:import|export) .*?from "([^"]+)";|^import "([^"]+)";', path.read_text(), re.MULTILINE
        ):
            target = name[0] or name[1]
            assert (path.parent / target).resolve().is_file(), f"{path.name} imports {target}"


def test_every_place_of_the_navigation_has_a_view_and_a_text() -> None:
    app = (STATIC / "app.js").read_text()
    texts = (STATIC / "texts.js").read_text()
    places = re.findall(r'\{ id: "(\w+)", group: "\w+", file: "(\w+)", key: "(\w)"', app)
    assert places
    assert len({key for _, _, key in places}) == len(places)
    assert {file for _, file, _ in places} == {path.stem for path in (STATIC / "views").iterdir()}
    files = {name: file for name, file, _ in places} | {"function": "functions", "job": "jobs"}
    views = set(files)
    for name, file in files.items():
        made = re.search(r"^export const views = \{ (.*)$", (STATIC / "views" / f"{file}.js").read_text(), re.MULTILINE)
        assert made, file
        assert re.search(rf"\b{name}: ", made[1]), f"{file}.js has no view {name}"
    for name in views:
        assert re.search(rf"^    {name}: {{ name:", texts, re.MULTILINE)
