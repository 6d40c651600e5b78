"""Handlers of PUBLISH, (P)SUBSCRIBE and (P)UNSUBSCRIBE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchgear.errors import PeerError
from switchgear.protocols.gearmonkey.resp import Command, bulk, integer, null, push
from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = ["on_psubscribe", "on_publish", "on_punsubscribe", "on_subscribe", "on_unsubscribe"]

Subscribe = Callable[[GearMonkeySession, list[bytes]], None]

# How many steps (`Pattern.steps`) the publishing of one transaction may take: no other peer is served meanwhile.
MOST_STEPS_OF_TRANSACTION = 600_000

MOST_NAMES: Final = 1000  # in one command; no connection has more subscriptions


def on_publish(session: GearMonkeySession, command: Command) -> None:
    check_names(session, command[1:2])  # matching a long name with many patterns would take long
    if session.executing and session.setup.channels.spent_steps > session.steps_before + MOST_STEPS_OF_TRANSACTION:
        raise PeerError("the transaction publishes too much, to too many", code="ERR")
    # A message that follows a worker's report must not be delivered before the report is stored.
    promised = session.awaits_commit
    session.send(integer(session.setup.channels.publish_of_peer(command[1], command[2], promised=promised)))


def on_subscribe(session: GearMonkeySession, command: Command) -> None:
    subscribe(session, b"subscribe", command[1:], session.setup.channels.subscribe)


def on_unsubscribe(session: GearMonkeySession, command: Command) -> None:
    check_time(session)
    check_names(session, command[1:])
    for name in command[1:] or list(session.channels) or (None,):
        if name is not None:
            session.setup.channels.unsubscribe(session, name)
        confirm(session, b"unsubscribe", name, len(session.channels) + len(session.patterns))


def on_psubscribe(session: GearMonkeySession, command: Command) -> None:
    subscribe(session, b"psubscribe", command[1:], session.setup.channels.subscribe_patterns)


def on_punsubscribe(session: GearMonkeySession, command: Command) -> None:
    check_time(session)
    check_names(session, command[1:])
    for pattern in command[1:] or list(session.patterns) or (None,):
        if pattern is not None:
            session.setup.channels.unsubscribe_pattern(session, pattern)
        confirm(session, b"punsubscribe", pattern, len(session.channels) + len(session.patterns))


def subscribe(session: GearMonkeySession, word: bytes, names: list[bytes], do: Subscribe) -> None:
    """Subscribe to all of these or, if that is refused, to none."""
    check_time(session)
    check_names(session, names)
    count = len(session.channels) + len(session.patterns)
    known = dict(session.channels if word == b"subscribe" else session.patterns)
    do(session, names)
    for name in names:
        if name not in known:
            known[name] = None
            count += 1
        confirm(session, word, name, count)


def check_names(session: GearMonkeySession, names: list[bytes]) -> None:
    """Check whether these can be names in one command: each gets its own answer. Raises PeerError."""
    if len(names) > MOST_NAMES:
        raise PeerError(f"more than {MOST_NAMES} channels or patterns at once", code="ERR")
    limit = session.channel_bytes
    if any(len(name) > limit for name in names):
        raise PeerError(f"name of a channel over {limit} bytes", code="ERR")


def check_time(session: GearMonkeySession) -> None:
    """Refuse a subscription in a transaction, whose commands have one answer each."""
    if session.queued is not None:
        raise PeerError("subscriptions cannot be changed in a transaction", code="ERR")


def confirm(session: GearMonkeySession, word: bytes, name: bytes | None, count: int) -> None:
    """Confirm that a subscription was added or removed, with the number of all."""
    named = null(session.version) if name is None else bulk(name)
    session.send(push(session.version, (bulk(word), named, integer(count))))
