"""`Role`: the roles of identities, and the check whether they permit a verb."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from switchgear.verbs.operator_verb import OperatorVerb

__all__ = ["ALL_ROLES", "SUBMITTERS", "WORKERS", "AccessRules", "Origin", "Role", "refusal_of", "role_refusal"]


class Role(Enum):
    """What an identity is allowed to do."""

    READ = "read"  # look at jobs, functions, workers, schedules and the server
    SUBMIT = "submit"  # submit jobs, and follow single jobs by their handles
    WORK = "work"  # register as a worker, run jobs, declare the limits and schedules of a program
    OPERATE = "operate"  # cancel, retry, pause, limit, schedule
    ADMIN = "admin"  # stop the server, look into the connections of others


ALL_ROLES: Final = frozenset(Role)
# Roles that may use a verb too, beside that of its row.
SUBMITTERS: Final = frozenset({Role.SUBMIT})  # a submitter follows its jobs by their handles
WORKERS: Final = frozenset({Role.WORK})  # a worker declares the limits and schedules of its program


class Origin(Protocol):
    """What is known about the peer that asks."""

    @property
    def is_loopback(self) -> bool:
        """Whether the peer is on this machine."""

    def is_of_same_user(self) -> bool:
        """Whether the peer runs as the server's own user, or as root."""


@dataclass(slots=True)
class AccessRules:
    """The settings that decide about access.

    Peers have no identities yet: whoever can connect has all roles, and `shutdown` has a rule of its own.
    """

    shutdown: str = "same-user"  # the setting gearman.shutdown


def refusal_of(verb: OperatorVerb, origin: Origin, rules: AccessRules, roles: frozenset[Role] = ALL_ROLES) -> str:
    """Why this peer may not use this verb, and what to do about it; empty if the peer may."""
    refusal = role_refusal(verb.name, verb.roles, roles)
    if refusal:
        return refusal
    if verb.name == "shutdown":
        return _shutdown_refusal(origin, rules.shutdown)
    return ""


def role_refusal(name: str, needed: frozenset[Role], roles: frozenset[Role]) -> str:
    """Why these roles do not permit the request with this name; empty if one of the needed roles is among them."""
    if needed & roles:
        return ""
    names = " or ".join(sorted(role.value for role in needed))
    return f"{name} needs the role {names}"


def _shutdown_refusal(origin: Origin, allowed: str) -> str:
    if allowed == "anywhere":
        return ""
    if allowed == "never":
        return "shutdown is not allowed here; send the server SIGTERM, or change gearman.shutdown"
    if not origin.is_loopback:
        return "shutdown is not allowed from other machines; send the server SIGTERM, or set gearman.shutdown=anywhere"
    if allowed == "same-user" and not origin.is_of_same_user():
        return (
            "shutdown is only allowed to the user that runs the server, and to root;"
            " send the server SIGTERM, or set gearman.shutdown=loopback"
        )
    return ""
