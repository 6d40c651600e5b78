"""`ManagerSession`: the WMP manager; serves workers behind one socket, directly or through devices.

A job's reference, in TAKE and in the worker's reports, consists of the job id, the time of its submission (because a
server without a durable store begins again with job 1), and the start number. So a late report can be distinguished
from a report on the present start, and both are accepted only from the path that the job was sent to. After a crash of
the server that path is not known, and the first result counts.

A direct worker is gone when its connection is closed. The manager does not see the connection of a worker behind
devices, so the path of such a worker is dropped if it was silent for some minutes without a job; an idle worker repeats
READY.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from switchgear.errors import PeerError, Refused
from switchgear.memory import FOR_WAITING
from switchgear.model import SECOND_US, Function, Job
from switchgear.protocols.context import Context
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.message_session import MessageSession
from switchgear.protocols.multipart import Message, is_given_name
from switchgear.protocols.pending_read import PendingRead, Step
from switchgear.protocols.transport import PeerTransport
from switchgear.protocols.wmp.codec import (
    CANCEL,
    DONE,
    GIVE,
    LONGEST_ELEMENT,
    NO,
    READY,
    STATUS,
    TAKE,
    VERSION,
    code_of,
    decode,
    encode,
    error_of,
    job_of,
    lease_of,
    manager_of,
    progress_of,
    resources_of,
    roles_of,
    status_of,
    tags_of,
)
from switchgear.protocols.wmp.worker_paths import Path, WorkerPath, WorkerPaths, routed, size_in_memory, size_of_roles
from switchgear.states import LateReport
from switchgear.verbs.access import Role

__all__ = ["COMMAND_ROLES", "ManagerSession", "WmpSetup"]

# The roles that each message of a worker needs, for the functions that it names.
COMMAND_ROLES: Final[dict[bytes, frozenset[Role]]] = dict.fromkeys((READY, GIVE, DONE, STATUS), frozenset({Role.WORK}))

LEAST_LEASE_US: Final = SECOND_US
MOST_LEASE_US: Final = 86_400 * SECOND_US


@dataclass(slots=True)
class WmpSetup:
    """The settings of a manager."""

    identity: bytes  # unique among all managers that a worker may use
    timeout_us: int = 600_000_000  # the lease of a job whose worker announced none; 0: no limit
    name_bytes: int = 512
    paths: int = 10_000  # how many paths to workers are kept
    idle_us: int = 300_000_000  # how long an idle worker behind devices may be silent; 0: no limit


class ManagerSession(MessageSession):
    """The session of one manager with all its workers."""

    protocol = "wmp"

    def __init__(self, context: Context, transport: PeerTransport, setup: WmpSetup) -> None:
        super().__init__(context, transport)
        if not 0 < len(setup.identity) <= LONGEST_ELEMENT:
            raise ValueError(f"a manager's identity has 1 to {LONGEST_ELEMENT} bytes")
        self.setup = setup
        self.paths = WorkerPaths(self.engine.memory)
        self._to_me = [setup.identity]
        self._handlers: dict[bytes, Callable[[Path, dict[str, Any], Message], None]] = {
            READY: self._on_ready,
            GIVE: self._on_give,
            DONE: self._on_done,
            STATUS: self._on_status,
        }

    def handle_message(self, message: Message) -> None:
        try:
            command, headers, _ = decode(message[1:])
            handler = self._handlers.get(command)
            if handler is None:
                raise PeerError(f"{command.decode()} is for workers", code="UNEXPECTED")
            to = headers.pop("to", None)
            if to and to != self._to_me:
                raise PeerError(f"a {command.decode()} for another manager", code="MISROUTED")
            way_back = headers.pop("path", None)
            path = (message[0], *way_back) if way_back else (message[0],)
            if self.is_guarded and not self._may_send(command, path):
                return
            handler(path, headers, message)
        except PeerError as error:
            self.context.count_bad_input(self, error.code, str(error))

    def _may_send(self, command: bytes, path: Path) -> bool:
        """Whether the peer has the role; if not, a GIVE is answered with NO, and other messages have no answer."""
        try:
            self.require(command.decode(), COMMAND_ROLES[command])
        except Refused:
            if command == GIVE:
                self._say_no(path)
            return False
        return True

    def unreachable(self, message: Message) -> None:
        """The first hop of a path is gone, for good or for a moment, or does not read.

        A job that was not delivered uses up no attempt. The worker's other jobs may still end.
        """
        _, headers, _ = decode(message[1:])
        way = self.paths.by_path.get((message[0], *headers.get("to", ())))
        if way is None:
            return
        reference = headers.get("job", b"")
        job_id, start_number = numbers_of(reference)
        if message[3] == TAKE and way.holds(reference):
            del way.held[job_id]
            self.engine.release(way.worker, job_id, start_number)
        if way.held:
            # It is not asleep then, and its wakeup goes to another worker.
            self._enable_anew(way, list(way.worker.order))
        else:
            self._forget(way)

    def peer_gone(self, identity: bytes) -> None:
        """Drop the paths that begin with this neighbour.

        Workers with jobs are deregistered, but keep their jobs for the lease: they may report on another connection, if
        the neighbour reconnects with an identity of its own.
        """
        super().peer_gone(identity)
        for way in list(self.paths.idle.get(identity, ())):
            self._forget(way)
        for way in list(self.paths.busy.get(identity, ())):
            if is_given_name(identity):
                self._forget(way)
            else:
                way.is_gone = True
                way.said = b""
                self.engine.forget_functions(way.worker)

    # --- registration ---

    def _on_ready(self, path: Path, headers: dict[str, Any], message: Message) -> None:
        way = self.paths.by_path.get(path)
        if way is None or way.differs or way.said != message[4]:
            way = self._introduce(way, path, headers, message[4])
            self._heard_of(way)
        else:
            self._heard_of(way)
            if way.worker.asleep:
                return  # nothing has changed
        if not self.engine.sleep(way.worker):
            self.send(way.wake_message)

    def _introduce(self, way: WorkerPath | None, path: Path, headers: dict[str, Any], said: bytes) -> WorkerPath:
        """Apply the headers of a worker, for the first time or because they have changed."""
        lease = lease_of(headers)
        tags, resources = tags_of(headers), resources_of(headers)
        roles = roles_of(headers, self.setup.name_bytes)
        said_bytes = size_in_memory(said) + size_in_memory(headers)
        roles_bytes = 0 if roles is None else size_of_roles(headers["roles"])
        if way is None:
            if roles is None:
                raise PeerError("an unknown worker does not say its `roles`", code="BAD_HEADER")
            self._make_room(1, said_bytes + roles_bytes)
            functions = self._functions(roles)
            way = self._add(path)
        else:
            roles_bytes = roles_bytes or way.roles_bytes
            self._heard_of(way)
            self._make_room(0, said_bytes + roles_bytes - way.kept_bytes, way)
            functions = list(way.worker.order) if roles is None else self._functions(roles)
        self.paths.note(way, said_bytes, roles_bytes)
        self._describe(way, tags, resources)
        way.said = said
        way.differs = roles is not None and len(functions) < len(roles)
        way.roles = headers.get("roles", way.roles)
        way.worker.headers = headers
        silence_us = self.setup.timeout_us
        if lease is not None:
            silence_us = max(LEAST_LEASE_US, int(min(lease * SECOND_US, MOST_LEASE_US)))
        self._enable(way, functions, silence_us)
        return way

    def _functions(self, roles: tuple[bytes, ...]) -> list[Function]:
        """The functions among these that exist or that there is room for."""
        functions: list[Function] = []
        refusal = ""
        try:
            self.engine.refuse_registrations(len(roles), FOR_WAITING)
        except Refused as refused:
            raise PeerError(str(refused), code="REFUSED") from refused
        for role in roles:
            try:
                self.require("READY", COMMAND_ROLES[READY], role)
                functions.append(self.engine.function_named(role))
            except Refused as refused:
                refusal = str(refused)
        if not functions:
            raise PeerError(refusal, code="REFUSED")
        if refusal:
            self.context.count_bad_input(self, "REFUSED", refusal)
        return functions

    def _make_room(self, paths: int, size: int, for_whom: WorkerPath | None = None) -> None:
        """Forget as many idle workers as needed for this many more paths and bytes."""
        while self.paths.would_be_too_many(paths, size, self.setup.paths):
            way = self.paths.first_to_go()
            if way is None or way is for_whom:
                raise PeerError("there is no room for another worker: all hold jobs", code="FULL")
            self._forget(way)

    def _add(self, path: Path) -> WorkerPath:
        way = WorkerPath(path, self.setup.identity, self.send, self._on_revoked, self._on_silent)
        name = path[-1]
        if not (name.isascii() and name.decode().isprintable()):
            name = name.hex().encode()
        way.worker_tags = self.worker_tags
        way.worker_resources = self.worker_resources
        way.worker = self.engine.add_worker(way, self.protocol, name, identity=path, may_miss_wakeups=True)
        self.paths.add(way)
        return way

    def _describe(self, way: WorkerPath, tags: frozenset[bytes], resources: dict[bytes, int]) -> None:
        try:
            self.engine.describe_worker(way.worker, tags, resources)
        except Refused as refused:
            raise PeerError(str(refused), code="REFUSED") from refused

    def _enable(self, way: WorkerPath, functions: list[Function], silence_us: int) -> None:
        if way.worker.timeouts_us == dict.fromkeys(functions, silence_us):
            return
        way.use_silence(silence_us)
        self._enable_anew(way, functions)

    def _enable_anew(self, way: WorkerPath, functions: list[Function]) -> None:
        worker = way.worker
        self.engine.forget_functions(worker)
        self.engine.stop_sleeping(worker)
        for function in functions:
            self.engine.can_do(worker, function, way.silence_us)

    def _forget(self, way: WorkerPath) -> None:
        """Forget a worker that is gone, or for which there is no room."""
        self.paths.remove(way)
        self.engine.remove_worker(way.worker)

    def _heard_of(self, way: WorkerPath) -> None:
        """Note that a worker has sent a message."""
        way.is_gone = False
        self.paths.heard_of(way)
        self._await_word(way)

    def _await_word(self, way: WorkerPath) -> None:
        """Expect regular messages of a worker behind devices while it has no job."""
        if len(way.path) > 1 and self.setup.idle_us:
            if way.held:
                self.engine.suspend_lease(way.worker)
            else:
                self.engine.renew_lease(way.worker, self.setup.idle_us)

    def _on_silent(self, way: WorkerPath) -> None:
        """Forget an idle worker that was silent for too long, and that the engine has deregistered."""
        self.paths.remove(way)

    def _gave_up_job(self, way: WorkerPath) -> None:
        """Note that the worker has one job less. If it was the last, and the worker is gone, its path is dropped."""
        self.paths.gave_up_job(way)
        if way.held:
            return
        if way.is_gone:
            self.context.soon(partial(self._forget_gone, way))
        else:
            self._await_word(way)

    def _forget_gone(self, way: WorkerPath) -> None:
        if way.is_gone and not way.held and self.paths.by_path.get(way.path) is way:
            self._forget(way)

    # --- jobs to workers ---

    def _on_give(self, path: Path, headers: dict[str, Any], message: Message) -> None:
        way = self.paths.by_path.get(path)
        try:
            if way is not None:
                self._heard_of(way)
                if "roles" in headers and headers["roles"] != way.roles:
                    self._restrict(way, headers)
            elif "roles" in headers:
                way = self._introduce(None, path, headers, message[4])
            else:
                self._say_no(path)
                return
        except PeerError:
            self._say_no(path)
            raise
        job = self.engine.take(way.worker)
        if job is not None:
            self._give(way, job)
            return
        wait = self.context.awaited_payload(way.worker)
        if wait is None:
            self.send(way.no_message)
        else:
            self.work_off(self.while_connected(path[0], self._give_when_read(way, wait)))

    def _give_when_read(self, way: WorkerPath, wait: PendingRead) -> Iterator[Step]:
        job = yield from self.take_when_read(way.worker, wait)
        if job is not None:
            self._give(way, job)
        elif self.paths.by_path.get(way.path) is way:
            self.send(way.no_message)

    def _restrict(self, way: WorkerPath, headers: dict[str, Any]) -> None:
        """Restrict the worker to these roles until it sends others."""
        roles = roles_of(headers, self.setup.name_bytes)
        assert roles is not None
        roles_bytes = size_of_roles(headers["roles"])
        self._make_room(0, roles_bytes - way.roles_bytes, way)
        self._enable(way, self._functions(roles), way.silence_us)
        self.paths.note(way, way.said_bytes, roles_bytes)
        way.roles = headers["roles"]
        way.differs = True

    def _say_no(self, path: Path) -> None:
        """Answer NO to an unknown worker."""
        self.send([path[0], *encode(NO, routed(path, self.setup.identity))])

    def _give(self, way: WorkerPath, job: Job) -> None:
        reference = way.held[job.id] = b"%d.%d.%d" % (job.id, job.created_us, job.start_number)
        self.paths.takes_job(way)
        self._await_word(way)
        headers = way.take_headers(job.function, reference, job.trace if job.has_details else b"")
        self.send([way.path[0], b"", VERSION, TAKE, headers, job.payload or b""])

    def _on_revoked(self, way: WorkerPath, job: Job) -> None:
        """Tell a worker that the engine has taken a job from it."""
        reference = way.held.pop(job.id, None)
        if reference is None:
            return
        self._gave_up_job(way)
        unsent = self._waiting_for_store(reference) if job.delivery else None
        if unsent is not None:
            unsent[:] = way.no_message  # it is true by now, and CANCEL would come before the TAKE
            self.context.soon(partial(self._release_ended, way, job.id))
            return
        self._cancel(way.path, reference)

    def _waiting_for_store(self, reference: bytes) -> Message | None:
        """The unsent TAKE with this reference, which waits until the start is stored."""
        end = b"%c%b" % (len(reference), reference)
        for message in self.delayed_messages():
            if message[3] == TAKE and message[4].endswith(end):
                assert isinstance(message, list)
                return message
        return None

    def _cancel(self, path: Path, reference: bytes) -> None:
        headers = routed(path, self.setup.identity)
        headers["manager"] = self.setup.identity
        headers["job"] = reference
        self.send([path[0], *encode(CANCEL, headers)])

    # --- reports of workers ---

    def _on_done(self, path: Path, headers: dict[str, Any], message: Message) -> None:
        reference = self._reference(headers)
        status = status_of(headers)
        job_id, start_number = numbers_of(reference)
        way = self.paths.by_path.get(path)
        if way is not None and way.holds(reference):
            self._end(way, job_id, status, headers, message[5])
            return
        if way is not None and self._release_ended(way, job_id):
            self._heard_of(way)
            return
        result = message[5] if status == "done" else None
        is_real = start_number > 0 and self._is_of_this_server(reference)
        if not is_real or self.engine.report_late(job_id, path, start_number, result) is LateReport.UNKNOWN:
            raise not_your_job(DONE, reference)
        if way is not None:
            self._heard_of(way)

    def _end(self, way: WorkerPath, job_id: int, status: str, headers: dict[str, Any], result: bytes) -> None:
        worker = way.worker
        if status == "done":
            self.engine.complete(worker, job_id, result)
        elif status == "failed":
            self.engine.fail(worker, job_id, code_of(headers), error_of(headers), result)
        else:  # returned, or cancelled without a request
            self.engine.release(worker, job_id)
        del way.held[job_id]
        way.is_gone = False
        self._gave_up_job(way)

    def _release_ended(self, way: WorkerPath, job_id: int) -> bool:
        """Remove a job that ended without its worker from the worker's list, since the worker has reported."""
        job = way.worker.running.get(job_id)
        if job is None or job.worker is way.worker:
            return False
        self.engine.release(way.worker, job_id)
        return True

    def _on_status(self, path: Path, headers: dict[str, Any], message: Message) -> None:
        reference = self._reference(headers)
        numerator, denominator, time_left = progress_of(headers)
        job_id, start_number = numbers_of(reference)
        way = self.paths.by_path.get(path)
        if way is None or not way.holds(reference):
            self._cancel(path, reference)
            is_known = way is not None and job_id in way.worker.running
            if not is_known and not (start_number and self.engine.has_lost(job_id, path, start_number)):
                raise not_your_job(STATUS, reference)
            return
        way.is_gone = False
        worker = way.worker
        job = self.engine.renew_run(worker, job_id, way.silence_us or MOST_LEASE_US)
        if job is not None and not (numerator is None and denominator is None and time_left is None):
            self.engine.progress(
                worker,
                job_id,
                job.numerator if numerator is None else numerator,
                job.denominator if denominator is None else denominator,
                job.time_left_s if time_left is None else time_left,
            )

    def _is_of_this_server(self, reference: bytes) -> bool:
        """Whether a reference is not about a job of an earlier server with the same id."""
        job = self.engine.job(numbers_of(reference)[0])
        return job is None or reference.split(b".")[1] == b"%d" % job.created_us

    def _reference(self, headers: dict[str, Any]) -> bytes:
        """The job of a report, if it may belong to this manager."""
        manager = manager_of(headers)
        if manager is not None and manager != self.setup.identity:
            raise PeerError("a job of another manager", code="MISROUTED")
        return job_of(headers)


def numbers_of(reference: bytes) -> tuple[int, int]:
    """The job id and the start number of a reference; 0 and 0 if it is malformed."""
    parts = reference.split(b".")
    if len(parts) != 3:
        return 0, 0
    return number_in_handle(parts[0], b""), number_in_handle(parts[2], b"")


def not_your_job(command: bytes, reference: bytes) -> PeerError:
    return PeerError(f"{command.decode()} of {reference[:40]!r}, which is not its job", code="NOT_YOUR_JOB")
