"""`Session`: the base of all sessions, which translate input of peers into engine calls, and events into output.

A session touches no socket. `ByteSession` reads a stream of bytes from one peer, and `MessageSession`
(`protocols.message_session`) whole messages from all peers of a listener. Both share output and holding
(`protocols.output`), flow control, and operations that take many turns.

While a session handles a request of its peer, it is the engine's `speaker`: the durable changes of the request concern
it, and its answers wait for the commit with these changes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from mypy_extensions import mypyc_attr

from switchgear.access.permissions import EVERYBODY, Permissions
from switchgear.errors import PeerError, Refused
from switchgear.model import DONE, FAILED, FINAL_STATES, Job, Worker
from switchgear.protocols.context import Context
from switchgear.protocols.output import Output
from switchgear.protocols.pending_read import PendingRead, Reading, Step, awaited, close_steps
from switchgear.protocols.transport import PeerTransport
from switchgear.refusals import REFUSED_NOT_ALLOWED, REFUSED_UNIDENTIFIED
from switchgear.verbs.access import Role

__all__ = ["ByteSession", "Session"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(Output):
    """The base class of sessions for bytes and for messages."""

    protocol: str = ""

    def __init__(self, context: Context, transport: PeerTransport) -> None:
        super().__init__(context, transport)
        self.source = self.engine.source_of(self.protocol)
        self.long_bytes = 0  # how many bytes of `out` are long answers
        self.deferred: list[tuple[int, bytes]] = []  # requests to be handled when those are sent
        self.operation: Iterator[Step] | None = None  # runs in steps; other requests wait until it is done
        self.pending_read: PendingRead | None = None  # the last read of the operation
        self.is_paused = False  # the operation continues when the peer has read its output
        self.has_ended_operation = False  # input is read again
        self.write_paused = False  # much was pushed to it; more is pushed when it has read that
        self.permissions = transport.permissions  # of the peer; see `identify`
        self.is_guarded = not transport.permissions.is_full  # the peer may not do everything

    @abstractmethod
    def closed(self) -> None:
        """Handle the closing of the connection or listener."""

    # --- access ---

    def identify(self, permissions: Permissions) -> None:
        """Give the peer other permissions: it has identified itself."""
        self.permissions = permissions
        self.is_guarded = not permissions.is_full

    def require(self, verb: str, needed: frozenset[Role], function: bytes | None = None) -> None:
        """Raise Refused unless the peer has one of these roles, and may use the function."""
        if self.is_guarded:
            refusal = self.permissions.refusal(verb, needed, function)
            if refusal:
                raise self.access_refusal(refusal)

    def require_job(self, verb: str, needed: frozenset[Role], function: bytes) -> None:
        """The same for a job of this function, of which the peer knows the handle."""
        if self.is_guarded:
            refusal = self.permissions.refusal_of_job(verb, needed, function)
            if refusal:
                raise self.access_refusal(refusal)

    def require_predecessor(self, job_id: int) -> None:
        """Raise Refused if a job of the peer must not wait for this one, whose end it would learn."""
        if self.is_guarded and self.permissions.globs:
            function = self.engine.function_to_wait_for(job_id)
            if function is not None:
                self.require_job("to wait for a job", EVERYBODY, function)
            elif self.engine.placement is not None:
                raise self.access_refusal(self.permissions.refusal_of_all("to wait for a job of another node"))

    def access_refusal(self, text: str) -> Refused:
        """The error for something that the peer may not do; it is counted."""
        self.context.count_access_refused(self, text)
        if self.permissions.is_anonymous and not self.transport.access.is_open:
            return Refused(REFUSED_UNIDENTIFIED, text)
        return Refused(REFUSED_NOT_ALLOWED, text)

    # --- flow control ---

    def note_long_answer(self, size: int) -> None:
        """Note that a long answer of this many bytes is about to be sent; after many of these, requests are
        deferred."""
        self.long_bytes += size
        self.engine.memory.answer_bytes += size

    def sent(self) -> None:
        goes_on = self.write_paused or self.has_ended_operation
        if self.deferred or self.operation is not None or (goes_on and not self.closing):
            self.has_ended_operation = False
            self.transport.when_taken(self.go_on)
        elif self.closing:
            self.transport.close()

    def go_on(self) -> None:
        """Continue with deferred work: the peer has read its output."""
        self.engine.speaker = self
        try:
            self.handle_deferred()
        finally:
            self.engine.speaker = None

    def handle_deferred(self) -> None:
        """Handle the requests that were deferred."""

    def not_read(self) -> None:
        """Note that the peer's input is not read for now, so its silence means nothing."""

    def read_again(self) -> None:
        """Note that the peer's input is read again."""

    def server_stops(self) -> bool:
        """Answer requests that wait, because the connection is about to be closed; whether answers are still missing.

        It is called again until none is, or for a second.
        """
        return False

    # --- operations of many turns ---

    def work_off(self, steps: Iterator[Step]) -> None:
        """Run a request in steps. Other requests of the peer wait until it is done."""
        self.operation = operation = self._until_done(steps)
        self.mark()  # so that no input is read meanwhile
        self.context.work_off(operation)

    def _until_done(self, steps: Iterator[Step]) -> Iterator[Step]:
        try:
            for step in self._as_speaker(steps):
                self.is_paused = step is True
                if self.is_paused:
                    self.mark()
                elif isinstance(step, PendingRead):
                    self.pending_read = step
                yield step
        except (PeerError, Refused) as error:
            self.answer_error(error)
        finally:
            close_steps(steps)
            self.pending_read = None
            self.operation = None
            self.is_paused = False
            self.has_ended_operation = True
            self.mark()

    def _as_speaker(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Run each step with this session as the engine's speaker."""
        engine = self.engine
        while True:
            before, engine.speaker = engine.speaker, self
            try:
                step = next(steps)
            except StopIteration:
                return
            finally:
                engine.speaker = before
            yield step

    def resume_operation(self) -> None:
        """Continue the operation: the peer has read its output."""
        if self.operation is not None and self.is_paused:
            self.is_paused = False
            self.context.work_off(self.operation)

    def abandon_read(self) -> None:
        """Abandon an operation that waits for the store, because the peer is gone."""
        read = self.pending_read
        if read is not None and not read.is_done and self.operation is not None:
            close_steps(self.operation)

    def answer_error(self, error: PeerError | Refused) -> None:
        """Answer a request with an error; close the connection if the protocol has no errors."""
        self.closing = True
        self.mark()

    # --- jobs whose payloads only the store has ---

    def take_when_read(self, worker: Worker, wait: PendingRead) -> Reading[Job | None]:
        """A job for a worker that got none because a payload was being read; `None` if there is none after all.

        A worker that is told that there is no job may conclude that the queue is empty.
        """
        while True:
            yield from awaited(wait)
            job = self.engine.take(worker)
            if job is not None:
                return job
            next_wait = self.context.awaited_payload(worker)
            if next_wait is None:
                return None
            wait = next_wait

    # --- finished jobs ---

    def ended_job(self, job_id: int) -> Reading[Job | None]:
        """A finished job that the engine no longer has; `None` if it is unknown. Raises Refused.

        It may have ended a moment ago, so that its end is not stored yet. An answer with it then has to wait for the
        commit.
        """
        job = self.context.find_unkept_end(job_id)
        if job is not None:
            if job.delivery:
                self.await_commit()
            return job
        job = yield from self.context.find_job(job_id)
        if job is None or job.state not in FINAL_STATES:
            job = self.context.find_unkept_end(job_id)  # it has ended again meanwhile
            if job is not None and job.delivery:
                self.await_commit()
        return job

    def job_elsewhere(self, job_id: int) -> Reading[Job | None]:
        """A job that stands for the unfinished one of another node with this id, and can be subscribed to; or that job,
        if it has ended since `ended_job` was called. `None` if there is none. Raises Refused."""
        placement = self.engine.placement
        if placement is None:
            return None
        job = yield from self.context.find_job(job_id)
        if job is None or job.state in FINAL_STATES:
            return job
        return placement.stand_in(job)

    def await_room_elsewhere(self, wanted: Sequence[tuple[bytes, int, int]]) -> Iterator[Step]:
        """Raise Refused if functions of other nodes may not have so many more jobs: `FunctionPlacement.ask_room`."""
        placement = self.engine.placement
        if placement is None:
            return
        elsewhere = [each for each in wanted if not placement.is_ours(each[0])]
        if not elsewhere:
            return
        answer = PendingRead()
        placement.ask_room(elsewhere, answer.finish)
        refused = yield from awaited(answer)
        if refused is not None:
            raise refused

    def id_to_tell(self, job: Job) -> int:
        """The id by which the peer finds a job later: of the job that its submission has joined at another node."""
        placement = self.engine.placement
        return job.id if placement is None else placement.id_at_owner(job)

    def stored_elsewhere(self, job_id: int) -> Reading[Job | None]:
        """The unfinished job of another node with this id, as the store has it. Raises Refused."""
        job = yield from self.context.find_job(job_id)
        if job is None or job.state in FINAL_STATES or self.engine.has_job(job_id):
            return None
        placement = self.engine.placement
        return None if placement is None or placement.is_ours(job.function.name) else job

    def held_end(self, held: Job) -> Reading[Job]:
        """The end of a finished job that a submission joined, because it still holds its unique key.

        The engine knows only that it ended. If its result cannot be read, it counts as failed: an error would be taken
        for the answer to another request, and an empty result for the result.
        """
        reason = "its result is no longer stored"
        try:
            job = yield from self.ended_job(held.id)
            if job is not None:
                return job
        except Refused as refused:
            reason = f"its result cannot be read: {refused}"
        if held.state is not DONE:
            return held
        job = Job(held.id, held.function, held.unique, None, held.priority, held.delivery, held.created_us)
        job.state = FAILED
        job.finished_us = held.finished_us
        job.result_code = 255
        job.error = f"the job was done, and {reason}".encode()
        return job


@mypyc_attr(allow_interpreted_subclasses=True)
class ByteSession(Session):
    """The session of one peer over a stream of bytes."""

    @abstractmethod
    def handle_data(self, data: bytes) -> None:
        """Handle bytes of the peer; they may be any slice of the stream."""

    def refusal(self, refused: Refused) -> bytes:
        """The refusal of a submission in this protocol; empty if the protocol has no submissions."""
        return b""

    def receive(self, data: bytes) -> None:
        """Handle bytes of the peer, as the engine's speaker."""
        self.engine.speaker = self
        try:
            self.handle_data(data)
        finally:
            self.engine.speaker = None

    def resume_soon(self) -> None:
        """Call `resume` in the next turn: after an event of the engine, which must not be called from an event."""
        self.context.soon(self._resume)

    def _resume(self) -> None:
        self.engine.speaker = self
        try:
            self.resume()
        finally:
            self.engine.speaker = None

    def resume(self) -> None:
        """Continue with requests that waited for an event."""

    def eof(self) -> None:
        """Handle the end of the peer's input. It gets the answers to its requests, and then the connection is closed.

        Whether it still reads cannot be known: closing both directions looks the same.  So a job that only it waits
        for is not kept alive.
        """
        self.closing = True
        self.mark()

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of an unfinished message are held."""
        return 0

    @property
    def awaited_bytes(self) -> int:
        """How many bytes of a long message are missing, if that is known."""
        return 0

    def awaited_input(self) -> tuple[int, float]:
        """What is awaited from the peer, and for how many seconds at most; 0: it may be silent for any time.

        What is awaited is a number that is another one when that has come.  The connection asks once a second.
        """
        return 0, 0.0

    def silence_timed_out(self) -> None:
        """Handle a peer that has been silent for too long; see `awaited_input`."""

    @property
    def awaits_store(self) -> bool:
        """Whether no more input should be read while the store fails, because answers have to wait for it."""
        return self.awaits_commit

    def job_promised(self, job: Job, batch: int) -> None:
        self.promised_jobs.append((len(self.out), job))

    def answer_all_since(self, first: int) -> None:
        """Make the next output the answer to all submissions from this index of `promised_jobs` on."""
        promised = self.promised_jobs
        promised[first:] = [(len(self.out), job) for _, job in promised[first:]]

    def refusal_instead_of(self, answer: Any, refused: Refused) -> Any:
        return self.refusal(refused)
