"""`LinkSession`: the session of another node at an owner; it submits jobs, and gets jobs for its workers.

To this node, the workers of the other node are one worker with credit. To the hub, the other node is a session whose
output consists of messages, so everything that it is sent waits for the commit that it depends on, as with any peer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from switchgear.engine.function_placement import is_copy
from switchgear.errors import Refused, StorageError
from switchgear.json_bytes import encoded_around, pieces_of
from switchgear.model import DONE, FAILED, FINAL_STATES, Cause, Delivery, Job, Worker
from switchgear.net.hub import Hub
from switchgear.net.owners.link_connection import LinkConnection
from switchgear.net.owners.messages import (
    Accepted,
    Ask,
    Assign,
    Await,
    Awaited,
    AwaitedEnded,
    AwaitedRetried,
    AwaitNoMore,
    ClaimRuns,
    Data,
    Done,
    End,
    Failed,
    Give,
    Listen,
    LookSoon,
    Lost,
    Message,
    Moved,
    Progress,
    Reported,
    RetryWanted,
    Revoke,
    Room,
    RunMoves,
    Serves,
    SubmissionRefused,
    Submit,
    Unwatch,
    VerbAnswer,
    Warn,
    Watch,
    from_option_values,
    options_of,
)
from switchgear.net.owners.node_claims import NodeClaims
from switchgear.net.owners.node_workers import NodeWorkers
from switchgear.protocols.output import Output
from switchgear.protocols.pending_read import Step, awaited
from switchgear.protocols.transport import PeerTransport
from switchgear.refusals import REFUSED_CONFLICT

if TYPE_CHECKING:
    from switchgear.net.owners.relay import Relay

__all__ = ["MOVED", "FunctionMoved", "LinkSession", "RunVerb"]

RunVerb: TypeAlias = Callable[[str, dict[str, Any], list[Any]], Iterator[Step]]

log = logging.getLogger("switchgear")

MOVED: Final = "moved"  # the kind of an answer: another node has what the verb concerns
# The ids of relayed jobs are not this node's, so its own do not grow with them. The place of a job in its queue does:
# it follows from the id of the next job, between which and the one before this many jobs have room.
SUBMISSIONS_PER_ID: Final = 100_000


class LinkTransport(PeerTransport):
    """Writes messages to the other node."""

    def __init__(self, connection: LinkConnection, host: str, port: int) -> None:
        self._connection = connection
        self.host = host
        self.port = port

    def write(self, out: list[Message]) -> None:
        self._connection.send_messages(out)

    def close(self) -> None:
        self._connection.abort()


class LinkSession(Output):
    """The submissions of another node to functions of this one, and the jobs that its workers run."""

    def __init__(self, hub: Hub, relay: Relay, run_verb: RunVerb, transport: LinkTransport, node_name: str) -> None:
        """`run_verb` runs a verb for another node, and adds the answer to the list."""
        super().__init__(hub, transport)
        self._run_verb = run_verb
        self.hub = hub
        self.node_name = node_name
        self._relay = relay
        self._watched: dict[int, list[int]] = {}  # by job, the ids under which the node knows it
        self._job_of: dict[int, int] = {}  # by such an id
        self._workers = NodeWorkers(self.engine, self, node_name.encode(), relay.is_ours)
        self.claims = NodeClaims(hub, relay, self._workers, self)
        self._is_closed = False
        self._submitted = 0
        self.awaited: set[int] = set()  # jobs for which jobs of the node wait
        self._handlers: dict[type[Message], Callable[[Any], None]] = {
            Submit: self._on_submit,
            Watch: self._on_watch,
            Unwatch: self._on_unwatch,
            Room: self._workers.told,
            Done: self._on_done,
            Failed: self._on_failed,
            Lost: self._on_lost,
            Give: self._on_give,
            RetryWanted: self._on_retry_later,
            Progress: self._on_progress,
            Data: self._on_data,
            Warn: self._on_warning,
            Ask: self._on_ask,
            Listen: self._on_listen,
            Await: self._on_await,
            AwaitNoMore: self._on_await_no_more,
            LookSoon: self._on_look_soon,
            ClaimRuns: self.claims.receive,
        }
        relay.edges.sessions[self] = None
        if relay.served:
            self.send(Serves(relay.served))

    def receive(self, message: Message) -> None:
        """Handle a message of the node, as the engine's speaker."""
        self.engine.speaker = self
        try:
            self._handlers[type(message)](message)
        finally:
            self.engine.speaker = None

    def closed(self) -> None:
        """The link is lost: the jobs that the node had borrowed go back to their queues."""
        self._is_closed = True
        self.claims.closed()
        self._relay.channels.left(self)
        self._relay.edges.sessions.pop(self, None)
        self.awaited.clear()
        self.engine.unsubscribe(self)
        self._workers.remove()

    @property
    def unsent_bytes(self) -> int:
        return 0  # messages refer to jobs, whose contents are counted there

    # --- submissions ---

    def _on_submit(self, message: Submit) -> None:
        if not self._relay.is_ours(message.function):
            self.send(Moved(message.id))
        elif message.is_repeated:
            self.hub.work_off(self._submitted_again(message))
        else:
            self._submit(message)

    def _submitted_again(self, message: Submit) -> Iterator[Step]:
        """Handle a submission that the last owner may have stored."""
        engine = self.engine
        if not engine.has_job(message.id):
            try:
                found = yield from self.hub.find_states((message.id,))
            except Refused as refused:
                self.send(SubmissionRefused(message.id, refused.reason, str(refused)))
                return
            if self._is_closed or not self._relay.is_ours(message.function):
                self.send(Moved(message.id))
                return
            if message.id in found and not engine.has_job(message.id):
                self.send(Accepted(message.id, message.id))
                if message.delivery == Delivery.WAIT:
                    yield from self._told_end(message.id, message.id)
                return
        job = engine.job(message.id)
        if job is None:
            before, engine.speaker = engine.speaker, self
            try:
                self._submit(message)
            finally:
                engine.speaker = before
            return
        before, engine.speaker = engine.speaker, self
        try:
            if not message.delivery:  # it may have been known only as a run
                options = from_option_values(message.options, message.id)
                engine.adopted_runs.complete_submission(job, message.payload, options)
            engine.promise(job)
        finally:
            engine.speaker = before
        self.send(Accepted(message.id, job.id))
        if message.delivery == Delivery.WAIT:
            self._follow(message.id, job)

    def _submit(self, message: Submit) -> None:
        engine = self.engine
        self._submitted += 1
        if self._submitted % SUBMISSIONS_PER_ID == 0:
            engine.reserve_id()
        self.source = engine.source_of(message.protocol)
        waits = message.delivery == Delivery.WAIT
        options = from_option_values(message.options, message.id)
        engine.await_submissions()  # the node repeats it until it is stored
        try:
            job = engine.submit(
                message.function, message.unique, message.payload, message.priority, message.delivery, None, options
            )
        except Refused as refused:
            self.send(SubmissionRefused(message.id, refused.reason, refused.told("job {}".format)))
            return
        self.send(Accepted(message.id, job.id))
        if waits and job.state in FINAL_STATES:
            self.hub.work_off(self._told_end(message.id, job.id))
        elif waits:
            self._follow(message.id, job)

    def job_promised(self, job: Job, batch: int) -> None:
        self.promised_jobs.append((len(self.out), job))

    def refusal_instead_of(self, answer: Any, refused: Refused) -> Any:
        if isinstance(answer, Accepted):
            return SubmissionRefused(answer.id, refused.reason, str(refused))
        if isinstance(answer, VerbAnswer):  # it names a job that a schedule has made
            return VerbAnswer(answer.number, refused.reason, msgspec.json.encode(str(refused)), answer.ready)
        return answer

    # --- jobs that a client of the node waits for ---

    def _follow(self, known_as: int, job: Job) -> None:
        """Tell the node what becomes of a job."""
        if known_as in self._job_of:
            return
        self._job_of[known_as] = job.id
        self._watched.setdefault(job.id, []).append(known_as)
        if job.id not in self.subscriptions:
            self.engine.subscribe(job, self)
        for data in job.chunks or ():
            self.send(Data(known_as, data))
        if job.numerator or job.denominator or job.message:
            self.send(progress_of(job, known_as))

    def _on_watch(self, message: Watch) -> None:
        job = self.engine.job(message.job_id)
        if job is not None:
            self._follow(message.id, job)
        else:
            self.hub.work_off(self._told_end(message.id, message.job_id))

    def _told_end(self, known_as: int, job_id: int) -> Iterator[Step]:
        """Send the end of a job that is not in the engine."""
        job = self.hub.find_unkept_end(job_id)
        if job is not None:
            self.await_commit()
        else:
            try:
                job = yield from self.hub.find_job(job_id)
            except Refused:
                job = None
        if self._is_closed:
            return
        now = self.engine.job(job_id)
        if now is not None:
            self._follow(known_as, now)
        elif job is None:
            self.send(End(known_as, int(FAILED), 255, b"the job is unknown", b"", b""))
        elif job.state in FINAL_STATES:
            self.send(end_of(job, known_as))
        else:
            self.send(Moved(known_as))  # another node has it

    def _on_unwatch(self, message: Unwatch) -> None:
        job_id = self._job_of.pop(message.id, None)
        if job_id is None:
            return
        known = self._watched.get(job_id, [])
        if message.id in known:
            known.remove(message.id)
        if not known:
            self._watched.pop(job_id, None)
            self._unsubscribe_from([job_id])

    def moved(self, job: Job) -> None:
        """Tell the other node that a job to which it is subscribed has another owner now."""
        for known_as in self._known(job.id):
            self.send(Moved(known_as))
        if job.id in self.awaited:
            self.awaited.discard(job.id)
            self.send(Awaited([], [job.id], self._relay.ready_mask()))

    def _known(self, job_id: int) -> list[int]:
        """Forget the ids under which the node knows a job, and return them."""
        known = self._watched.pop(job_id, [])
        for known_as in known:
            self._job_of.pop(known_as, None)
        return known

    def job_progress(self, job: Job) -> None:
        for known_as in self._watched.get(job.id, ()):
            self.send(progress_of(job, known_as))

    def job_data(self, job: Job, data: bytes) -> None:
        for known_as in self._watched.get(job.id, ()):
            self.send(Data(known_as, data))

    def job_warning(self, job: Job, data: bytes) -> None:
        for known_as in self._watched.get(job.id, ()):
            self.send(Warn(known_as, data))

    def job_finished(self, job: Job) -> None:
        for known_as in self._known(job.id):
            self.send(end_of(job, known_as))
        if job.id in self.awaited:
            if job.state is DONE:
                self.awaited.discard(job.id)
            self.send(AwaitedEnded(job.id))

    # --- jobs that jobs of the node wait for ---

    def _on_await(self, message: Await) -> None:
        self.hub.work_off(self._begin_to_await(message.ids))

    def _begin_to_await(self, job_ids: list[int]) -> Iterator[Step]:
        """Subscribe to those jobs that this node has, and answer which these are."""
        found: list[int] = []
        missing: list[int]
        unknown: list[int] = []
        self.awaited.update(job_ids)
        before, self.engine.speaker = self.engine.speaker, self
        try:
            for job_id in job_ids:
                (found if self._has_awaited(job_id) else unknown).append(job_id)
        finally:
            self.engine.speaker = before
        if found:
            self._answer_awaited(found, [])  # at once, because these may move while the others are read
        if not unknown:
            return
        try:
            heads: dict[int, Job] = yield from awaited(self.hub.reads.start(self._relay.edges.read_heads(unknown)))
        except StorageError:
            return  # the node asks again
        if self._is_closed:
            return
        found, missing = [], []
        for job_id in unknown:
            head = heads.get(job_id)
            if self._has_awaited(job_id):
                found.append(job_id)
            elif head is None:
                if not self._relay.is_unanswered(job_id):
                    missing.append(job_id)
            elif not self._relay.is_ours(head.function.name):
                missing.append(job_id)
            elif head.state in FINAL_STATES:
                found.append(job_id)
            # Otherwise it is in the inbox of this node, or is being restored: the other node asks again.
        self.awaited.difference_update(missing)
        self._answer_awaited(found, missing)

    def _answer_awaited(self, found: list[int], missing: list[int]) -> None:
        self.await_commit()  # a foreground job is stored from now on
        self.send(Awaited(found, missing, self._relay.ready_mask()))

    def _has_awaited(self, job_id: int) -> bool:
        """Whether this node has the job, or it has just ended; subscribes to it."""
        job = self.engine.job(job_id)
        if job is None:
            return self.hub.find_unkept_end(job_id) is not None
        if is_copy(job):
            return False
        self.engine.foreign_predecessors.must_be_kept(job)
        if job_id not in self.subscriptions:
            self.engine.subscribe(job, self)
        return True

    def awaited_retried(self, job_id: int) -> None:
        """A job that is awaited runs again."""
        job = self.engine.job(job_id)
        if job is not None and job_id not in self.subscriptions:
            self.engine.subscribe(job, self)
        self.await_commit()
        self.send(AwaitedRetried(job_id))
        if job is None:
            self.send(AwaitedEnded(job_id))

    def _on_look_soon(self, message: LookSoon) -> None:
        self._relay.look_soon()

    def _on_await_no_more(self, message: AwaitNoMore) -> None:
        self.awaited.difference_update(message.ids)
        self._unsubscribe_from(message.ids)

    def _unsubscribe_from(self, job_ids: Iterable[int]) -> None:
        """End the subscriptions to jobs that the node neither follows nor awaits."""
        gone = [job_id for job_id in job_ids if job_id not in self._watched and job_id not in self.awaited]
        self.engine.unsubscribe_from(self, gone)

    # --- jobs for the node's workers ---

    def assign(self, worker: Worker, job: Job) -> None:
        kind = self._workers.lend(worker, job.id, job.function.name)
        self.send(
            Assign(
                job.id,
                job.start_number,
                job.function.name,
                job.unique,
                job.payload or b"",
                job.priority,
                job.created_us,
                job.timeout_us,
                job.attempts,
                options_of(job, is_lent=True),
                kind,
                job.delivery,
            )
        )

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        self.send(Revoke(job.id))

    def run_moves(self, job: Job) -> None:
        """Tell the node that a job which its worker runs has another owner from now on."""
        self.send(RunMoves(job.id))

    def _on_done(self, message: Done) -> None:
        worker = self._workers.reporter(message.id)
        is_taken = False
        if worker is not None:
            is_taken = self.engine.complete(worker, message.id, message.result, message.start) is not None
            self._workers.tidy(worker, message.id)
        self.send(Reported(message.id, message.start, is_taken))  # after the commit with the end

    def _on_failed(self, message: Failed) -> None:
        worker = self._workers.reporter(message.id)
        ended = None
        if worker is not None:
            ended = self.engine.fail(worker, message.id, message.code, message.error, message.result, message.start)
            self._workers.tidy(worker, message.id)
        self.send(Reported(message.id, message.start, ended is not None))

    def _on_lost(self, message: Lost) -> None:
        worker = self._workers.reporter(message.id)
        if worker is not None:
            self.engine.lose(worker, message.id, message.start)
            self._workers.tidy(worker, message.id)

    def _on_give(self, message: Give) -> None:
        worker = self._workers.reporter(message.id)
        if worker is not None:
            self.engine.release(worker, message.id, message.start)
            self._workers.tidy(worker, message.id)

    def _on_retry_later(self, message: RetryWanted) -> None:
        worker = self._workers.reporter(message.id)
        job = None
        if worker is not None:
            job = self.engine.retry_later(
                worker, message.id, message.delay_us, message.error, message.attempts_limit, message.start
            )
            self._workers.tidy(worker, message.id)
        self.send(Reported(message.id, message.start, job is not None))

    def _on_progress(self, message: Progress) -> None:
        worker = self._workers.borrower(message.id)
        if worker is not None:
            self.engine.progress(
                worker,
                message.id,
                message.numerator,
                message.denominator,
                message.time_left_s,
                message.text,
                message.message,
            )

    def _on_data(self, message: Data) -> None:
        worker = self._workers.borrower(message.id)
        if worker is not None:
            self.engine.data(worker, message.id, message.data)

    def _on_warning(self, message: Warn) -> None:
        worker = self._workers.borrower(message.id)
        if worker is not None:
            self.engine.warning(worker, message.id, message.data)

    def _on_listen(self, message: Listen) -> None:
        self._relay.channels.heard(self, message)

    # --- verbs ---

    def _on_ask(self, message: Ask) -> None:
        self.hub.work_off(self._answered(message))

    def _answered(self, message: Ask) -> Iterator[Step]:
        """Run a verb with this session as the speaker of each step, and answer."""
        answers: list[Any] = []
        steps = self._verb_steps(message, answers)
        engine = self.engine
        ready = self._relay.ready_mask()
        while True:
            before, engine.speaker = engine.speaker, self
            try:
                step = next(steps)
            except StopIteration:
                break
            finally:
                engine.speaker = before
            yield step
        if not self._is_closed:
            kind, value = answers
            # Of partitions that have come or gone meanwhile, the answer may lack something.
            self.send(VerbAnswer(message.number, kind, value, ready & self._relay.ready_mask()))

    def _verb_steps(self, message: Ask, outcome: list[Any]) -> Iterator[Step]:
        """Run a verb; at the end the kind and the JSON of the answer are added to the list."""
        answers: list[Any] = []
        kind, value = "ok", b"null"
        try:
            yield from self._run_verb(message.verb, msgspec.json.decode(message.arguments), answers)
            parts, long_values = encoded_around(answers[0])
            pieces = [parts[0]]
            for long_value, part in zip(long_values, parts[1:], strict=True):
                for piece in pieces_of(long_value.data):
                    pieces.append(piece)
                    yield False
                pieces.append(part)
            value = b"".join(pieces)
            self.await_commit()
        except FunctionMoved:
            kind = MOVED
        except Refused as refused:
            kind, value = refused.reason, msgspec.json.encode(str(refused))
        except LookupError as error:
            kind, value = "lookup", msgspec.json.encode(str(error.args[0] if error.args else error))
        except ValueError as error:
            kind, value = "value", msgspec.json.encode(str(error))
        except Exception:
            log.exception("internal error in a verb that another node has asked for")
            kind, value = REFUSED_CONFLICT, msgspec.json.encode(f"internal error in {message.verb}")
        outcome += [kind, value]


class FunctionMoved(Exception):
    """Another node owns the function that a verb concerns."""


def progress_of(job: Job, known_as: int) -> Progress:
    """The message with the progress of a job, for the node that knows the job as `known_as`."""
    return Progress(known_as, job.numerator, job.denominator, job.time_left_s, job.progress_text, job.message)


def end_of(job: Job, known_as: int) -> End:
    """The message with the end of a job, for the node that knows the job as `known_as`."""
    cause = int(job.log[-1][0])
    return End(known_as, int(job.state), job.result_code, job.error, job.result, job.warnings, cause)
