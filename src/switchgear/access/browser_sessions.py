"""`BrowserSessions`: cookies that stand for a token, so that a page need not keep the token within reach of scripts."""

from __future__ import annotations

from hashlib import sha256
from secrets import token_urlsafe
from typing import Final

from switchgear.access.permissions import Permissions

__all__ = ["LIFETIME_SECONDS", "BrowserSessions"]

LIFETIME_SECONDS: Final = 12 * 3600
MOST_SESSIONS: Final = 1_000  # of all browsers; the oldest makes room
LONGEST_COOKIE_BYTES: Final = 100
SECOND_US: Final = 1_000_000


class BrowserSessions:
    """The cookies that are valid now. They are gone with the server."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, tuple[Permissions, int]] = {}  # by hash of the cookie: whose, and its end

    def begin(self, permissions: Permissions, now_us: int) -> str:
        """A new cookie for an identity."""
        cookie = token_urlsafe(32)
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_key(cookie.encode())] = (permissions, now_us + LIFETIME_SECONDS * SECOND_US)
        return cookie

    def find(self, cookie: bytes, now_us: int) -> Permissions | None:
        """The permissions of the browser with this cookie; `None` if the cookie is not valid, or not any more."""
        if len(cookie) > LONGEST_COOKIE_BYTES:
            return None
        found = self._sessions.get(_key(cookie))
        if found is None:
            return None
        permissions, until_us = found
        if now_us >= until_us or not permissions.roles:
            self.end(cookie)
            return None
        return permissions

    def end(self, cookie: bytes) -> None:
        """Let a cookie be invalid from now on."""
        self._sessions.pop(_key(cookie), None)


def _key(cookie: bytes) -> bytes:
    # The hash is looked up, and not the cookie: the time of that tells nothing about a cookie that nearly fits.
    return sha256(cookie).digest()
