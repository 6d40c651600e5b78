"""Subscribers of jobs over one connection, and how events are passed on to them.

A plain server sends a connection one copy of every event for each of its foreground submissions that share the job
(equal unique keys).  So `CopySubscriptions` gives each copy to the next subscriber in turn.

A server of ours sends a connection each event once, however many of its users subscribe to the job; only a foreground
submission that joins a job adds a copy of all its events.  So `BroadcastSubscriptions` gives each event to every
subscriber and drops superfluous copies.  A later subscriber gets the latest progress at once, and the parts of the
result that came before with the end.

Subscribers are held weakly, since a program may drop its job; copies still come, and are counted.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from switchgear.errors import ServerUnreachable
from switchgear.protocols.gearman.messages import Packet

__all__ = [
    "FINAL_EVENTS",
    "JOB_EVENTS",
    "BroadcastSubscriptions",
    "CopySubscriptions",
    "JobSubscribers",
    "Subscriber",
    "Subscriptions",
]

COMPLETE: Final = int(Packet.WORK_COMPLETE)
DATA: Final = int(Packet.WORK_DATA)
STATUS: Final = int(Packet.WORK_STATUS)
PROGRESS: Final = int(Packet.WORK_PROGRESS)

FINAL_EVENTS: Final = frozenset(
    int(kind) for kind in (Packet.WORK_COMPLETE, Packet.WORK_FAIL, Packet.WORK_EXCEPTION, Packet.JOB_ENDED)
)
JOB_EVENTS: Final = FINAL_EVENTS | {DATA, STATUS, PROGRESS, int(Packet.WORK_WARNING)}


class Subscriber:
    """Receives the events of one job."""

    server_number = 0  # which of several servers has the job
    survives_reconnect = False  # the job continues without the connection, and can be subscribed to again

    def on_event(self, kind: int, data: bytes) -> None:
        """A packet about the job, without the handle it began with."""

    def on_connection_lost(self, error: ServerUnreachable) -> None:
        """The connection is over, and brings no more events."""

    def restart(self) -> None:
        """The subscription begins anew: parts of the result come again."""

    def give_up(self, error: Exception) -> None:
        """The end of the job will not become known, because of this error."""


class Subscriptions(ABC):
    """The subscribers of all jobs of one connection."""

    @abstractmethod
    def add(self, handle: bytes, subscriber: Subscriber, *, adds_copy: bool) -> None:
        """Subscribe; `adds_copy` says whether the server sends one more copy of each event because of it."""

    @abstractmethod
    def dispatch(self, kind: int, handle: bytes, data: bytes) -> None:
        """Pass an event to the subscribers of its job."""

    @abstractmethod
    def take_all(self) -> list[tuple[bytes, Subscriber]]:
        """Remove and return all subscribers that still exist, each with the handle of its job."""


class CopySubscriptions(Subscriptions):
    """Each copy of an event is for one subscriber, in turn."""

    def __init__(self) -> None:
        # Most jobs have one subscriber, and a deque for each would be waste.
        self._subscribers: dict[bytes, weakref.ref[Subscriber] | deque[weakref.ref[Subscriber]]] = {}

    def add(self, handle: bytes, subscriber: Subscriber, *, adds_copy: bool = True) -> None:
        reference = weakref.ref(subscriber)
        known = self._subscribers.get(handle)
        if known is None:
            self._subscribers[handle] = reference
        elif isinstance(known, deque):
            known.append(reference)
        else:
            self._subscribers[handle] = deque([known, reference])

    def dispatch(self, kind: int, handle: bytes, data: bytes) -> None:
        known = self._subscribers.get(handle)
        if known is None:
            return
        if isinstance(known, deque):
            reference = known.popleft()
            if kind not in FINAL_EVENTS:
                known.append(reference)
            elif not known:
                del self._subscribers[handle]
        else:
            reference = known
            if kind in FINAL_EVENTS:
                del self._subscribers[handle]
        subscriber = reference()
        if subscriber is not None:
            subscriber.on_event(kind, data)

    def take_all(self) -> list[tuple[bytes, Subscriber]]:
        taken, self._subscribers = self._subscribers, {}
        found: list[tuple[bytes, Subscriber]] = []
        for handle, known in taken.items():
            for reference in known if isinstance(known, deque) else (known,):
                subscriber = reference()
                if subscriber is not None:
                    found.append((handle, subscriber))
        return found


class BroadcastSubscriptions(Subscriptions):
    """Subscriptions of a server that sends each event once: it is for every subscriber."""

    def __init__(self) -> None:
        self._jobs: dict[bytes, JobSubscribers] = {}

    def add(self, handle: bytes, subscriber: Subscriber, *, adds_copy: bool) -> None:
        subscribers = self._jobs.get(handle)
        if subscribers is None:
            subscribers = self._jobs[handle] = JobSubscribers()
        subscribers.add(subscriber, adds_copy=adds_copy)

    def dispatch(self, kind: int, handle: bytes, data: bytes) -> None:
        subscribers = self._jobs.get(handle)
        if subscribers is not None:
            if kind in FINAL_EVENTS:
                del self._jobs[handle]
            subscribers.dispatch(kind, data)

    def take_all(self) -> list[tuple[bytes, Subscriber]]:
        jobs, self._jobs = self._jobs, {}
        return [(handle, each) for handle, subscribers in jobs.items() for each in subscribers.members()]


class JobSubscribers:
    """The subscribers of one job, and the events that a later subscriber has missed."""

    __slots__ = ("_copies", "_copies_seen", "_members", "_parts", "_progress", "_sweep_at")

    def __init__(self) -> None:
        self._members: list[weakref.ref[Subscriber]] = []
        self._sweep_at = 8  # with this many members, those that no longer exist are removed
        self._copies = 0  # how often the server sends each event
        self._copies_seen = 0  # how many copies of the latest event have come
        self._parts: list[bytes] | None = None  # of the result
        self._progress: tuple[int, bytes] | None = None  # the latest

    def add(self, subscriber: Subscriber, *, adds_copy: bool) -> None:
        """Add a subscriber, and pass on the latest progress to it."""
        if len(self._members) >= self._sweep_at:
            self._members = [reference for reference in self._members if reference() is not None]
            self._sweep_at = 2 * len(self._members) + 8
        self._members.append(weakref.ref(subscriber))
        if adds_copy or not self._copies:
            self._copies += 1
        self._copies_seen = 0
        if self._progress is not None:
            subscriber.on_event(*self._progress)

    def members(self) -> list[Subscriber]:
        """The subscribers that still exist."""
        return [subscriber for reference in self._members if (subscriber := reference()) is not None]

    def dispatch(self, kind: int, data: bytes) -> None:
        """Pass on an event of the job, unless it is a further copy."""
        if kind not in FINAL_EVENTS and self._is_further_copy():
            return
        if kind == DATA:
            if self._parts is None:
                self._parts = []
            self._parts.append(data)
            return
        if kind in (PROGRESS, STATUS):
            self._progress = kind, data
        elif kind == COMPLETE and self._parts:
            data = b"".join((*self._parts, data))
        for subscriber in self.members():
            subscriber.on_event(kind, data)

    def _is_further_copy(self) -> bool:
        self._copies_seen = self._copies_seen % self._copies + 1
        return self._copies_seen != 1
