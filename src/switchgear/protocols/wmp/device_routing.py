"""Routing of messages in a device, without I/O and without an engine.

A device is a manager to the workers below it and a worker to the managers above it. It has no state per message:
everything needed to route an answer is in the answer, because the request has collected it on its way.

A peer below is named by its routing id on the device's own socket; a manager above by a token, its number in the
device's list, which only this device understands.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from switchgear.errors import PeerError
from switchgear.protocols.multipart import Message
from switchgear.protocols.wmp.codec import (
    CANCEL,
    DONE,
    GIVE,
    MOST_HOPS,
    NO,
    READY,
    STATUS,
    TAKE,
    WAKE,
    decode,
    encode,
    job_of,
    manager_of,
)

__all__ = ["MOST_MANAGERS", "Device", "Upwards"]

Upwards = tuple[int, Message]
"""A message and the number of the manager that it goes to."""

FROM_WORKERS: Final = frozenset({READY, GIVE, DONE, STATUS})
FROM_MANAGERS: Final = frozenset({WAKE, TAKE, NO, CANCEL})

TOKEN_BYTES: Final = 2
MOST_MANAGERS: Final = 1 << (8 * TOKEN_BYTES)


class Device:
    """Routes messages. Undeliverable ones are counted, and `problem` describes the last of them."""

    def __init__(self, identity: bytes, managers: int) -> None:
        if not 0 < managers <= MOST_MANAGERS:
            raise ValueError(f"a device has 1 to {MOST_MANAGERS} managers, not {managers}")
        self.identity = identity
        self.counts: Counter[str] = Counter()
        self.problem = ""
        self._tokens = [number.to_bytes(TOKEN_BYTES, "big") for number in range(managers)]
        self._numbers = {token: number for number, token in enumerate(self._tokens)}

    # --- the three events ---

    def from_below(self, message: Message) -> list[Upwards]:
        """Route a message from below; the first frame names the worker, or the device before it."""
        try:
            passed_on = self._upwards(message[0], message[1:])
        except PeerError as error:
            self._refuse(error)
            return []
        self.counts["up"] += len(passed_on)
        return passed_on

    def from_above(self, manager: int, frames: Message) -> Message | None:
        """Route a message of a manager, or of the device before it. A message down begins with the receiver's
        routing id."""
        try:
            passed_on = self._downwards(manager, frames)
        except PeerError as error:
            self._refuse(error)
            return None
        self.counts["down"] += 1
        return passed_on

    def undeliverable(self, message: Message) -> Upwards | None:
        """Handle an undeliverable message down: a job is returned in the name of its worker."""
        self.counts["undelivered"] += 1
        try:
            command, headers, _ = decode(message[1:])
            if command != TAKE:
                return None
            answer = self._give_back(message[0], headers)
        except PeerError as error:
            self._refuse(error)
            return None
        self.counts["returned"] += 1
        return answer

    def _refuse(self, error: PeerError) -> None:
        self.counts["bad"] += 1
        self.problem = f"{error.code}: {error}"

    # --- routes ---

    def _upwards(self, sender: bytes, frames: Message) -> list[Upwards]:
        command, headers, payload = decode(frames)
        if command not in FROM_WORKERS:
            raise PeerError(f"{command.decode()} is not said by workers", code="WRONG_WAY")
        path = headers.get("path", [])
        if self.identity in path:
            # Devices that are each other's managers would multiply every READY until its path is too long.
            raise PeerError(f"{command.decode()} has come through this device before", code="LOOP")
        _put_in_front(sender, path, headers)
        if command == READY:
            passed_on = _encode(command, headers, payload)
            return [(number, passed_on) for number in range(len(self._tokens))]
        number = self._numbers.get(_next_hop(command, headers))
        if number is None:
            raise PeerError(f"{command.decode()} names a manager that is not there", code="MISROUTED")
        return [(number, _encode(command, headers, payload))]

    def _downwards(self, manager: int, frames: Message) -> Message:
        command, headers, payload = decode(frames)
        if command not in FROM_MANAGERS:
            raise PeerError(f"{command.decode()} is not said by managers", code="WRONG_WAY")
        receiver = _next_hop(command, headers)
        _put_in_front(self._tokens[manager], headers.get("path", []), headers)
        return [receiver, *_encode(command, headers, payload)]

    def _give_back(self, receiver: bytes, headers: dict[str, Any]) -> Upwards:
        token, *way_back = headers["path"]
        answer: dict[str, Any] = {
            "to": way_back,
            "path": [receiver, *headers["to"]],  # as if it came from the worker
            "job": job_of(headers),
            "status": "returned",
        }
        manager = manager_of(headers)
        if manager is not None:
            answer["manager"] = manager
        return self._numbers[token], _encode(DONE, answer, b"")


def _next_hop(command: bytes, headers: dict[str, Any]) -> bytes:
    """Remove the next hop from the remaining route."""
    route = headers.get("to")
    if not route:
        raise PeerError(f"{command.decode()} does not say where it is to go", code="MISROUTED")
    headers["to"] = route[1:]
    hop: bytes = route[0]
    return hop


def _put_in_front(hop: bytes, path: list[bytes], headers: dict[str, Any]) -> None:
    if len(path) >= MOST_HOPS:
        raise PeerError(f"a way of more than {MOST_HOPS} hops", code="TOO_FAR")
    headers["path"] = [hop, *path]


def _encode(command: bytes, headers: dict[str, Any], payload: bytes | None) -> Message:
    try:
        return encode(command, headers, payload)
    except ValueError as error:  # the headers have become too large on the way
        raise PeerError(str(error), code="TOO_LARGE") from None
