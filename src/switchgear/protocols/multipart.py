"""Messages of several frames, as ZeroMQ carries them, and the routing ids that they begin with."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Message", "is_given_name", "message_bytes"]

Message = list[bytes]
"""A message of several frames. A received message begins with the routing id of its sender, and a message to send
with that of its receiver."""


def is_given_name(identity: bytes) -> bool:
    """Whether the server chose this routing id, so that no other peer will ever have it."""
    return identity.startswith(b"\0")


def message_bytes(messages: Iterable[Message]) -> int:
    return sum(len(frame) for message in messages for frame in message)
