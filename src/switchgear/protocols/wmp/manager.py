"""The WMP manager: workers behind one socket, directly or through devices, that say they are ready and ask for jobs.

A job's reference, in TAKE and in what the worker says of it, names the job and this handing-out of it, and is never
used twice, not even after a restart.  So what is said too late can be told from what is said of the job as it is now,
and both are believed only from the path that the job was given to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from switchgear.errors import PeerError, Refused
from switchgear.memory import FOR_WAITING
from switchgear.model import SECOND_US, Function, Job
from switchgear.protocols.base import Context, Message, MessageSession, Wire, number_in_handle
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
    roles_of,
    status_of,
)
from switchgear.protocols.wmp.paths import Path, Paths, WorkerPath, routed, size_in_memory, size_of_roles

__all__ = ["ManagerSession", "WmpSetup"]

LEAST_LEASE_US: Final = SECOND_US
MOST_LEASE_US: Final = 86_400 * SECOND_US

# Jobs that were taken from their workers, whose results may still come and be the first.
REMEMBERED_LOSSES: Final = 10_000


@dataclass(slots=True)
class WmpSetup:
    """What a manager is told."""

    identity: bytes  # its own among all managers that a worker may talk to
    timeout_us: int = 600_000_000  # so long nothing may be heard of a job whose worker promised nothing; 0: for ever
    name_bytes: int = 512
    paths: int = 10_000  # most ways to workers that are remembered


class ManagerSession(MessageSession):
    """All workers of one manager."""

    protocol = "wmp"

    def __init__(self, context: Context, wire: Wire, setup: WmpSetup) -> None:
        super().__init__(context, wire)
        if not 0 < len(setup.identity) <= LONGEST_ELEMENT:
            raise ValueError(f"a manager's identity has 1 to {LONGEST_ELEMENT} bytes")
        self.setup = setup
        self.paths = Paths(self.engine.memory)
        self.lost: OrderedDict[bytes, Path] = OrderedDict()  # by reference: who was given the job that it lost
        self.most_lost = REMEMBERED_LOSSES
        self.takes = 0
        self._to_me = [setup.identity]
        self._handlers: dict[bytes, Callable[[Path, dict[str, Any], Message], None]] = {
            READY: self._on_ready,
            GIVE: self._on_give,
            DONE: self._on_done,
            STATUS: self._on_status,
        }

    def receive_message(self, message: Message) -> None:
        try:
            command, headers, _ = decode(message[1:])
            handler = self._handlers.get(command)
            if handler is None:
                raise PeerError(f"{command.decode()} is for workers", code="UNEXPECTED")
            to = headers.pop("to", None)
            if to and to != self._to_me:
                raise PeerError(f"a {command.decode()} for another manager", code="MISROUTED")
            way_back = headers.pop("path", None)
            handler((message[0], *way_back) if way_back else (message[0],), headers, message)
        except PeerError as error:
            self.context.count_bad_input(self, error.code, str(error))

    def unreachable(self, message: Message) -> None:
        """The neighbour that a path begins with is gone, for good or for a moment, or has too much to read.

        A job that it was to be sent has not been tried.  Those that its worker has may still come to their end.
        """
        _, headers, _ = decode(message[1:])
        way = self.paths.by_path.get((message[0], *headers.get("to", ())))
        if way is None:
            return
        reference = headers.get("job", b"")
        job_id = number_of(reference)
        if message[3] == TAKE and way.held.get(job_id) == reference:
            del way.held[job_id]
            self.engine.hand_back(way.worker, job_id)
        if way.held:
            self._enable_anew(way, list(way.worker.order))  # so it is not asleep, and its call goes to another
        else:
            self._forget(way)

    def peer_gone(self, identity: bytes) -> None:
        """The ways that begin with this neighbour lead nowhere; those of workers with jobs are kept, as they may report
        on another connection."""
        for way in list(self.paths.idle.get(identity, ())):
            self._forget(way)

    # --- workers come ---

    def _on_ready(self, path: Path, headers: dict[str, Any], message: Message) -> None:
        way = self.paths.by_path.get(path)
        if way is None or way.differs or way.said != message[4]:
            way = self._introduce(way, path, headers, message[4])
        else:
            self.paths.heard_of(way)
            if way.worker.asleep:
                return  # it is remembered
        if not self.engine.sleep(way.worker):
            self.send(way.wake_message)

    def _introduce(self, way: WorkerPath | None, path: Path, headers: dict[str, Any], said: bytes) -> WorkerPath:
        """Take over what a worker says of itself, for the first time or because it has changed."""
        lease = lease_of(headers)
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
            self.paths.heard_of(way)
            self._make_room(0, said_bytes + roles_bytes - way.kept_bytes, way)
            functions = list(way.worker.order) if roles is None else self._functions(roles)
        self.paths.note(way, said_bytes, roles_bytes)
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
        """Those of the functions that exist or that there is room for."""
        functions: list[Function] = []
        refusal = ""
        try:
            self.engine.refuse_registrations(len(roles), FOR_WAITING)
        except Refused as refused:
            raise PeerError(str(refused), code="REFUSED") from refused
        for role in roles:
            try:
                functions.append(self.engine.function_named(role))
            except Refused as refused:
                refusal = str(refused)
        if not functions:
            raise PeerError(refusal, code="REFUSED")
        if refusal:
            self.context.count_bad_input(self, "REFUSED", refusal)
        return functions

    def _make_room(self, paths: int, size: int, for_whom: WorkerPath | None = None) -> None:
        """Forget as many idle workers as so many more paths, and bytes that are said of them, take the place of."""
        while self.paths.would_be_too_many(paths, size, self.setup.paths):
            way = self.paths.first_to_go()
            if way is None or way is for_whom:
                raise PeerError("there is no room for another worker: all hold jobs", code="FULL")
            self._forget(way)

    def _add(self, path: Path) -> WorkerPath:
        way = WorkerPath(path, self.setup.identity, self.send, self._on_revoked)
        name = path[-1]
        if not (name.isascii() and name.decode().isprintable()):
            name = name.hex().encode()
        way.worker = self.engine.add_worker(way, self.protocol, name)
        self.paths.add(way)
        return way

    def _enable(self, way: WorkerPath, functions: list[Function], silence_us: int) -> None:
        if way.worker.timeouts_us == dict.fromkeys(functions, silence_us):
            return
        way.use_silence(silence_us)
        self._enable_anew(way, functions)

    def _enable_anew(self, way: WorkerPath, functions: list[Function]) -> None:
        worker = way.worker
        self.engine.forget_functions(worker)
        if worker.asleep:
            self.engine.take(worker)  # as it can do nothing now it gets nothing, and is awake for what it can do next
        for function in functions:
            self.engine.can_do(worker, function, way.silence_us)

    def _forget(self, way: WorkerPath) -> None:
        """The worker is gone, or there is no room for it."""
        self.paths.remove(way)
        for reference in way.held.values():
            self._remember_loss(reference, way.path)
        self.engine.remove_worker(way.worker)

    # --- jobs go out ---

    def _on_give(self, path: Path, headers: dict[str, Any], message: Message) -> None:
        way = self.paths.by_path.get(path)
        try:
            if way is not None:
                self.paths.heard_of(way)
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
        if job is None or not self.has_payload(way.worker, job):
            self.send(way.no_message)
        else:
            self._give(way, job)

    def _restrict(self, way: WorkerPath, headers: dict[str, Any]) -> None:
        """The worker asks for a job of these roles, whatever it has said before; until it says something else."""
        roles = roles_of(headers, self.setup.name_bytes)
        assert roles is not None
        roles_bytes = size_of_roles(headers["roles"])
        self._make_room(0, roles_bytes - way.roles_bytes, way)
        self._enable(way, self._functions(roles), way.silence_us)
        self.paths.note(way, way.said_bytes, roles_bytes)
        way.roles = headers["roles"]
        way.differs = True

    def _say_no(self, path: Path) -> None:
        """To somebody who is not known."""
        self.send([path[0], *encode(NO, routed(path, self.setup.identity))])

    def _give(self, way: WorkerPath, job: Job) -> None:
        # Numbers of handing-out go on from the time, so that those from before a restart do not come again.
        self.takes = max(self.takes, self.engine.now_us) + 1
        reference = b"%d.%d" % (job.id, self.takes)
        way.held[job.id] = reference
        self.paths.takes_job(way)
        headers = way.take_headers(job.function, reference)
        self.send_job(job, [way.path[0], b"", VERSION, TAKE, headers, job.payload or b""])

    def _on_revoked(self, way: WorkerPath, job: Job) -> None:
        """The engine has taken a job from its worker, which should know."""
        reference = way.held.pop(job.id, None)
        if reference is None:
            return
        self.paths.gave_up_job(way)
        unsent = self._waiting_for_store(reference) if job.delivery else None
        if unsent is not None:
            unsent[:] = way.no_message  # which is the truth by now, and CANCEL would come before it
            self.context.soon(partial(self._let_go, way, job.id))
            return
        self._remember_loss(reference, way.path)
        self._cancel(way.path, reference)

    def _waiting_for_store(self, reference: bytes) -> Message | None:
        """The TAKE of this reference, if it was not sent yet because the last attempt is to be remembered first."""
        end = b"%c%b" % (len(reference), reference)
        for message in (*self.promises.out, *(self.promises.held or ())):
            if message[3] == TAKE and message[4].endswith(end):
                assert isinstance(message, list)
                return message
        return None

    def _cancel(self, path: Path, reference: bytes) -> None:
        headers = routed(path, self.setup.identity)
        headers["manager"] = self.setup.identity
        headers["job"] = reference
        self.send([path[0], *encode(CANCEL, headers)])

    def _remember_loss(self, reference: bytes, path: Path) -> None:
        self.lost[reference] = path
        if len(self.lost) > self.most_lost:
            self.lost.popitem(last=False)

    # --- what comes back ---

    def _on_done(self, path: Path, headers: dict[str, Any], message: Message) -> None:
        reference = self._reference(headers)
        status = status_of(headers)
        job_id = number_of(reference)
        way = self.paths.by_path.get(path)
        if way is not None and way.held.get(job_id) == reference:
            self._end(way, job_id, status, headers, message[5])
            return
        if self.lost.get(reference) != path:
            raise not_your_job(DONE, reference)
        del self.lost[reference]
        if way is not None:
            self.paths.heard_of(way)
            self._let_go(way, job_id)
        job = self.engine.job(job_id)
        if job is not None and status == "done":
            self.engine.settle(job, message[5])

    def _end(self, way: WorkerPath, job_id: int, status: str, headers: dict[str, Any], result: bytes) -> None:
        worker = way.worker
        if status == "done":
            self.engine.complete(worker, job_id, result)
        elif status == "failed":
            self.engine.fail(worker, job_id, code_of(headers), error_of(headers), result)
        else:  # returned, or cancelled though nobody wanted that
            self.engine.hand_back(worker, job_id)
        del way.held[job_id]
        self.paths.gave_up_job(way)

    def _let_go(self, way: WorkerPath, job_id: int) -> None:
        """A job that ended without its worker stays in its list until the worker reports, which it has now."""
        job = way.worker.running.get(job_id)
        if job is not None and job.worker is not way.worker:
            self.engine.hand_back(way.worker, job_id)

    def _on_status(self, path: Path, headers: dict[str, Any], message: Message) -> None:
        reference = self._reference(headers)
        numerator, denominator, time_left = progress_of(headers)
        job_id = number_of(reference)
        way = self.paths.by_path.get(path)
        if way is None or way.held.get(job_id) != reference:
            self._cancel(path, reference)
            if self.lost.get(reference) != path:
                raise not_your_job(STATUS, reference)
            return
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

    def _reference(self, headers: dict[str, Any]) -> bytes:
        """The job that something is said of, if it may be one of this manager's."""
        manager = manager_of(headers)
        if manager is not None and manager != self.setup.identity:
            raise PeerError("a job of another manager", code="MISROUTED")
        return job_of(headers)


def number_of(reference: bytes) -> int:
    """The number of the job in a reference, or 0."""
    return number_in_handle(reference.partition(b".")[0], b"")


def not_your_job(command: bytes, reference: bytes) -> PeerError:
    return PeerError(f"{command.decode()} of {reference[:40]!r}, which is not its job", code="NOT_YOUR_JOB")
