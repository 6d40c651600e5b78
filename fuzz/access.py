"""The identities of servers with an access file, for scripts, and what nobody may do without one of them."""

from __future__ import annotations

from typing import Final

from switchgear.access.access_file import HASH_PREFIX, AccessEntry, AccessList
from switchgear.access.identities import Identities, ListenerAccess
from switchgear.access.tokens import digest_of
from switchgear.verbs.access import Role

__all__ = ["REDACTION", "TOKENS", "guarded_access"]

TOKENS: Final = {role: f"tok-{role.value}".encode() for role in Role}
REDACTION: Final = ("g", "f:password")  # `http.redact`


def guarded_access() -> ListenerAccess:
    """One identity for each role, of which those that submit and work may use the function `f` only."""
    narrow = (Role.SUBMIT, Role.WORK)
    entries = {
        role.value: AccessEntry(
            role.value,
            frozenset({role}),
            functions=("f",) if role in narrow else (),
            tokens=(HASH_PREFIX + digest_of(token).hex(),),
        )
        for role, token in TOKENS.items()
    }
    return ListenerAccess(Identities(access=AccessList(AccessEntry("anonymous"), entries)))
