"""The core of every Gearman worker, without I/O: bytes in, events out, and bytes to send.

Between our worker and our server, jobs flow by credits.  The worker says how many jobs it has room for (CREDIT), the
server pushes as many (JOB_PUSH), and a report travels in one write with the credit for the next job.  Whether the
server knows credits is asked first (OPTION_REQ).  With a server that does not, or if the worker does not ask, the
worker grabs jobs one at a time (GRAB_JOB_UNIQ); if there is none it says that it sleeps (PRE_SLEEP), and when it is
woken (NOOP) it grabs again.  There is one grab at a time, so its answer always belongs to the last one.

A job whose arguments refer to other jobs arrives in two steps: their results are fetched (WATCH), and then the job is
announced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import msgspec

from switchgear.client.gearman.argument_results import ArgumentResults
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Fail, Outcome, RetryLater, Stopped
from switchgear.client.gearman.error_codes import AUTHENTICATION_FAILED, QUEUE_ERROR, error_in_packet
from switchgear.client.gearman.packets import (
    LARGEST_PACKET_BYTES,
    PACKET_BYTES_OPTION,
    SWITCHGEAR_OPTION,
    TRACES_OPTION,
    name_bytes,
    name_text,
    response_decoder,
    split_fields,
    wire_number,
)
from switchgear.client.gearman.worker_answers import control_request, ready_jobs, undeclared_in
from switchgear.client.gearman.worker_events import (
    JobAssigned,
    JobResumed,
    JobRevoked,
    JobUnrunnable,
    ReadyJobsCounted,
    RefusedByServer,
    ReportsConfirmed,
    WorkerEvent,
    WorkerSubscribed,
)
from switchgear.errors import PeerError
from switchgear.protocols.gearman.codec import FOREIGN_MAGIC, TEXT, request
from switchgear.protocols.gearman.messages import Packet
from switchgear.resources import canonical_resources
from switchgear.tags import canonical_tags

__all__ = ["HEARTBEAT", "TIMED_OUT", "WorkerIntroduction", "WorkerProtocol"]

ENVELOPE_BYTES: Final = 256  # of a result: its header, and the handle of its job
TIMED_OUT: Final = "timed_out"
# After a revocation for one of these reasons the job is no longer the worker's, and a report would be an error.
HELD_BACK: Final = "held_back"  # the job waits for others now
GONE_REASONS: Final = frozenset({TIMED_OUT, HELD_BACK})
_FINAL_STATES: Final = frozenset({"done", "failed", "cancelled", "expired"})
HEARTBEAT: Final = b"alive"
_CONFIRMATION: Final = b"done"
_RESUMED: Final = b"resumed"


@dataclass(frozen=True, slots=True)
class WorkerIntroduction:
    """What a worker sends to a server on each new connection."""

    name: str
    functions: Mapping[str, float]  # the longest run of each in seconds, 0 for no limit
    declarations: Sequence[tuple[str, Mapping[str, Any]]] = ()  # limits and schedules that the server is to know first
    lease_seconds: float = 15.0  # 0: none, and no heartbeats
    references: Callable[[str, bytes], list[str]] = lambda function, payload: []  # of a payload: handles of other jobs
    uses_extensions: bool = True  # ask whether the server knows them
    tags: Sequence[str] = ()  # jobs that require these are taken too; a server of ours has to know them
    resources: str = ""  # and jobs that require so much, as far as it is free: memory=64G,cores=8
    status: Callable[[], Mapping[str, Any]] | None = None  # what an operator sees of it; None: it is not controlled


class _Phase(Enum):
    ASKING_FOR_EXTENSIONS = auto()
    DECLARING = auto()
    SERVING = auto()


class WorkerProtocol:
    """One connection to one server.  A new connection needs a new one."""

    def __init__(self, introduction: WorkerIntroduction) -> None:
        self.extended = False  # the server knows our extensions
        self.granted = 0  # credits that the server should still have
        self.grabbing = False  # a grab has no answer yet, so a job may come; plain servers only
        self.packet_bytes = LARGEST_PACKET_BYTES  # the largest packet that the server takes, as far as is known
        self._introduction = introduction
        self._lease = b"%d" % round(introduction.lease_seconds * 1000)
        self._phase = _Phase.ASKING_FOR_EXTENSIONS
        self._awake = True  # a plain server may have a job: it has not said otherwise, or has woken us
        self._room = 0
        self._stopping = False
        self._undeclared: list[str] = []  # declarations without an answer
        self._arguments = ArgumentResults()
        self._fetches_again = False  # ask again for results with the next heartbeat
        self._cancelled: set[str] = set()  # jobs that stay ours until they are reported
        self._gone: set[str] = set()  # jobs that were taken from us, although they still run
        self._decoder = response_decoder()
        self._events: list[WorkerEvent] = []
        self._out: list[bytes] = []
        if introduction.uses_extensions:
            self._send(Packet.OPTION_REQ, SWITCHGEAR_OPTION)
        self._send(Packet.SET_CLIENT_ID, name_bytes(introduction.name))
        if not introduction.uses_extensions:
            self._serve_plainly()

    # --- output and events ---

    def take_output(self) -> bytes:
        """Everything that is to be sent now."""
        out, self._out = b"".join(self._out), []
        return out

    @property
    def has_output(self) -> bool:
        """Whether there is something to send."""
        return bool(self._out)

    def take_events(self) -> list[WorkerEvent]:
        """Events that have not been returned by `receive`."""
        events, self._events = self._events, []
        return events

    def _send(self, kind: Packet, *arguments: bytes) -> None:
        self._out.append(request(kind, *arguments))

    # --- room for jobs ---

    @property
    def subscribed(self) -> bool:
        """Whether the worker is registered, so that the server can send jobs."""
        return self._phase is _Phase.SERVING

    @property
    def waiting_jobs(self) -> int:
        """How many assigned jobs wait for their arguments."""
        return len(self._arguments)

    @property
    def sleeps(self) -> bool:
        """Whether a plain server had no job for us when it was last asked."""
        return self.subscribed and not self.extended and not self._awake

    @property
    def can_grab(self) -> bool:
        """Whether a plain server would be asked for a job if there were room."""
        return self.subscribed and not self.extended and self._awake and not self.grabbing and not self._stopping

    def set_room(self, room: int) -> None:
        """Set the number of further jobs that the worker can take, and grant credit for them."""
        self._room = max(0, room)
        if not self.subscribed:
            return
        if not self.extended:
            if self._room and self.can_grab:
                self.grabbing = True
                self._send(Packet.GRAB_JOB_UNIQ)
        elif self._room != self.granted:
            self._send(Packet.CREDIT, b"%d" % (self._room - self.granted), self._lease)
            self.granted = self._room

    def stop_taking(self) -> None:
        """Take no more jobs, except one that was asked for. PRE_SLEEP is not sent any more, so that no server wakes
        us."""
        self._stopping = True
        self.set_room(0)

    # --- reports ---

    def within_limits(self, outcome: Outcome) -> Outcome:
        """The outcome, or a failure if its result is larger than the server takes: the server would close the
        connection, and all jobs that came over it would be lost."""
        if isinstance(outcome, Complete) and len(outcome.result) > self.packet_bytes - ENVELOPE_BYTES:
            size = f"the result has {len(outcome.result)} bytes, and the server takes at most {self.packet_bytes}"
            return Fail(f"ResultError: {size}\n\nThe task has returned, but its result could not be sent.")
        return outcome

    def report(self, handle: str, outcome: Outcome) -> bool:
        """Report how an attempt ended; False if the server does not want to know."""
        if handle in self._gone:
            self._gone.discard(handle)
            return False
        name = name_bytes(handle)
        if handle in self._cancelled:
            self._cancelled.discard(handle)
            self._send(Packet.WORK_FAIL, name)  # any report ends the assignment
        elif isinstance(outcome, Complete):
            self._send(Packet.WORK_COMPLETE, name, outcome.result)
        elif isinstance(outcome, RetryLater) and self.extended:
            delay, limit = b"%d" % math.ceil(outcome.delay_seconds * 1000), b"%d" % outcome.attempts_limit
            self._send(Packet.RETRY_LATER, name, delay, limit, name_bytes(outcome.error))
        elif isinstance(outcome, Stopped):
            return self._report_stopped(handle, outcome.reason)
        elif outcome.error:
            self._send(Packet.WORK_EXCEPTION, name, name_bytes(outcome.error))
        else:
            self._send(Packet.WORK_FAIL, name)
        return True

    def _report_stopped(self, handle: str, reason: str) -> bool:
        """Report an attempt that the worker itself has stopped."""
        if reason != TIMED_OUT:
            return self.release(handle)
        if self.extended:
            return False  # our server watches over time limits itself
        self._send(Packet.WORK_EXCEPTION, name_bytes(handle), b"TimeoutError: it took too long, and was stopped")
        return True

    def release(self, handle: str) -> bool:
        """Give a job back as if it had not been started; False if only the end of the connection can do that."""
        if handle in self._gone:
            self._gone.discard(handle)
            return True
        if handle in self._cancelled:
            self._cancelled.discard(handle)
            self._send(Packet.WORK_FAIL, name_bytes(handle))
            return True
        if not self.extended:
            return False
        self._send(Packet.HAND_BACK, name_bytes(handle))
        return True

    def release_waiting(self) -> None:
        """Give back the jobs that wait for their arguments."""
        for handle in self._arguments.handles:
            self._arguments.discard(handle)
            self.release(handle)

    def resume(self, handle: str, attempt: int) -> None:
        """Ask for a job that this worker still runs, although an earlier connection was lost; `JobResumed` answers."""
        self._send(Packet.RESUME_JOB, name_bytes(handle), b"%d" % attempt)

    def start_lease(self) -> None:
        """Have the server watch over this worker although there is no room for jobs."""
        self._send(Packet.CREDIT, b"0", self._lease)

    def forget(self, handle: str) -> None:
        """A job was revoked after it was reported: the two packets have crossed."""
        self._gone.discard(handle)
        self._cancelled.discard(handle)

    def progress(self, handle: str, done: int, total: int, message: str = "") -> None:
        """Report how far a job is."""
        if handle in self._gone or handle in self._cancelled:
            return
        numbers = (name_bytes(handle), b"%d" % done, b"%d" % total)
        if self.extended:
            self._send(Packet.WORK_PROGRESS, *numbers, name_bytes(message))
        else:
            self._send(Packet.WORK_STATUS, *numbers)

    def data(self, handle: str, data: bytes) -> None:
        """Send part of the result ahead of its end."""
        if handle not in self._gone and handle not in self._cancelled:
            self._send(Packet.WORK_DATA, name_bytes(handle), data)

    def warning(self, handle: str, data: bytes) -> None:
        """Send a warning, which is not part of the result."""
        if handle not in self._gone and handle not in self._cancelled:
            self._send(Packet.WORK_WARNING, name_bytes(handle), data)

    # --- other requests ---

    def heartbeat(self) -> None:
        """Renew the lease, and have the server answer."""
        self._send(Packet.ECHO_REQ, HEARTBEAT)
        if self._fetches_again:
            self._fetches_again = False
            for wanted in self._arguments.wanted:
                self._send(Packet.WATCH, name_bytes(wanted))

    def request_confirmation(self) -> None:
        """Ask for `ReportsConfirmed`, which comes when the server has handled everything sent before."""
        self._send(Packet.ECHO_REQ, _CONFIRMATION)

    def count_ready_jobs(self) -> None:
        """Ask for `ReadyJobsCounted`; for servers with our extensions."""
        self._send(Packet.CONTROL, b"functions", b"{}")

    # --- input ---

    def receive(self, data: bytes) -> list[WorkerEvent]:
        """The events in these bytes; raises PeerError if they are not Gearman."""
        for kind, body in self._decoder.feed(data):
            handler = _ON_PACKET.get(kind)
            if handler is not None:  # packets for clients are ignored
                handler(self, body)
        if self._decoder.failure is not None:
            raise self._decoder.failure
        return self.take_events()

    def _on_option(self, body: bytes) -> None:
        option, _, value = body.partition(b"\0")
        if option == PACKET_BYTES_OPTION:
            self.packet_bytes = wire_number(value)
        elif option == TRACES_OPTION:
            return
        elif self._phase is _Phase.ASKING_FOR_EXTENSIONS:
            self.extended = True
            self._send(Packet.OPTION_REQ, PACKET_BYTES_OPTION)
            self._send(Packet.OPTION_REQ, TRACES_OPTION)
            self._announce_functions()
            for verb, arguments in self._introduction.declarations:
                self._undeclared.append(f"{verb} {arguments.get('name') or arguments.get('function') or ''}".strip())
                self._send(Packet.CONTROL, name_bytes(verb), msgspec.json.encode(arguments))
            self._phase = _Phase.DECLARING
            self._serve_when_declared()

    def _on_error(self, body: bytes) -> None:
        error = error_in_packet(body)
        if error.code == AUTHENTICATION_FAILED:
            raise PeerError(f"the token is not accepted: {error}")
        if self._phase is _Phase.ASKING_FOR_EXTENSIONS:
            self._serve_plainly()
        elif self._undeclared:
            self._events.append(RefusedByServer(error, self._undeclared.pop(0)))
            self._serve_when_declared()
        elif self._arguments.wanted and error.code == QUEUE_ERROR:
            self._fetches_again = True  # the jobs are ours, and wait
            self._events.append(RefusedByServer(error, "results of other jobs"))
        else:
            self._events.append(RefusedByServer(error))

    def _serve_plainly(self) -> None:
        self._announce_functions()
        self._serve_when_declared()

    def _announce_functions(self) -> None:
        tags, resources = self._introduction.tags, self._introduction.resources
        if self.extended or not self._introduction.uses_extensions:
            if tags:
                self._send(Packet.WORKER_TAGS, canonical_tags(tags))
            if resources:
                self._send(Packet.WORKER_RESOURCES, canonical_resources(resources))
        for function, timeout_seconds in self._introduction.functions.items():
            # At its limit a plain server would queue the job again, for ever; there the worker watches over it.
            if timeout_seconds and self.extended:
                self._send(Packet.CAN_DO_TIMEOUT, name_bytes(function), b"%d" % math.ceil(timeout_seconds * 1000))
            else:
                self._send(Packet.CAN_DO, name_bytes(function))
        self.send_status(0)

    def send_status(self, answered: int, **more: Any) -> None:
        """Tell the server what an operator may see, in answer to the request of this number; 0: without one."""
        status = self._introduction.status
        if self.extended and status is not None:
            self._send(Packet.WORKER_STATUS, b"%d" % answered, msgspec.json.encode({**status(), **more}))

    def _on_worker_control(self, body: bytes) -> None:
        self._events.append(control_request(body))

    def _serve_when_declared(self) -> None:
        if not self._undeclared:
            self._phase = _Phase.SERVING
            self._events.append(WorkerSubscribed(self.extended))
            self.set_room(self._room)

    def _on_control(self, body: bytes) -> None:
        if self._undeclared:
            if self._undeclared.pop(0) == "declare":
                self._on_declared(body)
            self._serve_when_declared()
            return
        self._events.append(ReadyJobsCounted(ready_jobs(body, self._introduction.functions)))

    def _on_declared(self, body: bytes) -> None:
        found = undeclared_in(body)
        if found.schedules or found.functions:
            self._events.append(found)

    def _on_echo(self, body: bytes) -> None:
        if self._phase is _Phase.ASKING_FOR_EXTENSIONS:
            self._serve_plainly()  # the server has ignored the option
        if body == _CONFIRMATION:
            self._events.append(ReportsConfirmed())

    def _on_foreign(self, body: bytes) -> None:
        raise PeerError("something that is not an answer")

    # --- jobs ---

    def _on_push(self, body: bytes) -> None:
        *fields, payload = split_fields(body, 8)
        self._on_pushed(fields, b"", payload)

    def _on_push_traced(self, body: bytes) -> None:
        *fields, trace, payload = split_fields(body, 9)
        self._on_pushed(fields, trace, payload)

    def _on_pushed(self, fields: list[bytes], trace: bytes, payload: bytes) -> None:
        handle, function, unique, attempt, losses, limit, timeout_ms = fields
        if self.granted:
            self.granted -= 1
        self._assign(
            AssignedJob(
                name_text(handle),
                name_text(function),
                payload,
                name_text(unique) if unique else "",
                wire_number(attempt),
                wire_number(losses),
                wire_number(limit),
                wire_number(timeout_ms) / 1000,
                trace=name_text(trace) if trace else "",
            )
        )

    def _on_assign(self, body: bytes) -> None:
        handle, function, unique, payload = split_fields(body, 4)
        self.grabbing = False
        self._assign(AssignedJob(name_text(handle), name_text(function), payload, name_text(unique)))

    def _on_no_job(self, body: bytes) -> None:
        self.grabbing = False
        self._awake = False  # a NOOP before this answer concerned a job that is no longer there
        if not self._stopping:
            self._send(Packet.PRE_SLEEP)

    def _on_noop(self, body: bytes) -> None:
        self._awake = True

    def _on_revoke(self, body: bytes) -> None:
        raw, reason = split_fields(body, 2)
        handle, word = name_text(raw), name_text(reason)
        if word in GONE_REASONS:
            self._send(Packet.HAND_BACK, raw)  # from now on, reports on this job are about a later attempt
        if self._arguments.discard(handle):  # it was not announced yet
            if word not in GONE_REASONS:
                self._send(Packet.WORK_FAIL, raw)
            return
        if word in GONE_REASONS:
            self._gone.add(handle)
        else:
            self._cancelled.add(handle)
        self._events.append(JobRevoked(handle, word))

    def _on_resumed(self, body: bytes) -> None:
        handle, word = split_fields(body, 2)
        self._events.append(JobResumed(name_text(handle), word == _RESUMED))

    def _assign(self, assignment: AssignedJob) -> None:
        self.forget(assignment.handle)  # an earlier attempt may have been revoked
        timeout_seconds = self._introduction.functions.get(assignment.function)
        if timeout_seconds is None:
            self._refuse(assignment, f"LookupError: this worker has no task {assignment.function}")
            return
        if timeout_seconds and not assignment.timeout_seconds:
            assignment = msgspec.structs.replace(assignment, timeout_seconds=timeout_seconds)
        references = self._introduction.references(assignment.function, assignment.payload)
        if not references:
            self._events.append(JobAssigned(assignment))
        elif not self.extended:
            self._refuse(
                assignment,
                "NotSupported: the arguments are results of other jobs, and a plain Gearman server does not keep them",
            )
        else:
            for wanted in self._arguments.add(assignment, references):
                self._send(Packet.WATCH, name_bytes(wanted))

    def _refuse(self, assignment: AssignedJob, error: str) -> None:
        self.report(assignment.handle, Fail(error))
        self._events.append(JobUnrunnable(assignment, error))

    # --- results of other jobs ---

    def _on_watch(self, body: bytes) -> None:
        raw, word = split_fields(body, 2)
        wanted, state = name_text(raw), name_text(word)
        if state in _FINAL_STATES:
            return  # its end follows
        problem = "the server does not know that job" if state == "unknown" else f"that job is {state}"
        for assignment in self._arguments.on_no_result(wanted):
            self._refuse(assignment, f"LookupError: an argument is the result of {wanted}, and {problem}")

    def _on_complete(self, body: bytes) -> None:
        wanted, result = split_fields(body, 2)
        self._on_result(name_text(wanted), result)

    def _on_ended(self, body: bytes) -> None:
        wanted, state, cause, error = split_fields(body, 4)
        failure = (name_text(state), b"", name_text(cause), error)
        self._events.extend(map(JobAssigned, self._arguments.on_result(name_text(wanted), None, failure)))

    def _on_result(self, wanted: str, result: bytes) -> None:
        self._events.extend(map(JobAssigned, self._arguments.on_result(wanted, result)))


_ON_PACKET: Final[dict[int, Callable[[WorkerProtocol, bytes], None]]] = {
    Packet.OPTION_RES: WorkerProtocol._on_option,
    Packet.ERROR: WorkerProtocol._on_error,
    Packet.CONTROL_RES: WorkerProtocol._on_control,
    Packet.ECHO_RES: WorkerProtocol._on_echo,
    Packet.JOB_PUSH: WorkerProtocol._on_push,
    Packet.JOB_PUSH_TRACED: WorkerProtocol._on_push_traced,
    Packet.JOB_ASSIGN_UNIQ: WorkerProtocol._on_assign,
    Packet.NO_JOB: WorkerProtocol._on_no_job,
    Packet.NOOP: WorkerProtocol._on_noop,
    Packet.REVOKE: WorkerProtocol._on_revoke,
    Packet.RESUME_RES: WorkerProtocol._on_resumed,
    Packet.WORKER_CONTROL: WorkerProtocol._on_worker_control,
    Packet.WATCH_RES: WorkerProtocol._on_watch,
    Packet.WORK_COMPLETE: WorkerProtocol._on_complete,
    Packet.JOB_ENDED: WorkerProtocol._on_ended,
    TEXT: WorkerProtocol._on_foreign,
    FOREIGN_MAGIC: WorkerProtocol._on_foreign,
}
