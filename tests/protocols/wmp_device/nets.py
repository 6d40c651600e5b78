"""Workers, devices and managers that are connected without sockets: each message arrives at once."""

from __future__ import annotations

from typing import Any

import msgspec

from switchgear.protocols.multipart import Message
from switchgear.protocols.wmp.device_routing import Device

__all__ = ["DeviceNode", "Manager", "Node", "Worker", "command_and_headers", "message"]


def message(command: str, payload: bytes | None = None, **headers: Any) -> Message:
    """The frames, written out as the protocol's page has them."""
    frames = [b"", b"WMP1", command.encode(), msgspec.msgpack.encode(headers)]
    return frames if payload is None else [*frames, payload]


def command_and_headers(frames: Message) -> tuple[str, dict[str, Any]]:
    assert frames[:2] == [b"", b"WMP1"]
    return frames[2].decode(), msgspec.msgpack.decode(frames[3])


class Node:
    """Somebody with a ROUTER socket: a manager, or a device towards workers."""

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.below: dict[bytes, DeviceNode | Worker] = {}

    def hear_from_below(self, sender: bytes, frames: Message) -> None:
        raise NotImplementedError

    def send_down(self, envelope: bytes, frames: Message) -> bool:
        """False: there is nobody of that name."""
        receiver = self.below.get(envelope)
        if receiver is not None:
            receiver.hear_from_above(self, frames)
        return receiver is not None


class Manager(Node):
    """Remembers what it hears, with the whole path of the sender."""

    def __init__(self, identity: bytes) -> None:
        super().__init__(identity)
        self.heard: list[tuple[list[bytes], str, dict[str, Any]]] = []

    def hear_from_below(self, sender: bytes, frames: Message) -> None:
        command, headers = command_and_headers(frames)
        assert headers.get("to", []) in ([], [self.identity])
        self.heard.append(([sender, *headers.get("path", [])], command, headers))

    def say(self, path: list[bytes], command: str, payload: bytes | None = None, **headers: Any) -> bool:
        return self.send_down(path[0], message(command, payload, path=[self.identity], to=path[1:], **headers))


class DeviceNode(Node):
    """A device, and what it is connected to."""

    def __init__(self, identity: bytes, above: list[Node]) -> None:
        super().__init__(identity)
        self.above = above
        self.device = Device(identity, len(above))
        for node in above:
            node.below[identity] = self

    def hear_from_below(self, sender: bytes, frames: Message) -> None:
        for number, passed_on in self.device.from_below([sender, *frames]):
            self.above[number].hear_from_below(self.identity, passed_on)

    def hear_from_above(self, sender: Node, frames: Message) -> None:
        passed_on = self.device.from_above(self.above.index(sender), frames)
        if passed_on is not None and not self.send_down(passed_on[0], passed_on[1:]):
            answer = self.device.undeliverable(passed_on)
            if answer is not None:
                self.above[answer[0]].hear_from_below(self.identity, answer[1])


class Worker:
    """Remembers what it hears, and on which connection."""

    def __init__(self, identity: bytes, above: list[Node]) -> None:
        self.identity = identity
        self.above = above
        self.heard: list[tuple[int, str, dict[str, Any]]] = []
        for node in above:
            node.below[identity] = self

    def say(self, connection: int, command: str, payload: bytes | None = None, **headers: Any) -> None:
        self.above[connection].hear_from_below(self.identity, message(command, payload, **headers))

    def hear_from_above(self, sender: Node, frames: Message) -> None:
        command, headers = command_and_headers(frames)
        assert headers["to"] == []
        self.heard.append((self.above.index(sender), command, headers))
