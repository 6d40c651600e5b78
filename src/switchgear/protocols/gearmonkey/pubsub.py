"""Channels: who wants to hear of what, and who has something to say."""

from __future__ import annotations

from switchgear.errors import PeerError
from switchgear.protocols.gearmonkey.keys import CHANNEL
from switchgear.protocols.gearmonkey.resp import Command, bulk, integer, null, push
from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = ["on_psubscribe", "on_publish", "on_punsubscribe", "on_subscribe", "on_unsubscribe"]

MOST_SUBSCRIPTIONS = 1000  # of one connection


def on_publish(session: GearMonkeySession, command: Command) -> None:
    check_names(session, command[1:2])  # matching a long one with many patterns would take long
    # What a worker tells after a report that is not kept yet must not be heard before that is kept.
    promised = bool(session.pledges or session.waiting or session.held is not None)
    session.send(integer(session.setup.channels.publish(command[1], command[2], promised=promised)))


def on_subscribe(session: GearMonkeySession, command: Command) -> None:
    check_room(session, command)
    for name in command[1:]:
        session.channels[name] = None
        session.setup.channels.subscribe(session, name)
        confirm(session, b"subscribe", name)


def on_unsubscribe(session: GearMonkeySession, command: Command) -> None:
    check_time(session)
    for name in command[1:] or list(session.channels) or (None,):
        if name is not None:
            session.channels.pop(name, None)
            session.setup.channels.unsubscribe(session, name)
        confirm(session, b"unsubscribe", name)


def on_psubscribe(session: GearMonkeySession, command: Command) -> None:
    check_room(session, command)
    for pattern in command[1:]:
        session.patterns[pattern] = None
        session.setup.channels.subscribe_pattern(session, pattern)
        confirm(session, b"psubscribe", pattern)


def on_punsubscribe(session: GearMonkeySession, command: Command) -> None:
    check_time(session)
    for pattern in command[1:] or list(session.patterns) or (None,):
        if pattern is not None:
            session.patterns.pop(pattern, None)
            session.setup.channels.unsubscribe_pattern(session, pattern)
        confirm(session, b"punsubscribe", pattern)


def check_room(session: GearMonkeySession, command: Command) -> None:
    check_time(session)
    check_names(session, command[1:])
    if len(session.channels) + len(session.patterns) + len(command) - 1 > MOST_SUBSCRIPTIONS:
        raise PeerError(f"a connection may have {MOST_SUBSCRIPTIONS} subscriptions", code="ERR")


def check_names(session: GearMonkeySession, names: list[bytes]) -> None:
    limit = session.setup.name_bytes + len(CHANNEL)
    if any(len(name) > limit for name in names):
        raise PeerError(f"name of a channel over {limit} bytes", code="ERR")


def check_time(session: GearMonkeySession) -> None:
    """Not in a transaction, whose commands have one answer each."""
    if session.queued is not None:
        raise PeerError("subscriptions cannot be changed in a transaction", code="ERR")


def confirm(session: GearMonkeySession, word: bytes, name: bytes | None) -> None:
    count = len(session.channels) + len(session.patterns)
    named = null(session.version) if name is None else bulk(name)
    session.send(push(session.version, (bulk(word), named, integer(count))))
