"""The roles that each Redis command needs, and which of its words name functions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from switchgear.access.permissions import EVERYBODY
from switchgear.protocols.gearmonkey.keys import CHANNEL, Key, KeyKind
from switchgear.protocols.gearmonkey.resp import Command
from switchgear.protocols.gearmonkey.session import GearMonkeySession
from switchgear.verbs.access import Role

__all__ = ["COMMAND_ACCESS", "CommandAccess", "Names", "check_command"]

READ: Final = frozenset({Role.READ})
SUBMIT: Final = frozenset({Role.SUBMIT})
WORK: Final = frozenset({Role.WORK})
FOLLOW: Final = frozenset({Role.READ, Role.SUBMIT})
REPORT: Final = frozenset({Role.SUBMIT, Role.WORK})  # both clients and workers write to jobs; see hashes.py
ANY: Final = frozenset({Role.READ, Role.SUBMIT, Role.WORK})


class Names(Enum):
    """Which words of a command name functions."""

    NONE = "none"
    FIRST = "the first word is a key"
    ALL = "all words are keys"
    ALL_BUT_LAST = "all words but the last are keys"
    SCRIPT = "the third word is a key"
    CHANNELS = "all words are channels"
    FIRST_CHANNEL = "the first word is a channel"
    EVERY_FUNCTION = "it concerns every function"


class CommandAccess:
    """One row: the roles of a command, or those for each kind of key, and where its functions are named."""

    def __init__(
        self,
        roles: frozenset[Role] = EVERYBODY,
        names: Names = Names.NONE,
        by_kind: Mapping[KeyKind, frozenset[Role]] | None = None,
    ) -> None:
        self.roles = roles
        self.names = names
        self.by_kind = by_kind or {}  # in place of `roles`


COUNTING: Final = CommandAccess(REPORT, Names.FIRST, {KeyKind.UID: SUBMIT, KeyKind.COUNT: WORK})
POPPING: Final = {KeyKind.QUEUE: WORK, KeyKind.LOCK: FOLLOW}

COMMAND_ACCESS: Final[Mapping[bytes, CommandAccess]] = {
    b"BRPOP": CommandAccess(ANY, Names.ALL_BUT_LAST, POPPING),
    b"DECR": COUNTING,
    b"DECRBY": COUNTING,
    b"DEL": CommandAccess(REPORT, Names.ALL),
    b"EVAL": CommandAccess(WORK, Names.SCRIPT),
    b"EVALSHA": CommandAccess(WORK, Names.SCRIPT),
    b"EXISTS": CommandAccess(ANY, Names.ALL),
    b"EXPIRE": CommandAccess(REPORT, Names.FIRST),
    b"GET": CommandAccess(ANY, Names.FIRST),
    b"HGET": CommandAccess(ANY, Names.FIRST),
    b"HGETALL": CommandAccess(ANY, Names.FIRST),
    b"HMGET": CommandAccess(ANY, Names.FIRST),
    b"HMSET": CommandAccess(REPORT, Names.FIRST),
    b"HSET": CommandAccess(REPORT, Names.FIRST),
    b"INCR": COUNTING,
    b"INCRBY": COUNTING,
    b"LLEN": CommandAccess(READ, Names.FIRST),
    b"LPUSH": CommandAccess(REPORT, Names.FIRST, {KeyKind.QUEUE: SUBMIT, KeyKind.LOCK: WORK}),
    b"LRANGE": CommandAccess(READ, Names.FIRST),
    b"PSUBSCRIBE": CommandAccess(ANY, Names.EVERY_FUNCTION),
    b"PUBLISH": CommandAccess(REPORT, Names.FIRST_CHANNEL),
    b"PUNSUBSCRIBE": CommandAccess(),
    b"RPOP": CommandAccess(ANY, Names.FIRST, POPPING),
    b"SCRIPT": CommandAccess(WORK),
    b"SUBSCRIBE": CommandAccess(ANY, Names.CHANNELS),
    b"TTL": CommandAccess(ANY, Names.FIRST),
    b"UNSUBSCRIBE": CommandAccess(),
    b"ZADD": CommandAccess(SUBMIT, Names.FIRST),
    # Commands of monitoring tools.
    b"CLIENT INFO": CommandAccess(),
    b"CLIENT LIST": CommandAccess(READ),
    b"DBSIZE": CommandAccess(READ, Names.EVERY_FUNCTION),
    b"INFO": CommandAccess(ANY),
    b"SCAN": CommandAccess(READ, Names.EVERY_FUNCTION),
    b"TYPE": CommandAccess(READ, Names.FIRST),
    b"ZCARD": CommandAccess(READ, Names.FIRST),
    # Commands about the connection itself.
    b"AUTH": CommandAccess(),
    b"CLIENT": CommandAccess(),
    b"COMMAND": CommandAccess(),
    b"CONFIG": CommandAccess(),
    b"DISCARD": CommandAccess(),
    b"ECHO": CommandAccess(),
    b"EXEC": CommandAccess(),
    b"HELLO": CommandAccess(),
    b"HOST:": CommandAccess(),
    b"MULTI": CommandAccess(),
    b"PING": CommandAccess(),
    b"POST": CommandAccess(),
    b"QUIT": CommandAccess(),
    b"RESET": CommandAccess(),
    b"SELECT": CommandAccess(),
    b"TIME": CommandAccess(),
}


def access_of(command: Command) -> CommandAccess:
    """The row of a command that exists; a subcommand may have its own."""
    name = command[0].upper()
    if len(command) > 1:
        own = COMMAND_ACCESS.get(b"%b %b" % (name, command[1][:20].upper()))
        if own is not None:
            return own
    return COMMAND_ACCESS[name]


def check_command(session: GearMonkeySession, command: Command) -> None:
    """Check whether a peer that may not do everything may send this command; raises Refused or PeerError."""
    row = access_of(command)
    verb = command[0].upper().decode("ascii", "replace")
    names = row.names
    if names in (Names.CHANNELS, Names.FIRST_CHANNEL):
        session.require(verb, row.roles)
        for channel in command[1:2] if names is Names.FIRST_CHANNEL else command[1:]:
            if session.permissions.globs and not channel.startswith(CHANNEL):
                raise session.access_refusal(session.permissions.refusal_of_all(f"{verb} of another channel"))
            session.require(verb, row.roles, channel.removeprefix(CHANNEL))
        return
    if names is Names.EVERY_FUNCTION:
        session.require(verb, row.roles)
        refusal = session.permissions.refusal_of_all(verb)
        if refusal:
            raise session.access_refusal(refusal)
        return
    if not row.by_kind:
        session.require(verb, row.roles)
    for key in keys_of(session, command, names):
        session.require(verb, row.by_kind.get(key.kind, row.roles), key.function)


def keys_of(session: GearMonkeySession, command: Command, names: Names) -> list[Key]:
    """The keys of a command; raises PeerError."""
    words = command[:0]
    if names is Names.FIRST:
        words = command[1:2]
    elif names is Names.ALL:
        words = command[1:]
    elif names is Names.ALL_BUT_LAST:
        words = command[1:-1]
    elif names is Names.SCRIPT:
        words = command[3:4]
    return [session.key(word) for word in words]
