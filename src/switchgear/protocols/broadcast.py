"""`Broadcast`: channel messages for peers of all servers that own functions together.

This class is that of a server that is alone. With several (`switchgear.net.owners.cluster_channels`), each event of a
job is told by one of them: its start by the server to which the worker is connected, its end by the owner of the job.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from switchgear.model import Job

__all__ = ["Broadcast"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Broadcast:
    """Passes channel messages on to other servers, and receives theirs."""

    def __init__(self) -> None:
        self.receiver: Callable[[bytes, bytes], object] = ignore_message  # is given the messages of other servers
        self.on_listeners: Callable[[], None] = ignore_listeners  # called when `has_listeners` may have changed

    @property
    def has_listeners(self) -> bool:
        """Whether peers of other servers are subscribed to anything."""
        return False

    def publish(self, name: bytes, message: bytes, *, promised: bool) -> None:
        """Pass a message on to the servers that listen to this channel. With `promised`, it waits for the commit of the
        changes so far."""

    def listen(self, name: bytes, *, is_wanted: bool) -> None:
        """Tell other servers whether peers of this one are subscribed to this channel."""

    def listen_to_all(self, *, is_wanted: bool) -> None:
        """Tell other servers whether this one needs the messages of all channels."""

    def tells_start(self, job: Job) -> bool:
        """Whether this server tells of the start of this job that it has or runs."""
        return True

    def tells_end(self, job: Job) -> bool:
        """Whether this server tells of the end of this job that it has or runs."""
        return True

    def is_elsewhere(self, function: bytes) -> bool:
        """Whether another server owns the function, and tells of the ends of its jobs."""
        return False


def ignore_message(name: bytes, message: bytes) -> None:
    """There is no listener with channels."""


def ignore_listeners() -> None:
    """The default of `on_listeners`: nothing depends on whether there are listeners."""
