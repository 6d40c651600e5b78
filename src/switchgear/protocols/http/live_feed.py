"""`LiveFeed`: sends changes to the viewers of `GET /v1/events`, computed and encoded once for all of them.

Ticks.  A timer of the engine starts a tick.  Each topic that is due is collected, in steps, and the events with what
has changed are sent to its viewers; an `id` ends the tick.  A new viewer gets a snapshot first.  Nothing is computed
while nobody looks.

Losing and finding ticks.  The last ticks are kept in a ring.  A viewer that reads too slowly is sent nothing until it
has read most of what it was sent, and one that lost its connection comes back with the id of its last tick.  Both get
the ticks that they have missed, if the ring still has them, and otherwise `reset` and a snapshot.  When the last viewer
of a topic leaves, the state of the topic is kept for a while, so that one that comes back can be told what has changed
meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from switchgear.engine.engine import Engine
from switchgear.errors import Refused
from switchgear.model import SECOND_US, Peer, Timer
from switchgear.protocols.context import Context
from switchgear.protocols.http.feed_topics import FeedTopic, JobTopic, OverviewTopic, RowsTopic, StreamTopic
from switchgear.protocols.http.http_wait import HttpWait
from switchgear.protocols.http.messages import EVENT_STREAM
from switchgear.protocols.pending_read import Reading
from switchgear.verbs.live_answers import FUNCTION_COLUMNS, WORKER_COLUMNS

if TYPE_CHECKING:
    from switchgear.protocols.http.session import HttpSession

__all__ = ["MOST_JOBS_WATCHED", "MOST_STREAMS", "NEW", "TOPICS", "LiveFeed"]

TOPICS: Final[tuple[str, ...]] = ("overview", "functions", "workers", "stream")
MOST_STREAMS: Final = 64  # of one listener
MOST_JOBS_WATCHED: Final = 16  # by one viewer

RING_TICKS: Final = 64
RING_BYTES: Final = 4 * 1024 * 1024
BEHIND_BYTES: Final = 256 * 1024  # a viewer with more unread output is sent nothing
KEPT_US: Final = 32 * SECOND_US  # how long the state of a topic without viewers is kept
# Of so many topics without viewers: each new viewer may bring topics of its own, and each is looked at in a tick.
MOST_UNWATCHED: Final = 256
COMMENT_US: Final = 15 * SECOND_US  # so that nobody in between takes a silent stream for a dead one
COMMENT: Final = b": still here\n\n"
VIEWER_BYTES: Final = 2_000  # the approximate memory of a viewer
NEW: Final = -1


class FeedTick:
    """The events of one tick, by topic."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.events: dict[str, bytes] = {}
        self.size = 0

    def add(self, topic: str, data: bytes) -> None:
        """Add the event of a topic."""
        self.events[topic] = data
        self.size += len(data)


class FeedViewer(HttpWait):
    """A client of `GET /v1/events`."""

    def __init__(self, feed: LiveFeed, session: HttpSession, topics: tuple[str, ...], seen: int) -> None:
        self.job = None
        self.is_of_new_job = False
        self.feed = feed
        self.session = session
        self.topics = topics
        self.seen = seen  # the last tick that it was told of; `NEW`: none
        self.sent_us = 0
        self.until_us = 0  # when the session of its browser ends; 0: it has none

    def end(self, session: HttpSession) -> None:
        self.feed.leave(self)

    def server_stops(self, session: HttpSession) -> None:
        self.feed.leave(self)
        session.end_stream()

    @property
    def is_behind(self) -> bool:
        """Whether it has much to read before it is sent more."""
        return self.session.transport.unsent_bytes + self.session.unsent_bytes > BEHIND_BYTES

    def send(self, data: bytes, now_us: int) -> None:
        """Send encoded events or a comment to the viewer, and note the time."""
        self.sent_us = now_us
        self.session.send_piece(data)


