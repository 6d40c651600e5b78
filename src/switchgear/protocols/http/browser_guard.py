"""`BrowserGuard`: refuses requests that a browser sends for a page of another site (CSRF, DNS rebinding).

A page of any site can make the browser of its reader send requests to the reader's own machine.  Two rules keep it from
using the server: its name must be one that the server has (a page whose own name was made to point here, DNS
rebinding, comes with another), and a request that changes something must not come from another site.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from switchgear.protocols.http.messages import SAFE_METHODS, RequestHead
from switchgear.protocols.http.problems import HttpProblem

__all__ = ["BrowserGuard"]

# What a form of a page can send anywhere without being asked.
FORM_TYPES: Final = (b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain")
SAME_SITE_WORDS: Final = (b"same-origin", b"none")


class BrowserGuard:
    """The rules of one listener; `names` are the hosts that it is known by, besides addresses and `localhost`."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(name.lower() for name in names if name)

    def problem(self, head: RequestHead) -> HttpProblem | None:
        """Why a request is refused, or None."""
        host = head.headers.get(b"host")
        if host is None:
            if not head.is_version_1_0:
                return HttpProblem(400, "host_missing", "there is no Host header", is_bad_input=True)
        elif not self.is_own(host):
            return self._misdirected(host)
        if head.target.lower().startswith((b"http://", b"https://")):
            authority = head.target.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
            if not self.is_own(authority):
                return self._misdirected(authority)
        if head.method in SAFE_METHODS:
            return None
        return self._cross_site_problem(head, host or b"")

    def submission_problem(self, head: RequestHead, *, any_host: bool) -> HttpProblem | None:
        """Why a request that submits a job is refused, whatever its method is; or None.

        `any_host` accepts every name in the Host header, for a listener whose names are not known.
        """
        host = head.headers.get(b"host", b"")
        if host and not any_host and not self.is_own(host):
            return self._misdirected(host)
        return self._cross_site_problem(head, host)

    def _misdirected(self, host: bytes) -> HttpProblem:
        text = f"this server is not called {host[:100].decode('ascii', 'replace')}; names can be added: http://HOST?hosts=NAME"
        return HttpProblem(421, "unknown_host", text, is_bad_input=True)

    def _cross_site_problem(self, head: RequestHead, host: bytes) -> HttpProblem | None:
        site = head.headers.get(b"sec-fetch-site")
        origin = head.headers.get(b"origin")
        if site is None and origin is None:
            return None  # not a browser
        if site is not None:
            is_own = site.lower() in SAME_SITE_WORDS
        else:
            is_own = origin is not None and origin.lower().partition(b"://")[2] == host.lower()
        if not is_own:
            text = "a page of another site may not change anything here"
            return HttpProblem(403, "cross_site", text, is_bad_input=True)
        kind = head.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind in FORM_TYPES:
            return HttpProblem(415, "form_body", "a form cannot be sent here", is_bad_input=True)
        return None

    def is_own(self, authority: bytes) -> bool:
        """Whether a host, with or without a port, is a name of this server.

        An address is: whoever has made a name point here does not come by the address.
        """
        try:
            text = authority.decode("ascii").lower()
        except UnicodeDecodeError:
            return False
        host = text
        if text.startswith("["):
            host, bracket, port = text[1:].partition("]")
            if not bracket or (port and not is_port(port)):
                return False
            return is_address(host)
        if ":" in text:
            host, _, port = text.partition(":")
            if not is_port(":" + port):
                return False
        name = host.removesuffix(".")
        return name == "localhost" or name.endswith(".localhost") or name in self.names or is_address(host)


def is_port(text: str) -> bool:
    return text == ":" or (text[:1] == ":" and text[1:].isdecimal() and len(text) <= 6)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
