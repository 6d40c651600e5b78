"""`ChannelSubscriptions`: subscribers of channels and patterns, and publishing to them.

GearMonkey workers publish the start and the end of their jobs themselves. For all other jobs, such as those of other
protocols' workers, the listener publishes them, so that subscribers are told of every job.

Bounds. Subscriptions count in the server's memory account. Every published name is compared with every pattern that is
more than a prefix, so this work is limited (`Pattern.steps`), for a connection and in total. The result of a comparison
is cached for recently used names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from switchgear.engine.engine import Engine
from switchgear.errors import PeerError, Refused
from switchgear.model import Job, Peer
from switchgear.protocols.broadcast import Broadcast
from switchgear.protocols.gearmonkey.keys import CHANNEL
from switchgear.protocols.gearmonkey.messages import Published
from switchgear.protocols.gearmonkey.patterns import Pattern, special_count
from switchgear.protocols.gearmonkey.resp import bulk
from switchgear.refusals import REFUSED_FULL

if TYPE_CHECKING:
    from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = ["ChannelSubscriptions"]

# For one connection, channels and patterns together. Programs have a handful, or at most one for each queue.
MOST_SUBSCRIPTIONS = 1000

# Subscriptions to patterns, of all connections. A publisher waits until all of them were served.
MOST_PATTERN_SUBSCRIPTIONS = 5000

# The maximum steps of comparing one name with all patterns: some 10 ms. One connection cannot use all of it.
MOST_STEPS = 250_000
MOST_STEPS_OF_CONNECTION = 200_000

# The number of names whose receivers are cached, and of all entries of this cache.
MOST_KNOWN_NAMES: Final = 256
MOST_KNOWN_ENTRIES: Final = 500_000

# The memory of a subscription besides the name: entries in tables of the connection and of the listener.
SUBSCRIPTION_BYTES: Final = 400

# Special bytes in the patterns of one command, and the cost of parsing each. All is done in one turn.
MOST_SPECIAL = 15_000
SPECIAL_STEPS: Final = 30

END: Final = b"finish:"

TELLING_STEPS: Final = 40  # the cost of sending a message to one connection, in the same unit

Sessions = dict["GearMonkeySession", None]


class Subscribed:
    """A pattern to which connections are subscribed, and their sessions."""

    __slots__ = ("is_prefix", "number", "pattern", "sessions", "steps", "text", "told")

    def __init__(self, text: bytes, name_bytes: int) -> None:
        self.text = text
        self.told = bulk(text)  # as encoded in each message
        self.pattern = Pattern(text)
        self.is_prefix = self.pattern.prefix is not None
        self.steps = 0 if self.is_prefix else self.pattern.steps(name_bytes)
        self.number = 0  # patterns are numbered in the order of subscription
        self.sessions: Sessions = {}

    @property
    def held_bytes(self) -> int:
        """The memory that the first subscriber causes, besides the subscription."""
        return self.pattern.memory_bytes + len(self.told) + SUBSCRIPTION_BYTES


class MessageReceivers:
    """The receivers of messages to one name, by patterns (cached)."""

    __slots__ = ("changes", "compared", "entries", "matching", "told")

    def __init__(self) -> None:
        self.changes = -1  # the number of subscription changes when this was made
        self.compared = 0  # the number of the last compared pattern
        self.entries = 0  # number of the following entries
        self.matching: list[Subscribed] = []  # patterns other than prefixes
        self.told: dict[GearMonkeySession, list[bytes]] = {}  # with the patterns for which each is told


class ChannelSubscriptions(Peer):
    """All subscriptions of a listener, and its own messages to them."""

    def __init__(self, engine: Engine, protocol: str, broadcast: Broadcast | None = None) -> None:
        super().__init__()
        self._broadcast = broadcast = broadcast or Broadcast()
        broadcast.receiver = self._tell
        broadcast.on_listeners = self._follow_engine
        self.spoken_for = 0  # the job that a GearMonkey worker reports on, or will: the worker publishes its end
        self.spent_steps = 0  # the cost of all publishing so far
        self.steps = 0  # the cost of a comparison with all patterns
        self._engine = engine
        self._protocol = protocol
        self._by_name: dict[bytes, Sessions] = {}
        self._by_pattern: dict[bytes, Subscribed] = {}
        self._by_prefix: dict[bytes, dict[bytes, Subscribed]] = {}
        self._prefix_sizes: dict[int, int] = {}  # the number of prefixes of each length
        self._compared: dict[int, Subscribed] = {}  # by number, the patterns that every name is compared with
        self._last_number = 0
        self._pattern_subscriptions = 0
        self._changes = 0  # to pattern subscriptions
        self._known: dict[bytes, MessageReceivers] = {}
        self._known_entries = 0

    # --- subscribing ---

    def subscribe(self, session: GearMonkeySession, names: list[bytes]) -> None:
        """Subscribe to these channels; raises PeerError or Refused, and does nothing then."""
        new = [name for name in dict.fromkeys(names) if name not in session.channels]
        check_number(session, len(new))
        self._hold(sum(map(len, new)) + len(new) * SUBSCRIPTION_BYTES)
        for name in new:
            session.channels[name] = None
            if name not in self._by_name:
                self._broadcast.listen(name, is_wanted=True)
            self._by_name.setdefault(name, {})[session] = None
        self._follow_engine()

    def unsubscribe(self, session: GearMonkeySession, name: bytes) -> None:
        if name not in session.channels:
            return
        del session.channels[name]
        sessions = self._by_name[name]
        del sessions[session]
        if not sessions:
            del self._by_name[name]
            self._broadcast.listen(name, is_wanted=False)
        self._release(len(name) + SUBSCRIPTION_BYTES)
        self._follow_engine()

    def subscribe_patterns(self, session: GearMonkeySession, texts: list[bytes]) -> None:
        """Subscribe to these patterns; raises PeerError or Refused, and does nothing then."""
        specials = sum(map(special_count, texts))
        if specials > MOST_SPECIAL:
            raise PeerError(f"patterns with more than {MOST_SPECIAL} special bytes at once", code="ERR")
        self.spent_steps += specials * SPECIAL_STEPS
        new = [text for text in dict.fromkeys(texts) if text not in session.patterns]
        check_number(session, len(new))
        if self._pattern_subscriptions + len(new) > MOST_PATTERN_SUBSCRIPTIONS:
            raise Refused(REFUSED_FULL, f"connections have {MOST_PATTERN_SUBSCRIPTIONS} subscriptions to patterns")
        wanted = self._patterns(session, new)
        unheard_of = [subscribed for subscribed in wanted if not subscribed.sessions]
        self._hold(sum(pattern.held_bytes for pattern in unheard_of) + len(new) * SUBSCRIPTION_BYTES)
        for subscribed in unheard_of:
            self._add(subscribed)
        for subscribed in wanted:
            subscribed.sessions[session] = None
            session.patterns[subscribed.text] = None
            session.pattern_steps += subscribed.steps
        self._pattern_subscriptions += len(new)
        self._changes += 1
        self._follow_engine()

    def _patterns(self, session: GearMonkeySession, texts: list[bytes]) -> list[Subscribed]:
        """The parsed patterns, if comparing names with all of them is not too expensive; raises Refused."""
        wanted: list[Subscribed] = []
        own_steps = session.pattern_steps
        steps = self.steps
        for text in texts:
            subscribed = self._by_pattern.get(text)
            if subscribed is None:
                subscribed = Subscribed(text, session.channel_bytes)
                steps += subscribed.steps
            own_steps += subscribed.steps
            if own_steps > MOST_STEPS_OF_CONNECTION:
                raise Refused(REFUSED_FULL, "comparing names with the patterns of this connection would take too long")
            if steps > MOST_STEPS:
                raise Refused(REFUSED_FULL, "comparing names with the patterns of all connections would take too long")
            wanted.append(subscribed)
        return wanted

    def unsubscribe_pattern(self, session: GearMonkeySession, text: bytes) -> None:
        if text not in session.patterns:
            return
        subscribed = self._by_pattern[text]
        del session.patterns[text]
        session.pattern_steps -= subscribed.steps
        del subscribed.sessions[session]
        if not subscribed.sessions:
            self._remove(subscribed)
            self._release(subscribed.held_bytes)
        self._release(SUBSCRIPTION_BYTES)
        self._pattern_subscriptions -= 1
        self._changes += 1
        self._follow_engine()

    def _add(self, subscribed: Subscribed) -> None:
        self._by_pattern[subscribed.text] = subscribed
        self._last_number += 1
        subscribed.number = self._last_number
        self.steps += subscribed.steps
        prefix = subscribed.pattern.prefix
        if prefix is None:
            self._compared[subscribed.number] = subscribed
        else:
            if prefix not in self._by_prefix:
                self._prefix_sizes[len(prefix)] = self._prefix_sizes.get(len(prefix), 0) + 1
            self._by_prefix.setdefault(prefix, {})[subscribed.text] = subscribed

    def _remove(self, subscribed: Subscribed) -> None:
        del self._by_pattern[subscribed.text]
        self.steps -= subscribed.steps
        prefix = subscribed.pattern.prefix
        if prefix is None:
            del self._compared[subscribed.number]
            return
        del self._by_prefix[prefix][subscribed.text]
        if not self._by_prefix[prefix]:
            del self._by_prefix[prefix]
            self._prefix_sizes[len(prefix)] -= 1
            if not self._prefix_sizes[len(prefix)]:
                del self._prefix_sizes[len(prefix)]

    def _hold(self, more_bytes: int) -> None:
        memory = self._engine.memory
        if not memory.has_room(more_bytes):
            raise Refused(REFUSED_FULL, "there is no memory for more subscriptions")
        memory.subscription_bytes += more_bytes

    def _release(self, fewer_bytes: int) -> None:
        self._engine.memory.subscription_bytes -= fewer_bytes

    def _follow_engine(self) -> None:
        """Subscribe to the engine's events only while there are subscribers."""
        receivers = self._engine.global_subscribers
        self._broadcast.listen_to_all(is_wanted=bool(self._by_pattern))
        if self._by_name or self._by_pattern or self._broadcast.has_listeners:
            if self not in receivers:
                receivers.append(self)
        elif self in receivers:
            receivers.remove(self)
        if not self._by_pattern:
            self._forget_known()

    # --- publishing ---

    def publish_of_peer(self, name: bytes, message: bytes, *, promised: bool) -> int:
        """Publish a message of a peer. The end of a job of another server is told by that one, when it is stored."""
        if message.startswith(END) and name.startswith(CHANNEL) and self._broadcast.is_elsewhere(name[len(CHANNEL) :]):
            return 0
        return self.publish(name, message, promised=promised)

    def publish(self, name: bytes, message: bytes, *, promised: bool = False) -> int:
        """Send a message to all subscribers; returns the number of those at this server.

        With `promised`, the message follows from a change that may not be stored yet, and waits for that.
        """
        self._broadcast.publish(name, message, promised=promised)
        return self._tell(name, message, promised=promised)

    def _tell(self, name: bytes, message: bytes, *, promised: bool = False) -> int:
        sessions = self._by_name.get(name)
        if sessions is None and not self._by_pattern:
            return 0
        published = Published(name, message)
        count = 0
        for session in sessions or ():
            size = published.message_bytes
            if session.has_room_for(size):
                session.tell(published.message(session.version), size, promised=promised)
            count += 1
        if self._by_pattern:
            for session, patterns in self._receivers_of(name).told.items():
                size = published.pattern_messages_bytes(patterns)
                if session.has_room_for(size):
                    session.tell(published.pattern_messages(session.version, patterns), size, promised=promised)
                count += len(patterns)
        self.spent_steps += TELLING_STEPS * count
        return count

    def _receivers_of(self, name: bytes) -> MessageReceivers:
        """The receivers whose patterns match this name."""
        receivers = self._known.get(name)
        if receivers is None:
            if len(self._known) >= MOST_KNOWN_NAMES or self._known_entries > MOST_KNOWN_ENTRIES:
                self._forget_known()
            receivers = self._known[name] = MessageReceivers()
        if receivers.changes != self._changes:
            self._known_entries -= receivers.entries
            self._compare(name, receivers)
            self._known_entries += receivers.entries
            receivers.changes = self._changes
        return receivers

    def _compare(self, name: bytes, receivers: MessageReceivers) -> None:
        """Compare the name with new patterns, and drop removed ones."""
        matching = [subscribed for subscribed in receivers.matching if subscribed.sessions]
        for number in reversed(self._compared):
            if number <= receivers.compared:
                break
            subscribed = self._compared[number]
            self.spent_steps += subscribed.steps
            if subscribed.pattern.matches(name):
                matching.append(subscribed)
        receivers.compared = self._last_number
        receivers.matching = matching
        told: dict[GearMonkeySession, list[bytes]] = {}
        for subscribed in [*self._prefixes_of(name), *matching]:
            for session in subscribed.sessions:
                told.setdefault(session, []).append(subscribed.told)
        receivers.told = told
        receivers.entries = len(matching) + sum(map(len, told.values()))

    def _prefixes_of(self, name: bytes) -> list[Subscribed]:
        """The prefix patterns that match this name."""
        found: list[Subscribed] = []
        for size in self._prefix_sizes:
            if size <= len(name):
                found += self._by_prefix.get(name[:size], {}).values()
        return found

    def _forget_known(self) -> None:
        self._known.clear()
        self._known_entries = 0

    def job_started(self, job: Job) -> None:
        worker = job.worker
        if worker is not None and worker.protocol != self._protocol and self._broadcast.tells_start(job):
            self.publish(CHANNEL + job.function.told_name, b"start:%d" % job.id)

    def job_finished(self, job: Job) -> None:
        if job.id == self.spoken_for:
            self.spoken_for = 0
        elif self._broadcast.tells_end(job):
            self.publish(CHANNEL + job.function.told_name, END + b"%d" % job.id, promised=bool(job.delivery))


def check_number(session: GearMonkeySession, more: int) -> None:
    """Check whether the connection may have this many more subscriptions; raises PeerError."""
    if len(session.channels) + len(session.patterns) + more > MOST_SUBSCRIPTIONS:
        raise PeerError(f"a connection may have {MOST_SUBSCRIPTIONS} subscriptions", code="ERR")
