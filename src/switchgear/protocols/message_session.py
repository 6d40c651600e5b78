"""`MessageSession`: one session speaks to all peers of a listener, in messages of several frames.

Holding is by peer: messages to a peer that a durable change concerns wait for the commit, in their order, and delay no
other peer. To the engine all of them are one peer, so the moment of sending decides which peer a change concerns: while
a request that has changed something is handled, its sender; while an event of the engine that must be stored first is
handled, such as an assignment, the receiver of the message.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from mypy_extensions import mypyc_attr

from switchgear.access.permissions import NO_PERMISSIONS, Permissions
from switchgear.errors import PeerError, Refused
from switchgear.model import Job, Worker
from switchgear.protocols.context import Context
from switchgear.protocols.multipart import Message, message_bytes
from switchgear.protocols.pending_read import PendingRead, Step, close_steps
from switchgear.protocols.session import Session
from switchgear.protocols.transport import PeerTransport

__all__ = ["MessageSession"]


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageSession(Session):
    """The session of a listener whose peers exchange whole messages."""

    is_multiplexed = True

    def __init__(self, context: Context, transport: PeerTransport) -> None:
        super().__init__(context, transport)
        self.delayed: list[Message] = []  # messages that wait for the next commit
        self._delayed_for: dict[bytes, int] = {}  # by routing id, how many messages wait for a commit
        self._requester: bytes | None = None  # the routing id of the peer whose request is being handled
        self._is_telling = False  # an event of the engine is being handled
        self._event_batch = 0  # the batch of the event's change; 0: it need not be stored
        self._reads_for: dict[bytes, list[PendingRead]] = {}  # by routing id, reads that only an answer needs
        self._promised: list[Job] = []  # jobs that the answer to the request promises
        self._has_changes = False  # some of `delayed` wait for more than the promised jobs
        self._held_has_changes = False
        self.is_access_checked = not transport.access.is_open  # peers have permissions of their own
        self._permissions: dict[bytes, Permissions] = {}  # by routing id, of those that are connected

    def peer_identified(self, identity: bytes, permissions: Permissions) -> None:
        """Note the permissions of a new peer with this routing id."""
        if self.is_access_checked:
            self._permissions[identity] = permissions

    def forget_peer(self, identity: bytes) -> None:
        """Forget the permissions of a peer whose connection is closed."""
        self._permissions.pop(identity, None)

    def permissions_of(self, identity: bytes) -> Permissions:
        """The permissions of the peer with this routing id; none if it is gone."""
        return self._permissions.get(identity, NO_PERMISSIONS) if self.is_access_checked else self.permissions

    @abstractmethod
    def handle_message(self, message: Message) -> None:
        """Handle a message; the first frame is the sender's routing id, and at least one other frame follows."""

    @abstractmethod
    def unreachable(self, message: Message) -> None:
        """Handle a message that could not be delivered: the peer is gone, or does not read. No part of it was sent."""

    def peer_gone(self, identity: bytes) -> None:
        """Handle the closed connection of the peer with this routing id. Called by transports that can tell."""
        for read in self._reads_for.pop(identity, ()):
            read.give_up()

    def assign_job(self, worker: Worker, job: Job) -> None:
        """Send a job to its worker, which has granted credit; see `Peer.assign`."""

    def tell_end(self, job: Job) -> None:
        """Send the end of a job that this session is subscribed to; see `Peer.job_finished`."""

    def closed(self) -> None:
        """Handle the closing of the listener."""

    def answer_error(self, error: PeerError | Refused) -> None:
        """Do nothing: only the operation knows its request, and answers errors itself."""

    # --- which peer a change concerns ---

    def receive_message(self, message: Message) -> None:
        """Handle a message of a peer, as the engine's speaker."""
        engine = self.engine
        self._forget_change()
        self._requester = message[0]
        if self.is_access_checked:
            self.identify(self.permissions_of(message[0]))
        engine.speaker = self
        try:
            self.handle_message(message)
        finally:
            engine.speaker = None
            self._requester = None
            self._forget_change()

    def assign(self, worker: Worker, job: Job) -> None:
        self._is_telling = True
        self.assign_job(worker, job)
        self._event_told()

    def job_finished(self, job: Job) -> None:
        self._is_telling = True
        self.tell_end(job)
        self._event_told()

    def event_concerns(self, batch: int) -> None:
        self._event_batch = batch

    def _event_told(self) -> None:
        self._is_telling = False
        self._event_batch = 0

    def _forget_change(self) -> None:
        """Forget the current change: later messages are about something else."""
        self.unstored_batch = 0
        self._event_batch = 0
        if self._promised:
            self._promised = []

    def _in_request(self, steps: Iterator[Step], requester: bytes | None) -> Iterator[Step]:
        """Run each step as part of the peer's request; all of them together are one request."""
        try:
            yield from self._steps_of_request(steps, requester)
        finally:
            close_steps(steps)

    def _steps_of_request(self, steps: Iterator[Step], requester: bytes | None) -> Iterator[Step]:
        engine = self.engine
        unstored_batch = 0
        promised: list[Job] = []
        while True:
            speaker_before, requester_before = engine.speaker, self._requester
            batch_before, promised_before = self.unstored_batch, self._promised
            engine.speaker, self._requester = self, requester
            self.unstored_batch, self._promised = unstored_batch, promised
            try:
                step = next(steps)
            except StopIteration:
                return
            finally:
                unstored_batch, promised = self.unstored_batch, self._promised
                engine.speaker, self._requester = speaker_before, requester_before
                self.unstored_batch, self._promised = batch_before, promised_before
            yield step

    def while_connected(self, identity: bytes, steps: Iterator[Step]) -> Iterator[Step]:
        """Steps that change nothing and lead to an answer: given up if the peer leaves while the store is read."""
        for step in steps:
            if not isinstance(step, PendingRead):
                yield step
                continue
            reads = self._reads_for.setdefault(identity, [])
            reads.append(step)
            try:
                yield step
            finally:
                reads.remove(step)
                if not reads and self._reads_for.get(identity) is reads:
                    del self._reads_for[identity]
            if step.is_given_up:
                close_steps(steps)
                return

    def work_off(self, steps: Iterator[Step]) -> None:
        """Run a peer's request in steps; other peers are served meanwhile."""
        self.context.work_off(self._in_request(steps, self._requester))

    # --- output ---

    def job_promised(self, job: Job, batch: int) -> None:
        self._promised.append(job)

    def send(self, message: Any) -> None:
        """Send this at the end of the turn; or after the commit, if it tells of a change or follows a message that
        does."""
        if self._is_telling:
            must_wait = self._event_batch > 0
        elif message[0] == self._requester:
            must_wait = self.unstored_batch > 0 or bool(self._promised)
        else:
            must_wait = False
        if must_wait or (self._delayed_for and message[0] in self._delayed_for):
            self._delay(message)
        else:
            self.send_at_once(message)

    def send_at_once(self, message: Message) -> None:
        """Send a message that promises nothing, before the delayed messages of its peer."""
        self.out.append(message)
        if not self.marked:
            self.marked = True
            self.context.marked.append(self)

    def _delay(self, message: Message) -> None:
        if self._promised and not self._is_telling and message[0] == self._requester:
            index = len(self.delayed)
            self.promised_jobs += [(index, job) for job in self._promised]
            self._promised = []
        elif self._event_batch if self._is_telling else self.unstored_batch:
            self._has_changes = True
        self.delayed.append(message)
        self._delayed_for[message[0]] = self._delayed_for.get(message[0], 0) + 1
        self.mark()

    def is_delayed(self, message: Message) -> bool:
        """Whether this message object waits for a commit."""
        return any(waiting is message for waiting in self.delayed_messages())

    def delayed_messages(self) -> list[Message]:
        """All messages that wait for a commit."""
        return [*(self.held or ()), *self.delayed]

    @property
    def delayed_bytes(self) -> int:
        """How many bytes of output wait for a commit."""
        return message_bytes(self.delayed) + message_bytes(self.held or ())

    @property
    def unsent_bytes(self) -> int:
        return message_bytes(self.out) + message_bytes(self.unsaid) + self.delayed_bytes

    # --- called by the hub ---

    def must_wait(self, batch: int) -> bool:
        return self._has_changes or bool(self.promised_jobs)

    def hold(self) -> None:
        self.held, self.delayed = self.delayed, []
        self.held_jobs, self.promised_jobs = self.promised_jobs, []
        self._held_has_changes, self._has_changes = self._has_changes, False
        self.waiting = False

    def release(self) -> list[Message]:
        held, self.held = self.held or [], None
        self.held_jobs = []
        if self.delayed and not self.must_wait(0):  # it was only held to keep the order
            held += self.delayed
            self.delayed = []
        delayed_for = self._delayed_for
        for message in held:
            left = delayed_for[message[0]] - 1
            if left:
                delayed_for[message[0]] = left
            else:
                del delayed_for[message[0]]
        return held

    def unhold(self) -> None:
        held, self.held = self.held or [], None
        self.promised_jobs = self.held_jobs + [(index + len(held), job) for index, job in self.promised_jobs]
        self.held_jobs = []
        self.delayed = held + self.delayed
        self._has_changes = self._has_changes or self._held_has_changes

    def report_was_lost(self, places: list[int]) -> None:
        held = self.held or []
        for index in sorted(set(places), reverse=True):
            identity = held.pop(index)[0]
            self._delayed_for[identity] -= 1
            if not self._delayed_for[identity]:
                del self._delayed_for[identity]

    def refused_message(self, answer: Message, refused: Refused) -> Message:
        """The message in place of an answer that promised a withdrawn job."""
        return answer

    def refusal_instead_of(self, answer: Any, refused: Refused) -> Any:
        return self.refused_message(answer, refused)

    def refuse_withdrawn(self, refused: Refused) -> None:
        still_promised = []
        for index, job in self.promised_jobs:
            if job.withdrawn:
                self.delayed[index] = self.refused_message(self.delayed[index], refused)
            else:
                still_promised.append((index, job))
        self.promised_jobs = still_promised
