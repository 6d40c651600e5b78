"""`Relay`: passes submissions to functions of other nodes on to their owners, and their answers and events back.

A submission to a foreign function gets an id of this node at once, and a *shadow*: a job that is in no table, and
stands for the owner's. The session answers its client as usual, and `HeldOutput` holds the answer until the owner has
acknowledged, as it holds answers until a commit. If the owner refuses, the answer becomes a refusal.

The id is what makes this safe. When an owner is lost before it has answered, the submission goes to the next owner
under the same id, who finds in the database whether it was stored: it is accepted once, whoever has died. While a
function has no owner, submissions wait, for `PATIENCE_SECONDS`.

Shadows of jobs that a client waits for stay until their end. If their owner is lost, a job in the store is watched at
the next owner, and a foreground job, which was in the memory of the owner, is submitted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from switchgear.engine.engine import Engine
from switchgear.engine.function_placement import BORROWED, FOREIGN_LIMIT, FunctionPlacement, is_copy, is_foreign
from switchgear.engine.submit_options import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import FINAL_STATES, Cause, Function, Job, JobState, Peer, Worker
from switchgear.net.owners.cluster_channels import ClusterChannels
from switchgear.net.owners.cross_node_graphs import CrossNodeGraphs
from switchgear.net.owners.divided_functions import DividedFunctions
from switchgear.net.owners.foreign_edges import ForeignEdges
from switchgear.net.owners.messages import (
    Accepted,
    Data,
    End,
    Message,
    Moved,
    Progress,
    Reported,
    SubmissionRefused,
    Submit,
    Unwatch,
    Warn,
    Watch,
    from_option_values,
    option_values,
    options_of,
)
from switchgear.partitions import partition_of
from switchgear.refusals import REFUSED_FULL, REFUSED_STORAGE

if TYPE_CHECKING:
    from switchgear.net.owners.borrowed_jobs import BorrowedJobs

AskRoom: TypeAlias = Callable[[Sequence[tuple[bytes, int, int]], Callable[[Refused | None], object]], None]

__all__ = ["AskRoom", "Relay", "RelayLink", "WantedRetry"]

# How long a submission waits for an owner, or for its answer.
PATIENCE_SECONDS: Final = 30.0
# So many submissions may wait for answers of owners; a client that sends more is refused, as by a full queue.
MOST_UNANSWERED: Final = 100_000
FAILED_CODE: Final = 255
CAUSES_OF_SUCCESSORS: Final = frozenset((Cause.DOOMED, Cause.SKIPPED))
# So many ids stay for single jobs when a graph reserves some.
SPARE_IDS: Final = 1 << 19


class RelayLink(Protocol):
    """The link to an owner."""

    node_id: int
    served: dict[bytes, tuple[str, int]]  # by function, the listener for its connections

    def send(self, message: Message) -> None: ...


class WantedRetry:
    """The retry that the worker of a borrowed job has requested."""

    def __init__(self, delay_us: int, error: bytes | None, attempts_limit: int) -> None:
        self.delay_us = delay_us
        self.error = error
        self.attempts_limit = attempts_limit


class SentReport(NamedTuple):
    """What a worker of this node has reported on a borrowed job, on its way to the owner."""

    copy: Job
    start: int
    link: RelayLink | None  # None: there is no owner at the moment


class Shadow:
    """A job of another node, as far as this one has to do with it."""

    __slots__ = ("is_answered", "is_only_watched", "is_repeated", "job", "link", "real_id", "since_s", "submit")

    def __init__(self, job: Job, submit: Submit | None, since_s: float) -> None:
        self.job = job
        self.submit = submit  # None: it was stored before
        self.link: RelayLink | None = None  # to which it was sent
        self.is_answered = submit is None
        self.is_repeated = False  # it was sent before, to a node that did not answer
        self.is_only_watched = submit is None
        self.real_id = job.id  # of the job that it has joined, if it has
        self.since_s = since_s


class Relay(FunctionPlacement):
    """The functions of other nodes, as this node sees them."""

    def __init__(self, engine: Engine, channels: ClusterChannels) -> None:
        self.engine = engine
        self.channels = channels
        self.edges: ForeignEdges  # the member sets it, and the next two
        self.borrowing: BorrowedJobs
        self.room_at_owners: AskRoom
        self.cross_node_graphs: CrossNodeGraphs
        self.served: list[tuple[bytes, str, int]] = []  # what this node tells others with `Serves`
        self.look_soon: Callable[[], None] = lambda: None
        self.ids_end = 0  # this node may use ids below it
        self.ready: set[int] = set()  # partitions that this node has, with all their jobs
        self.overrides: dict[bytes, int] = {}
        self.divided = DividedFunctions(engine, self.is_ours)
        self.is_adopting: Callable[[bytes], bool] | None = None  # functions that it has restored, and not opened yet
        self.absent: set[bytes] = set()  # functions of such partitions whose jobs it does not have, or not any more
        self.links: dict[int, RelayLink] = {}  # by partition, the link to its owner
        self.refused: dict[int, Refused] = {}  # by id of the submission
        self.joined: dict[int, int] = {}  # by id of the submission, the id of the job that it has joined
        self.on_answered: Callable[[], None] = lambda: None
        self.retries: dict[int, WantedRetry] = {}  # by id of the borrowed job
        self._shadows: dict[int, Shadow] = {}
        self._ending: Shadow | None = None  # of the job whose end subscribers are told
        self._unanswered: dict[int, Shadow] = {}
        self._reports: dict[int, SentReport] = {}  # by id of the borrowed job, those that the owner has not stored yet
        self._waiting: dict[int, dict[int, Shadow]] = {}  # by partition, those without a link to an owner
        self._loop = asyncio.get_running_loop()
        self.relayed = 0  # submissions that were passed on

    # --- for the engine ---

    def partition_of(self, name: bytes) -> int:
        """The partition of a function."""
        return partition_of(name, self.overrides)

    def ready_mask(self) -> int:
        """The partitions that this node has, as the bits of a number."""
        ready = self.ready
        if self.absent:
            ready = ready - {self.partition_of(name) for name in self.absent}
        return sum(1 << partition for partition in ready)

    def is_ours(self, name: bytes) -> bool:
        if name in self.absent or not self.divided.shards.has_queue(name):
            return False
        return partition_of(name, self.overrides) in self.ready

    def may_claim(self, name: bytes) -> bool:
        """Whether other nodes can claim runs of this function here."""
        return self.is_ours(name) or (self.is_adopting is not None and self.is_adopting(name))

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
        if len(self._unanswered) >= MOST_UNANSWERED:
            raise Refused(REFUSED_FULL, "too many submissions wait for other nodes")
        engine = self.engine
        if not self.divided.shards.has_queue(function.name):
            key = unique or (options.name if options is not None else b"")
            function = self.divided.function(self.divided.queue_for(function.name, key))
            if self.is_ours(function.name) and not is_foreign(function):
                return engine.submit(function.name, unique, payload, priority, delivery, subscriber, options)
        job_id = options.job_id if options is not None and options.job_id else engine.reserve_id()
        job = Job(job_id, function, unique, payload, priority, delivery, engine.now_us)
        speaker = engine.speaker
        protocol = ""
        if speaker is not None:
            job.source = speaker.source
            protocol = engine.flows.sources[speaker.source]
        if options is not None and options.run_at_us > engine.now_us:
            job.state = JobState.SCHEDULED
            job.run_at_us = options.run_at_us
        if subscriber is not None:
            job.subscribers = [subscriber]
            subscriber.subscriptions[job_id] = job
        values = option_values(options)
        submit = Submit(job_id, function.name, unique, payload, priority, delivery, protocol, values, False)
        shadow = Shadow(job, submit, self._loop.time())
        self._shadows[job_id] = self._unanswered[job_id] = shadow
        self._pass_on(shadow)
        if delivery:
            job.payload = b""
            engine.promise(job)
        return job

    def function_at_owner(self, job: Job) -> bytes:
        """The name of the function that a job has at its owner: if it is borrowed of a shard, that of the shard."""
        if not is_copy(job):
            return job.function.name
        return self.borrowing.function_at_owner(job.id) or job.function.name

    # --- divided functions ---

    def told_name(self, name: bytes) -> bytes:
        return self.divided.shards.base_of(name)

    def function_for_graph(self, function: Function) -> Function:
        return self.engine.function_named(self.divided.queue_for(function.name, b""))

    def shards_here(self, function: Function) -> Sequence[Function]:
        return self.divided.own_shards(function.name)

    def worker_registered(
        self, worker: Worker, function: Function, timeout_us: int, priorities: tuple[int, ...]
    ) -> None:
        self.divided.register(worker, function, timeout_us, priorities)

    def worker_deregistered(self, worker: Worker, function: Function) -> None:
        self.divided.deregister(worker, function)

    # --- jobs that stand for those of other nodes ---

    def watch(self, job: Job) -> None:
        """A peer has subscribed to a job of another node."""
        if job.state in FINAL_STATES:
            return
        shadow = self._shadows.get(job.id)
        if shadow is None:
            shadow = self._shadows[job.id] = Shadow(job, None, self._loop.time())
            self._pass_on(shadow)
        elif shadow.is_answered and shadow.link is not None:
            shadow.link.send(Watch(job.id, shadow.real_id))

    def passed_on(self, job_id: int) -> Job | None:
        shadow = self._shadows.get(job_id)
        return None if shadow is None else shadow.job

    def id_at_owner(self, job: Job) -> int:
        shadow = self._shadows.get(job.id) or self._ending
        return shadow.real_id if shadow is not None and shadow.job is job else job.id

    def stand_in(self, job: Job) -> Job | None:
        if job.state in FINAL_STATES:
            return None
        shadow = self._shadows.get(job.id)
        if shadow is not None:
            return shadow.job
        # It may be a job of this node that is in the inbox, and is asked for by this node's link to itself.
        function = Function(job.function.name)
        function.told_name = job.function.told_name
        function.limits = [FOREIGN_LIMIT] * 3
        made = Job(job.id, function, job.unique, b"", job.priority, job.delivery, job.created_us)
        made.state = job.state
        return made

    def abandon(self, job: Job) -> bool:
        shadow = self._shadows.get(job.id)
        if shadow is None:
            return False
        if shadow.link is not None:
            shadow.link.send(Unwatch(job.id))
        self._forget(shadow)
        return True

    def ids_left(self) -> int:
        return self.ids_end - self.engine.next_job_id - SPARE_IDS

    def ask_room(self, wanted: Sequence[tuple[bytes, int, int]], on_answer: Callable[[Refused | None], object]) -> None:
        self.room_at_owners(wanted, on_answer)

    def store_for_owners(self, jobs: list[Job]) -> None:
        self.cross_node_graphs.store(jobs)

    def follow_stored(self, jobs: Iterable[Job]) -> None:
        """Peers of this node have subscribed to jobs that are stored for other owners now."""
        for job in jobs:
            shadow = self._shadows[job.id] = Shadow(job, None, self._loop.time())
            self._pass_on(shadow)

    def await_job(self, job_id: int) -> None:
        self.edges.await_job(job_id)

    def job_retried(self, job: Job) -> None:
        self.edges.job_retried(job.id)

    def owner_of_predecessor(self, job_id: int) -> str:
        return self.edges.owner_of(job_id)

    def is_unanswered(self, job_id: int) -> bool:
        """Whether a submission of this id is on its way to its owner, or its end to this node."""
        shadow = self._shadows.get(job_id)
        return (shadow is not None and not shadow.is_only_watched) or job_id in self.cross_node_graphs.waiting

    def resume_run(self, worker: Worker, job: Job, attempt: int, on_answer: Callable[[bool], object]) -> None:
        self.borrowing.resume(worker, job, attempt, on_answer)

    def note_retry(self, job: Job, delay_us: int, error: bytes | None, attempts_limit: int) -> None:
        self.retries[job.id] = WantedRetry(delay_us, error, attempts_limit)

    # --- output that waits for answers ---

    def must_wait(self, promised: Sequence[tuple[int, Job]]) -> bool:
        """Whether an owner has not answered yet about one of these jobs."""
        unanswered, reports = self._unanswered, self._reports
        if not unanswered and not reports:
            return False
        for _, job in promised:
            # By identity: if this node has become the owner, the real job has the same id, and is answered for by the
            # link of this node to itself.
            shadow = unanswered.get(job.id)
            report = reports.get(job.id)
            if (shadow is not None and shadow.job is job) or (report is not None and report.copy is job):
                return True
        return False

    def lost_reports(self, promised: Sequence[tuple[int, Job]]) -> list[int]:
        """The places of answers that would say that a report is stored, and its owner has not said so."""
        return [index for index, job in promised if job.withdrawn and job.origin == BORROWED]

    def await_report(self, copy: Job, start: int, link: RelayLink | None) -> None:
        """Hold the next output to the worker that reports now, until the owner has stored the end of the job."""
        self._reports[copy.id] = SentReport(copy, start, link)
        self.engine.promise_report(copy)

    def report_sent(self, copy: Job, start: int, link: RelayLink) -> None:
        """A report that had to wait for an owner is sent to this one."""
        self._reports[copy.id] = SentReport(copy, start, link)

    def report_refused(self, copy: Job) -> None:
        """A report that had to wait for an owner is not wanted by it."""
        report = self._reports.get(copy.id)
        if report is not None and report.copy is copy:
            self._report_is_lost(report)
            self.on_answered()

    def _report_is_lost(self, report: SentReport) -> None:
        del self._reports[report.copy.id]
        report.copy.withdrawn = True

    # --- to the owners ---

    def _pass_on(self, shadow: Shadow) -> None:
        submit = shadow.submit
        if submit is not None and not self.divided.shards.has_queue(submit.function):  # divided or united meanwhile
            key = submit.unique or from_option_values(submit.options, 0).name
            shadow.job.function = self.divided.function(self.divided.queue_for(submit.function, key))
            submit.function = shadow.job.function.name
        partition = self.partition_of(shadow.job.function.name)
        link = self.links.get(partition)
        if link is None:
            self._waiting.setdefault(partition, {})[shadow.job.id] = shadow
            return
        shadow.link = link
        if shadow.submit is None:
            link.send(Watch(shadow.job.id, shadow.real_id))
            return
        self.relayed += 1
        shadow.submit.is_repeated = shadow.is_repeated
        link.send(shadow.submit)

    def use_links(self, links: dict[int, RelayLink]) -> None:
        """The links to the owners of all partitions that have one which can be reached."""
        self.links = links
        for partition in [partition for partition in self._waiting if partition in links]:
            for shadow in self._waiting.pop(partition).values():
                self._pass_on(shadow)
        self.edges.use_links(links)

    def link_lost(self, link: RelayLink) -> None:
        """Send everything that was sent over this link and is not finished to the next owner."""
        self.links = {partition: other for partition, other in self.links.items() if other is not link}
        self.edges.use_links(self.links)
        for shadow in [shadow for shadow in self._shadows.values() if shadow.link is link]:
            self._wait_again(shadow)
        lost = [report for report in self._reports.values() if report.link is link]
        for report in lost:
            self._report_is_lost(report)
        if lost:
            self.on_answered()

    def _wait_again(self, shadow: Shadow) -> None:
        shadow.link = None
        shadow.is_repeated = True
        if shadow.is_answered and shadow.job.delivery:
            shadow.submit = None  # it is stored
        partition = self.partition_of(shadow.job.function.name)
        self._waiting.setdefault(partition, {})[shadow.job.id] = shadow

    def look_after(self) -> None:
        """Called regularly: give up what has waited for too long."""
        before_s = self._loop.time() - PATIENCE_SECONDS
        late = [shadow for shadow in self._unanswered.values() if shadow.since_s < before_s]
        for shadow in late:
            self._refuse(shadow, Refused(REFUSED_STORAGE, "the node that owns the function has not answered"))
        if late:
            self.on_answered()

    # --- from the owners ---

    def receive(self, link: RelayLink, message: Message) -> None:
        """Handle a message of an owner about a shadow, or about a borrowed job that was reported."""
        if isinstance(message, Reported):
            self._reported(message)
            return
        shadow = self._shadows.get(message.id)  # type: ignore[attr-defined]
        if shadow is None or shadow.link is not link:
            return
        if isinstance(message, Accepted):
            self._accepted(shadow, message.job_id)
        elif isinstance(message, SubmissionRefused):
            self._refuse(shadow, Refused(message.reason, message.text))
            self.on_answered()
        elif isinstance(message, Moved):
            self._wait_again(shadow)
        elif isinstance(message, End):
            self._ended(shadow, message)
        else:
            self._report(shadow.job, message)

    def _reported(self, message: Reported) -> None:
        report = self._reports.get(message.id)
        if report is None or report.start != message.start:
            return
        if message.is_taken:
            del self._reports[message.id]
        else:
            self._report_is_lost(report)
        self.on_answered()

    def _accepted(self, shadow: Shadow, job_id: int) -> None:
        shadow.is_answered = True
        shadow.real_id = job_id
        job = shadow.job
        self._unanswered.pop(job.id, None)
        if job_id != job.id and job.delivery:
            self.joined[job.id] = job_id
        if not job.subscribers:
            self._forget(shadow)
        elif job.delivery and shadow.link is not None:
            shadow.link.send(Watch(job.id, job_id))
        self.on_answered()

    def _refuse(self, shadow: Shadow, refused: Refused) -> None:
        """A submission is refused. A client that waits on its connection was told the handle already, so it is told
        that the job has failed."""
        job = shadow.job
        job.withdrawn = True
        if job.delivery:
            if shadow.submit is not None:
                job.payload = shadow.submit.payload  # the submitter may try again
            self.refused[job.id] = refused
            for subscriber in job.subscribers or ():
                subscriber.drop_subscription(job.id)
            job.subscribers = None
            self._forget(shadow)
        else:
            self._ended(shadow, End(job.id, JobState.FAILED, FAILED_CODE, str(refused).encode(), b"", b""))

    def _ended(self, shadow: Shadow, end: End) -> None:
        job = shadow.job
        self._forget(shadow)
        job.state = JobState(end.state)
        job.finished_us = self.engine.now_us
        job.result = end.result
        if end.cause in CAUSES_OF_SUCCESSORS:  # by which sessions tell what the error is
            job.moves = [Cause.SUBMITTED_WAITING, job.created_us, Cause(end.cause), job.finished_us]
        if end.code:
            job.result_code = end.code
        if end.error is not None:
            job.error = end.error
        if end.warnings:
            job.warnings = end.warnings
        job.worker = None
        self._ending = shadow
        for subscriber in job.subscribers or ():
            if subscriber.drop_subscription(job.id):
                subscriber.job_finished(job)
        self._ending = None
        job.subscribers = None

    def _report(self, job: Job, message: Message) -> None:
        subscribers = [subscriber for subscriber in job.subscribers or () if subscriber.hears_of(job.id)]
        if isinstance(message, Progress):
            job.numerator = message.numerator
            job.denominator = message.denominator
            job.time_left_s = message.time_left_s
            job.progress_text = message.text
            job.message = message.message
            for subscriber in subscribers:
                subscriber.job_progress(job)
        elif isinstance(message, Data):
            for subscriber in subscribers:
                subscriber.job_data(job, message.data)
        elif isinstance(message, Warn):
            for subscriber in subscribers:
                subscriber.job_warning(job, message.data)

    def _forget(self, shadow: Shadow) -> None:
        job_id = shadow.job.id
        self._shadows.pop(job_id, None)
        self._unanswered.pop(job_id, None)
        if shadow.link is None:
            for waiting in self._waiting.values():
                waiting.pop(job_id, None)

    # --- functions that this node has handed over ---

    def follow(self, subscriptions: Iterable[tuple[Peer, Job]], unstored: Iterable[Job]) -> None:
        """Peers of this node stay subscribed to jobs that are another node's now; foreground jobs, which the store does
        not have, are submitted to it."""
        by_job: dict[Job, list[Peer]] = {}
        for peer, job in subscriptions:
            by_job.setdefault(job, []).append(peer)
        gone = set(unstored)
        for job, peers in by_job.items():
            function = self.engine.function_named(job.function.name)
            submit = None
            payload = job.payload or b""
            if job in gone:
                values = options_of(job)
                submit = Submit(
                    job.id, function.name, job.unique, payload, job.priority, job.delivery, "", values, True
                )
            copy = Job(job.id, function, job.unique, payload, job.priority, job.delivery, job.created_us)
            copy.subscribers = peers
            for peer in peers:
                peer.subscriptions[copy.id] = copy
            shadow = self._shadows[copy.id] = Shadow(copy, submit, self._loop.time())
            if submit is not None:
                self._unanswered[copy.id] = shadow
                shadow.is_repeated = True
            self._pass_on(shadow)
