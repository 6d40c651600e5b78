"""`Permissions`: the roles of one identity, and the functions for which they apply.

Every protocol asks `Permissions.refusal` before it does something for a peer (`Session.require`), with the roles that
the table of the protocol names for the request. A session whose peer may do everything never asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import translate
from re import Pattern, compile
from typing import Final

from switchgear.text import harmless
from switchgear.verbs.access import ALL_ROLES, Role, role_refusal

__all__ = ["ANONYMOUS", "EVERYBODY", "FULL_PERMISSIONS", "NO_PERMISSIONS", "Permissions", "with_implied_roles"]

ANONYMOUS: Final = "anonymous"  # the name of peers that have not identified themselves
EVERYBODY: Final[frozenset[Role]] = frozenset()  # the roles of requests that need none

# Functions whose verdict is remembered for each identity; then it is forgotten, because names come from peers.
MOST_REMEMBERED: Final = 1_000


def with_implied_roles(roles: Iterable[Role]) -> frozenset[Role]:
    """These roles and those that come with them: `admin` has all, and `operate` has `read`."""
    found = set(roles)
    if Role.ADMIN in found:
        return ALL_ROLES
    if Role.OPERATE in found:
        found.add(Role.READ)
    return frozenset(found)


class Permissions:
    """The roles of one identity, and the functions that they are for.

    The access file may change while connections use this object. `use` then replaces the roles and functions.
    """

    def __init__(self, name: str, roles: Iterable[Role] = (), globs: Iterable[str] = ()) -> None:
        self.name = name
        self.roles: frozenset[Role] = frozenset()
        self.globs: tuple[str, ...] = ()  # of names of functions; none: every function
        self.is_full = False  # all roles for all functions
        self._patterns: list[Pattern[str]] = []
        self._covered: dict[bytes, bool] = {}  # by name of a function
        self.use(roles, globs)

    def use(self, roles: Iterable[Role], globs: Iterable[str]) -> None:
        """Replace the roles and the functions of this identity."""
        self.roles = with_implied_roles(roles)
        self.globs = tuple(globs)
        self.is_full = self.roles == ALL_ROLES and not self.globs
        self._patterns = [compile(translate(glob)) for glob in self.globs]
        self._covered = {}

    @property
    def is_anonymous(self) -> bool:
        """Whether these are the permissions of peers that have not identified themselves."""
        return self.name == ANONYMOUS

    def covers(self, function: bytes) -> bool:
        """Whether the roles are for this function."""
        if not self.globs:
            return True
        known = self._covered.get(function)
        if known is None:
            text = function.decode("utf-8", "surrogateescape")
            known = any(pattern.match(text) is not None for pattern in self._patterns)
            if len(self._covered) >= MOST_REMEMBERED:
                self._covered = {}
            self._covered[function] = known
        return known

    def refusal(self, verb: str, needed: frozenset[Role], function: bytes | None = None) -> str:
        """Why this identity may not use a verb, which needs one of these roles; empty if the identity may."""
        if needed:
            refusal = role_refusal(verb, needed, self.roles)
            if refusal:
                return f"{refusal}, which {self.name} does not have"
        if function is not None and not self.covers(function):
            shown = harmless(function[:100].decode("utf-8", "replace"))
            return f"{verb}: {self.name} may not use the function {shown}"
        return ""

    def refusal_of_job(self, verb: str, needed: frozenset[Role], function: bytes) -> str:
        """The same for a verb about a job of this function, which the refusal does not name: the peer has named a
        handle only, and must not learn whose it is."""
        if self.covers(function):
            return self.refusal(verb, needed)
        return f"{verb}: {self.name} may not use the function of this job"

    def refusal_of_all(self, verb: str) -> str:
        """Why this identity may not use a verb that concerns every function; empty if the identity may."""
        if not self.globs:
            return ""
        return f"{verb} concerns every function, and {self.name} may use only {', '.join(self.globs)}"


FULL_PERMISSIONS: Final = Permissions(ANONYMOUS, ALL_ROLES)
NO_PERMISSIONS: Final = Permissions(ANONYMOUS)