class LiveFeed(Peer):
    """The topics and viewers of all HTTP listeners of a server."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.viewers: dict[FeedViewer, None] = {}
        self.topics: dict[str, FeedTopic] = {}
        self.unwatched: dict[str, None] = {}  # names of topics without viewers, those of the longest time first
        self.ring: deque[FeedTick] = deque()
        self.most_ring_bytes = RING_BYTES
        # Greater than that of an earlier run of the server, whose viewers come back with their last one.
        self.tick = 0
        self._context: Context | None = None
        self._timer: Timer | None = None
        self._timer_us = 0
        self._is_running = False
        self._runs_again = False
        self._held_bytes = 0

    # --- viewers ---

    def join(self, session: HttpSession, topics: tuple[str, ...], seen: int, until_us: int = 0) -> None:
        """Add a session as a viewer of these topics; raises Refused."""
        self.engine.refuse_subscription()
        self._context = session.context
        if not self.tick:
            self.tick = self.engine.now_us // 1000
        viewer = FeedViewer(self, session, topics, seen)
        viewer.until_us = until_us
        for name in topics:
            topic = self.topics.get(name)
            if topic is None:
                topic = self.topics[name] = new_topic(name, session.prefix)
            if not topic.viewers:
                topic.due_us = 0
                self.unwatched.pop(name, None)
            topic.viewers += 1
        self.viewers[viewer] = None
        session.setup.streams += 1
        session.wait = viewer
        viewer.sent_us = self.engine.now_us
        session.begin_stream(200, EVENT_STREAM)
        self._hold(VIEWER_BYTES)
        self.run()

    def leave(self, viewer: FeedViewer) -> None:
        """Remove a viewer that has disconnected."""
        if viewer not in self.viewers:
            return
        del self.viewers[viewer]
        viewer.session.setup.streams -= 1
        self._hold(-VIEWER_BYTES)
        for name in viewer.topics:
            topic = self.topics[name]
            topic.viewers -= 1
            if not topic.viewers:
                topic.left_us = self.engine.now_us
                self.unwatched[name] = None
        while len(self.unwatched) > MOST_UNWATCHED:
            self._forget(next(iter(self.unwatched)))
        if not self.viewers:
            self._arm()

    def _hold(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        self.engine.memory.subscription_bytes += more_bytes

    # --- time ---

    def _arm(self) -> None:
        """Let the next tick come, or the time to forget what nobody watches."""
        next_us = 0
        for topic in self.topics.values():
            at_us = topic.due_us if topic.viewers else topic.left_us + KEPT_US
            if not next_us or at_us < next_us:
                next_us = at_us
        timer = self._timer
        if timer is not None:
            if timer.is_set and self._timer_us == next_us:
                return
            self.engine.cancel_timer(timer)
            self._timer = None
        if not next_us:
            return
        try:
            self._timer = self.engine.set_timer(self, next_us)
            self._timer_us = next_us
        except Refused:  # there is no memory for it; viewers may come back when there is
            for viewer in list(self.viewers):
                viewer.session.hang_up()

    def timer_fired(self, timer: Timer) -> None:
        self._timer = None
        if self._context is not None:
            self._context.soon(self.run)

    def run(self) -> None:
        """Make a tick of what is due, and greet new viewers."""
        if self._is_running:
            self._runs_again = True
            return
        assert self._context is not None
        self._is_running = True
        self._context.work_off(self._run(self._context))

    def _run(self, context: Context) -> Reading[None]:
        try:
            self._forget_unwatched()
            yield from self._collect(context)
            yield from self._encode()
            self._deliver()
        finally:
            self._is_running = False
            self._count_state()
            runs_again, self._runs_again = self._runs_again, False
            self._arm()
        if runs_again:
            context.soon(self.run)

    # --- a tick ---

    def _forget_unwatched(self) -> None:
        before_us = self.engine.now_us - KEPT_US
        for name in list(self.unwatched):
            if self.topics[name].left_us > before_us:
                break
            self._forget(name)
        if not self.topics:
            self.ring.clear()

    def _forget(self, name: str) -> None:
        """Drop a topic without viewers; one that comes back gets a snapshot."""
        del self.unwatched[name]
        self.topics.pop(name).forget()

    def _count_state(self) -> None:
        """Count the ring and the states of the topics in the memory account."""
        ring_bytes = 0
        for tick in self.ring:
            ring_bytes += tick.size
        state_bytes = 0
        for topic in self.topics.values():
            state_bytes += topic.held_bytes
        self._hold(VIEWER_BYTES * len(self.viewers) + ring_bytes + state_bytes - self._held_bytes)

    def _collect(self, context: Context) -> Reading[None]:
        """Collect the topics that are due, and add a tick to the ring if anything has changed."""
        now_us = self.engine.now_us
        tick = FeedTick(self.tick + 1)
        has_begun = False
        for topic in list(self.topics.values()):
            if not topic.viewers or topic.due_us > now_us:
                continue
            data = yield from topic.collect(context)
            topic.due_us = now_us + topic.interval_us
            if not topic.begun_tick:
                topic.begun_tick = tick.number
                has_begun = True
            elif data:
                tick.add(topic.name, data)
        if tick.events or has_begun:
            self.tick = tick.number
            self.ring.append(tick)
            size = 0
            for each in self.ring:
                size += each.size
            while len(self.ring) > RING_TICKS or (size > self.most_ring_bytes and len(self.ring) > 1):
                size -= self.ring.popleft().size

    def _encode(self) -> Reading[None]:
        """Encode the snapshots that viewers need."""
        wanted: dict[str, None] = {}
        for viewer in self.viewers:
            if not viewer.is_behind and self._missed(viewer) is None:
                for name in viewer.topics:
                    wanted[name] = None
        for name in wanted:
            topic = self.topics.get(name)
            if topic is not None and topic.begun_tick and topic.snapshot is None:
                topic.snapshot = yield from topic.encode()

    def _missed(self, viewer: FeedViewer) -> list[FeedTick] | None:
        """The ticks that a viewer has not been told of; `None` if it needs a snapshot."""
        seen = viewer.seen
        if seen == self.tick:
            return []
        if seen == NEW or seen > self.tick or not self.ring or self.ring[0].number > seen + 1:
            return None
        for name in viewer.topics:
            begun_tick = self.topics[name].begun_tick
            if not begun_tick or begun_tick > seen:
                return None
        missed: list[FeedTick] = []
        size = 0
        for tick in reversed(self.ring):
            if tick.number <= seen:
                break
            missed.append(tick)
            size += tick.size
        if len(missed) > 1 and size > BEHIND_BYTES:
            return None
        missed.reverse()
        return missed

    def _deliver(self) -> None:
        """Tell each viewer what is new to it."""
        now_us = self.engine.now_us
        joined: dict[tuple[str, ...], bytes] = {}  # for those who have seen all ticks but the last
        for viewer in list(self.viewers):
            if 0 < viewer.until_us <= now_us:  # the browser has to log in again
                viewer.server_stops(viewer.session)
                continue
            if viewer.is_behind or viewer.session.closing:
                continue
            missed = self._missed(viewer)
            if missed is None:
                self._greet(viewer, now_us)
                continue
            if len(missed) == 1 and viewer.topics in joined:
                data = joined[viewer.topics]
            else:
                data = self._joined(viewer.topics, missed)
                if len(missed) == 1:
                    joined[viewer.topics] = data
            viewer.seen = self.tick
            if data:
                viewer.send(data, now_us)
            elif now_us - viewer.sent_us >= COMMENT_US:
                viewer.send(COMMENT, now_us)

    def _joined(self, topics: tuple[str, ...], ticks: list[FeedTick]) -> bytes:
        """The events of these topics in these ticks, each with its id; nothing if there are none."""
        pieces: list[bytes] = []
        for tick in ticks:
            events = [tick.events[name] for name in topics if name in tick.events]
            if events:
                pieces += events
                pieces.append(b"id: %d\n\n" % tick.number)
        return b"".join(pieces)

    def _greet(self, viewer: FeedViewer, now_us: int) -> None:
        """Send a viewer snapshots of its topics."""
        pieces: list[bytes] = []
        if viewer.seen != NEW:
            pieces.append(b'event: reset\ndata: {"topics":%b}\n\n' % msgspec.json.encode(viewer.topics))
        for name in viewer.topics:
            snapshot = self.topics[name].snapshot
            if snapshot is None:  # it has joined, or caught up, while others were served
                self._runs_again = True
                return
            pieces.append(snapshot)
        pieces.append(b"id: %d\n\n" % self.tick)
        viewer.seen = self.tick
        viewer.send(b"".join(pieces), now_us)


def new_topic(name: str, prefix: bytes) -> FeedTopic:
    """Create the topic with this name."""
    if name == "overview":
        return OverviewTopic()
    if name == "functions":
        return RowsTopic(name, FUNCTION_COLUMNS)
    if name == "stream":
        return StreamTopic()
    if name == "workers":
        return RowsTopic(name, WORKER_COLUMNS)
    return JobTopic(int(name.partition(":")[2]), prefix)
