"""`SimulatedRelay`: submissions and workers of one simulated node for functions that other nodes own.

It follows the rules of `net.owners`: `relay` (a submission has an id of the node where it was made, and goes to one
owner after the other under that id until one has stored it), `borrowed_jobs` (copies of jobs for the workers here) and
`link_session` with its `NodeWorkers` (the workers of another node as the owner has them). The links are slow and break,
and each end notices that at a moment of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from switchgear.engine.function_placement import BORROWED, is_copy, is_foreign
from switchgear.engine.submit_options import SubmitOptions
from switchgear.model import CANCELLED, DONE, QUEUED_STATES, Cause, Delivery, Function, Job, Peer, Worker
from switchgear.net.owners.messages import (
    Accepted,
    Assign,
    Done,
    Failed,
    Give,
    Lost,
    Message,
    Moved,
    Reported,
    Revoke,
    Room,
    Submit,
)
from switchgear.net.owners.node_workers import NodeWorkers
from switchgear.partitions import partition_of
from switchgear.testing.simulation.simulated_edges import LinkMessage, SimulatedEdges

if TYPE_CHECKING:
    from switchgear.testing.simulation.simulated_node import SimulatedNode

__all__ = ["SimulatedRelay"]

MOST_COPIES = 2  # of a function, that wait for a worker here

Link = tuple[int, int]  # the other node, and the number of the link to it


class RelayedSubmission:
    """A submission to a function of another node."""

    def __init__(self, message: Submit, options: SubmitOptions | None) -> None:
        self.message = message
        self.options = options
        self.link: Link | None = None  # over which it was sent


class BorrowedCopy:
    """A copy of a job of another node."""

    def __init__(self, copy: Job, start: int, link: Link) -> None:
        self.copy = copy
        self.start = start
        self.link = link


class SimulatedSession(Peer):
    """Another node, as the owner of functions has it: its submissions and its workers."""

    def __init__(self, node: SimulatedNode, link: Link) -> None:
        super().__init__()
        self._node = node
        self._world = node.world
        self.link = link
        self.workers = NodeWorkers(node.engine, self, b"node %d" % link[0], node.owns)

    def send(self, message: Message) -> None:
        """Send this after everything is stored that has changed so far."""
        self._node.say_when_stored(self.link, message)

    def close(self) -> None:
        """The link is lost: what the node had borrowed goes back."""
        self.workers.remove()

    def receive(self, message: Message) -> None:
        if isinstance(message, Submit):
            self._submitted(message)
        elif isinstance(message, Room):
            self.workers.told(message)
        elif isinstance(message, Done | Failed | Lost | Give):
            self._reported(message)

    # --- called by the engine ---

    def assign(self, worker: Worker, job: Job) -> None:
        kind = self.workers.lend(worker, job.id, job.function.name)
        row = (job.id, job.start_number, job.function.name, job.unique, job.payload or b"", job.priority)
        self.send(Assign(*row, job.created_us, job.timeout_us, job.attempts, [], kind))

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        self.send(Revoke(job.id))

    # --- submissions ---

    def _submitted(self, message: Submit) -> None:
        node, engine = self._node, self._node.engine
        if not node.owns(message.function):
            self.send(Moved(message.id))
            return
        job = engine.job(message.id)
        if job is not None and is_copy(job):
            job = None
        if job is None and message.is_repeated:
            if node.is_cut_off:
                self.send(Moved(message.id))  # it is sent again
                return
            if message.id in self._world.database.rows or node.has_unstored(message.id):
                self.send(Accepted(message.id, message.id))
                return
        if job is None:
            options = self._world.submitted_options.get(message.id) or SubmitOptions()
            options.job_id = message.id
            unique, payload = message.unique, message.payload
            job = engine.submit(message.function, unique, payload, message.priority, message.delivery, None, options)
        if self._world.accepts_too_early:
            self._world.links.send(node.id, self.link[0], "message", 0, Accepted(message.id, job.id))
        else:
            self.send(Accepted(message.id, job.id))

    # --- reports ---

    def _reported(self, message: Done | Failed | Lost | Give) -> None:
        engine = self._node.engine
        worker = self.workers.reporter(message.id)
        before = engine.job(message.id)
        start = message.start
        present = before.start_number if before is not None and worker is not None else 0
        if self._world.forgets_starts:
            start = 0
        taken: Job | None = None
        if worker is not None:
            if isinstance(message, Done):
                taken = engine.complete(worker, message.id, message.result, start)
            elif isinstance(message, Failed):
                taken = engine.fail(worker, message.id, message.code, message.error, message.result, start)
            elif isinstance(message, Lost):
                taken = engine.lose(worker, message.id, start)
            else:
                taken = engine.release(worker, message.id, start)
            self.workers.tidy(worker, message.id)
        if taken is not None:
            self._world.check_report(self._node, message.id, message.start, present)
        if isinstance(message, Done | Failed):
            reported = Reported(message.id, message.start, taken is not None)
            if self._world.reports_too_early:
                self._world.links.send(self._node.id, self.link[0], "message", 0, reported)
            else:
                self.send(reported)


class Borrower(Peer):
    """Told by the engine how copies end, and passes that on."""

    def __init__(self, relay: SimulatedRelay) -> None:
        super().__init__()
        self._relay = relay

    def job_finished(self, job: Job) -> None:
        self._relay.copy_ended(job)


class SimulatedRelay(SimulatedEdges):
    """The functions of other nodes, as one node sees them, and the other nodes as those of its own see them."""

    def __init__(self, node: SimulatedNode) -> None:
        super().__init__(node)
        self.sessions: dict[Link, SimulatedSession] = {}
        self.submissions: dict[int, RelayedSubmission] = {}
        self.copies: dict[int, BorrowedCopy] = {}
        self._borrower = Borrower(self)
        self._seen: dict[tuple[Link, bytes], int] = {}  # by link and function, how many copies have come
        self._told: dict[bytes, Link] = {}  # by function, who was told that there are workers

    # --- for the engine ---

    def submit(
        self,
        function: Function,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        subscriber: Peer | None,
        options: SubmitOptions | None,
    ) -> Job:
        engine = self._node.engine
        job_id = engine.reserve_id()
        message = Submit(job_id, function.name, unique, payload, priority, delivery, "simulated", None, False)
        if options is not None:
            self._world.submitted_options[job_id] = options
        self.submissions[job_id] = RelayedSubmission(message, options)
        self._pass_on(self.submissions[job_id])
        return Job(job_id, function, unique, payload, priority, delivery, engine.now_us)

    # --- as the node of a client ---

    def _owner_of(self, function: bytes) -> Link | None:
        """The link to the owner of a function, as far as the database can be read."""
        if self._node.is_cut_off:
            return None
        owner = self._world.database.partitions[partition_of(function)].node_id
        return (owner, self._links.number(self._node.id, owner)) if owner else None

    def _pass_on(self, submission: RelayedSubmission) -> None:
        link = self._owner_of(submission.message.function)
        if link is not None:
            message = submission.message
            submission.link = link
            self._links.send(self._node.id, link[0], "message", 0, message)
            again = (message.id, message.function, message.unique, message.payload, message.priority, message.delivery)
            submission.message = Submit(*again, message.protocol, None, True)

    def look_after(self) -> None:
        """Notice lost links, pass submissions on that have no owner, and tell owners of the workers here."""
        for link in [link for link in self.sessions if not self._is_up(link)]:
            self.sessions.pop(link).close()
        for borrowed in [each for each in self.copies.values() if not self._is_up(each.link)]:
            self.drop(borrowed)
        for submission in list(self.submissions.values()):
            if submission.link is None or not self._is_up(submission.link):
                submission.link = None
                self._pass_on(submission)
        for function in list(self._node.engine.functions.values()):
            self._tell_room(function)

    def _is_up(self, link: Link) -> bool:
        other, number = link
        is_alive = any(node.id == other for node in self._world.nodes)
        return is_alive and self._links.number(self._node.id, other) == number

    # --- as the node of a worker ---

    def _tell_room(self, function: Function) -> None:
        name = function.name
        link = self._owner_of(name) if is_foreign(function) and function.workers else None
        told = self._told.get(name)
        if told is not None and told != link:
            del self._told[name]
            if self._is_up(told):
                self._links.send(self._node.id, told[0], "message", 0, Room(name, -1, 0))
        if link is not None and link[0] != self._node.id:
            self._told[name] = link
            waiting = sum(
                each.copy.function is function and each.copy.state in QUEUED_STATES for each in self.copies.values()
            )
            room = 0 if self._node.is_leaving else max(0, MOST_COPIES - waiting)
            self._links.send(self._node.id, link[0], "message", 0, Room(name, room, self._seen.get((link, name), 0)))

    def _assigned(self, link: Link, message: Assign) -> None:
        engine = self._node.engine
        place = (link, message.function)
        self._seen[place] = self._seen.get(place, 0) + 1
        function = engine.function_named(message.function)
        if not is_foreign(function) or engine.has_job(message.id) or self._node.is_leaving:
            self._links.send(self._node.id, link[0], "message", 0, Give(message.id, message.start))
            return
        values = (message.unique, message.payload, message.priority, Delivery.WAIT, message.created_us)
        copy = Job(message.id, function, *values)
        copy.origin = BORROWED
        copy.has_details = True
        self.copies[copy.id] = BorrowedCopy(copy, message.start, link)
        engine.borrow(copy, self._borrower)

    def drop(self, borrowed: BorrowedCopy) -> None:
        """End a copy here, and give the job back; the worker has lost this start."""
        self._send_back(borrowed, Give(borrowed.copy.id, borrowed.start))
        engine, copy = self._node.engine, borrowed.copy
        del self.copies[copy.id]
        if engine.job(copy.id) is copy:
            worker = copy.worker
            engine.cancel(copy)
            if worker is not None:
                engine.complete(worker, copy.id, b"")  # frees the worker

    def drop_functions(self, partitions: list[int]) -> None:
        """This node is going to own these partitions itself."""
        for borrowed in [each for each in self.copies.values() if partition_of(each.copy.function.name) in partitions]:
            self.drop(borrowed)

    def copy_ended(self, copy: Job) -> None:
        """A worker has reported on a copy, or was lost."""
        borrowed = self.copies.get(copy.id)
        if borrowed is None or borrowed.copy is not copy:
            return
        del self.copies[copy.id]
        if copy.state is DONE:
            self._send_back(borrowed, Done(copy.id, borrowed.start, copy.result))
        elif copy.is_dead:
            self._send_back(borrowed, Lost(copy.id, borrowed.start))
        elif copy.state is CANCELLED:
            self._send_back(borrowed, Give(copy.id, borrowed.start))
        else:
            self._send_back(borrowed, Failed(copy.id, borrowed.start, copy.result_code, copy.error, copy.result))

    def _send_back(self, borrowed: BorrowedCopy, message: Message) -> None:
        if self._is_up(borrowed.link):
            self._links.send(self._node.id, borrowed.link[0], "message", 0, message)

    # --- messages ---

    def received(self, message: LinkMessage) -> None:
        body = message.body
        if body is None:
            super().received(message)
            return
        link = (message.sender, message.link)
        if isinstance(body, Submit | Room | Done | Failed | Lost | Give):
            session = self.sessions.get(link)
            if session is None:
                session = self.sessions[link] = SimulatedSession(self._node, link)
            session.receive(body)
        elif isinstance(body, Assign):
            self._assigned(link, body)
        elif isinstance(body, Revoke):
            borrowed = self.copies.get(body.id)
            if borrowed is not None and borrowed.link == link:
                self.drop(borrowed)
        elif isinstance(body, Reported):
            if body.is_taken:
                self._world.check_acknowledged_report(self._node, body.id)
        elif isinstance(body, Accepted | Moved):
            self._answered(link, body)

    def _answered(self, link: Link, message: Accepted | Moved) -> None:
        submission = self.submissions.get(message.id)
        if submission is None or submission.link != link:
            return
        if isinstance(message, Moved):
            submission.link = None
        else:
            del self.submissions[message.id]
            self._world.acknowledged.add(message.job_id)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way to owners, or waits for them."""
        return not self.submissions and not self.copies
