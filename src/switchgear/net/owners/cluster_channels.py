"""`ClusterChannels`: channel messages between nodes.

A node tells the others to which channels its peers are subscribed, and is sent the messages of those. If its peers are
subscribed to patterns, it is sent all messages, and compares the names itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from switchgear.engine.function_placement import is_copy
from switchgear.model import Job
from switchgear.net.owners.messages import ChannelMessage, Listen, Message
from switchgear.protocols.broadcast import Broadcast

__all__ = ["NODE_PROTOCOL", "ClusterChannels"]

NODE_PROTOCOL = "node"  # of a worker that stands for the workers of another node


class ListeningNode(Protocol):
    """The session of another node."""

    def send(self, message: Message) -> None: ...

    def await_commit(self) -> None: ...


class OpenLink(Protocol):
    """A link that this node has opened."""

    def send(self, message: Message) -> None: ...


class Listened:
    """To what another node listens."""

    def __init__(self) -> None:
        self.names: set[bytes] = set()
        self.all = False


class ClusterChannels(Broadcast):
    """Passes channel messages on to the nodes that listen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ours = all_are_ours  # whether this node owns the function with this name
        self._wanted: dict[bytes, None] = {}
        self._wants_all = False
        self._links: set[OpenLink] = set()  # those that were told what this node listens to
        self._listening: dict[ListeningNode, Listened] = {}

    # --- what peers of this node want ---

    def listen(self, name: bytes, *, is_wanted: bool) -> None:
        if is_wanted:
            self._wanted[name] = None
            self._tell_all(Listen([name], [], self._wants_all))
        else:
            self._wanted.pop(name, None)
            self._tell_all(Listen([], [name], self._wants_all))

    def listen_to_all(self, *, is_wanted: bool) -> None:
        if is_wanted != self._wants_all:
            self._wants_all = is_wanted
            self._tell_all(Listen([], [], is_wanted))

    def _tell_all(self, message: Listen) -> None:
        for link in self._links:
            link.send(message)

    def use_links(self, links: Iterable[OpenLink]) -> None:
        """The links that can be used now. New ones are told everything."""
        usable = set(links)
        for link in usable - self._links:
            if self._wanted or self._wants_all:
                link.send(Listen(list(self._wanted), [], self._wants_all))
        self._links = usable

    def received(self, message: ChannelMessage) -> None:
        """Handle a message of another node."""
        self.receiver(message.name, message.message)

    # --- what other nodes want ---

    def heard(self, node: ListeningNode, message: Listen) -> None:
        """Note to what another node listens."""
        listened = self._listening.setdefault(node, Listened())
        listened.names.update(message.added)
        listened.names.difference_update(message.removed)
        listened.all = message.all
        if not listened.names and not listened.all:
            del self._listening[node]
        self.on_listeners()

    def left(self, node: ListeningNode) -> None:
        """Forget a node: its link is lost."""
        if self._listening.pop(node, None) is not None:
            self.on_listeners()

    @property
    def has_listeners(self) -> bool:
        return bool(self._listening)

    def publish(self, name: bytes, message: bytes, *, promised: bool) -> None:
        for node, listened in self._listening.items():
            if listened.all or name in listened.names:
                if promised:
                    node.await_commit()
                node.send(ChannelMessage(name, message))

    # --- who tells of what ---

    def tells_start(self, job: Job) -> bool:
        return job.worker is None or job.worker.protocol != NODE_PROTOCOL

    def tells_end(self, job: Job) -> bool:
        return not is_copy(job)

    def is_elsewhere(self, function: bytes) -> bool:
        return not self.is_ours(function)


def all_are_ours(name: bytes) -> bool:
    """Before this node is one of several, no function is another node's."""
    return True
