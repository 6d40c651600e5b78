"""Handlers of general Redis commands: handshake, authentication, client names, INFO, transactions."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from switchgear import numbers
from switchgear.errors import PeerError
from switchgear.protocols.gearmonkey.keys import Key
from switchgear.protocols.gearmonkey.queues import whole_number
from switchgear.protocols.gearmonkey.resp import (
    OK,
    Command,
    array,
    bulk,
    error,
    integer,
    mapping,
    null,
    simple,
    verbatim,
)
from switchgear.protocols.gearmonkey.session import GearMonkeySession
from switchgear.resources import resource_amounts
from switchgear.tags import tag_set

PONG: Final = simple(b"PONG")
WRONG_PASSWORD: Final = error("WRONGPASS invalid username-password pair or user is disabled.")
NO_PASSWORD: Final = error(
    "ERR AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?"
)
HELLO_NEEDS_AUTH: Final = error(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass>"
    " option can be used to authenticate the client and select the RESP protocol version at the same time"
)
DEFAULT_USER: Final = b"default"
JOB_WORDS: Final = (b"job:", b"lock:")  # prefixes of the keys of jobs
BAD_NAME: Final = "Client names cannot contain spaces, newlines or special characters."
NAME_BYTES: Final = 127


def on_ping(session: GearMonkeySession, command: Command) -> None:
    if len(command) > 2:
        raise PeerError("wrong number of arguments for 'ping' command", code="ERR")
    if session.version == 2 and (session.channels or session.patterns):
        session.send(array((bulk(b"pong"), bulk(b"".join(command[1:])))))
    else:
        session.send(bulk(command[1]) if len(command) > 1 else PONG)


def on_echo(session: GearMonkeySession, command: Command) -> None:
    session.send_long(bulk(command[1]))


def on_quit(session: GearMonkeySession, command: Command) -> None:
    session.send(OK)
    session.closing = True


def on_http(session: GearMonkeySession, command: Command) -> None:
    """Close the connection of a browser, which a web page may have made connect: the next lines might be commands."""
    session.context.count_bad_input(session, "HTTP", "this is HTTP")
    session.closing = True
    session.mark()


def on_reset(session: GearMonkeySession, command: Command) -> None:
    session.end_transaction()
    session.unsubscribe_all()
    session.version = 2
    session.identify(session.transport.permissions)
    session.refused_database = 0
    set_name(session, b"")
    session.send(simple(b"RESET"))


def on_select(session: GearMonkeySession, command: Command) -> None:
    """There is one database.  Some libraries ignore that another is refused, and would go on in this one."""
    number = whole_number(command[1])
    session.refused_database = max(0, number)
    if number:
        raise PeerError("DB index is out of range", code="ERR")
    session.send(OK)


# --- handshake ---


def on_hello(session: GearMonkeySession, command: Command) -> None:
    """HELLO [version [AUTH user password] [SETNAME name]]"""
    version = session.version
    if len(command) > 1:
        wanted = numbers.whole_number(command[1])
        if wanted is None:
            raise PeerError("Protocol version is not an integer or out of range", code="ERR")
        version = wanted
        if version not in (2, 3):
            session.send(error("NOPROTO unsupported protocol version"))
            return
    name, credentials = read_hello(command[2:])
    if credentials is not None and not authenticate(session, *credentials):
        session.send(WRONG_PASSWORD)
        return
    if session.is_guarded and not session.permissions.roles:
        session.send(HELLO_NEEDS_AUTH)
        return
    session.version = version
    if name is not None:
        set_name(session, name)
    session.send(mapping(version, about(session)))


def read_hello(options: Command) -> tuple[bytes | None, tuple[bytes, bytes] | None]:
    """The given name, and the user and password; raises PeerError."""
    name: bytes | None = None
    credentials: tuple[bytes, bytes] | None = None
    while options:
        word = options[0].upper()
        if word == b"AUTH" and len(options) > 2:
            credentials = (options[1], options[2])
            options = options[3:]
        elif word == b"SETNAME" and len(options) > 1:
            name = checked_name(options[1])
            options = options[2:]
        else:
            raise PeerError(f"Syntax error in HELLO option '{options[0][:100].decode('utf-8', 'replace')}'", code="ERR")
    return name, credentials


def about(session: GearMonkeySession) -> list[tuple[bytes, bytes]]:
    return [
        (b"server", bulk(b"switchgear")),
        (b"version", bulk(session.setup.version.encode())),
        (b"proto", integer(session.version)),
        (b"id", integer(session.number)),
        (b"mode", bulk(b"standalone")),
        (b"role", bulk(b"master")),
        (b"modules", array(())),
    ]


def on_auth(session: GearMonkeySession, command: Command) -> None:
    """AUTH [user] token"""
    if len(command) > 3:
        raise PeerError("syntax error", code="ERR")
    if len(command) == 2 and session.transport.access.is_open:
        session.send(NO_PASSWORD)
        return
    user = command[1] if len(command) == 3 else DEFAULT_USER
    session.send(OK if authenticate(session, user, command[-1]) else WRONG_PASSWORD)


def authenticate(session: GearMonkeySession, user: bytes, token: bytes) -> bool:
    """Identify the peer by its token; the user is the identity's name, or the default user of Redis.

    A listener without identities accepts any password of the default user, like a Redis without one.
    """
    access = session.transport.access
    if access.is_open:
        return user == DEFAULT_USER
    permissions = access.by_token(token)
    if permissions is None or user not in (DEFAULT_USER, permissions.name.encode()):
        session.context.count_authentication_failed(session)
        return False
    session.identify(permissions)
    return True


def checked_name(name: bytes) -> bytes:
    if len(name) > NAME_BYTES or any(byte < 33 or byte > 126 for byte in name):
        raise PeerError(BAD_NAME, code="ERR")
    return name


def set_name(session: GearMonkeySession, name: bytes) -> None:
    session.client_id = name
    for worker in session.workers.values():
        worker.name = name


def on_client_setname(session: GearMonkeySession, command: Command) -> None:
    set_name(session, checked_name(command[2]))
    session.send(OK)


def on_client_getname(session: GearMonkeySession, command: Command) -> None:
    session.send(bulk(session.client_id) if session.client_id else null(session.version))


def on_client_id(session: GearMonkeySession, command: Command) -> None:
    session.send(integer(session.number))


def on_client_maintenance(session: GearMonkeySession, command: Command) -> None:
    """Refuse without counting an error: redis-py asks every server, and accepts a refusal."""
    session.send(error(f"ERR unknown subcommand '{command[1].decode('utf-8', 'replace')}'. Try CLIENT HELP."))


def on_client_setinfo(session: GearMonkeySession, command: Command) -> None:
    if command[2].lower() in (b"tags", b"resources"):
        describe_workers(session, command[2].lower(), command[3])
    elif command[2].lower() not in (b"lib-name", b"lib-ver"):
        shown = command[2][:100].decode("utf-8", "replace")
        raise PeerError(f"Unrecognized option '{shown}'", code="ERR")
    session.send(OK)


def on_client_switch(session: GearMonkeySession, command: Command) -> None:
    """NO-EVICT and NO-TOUCH have no effect here."""
    if command[2].lower() not in (b"on", b"off"):
        raise PeerError("syntax error", code="ERR")
    session.send(OK)


# --- information about the server ---


def on_info(session: GearMonkeySession, command: Command) -> None:
    engine = session.engine
    sessions = session.setup.sessions
    sections: dict[str, dict[str, object]] = {
        "Server": {"server_name": "switchgear", "switchgear_version": session.setup.version},
        "Clients": {
            "connected_clients": len(sessions),
            "blocked_clients": sum(other.blocked is not None for other in sessions),
        },
        "Persistence": {"loading": 0},
        "Jobs": {
            "functions": len(engine.functions),
            "unfinished_jobs": engine.job_count(),
            "drafts": len(session.setup.drafts),
        },
    }
    wanted = {word.decode("utf-8", "replace").lower() for word in command[1:]} - {"default", "all", "everything"}
    shown = [
        "\r\n".join([f"# {title}", *(f"{name}:{value}" for name, value in lines.items()), ""])
        for title, lines in sections.items()
        if not wanted or title.lower() in wanted
    ]
    session.send(verbatim(session.version, "\r\n".join(shown).encode()))


def on_nothing(session: GearMonkeySession, command: Command) -> None:
    """Handler of commands whose answer is an empty array."""
    session.send(array(()))


def on_no_answers(session: GearMonkeySession, command: Command) -> None:
    """Handler of commands whose answer is an empty map: CONFIG GET and COMMAND DOCS."""
    session.send(mapping(session.version, ()))


# --- transactions ---


def on_multi(session: GearMonkeySession, command: Command) -> None:
    if session.queued is not None:
        raise PeerError("MULTI calls can not be nested", code="ERR")
    session.begin_transaction()
    session.send(OK)


def on_exec(session: GearMonkeySession, command: Command) -> None:
    if session.queued is None:
        raise PeerError("EXEC without MULTI", code="ERR")
    if not session.is_broken and session.must_read(command, jobs_named(session, session.queued), with_payloads=True):
        return
    commands = session.end_transaction()
    if session.is_broken:
        session.send(error("EXECABORT Transaction discarded because of previous errors."))
    else:
        session.execute(commands)


def jobs_named(session: GearMonkeySession, commands: list[Command]) -> list[Key]:
    """The keys of jobs and locks in these commands; some may be values that look like keys."""
    keys: list[Key] = []
    for command in commands:
        for word in command[1:]:
            if word.startswith(JOB_WORDS):
                with suppress(PeerError):
                    keys.append(session.key(word))
    return keys


def on_discard(session: GearMonkeySession, command: Command) -> None:
    if session.queued is None:
        raise PeerError("DISCARD without MULTI", code="ERR")
    session.end_transaction()
    session.send(OK)


def describe_workers(session: GearMonkeySession, option: bytes, text: bytes) -> None:
    """Set the tags or resources of the workers of this connection, present and future ones."""
    try:
        if option == b"tags":
            session.stated_tags = tag_set(text.decode())
        else:
            session.stated_resources = resource_amounts(text.decode())
    except UnicodeDecodeError as error:
        raise PeerError(f"{option.decode()} are UTF-8", code="ERR") from error
    except ValueError as error:
        raise PeerError(str(error), code="ERR") from error
    for worker in session.workers.values():
        session.engine.describe_worker(worker, session.stated_tags, session.stated_resources)
