"""`BrowserSessions`: session cookies for browsers, so that pages need not hold the token where scripts can read it.

A program that opens a browser passes it a *login code* in the address, and not the token: the list of processes and the
history of the browser show addresses. A code is valid for a minute, and once.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final

from switchgear.access.permissions import Permissions
from switchgear.text import TOKEN_PREFIX

__all__ = ["CODE_SECONDS", "LIFETIME_SECONDS", "BrowserSessions"]

LIFETIME_SECONDS: Final = 12 * 3600
MOST_SESSIONS: Final = 1_000  # of all browsers; the oldest of the identity that has most makes room
LONGEST_COOKIE_BYTES: Final = 100
CODE_SECONDS: Final = 60
MOST_CODES: Final = 100  # that are not used yet; they make room in the same way
CODE_PREFIX: Final = f"{TOKEN_PREFIX}code_"  # logs hide codes as they hide tokens
SECOND_US: Final = 1_000_000


class BrowserSessions:
    """The cookies and login codes that are valid now. They are gone with the server."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, tuple[Permissions, int]] = {}  # by hash of the cookie: whose, and its end
        self._codes: dict[bytes, tuple[Permissions, int]] = {}  # the same of login codes

    def begin(self, permissions: Permissions, now_us: int) -> str:
        """A new cookie for an identity."""
        cookie = token_urlsafe(32)
        while len(self._sessions) >= MOST_SESSIONS:
            _drop_one(self._sessions)
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

    def end_us(self, cookie: bytes) -> int:
        """When this cookie is not valid any more; 0 if it is not valid now."""
        found = self._sessions.get(_key(cookie)) if len(cookie) <= LONGEST_COOKIE_BYTES else None
        return 0 if found is None else found[1]

    def make_code(self, permissions: Permissions, now_us: int) -> str:
        """A new login code for an identity."""
        code = CODE_PREFIX + token_urlsafe(32)
        while len(self._codes) >= MOST_CODES:
            _drop_one(self._codes)
        self._codes[_key(code.encode())] = (permissions, now_us + CODE_SECONDS * SECOND_US)
        return code

    def use_code(self, code: bytes, now_us: int) -> Permissions | None:
        """The permissions of the identity with this code, which is not valid any more; `None` if it was not valid."""
        if not code.startswith(CODE_PREFIX.encode()) or len(code) > LONGEST_COOKIE_BYTES:
            return None
        permissions, until_us = self._codes.pop(_key(code), (None, 0))
        return permissions if permissions is not None and permissions.roles and now_us < until_us else None

    def end(self, cookie: bytes) -> None:
        """Let a cookie be invalid from now on."""
        self._sessions.pop(_key(cookie), None)


def _drop_one(entries: dict[bytes, tuple[Permissions, int]]) -> None:
    """Drop the oldest entry of the identity that has most: one identity must not end the sessions of the others."""
    counts = Counter(permissions.name for permissions, _ in entries.values())
    most = max(counts.values())
    del entries[next(key for key, (permissions, _) in entries.items() if counts[permissions.name] == most)]


def _key(cookie: bytes) -> bytes:
    # The hash is looked up, and not the cookie: the time of that tells nothing about a cookie that nearly fits.
    return sha256(cookie).digest()
