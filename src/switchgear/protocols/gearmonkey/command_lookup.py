"""Finds the verb of a Redis command in the table, and refuses unknown commands in Redis's words."""

from __future__ import annotations

from collections.abc import Mapping

from switchgear.errors import PeerError
from switchgear.protocols.gearmonkey.listener_state import RedisVerb
from switchgear.protocols.gearmonkey.resp import Command

__all__ = ["find_verb", "text_of"]


def find_verb(verbs: Mapping[bytes, RedisVerb], command: Command) -> RedisVerb:
    """The verb, or the one of a subcommand; raises PeerError if there is none, or the number of words is wrong."""
    verb = verbs.get(command[0]) or verbs.get(command[0].upper())
    if verb is None:
        raise unknown(command)
    shown = command[:1]
    if verb.subcommands and len(command) > 1:
        verb = verb.subcommands.get(command[1].upper())
        shown = command[:2]
        if verb is None:
            container, word = [text_of(name) for name in shown]
            raise PeerError(f"unknown subcommand '{word}'. Try {container.upper()} HELP.", code="ERR")
    if len(command) != verb.words and (verb.words >= 0 or len(command) < -verb.words):
        name = "|".join(text_of(word) for word in shown).lower()
        raise PeerError(f"wrong number of arguments for '{name}' command", code="ERR")
    return verb


def text_of(word: bytes) -> str:
    return word[:128].decode("utf-8", "replace")


def unknown(command: Command) -> PeerError:
    """The error for an unknown command, in Redis's words."""
    shown = ""
    for word in command[1:]:
        if len(shown) >= 128:
            break
        shown += "'" + text_of(word)[: 128 - len(shown)] + "' "
    return PeerError(f"unknown command '{text_of(command[0])}', with args beginning with: {shown}", code="ERR")
