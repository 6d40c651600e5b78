"""Handlers that serve the files of the dashboard. The files contain no data of jobs, so they require no role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from switchgear.dashboard.assets import Asset, are_loaded, load_assets, load_in_steps
from switchgear.protocols.http.problems import HttpProblem
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.pending_read import Step

__all__ = ["on_get_file", "on_get_file_in_folder", "on_get_page"]

# The page runs only scripts of this server, talks only to it, and can be framed only by its own pages.
SECURITY_HEADERS: Final = (
    b"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; worker-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'\r\n"
    b"Referrer-Policy: same-origin\r\n"
)
# The page is asked for each time, and answered with 304 if it is the same.
PAGE_CACHING: Final = b"no-cache"
# Other files have the digest of all files in their paths, so they never change.
FILE_CACHING: Final = b"public, max-age=31536000, immutable"


def on_get_page(session: HttpSession, call: RouteCall) -> None:
    """GET /"""
    when_loaded(session, lambda: send_asset(session, call, load_assets().page, PAGE_CACHING, SECURITY_HEADERS))


def on_get_file(session: HttpSession, call: RouteCall) -> None:
    """GET /static/{digest}/{file}"""
    when_loaded(session, lambda: send_file(session, call, call.text("file")))


def on_get_file_in_folder(session: HttpSession, call: RouteCall) -> None:
    """GET /static/{digest}/{folder}/{file}"""
    when_loaded(session, lambda: send_file(session, call, f"{call.text('folder')}/{call.text('file')}"))


def when_loaded(session: HttpSession, send: Callable[[], None]) -> None:
    """Send something at once; or, as the answer to the first request, when the files were prepared."""
    if are_loaded():
        send()
    else:
        session.work_off(first_answer(send))


def first_answer(send: Callable[[], None]) -> Iterator[Step]:
    for _ in load_in_steps():
        yield False
    send()


def send_file(session: HttpSession, call: RouteCall, name: str) -> None:
    """Send a file, unless the page that asks for it is of another version of the server."""
    assets = load_assets()
    asset = assets.files.get(name)
    if asset is None or call.text("digest") != assets.digest:
        raise HttpProblem(404, "not_found", "the dashboard has no such file, or not any more: load the page again")
    send_asset(session, call, asset, FILE_CACHING, b"")


def send_asset(session: HttpSession, call: RouteCall, asset: Asset, caching: bytes, headers: bytes) -> None:
    headers += b"ETag: %b\r\nVary: Accept-Encoding\r\n" % asset.tag
    if asset.tag in call.request.header(b"if-none-match"):
        session.respond(304, b"", b"", headers, caching)
        return
    body = asset.body
    if takes_gzip(call.request.header(b"accept-encoding")):
        body = asset.compressed
        headers += b"Content-Encoding: gzip\r\n"
    session.respond(200, body, asset.content_type, headers, caching)


def takes_gzip(accepted: bytes) -> bool:
    """Whether a client that sends this Accept-Encoding reads gzip."""
    for word in accepted.lower().split(b","):
        coding, _, quality = word.strip().partition(b";")
        if coding.strip() in (b"gzip", b"*"):
            return quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
