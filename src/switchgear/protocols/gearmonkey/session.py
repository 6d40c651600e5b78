"""`GearMonkeySession`: one connection of a GearMonkey client or worker, which uses this server as its Redis.

A connection is answered in the order of its commands. While a command waits (BRPOP), the commands behind it are kept in
`behind`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from switchgear.errors import PeerError, Refused
from switchgear.model import HIGH, URGENT, Cause, Function, Job, Timer, Worker
from switchgear.model.job import lost_payload_text
from switchgear.protocols.context import Context
from switchgear.protocols.gearmonkey.blocked_connection import LockWait, PopPlan, QueueWait
from switchgear.protocols.gearmonkey.command_lookup import find_verb, text_of
from switchgear.protocols.gearmonkey.keys import CHANNEL, Key, KeyKind, parse_key, queue_key
from switchgear.protocols.gearmonkey.listener_state import PROTOCOL, GearMonkeySetup
from switchgear.protocols.gearmonkey.resp import (
    WORD_OVERHEAD_BYTES,
    Command,
    RespDecoder,
    array,
    bulk,
    error,
    null_array,
)
from switchgear.protocols.handles import MOST_FUNCTIONS
from switchgear.protocols.pending_read import Step
from switchgear.protocols.session import ByteSession
from switchgear.protocols.transport import PeerTransport
from switchgear.refusals import REFUSALS
from switchgear.text import harmless

__all__ = ["GearMonkeySession"]

# When this many bytes of long answers are unsent, further commands are deferred until the peer has read them.
LONG_BYTES = 8 * 1024 * 1024
LONG_ANSWER_BYTES: Final = 4096

# When publishing has taken this many steps (`Pattern.steps`), other peers are served before the next command.
MOST_STEPS_AT_ONCE = 150_000

# The maximum size of the answer to one command or transaction.
MOST_ANSWER_BYTES = 256 * 1024 * 1024

MOST_BEHIND = 10_000  # commands behind a waiting one
MOST_QUEUED = 1_000  # commands in a transaction, which is executed in one turn
MOST_REGISTERED = 2 * MOST_FUNCTIONS  # functions in all of these sets
MOST_WORKERS = 100  # different sets of functions that one connection pops from

REFUSAL_WORDS: Final = {reason: refusal.gearmonkey for reason, refusal in REFUSALS.items()}
# Commands that concern no database.
ABOUT_CONNECTIONS: Final = frozenset(
    (
        b"AUTH", b"CLIENT", b"COMMAND", b"CONFIG", b"ECHO", b"HELLO", b"HOST:", b"INFO", b"PING", b"POST", b"QUIT",
        b"RESET", b"SELECT", b"TIME",
    )
)  # fmt: skip
ONLY_WHILE_SUBSCRIBED: Final = (
    "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
)


class GearMonkeySession(ByteSession):
    """The session of one RESP connection."""

    protocol = PROTOCOL

    def __init__(self, context: Context, transport: PeerTransport, setup: GearMonkeySetup) -> None:
        super().__init__(context, transport)
        self.setup = setup
        self.decoder = RespDecoder(setup.packet_bytes)
        self.version = 2  # of RESP
        self.refused_database = 0  # the database of a refused SELECT; 0: none
        self.since_us = self.engine.now_us
        self.client_id = b""
        self.stated_tags: frozenset[bytes] | None = None  # by CLIENT SETINFO; None: not stated
        self.stated_resources: dict[bytes, int] | None = None  # likewise, in thousandths
        setup.last_number += 1
        self.number = setup.last_number
        self.behind: deque[Command] = deque()
        self.behind_bytes = 0  # approximate size of those that arrived during the wait
        self.blocked: QueueWait | LockWait | None = None
        self.workers: dict[frozenset[Function], Worker] = {}
        self.counted: set[bytes] = set()  # functions for which it has registered workers
        self.channels: dict[bytes, None] = {}
        self.patterns: dict[bytes, None] = {}
        self.pattern_steps = 0  # the cost of comparing a name with these
        self.steps_before = 0  # the steps of all publishing when the current transaction began
        self.queued: list[Command] | None = None  # the commands of a transaction
        self.queued_bytes = 0
        self.is_broken = False  # the transaction has an error
        self.executing = False
        self.ended = False  # the peer has closed its side
        self._told_later: list[bytes] = []  # messages that arrived during a transaction's replies
        self._told_in = self.out
        self._told_bytes = 0  # how much of that output is messages
        self._held_bytes = 0  # how much of the held output is messages
        self._is_working = False
        self._plan: PopPlan | None = None
        # Data read for the current command: finished jobs, None for unknown ones, and payloads that are not in memory,
        # None for lost ones.
        self._found: dict[int, Job | None] = {}
        self._payloads: dict[int, bytes | None] = {}
        self._has_read = False  # one of these is not empty
        setup.sessions[self] = None

    # --- called by the connection ---

    def handle_data(self, data: bytes) -> None:
        if self.closing:
            return
        commands = self.decoder.feed(data)
        self.behind.extend(commands)
        if self.long_bytes and not self.out:
            self.long_bytes = 0
        if self.blocked is None:
            self._work()
            return
        self.behind_bytes += sum(map(size_of, commands))
        if len(self.behind) > MOST_BEHIND or self.behind_bytes > self.setup.packet_bytes:
            self.context.count_bad_input(self, "ERR", "too much is sent behind a command that waits")
            self.closing = True
            self.mark()

    def _work(self) -> None:
        """Handle commands until one has to wait."""
        behind = self.behind
        channels = self.setup.channels
        memory = self.engine.memory
        most_steps = channels.spent_steps + MOST_STEPS_AT_ONCE
        self._is_working = True
        while behind and self.blocked is None and self.operation is None and not self.closing:
            if self.long_bytes > LONG_BYTES or channels.spent_steps > most_steps or memory.answers_must_wait:
                self.deferred = [(len(behind), b"")]  # only tells that there are some; `behind` has them
                self.mark()
                break
            command = behind.popleft()
            self.handle(command)
            if self._has_read and not (behind and behind[0] is command):
                self._has_read = False
                self._found = {}
                self._payloads = {}
        self._is_working = False
        if not behind:
            self.behind_bytes = 0
            failure = self.decoder.failure
            if failure is not None and self.blocked is None and self.operation is None and not self.closing:
                self._complain(failure)
                self.closing = True

    def handle_deferred(self) -> None:
        if self.operation is not None:
            self.resume_operation()
            return
        self.deferred = []
        self.long_bytes = 0
        if self.blocked is None:
            self._work()
        if self.ended and not self.deferred and self.operation is None:
            super().eof()

    def eof(self) -> None:
        self.ended = True
        if not self.deferred and self.operation is None:
            super().eof()

    @property
    def buffered_bytes(self) -> int:
        return self.decoder.buffered_bytes + self.behind_bytes + self.queued_bytes

    @property
    def awaited_bytes(self) -> int:
        return self.decoder.awaited_bytes

    def closed(self) -> None:
        self.abandon_read()
        setup = self.setup
        setup.sessions.pop(self, None)
        self.stop_waiting()
        self.unsubscribe_all()
        setup.counts.forget(self)
        self.engine.unsubscribe(self)
        for functions, worker in self.workers.items():
            setup.counts.worker_removed(functions)
            self.engine.remove_worker(worker)
        self.workers.clear()

    # --- commands ---

    def handle(self, command: Command) -> None:
        """Answer one command, or start to wait for its answer."""
        try:
            verb = find_verb(self.setup.verbs, command)
            if self.refused_database and command[0].upper() not in ABOUT_CONNECTIONS:
                raise PeerError(
                    f"database {self.refused_database} was selected, and there is only database 0 here; nothing is done"
                    " before SELECT 0",
                    code="ERR",
                )
            if self.is_guarded:
                self.setup.check_command(self, command)
            if self.queued is not None and verb.in_transaction:
                self._queue(command)
                return
            if (self.channels or self.patterns) and self.version == 2 and not verb.while_subscribed:
                raise PeerError(f"Can't execute '{text_of(command[0]).lower()}': {ONLY_WHILE_SUBSCRIBED}", code="ERR")
            verb.handler(self, command)
        except PeerError as mistake:
            self.is_broken = True  # has an effect only in a transaction
            self._complain(mistake)
        except Refused as refused:
            self.is_broken = True
            self.send(self.refusal(refused))

    # --- data of the store ---

    def must_read(self, command: Command, keys: Iterable[Key], *, with_payloads: bool = False) -> bool:
        """Whether the store has to be read first for these jobs; the command is then handled again after the read.

        Called before anything else. The commands of a transaction are handled when everything was read for them.
        """
        jobs: list[int] = []
        payloads: list[int] = []
        for key in keys:
            number = key.number
            job = self.engine.job(number)
            if job is None:
                if number not in self._found and not self._is_at_hand(key):
                    jobs.append(number)
            elif with_payloads and job.payload is None and number not in self._payloads:
                payloads.append(number)
        if self.executing or not (jobs or payloads):
            return False
        self.work_off(self._read_first(command, jobs, payloads, is_live=with_payloads))
        return True

    def _is_at_hand(self, key: Key) -> bool:
        """Whether the object of a key is in memory: a draft, or a lock of a job that has just ended, or that was passed
        on to another server."""
        setup = self.setup
        if key.kind is KeyKind.LOCK:
            placement = self.engine.placement
            if placement is not None and placement.passed_on(key.number) is not None:
                return True
            return setup.locks.find(key.number, key.function, self.engine.now_us) is not None
        return setup.drafts.get(key.number, key.function) is not None

    def _read_first(self, command: Command, jobs: list[int], payloads: list[int], *, is_live: bool) -> Iterator[Step]:
        """Read the data that a command needs, and handle it afterwards."""
        if jobs:
            found = yield from self.context.find_jobs(jobs)
            for number in jobs:
                job = found.get(number)
                if is_live and job is not None:
                    job = yield from self.context.find_live(job)
                self._found[number] = job
        if payloads:
            read = yield from self.context.read_payloads(payloads)
            for number in payloads:
                self._payloads[number] = read.get(number)
        self._has_read = True
        self.behind.appendleft(command)

    def found_job(self, number: int) -> Job | None:
        """A job, unfinished or not; `must_read` was called for it."""
        return self.engine.job(number) or self._found.get(number)

    def job_to_await(self, number: int) -> Job | None:
        """An unfinished job to whose end this connection can subscribe; `must_read` was called for it."""
        job = self.engine.job(number)
        placement = self.engine.placement
        if job is None and placement is not None:
            stored = self._found.get(number)
            job = placement.passed_on(number) if stored is None else placement.stand_in(stored)
        return job

    def payload_of(self, job: Job) -> bytes:
        """The payload of an unfinished job; `must_read` was called for it.  Raises PeerError."""
        payload = job.payload if job.payload is not None else self._payloads.get(job.id)
        if payload is None:
            raise PeerError(lost_payload_text(job.id), code="ERR")
        return payload

    def answer_error(self, error: PeerError | Refused) -> None:
        if isinstance(error, Refused):
            self.send(self.refusal(error))
        else:
            self._complain(error)

    def _complain(self, mistake: PeerError) -> None:
        text = harmless(str(mistake))
        self.context.count_bad_input(self, mistake.code, text)
        self.send(error(f"{mistake.code} {text}"))

    def refusal(self, refused: Refused) -> bytes:
        return error(f"{REFUSAL_WORDS[refused.reason]} {refused}")

    def refuse_withdrawn(self, refused: Refused) -> None:
        for _, job in self.promised_jobs:
            if job.withdrawn:
                self.setup.drafts.put_back(job, self.setup.extras.forget(job.id))
        super().refuse_withdrawn(refused)

    def correct_held(self, refused: dict[int, Refused], joined: dict[int, int]) -> None:
        for _, job in self.held_jobs:
            if job.id in refused:
                self.setup.drafts.put_back(job, self.setup.extras.forget(job.id))
        super().correct_held(refused, joined)

    def send_long(self, answer: bytes) -> None:
        """Send an answer that may be long."""
        if len(answer) > LONG_ANSWER_BYTES:
            self.note_long_answer(len(answer))
        self.send(answer)

    def send_pieces(self, pieces: list[bytes]) -> None:
        """Send an answer that may be long, with pieces that others may share."""
        size = sum(map(len, pieces))
        if size > LONG_ANSWER_BYTES:
            self.note_long_answer(size)
        self.out += pieces
        self.mark()

    def key(self, text: bytes) -> Key:
        return parse_key(text, self.setup.name_bytes)

    # --- transactions ---

    def begin_transaction(self) -> None:
        self.queued = []
        self.queued_bytes = 0
        self.is_broken = False

    def _queue(self, command: Command) -> None:
        assert self.queued is not None
        queued_bytes = self.queued_bytes + size_of(command)
        if len(self.queued) >= MOST_QUEUED or queued_bytes > self.setup.packet_bytes:
            raise PeerError("the transaction is too long", code="ERR")
        self.queued_bytes = queued_bytes
        self.queued.append(command)
        self.send(b"+QUEUED\r\n")

    def end_transaction(self) -> list[Command]:
        """Leave the transaction; returns its commands."""
        commands = self.queued or []
        self.queued = None
        self.queued_bytes = 0
        return commands

    def execute(self, commands: list[Command]) -> None:
        """Answer all commands of a transaction with one array.  None of them waits."""
        self.send(b"*%d\r\n" % len(commands))
        self.executing = True
        self.steps_before = self.setup.channels.spent_steps
        for command in commands:
            if self.long_bytes > MOST_ANSWER_BYTES:
                self.send(error(f"ERR the answers before this one have {MOST_ANSWER_BYTES} bytes already"))
            else:
                self.handle(command)
        self.executing = False
        for message in self._told_later:
            self.send(message)
        self._told_later = []

    # --- worker ---

    def worker_for(self, functions: frozenset[Function]) -> Worker:
        """The worker of this connection for these functions."""
        worker = self.workers.get(functions)
        if worker is None or not worker.alive:  # deregistered workers belong to a server that stops
            if len(self.workers) >= MOST_WORKERS:
                raise PeerError(f"a connection may pop from {MOST_WORKERS} different sets of queues", code="ERR")
            if len(functions) + sum(map(len, self.workers)) > MOST_REGISTERED:
                raise PeerError(f"the sets of queues of a connection may name {MOST_REGISTERED} functions", code="ERR")
            self.engine.refuse_registrations(len(functions))
            # A report may come on any connection, so all workers of the protocol have one identity.
            worker = self.engine.add_worker(self, self.protocol, self.client_id, identity=PROTOCOL)
            if self.stated_tags is not None or self.stated_resources is not None:
                try:
                    self.engine.describe_worker(worker, self.stated_tags, self.stated_resources)
                except Refused:
                    self.engine.remove_worker(worker)
                    raise
            for function in functions:
                self.engine.can_do(worker, function)
            if functions not in self.workers:
                self.setup.counts.worker_added(functions)
            self.workers[functions] = worker
        return worker

    def plan_for(self, keys: Sequence[bytes]) -> PopPlan:
        """The plan of a pop from these queues, which mostly are those of the last pop."""
        plan = self._plan
        if plan is None or plan.keys != keys or not plan.worker.alive:
            plan = self._plan = PopPlan.make(self, keys)
        return plan

    def give(self, job: Job) -> None:
        """Answer a pop with the id of a job that this connection has now.

        A worker may not know keys that it has not named. So a scheduled job that it has not asked for is answered with
        the key of the queue that follows.
        """
        priority = HIGH if job.priority == URGENT else job.priority
        self.send(array((bulk(queue_key(job.function.told_name, priority)), bulk(b"%d" % job.id))))

    def is_held(self, job: Job) -> bool:
        """Whether this or another GearMonkey connection holds the job."""
        return job.worker is not None and job.worker.protocol == self.protocol

    def is_late(self, job: Job) -> bool:
        """Whether this connection had an earlier start of a job that another holds now."""
        if job.worker is None or job.worker.peer is self:
            return False
        loser = self.engine.last_to_lose(job.id, PROTOCOL)
        return loser > 0 and any(worker.id == loser for worker in self.workers.values())

    def is_elsewhere(self, job: Job) -> bool:
        """Whether another server owns the job."""
        placement = self.engine.placement
        return placement is not None and not placement.is_ours(job.function.name)

    # --- waiting ---

    def block(self, wait: QueueWait | LockWait) -> None:
        """Begin the wait of a blocking command; further commands of the connection are deferred. Raises Refused."""
        self.blocked = wait
        try:
            wait.begin(self)
        except Refused:
            self.blocked = None
            raise

    def stop_waiting(self) -> None:
        """End the wait of this connection, if there is one."""
        wait, self.blocked = self.blocked, None
        if wait is not None:
            wait.end(self)

    def unblock(self) -> None:
        """Continue after a wait. The engine may call this, so the next command is handled in its own turn."""
        self.blocked = None
        if not self._is_working and (self.behind or self.subscriptions or self.decoder.failure is not None):
            self.resume_soon()

    def resume(self) -> None:
        if self.blocked is None and not self.closing:
            if self.subscriptions:
                self.engine.unsubscribe(self)
            if not self.deferred:
                self._work()

    def assign(self, worker: Worker, job: Job) -> None:
        self.unblock()
        self.give(job)

    def wait_timed_out(self, worker: Worker, ticket: int) -> None:
        self.give_up()

    def timer_fired(self, timer: Timer) -> None:
        self.give_up()

    def give_up(self) -> None:
        """End a wait without a result: its time is over."""
        if isinstance(self.blocked, LockWait):
            self.blocked.end(self)
        self.unblock()
        self.send(null_array(self.version))

    def job_finished(self, job: Job) -> None:
        if isinstance(self.blocked, LockWait):
            self.blocked.job_finished(self, job)

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        if job.id in worker.running:  # the worker publishes the end itself when it reports
            self.setup.channels.spoken_for = job.id

    # --- messages ---

    @property
    def channel_bytes(self) -> int:
        """The maximum length of a channel name or pattern."""
        return self.setup.name_bytes + len(CHANNEL)

    def has_room_for(self, more_bytes: int) -> bool:
        """Whether this much more output may wait for this peer, which has no control over the messages it is sent.

        If not, the connection is closed as one that does not read, before anything is written.
        """
        if self.closing:
            return False
        if self._told_in is not self.out:  # the counted output was sent
            self._told_in = self.out
            self._told_bytes = 0
        waiting_bytes = self._told_bytes + self._held_bytes + self.transport.unsent_bytes + more_bytes
        if waiting_bytes <= self.setup.output_bytes:
            return True
        self.closing = True
        self._told_later = []
        self.transport.give_up_on_slow_reader(waiting_bytes)
        return False

    def tell(self, pieces: list[bytes], size: int, *, promised: bool) -> None:
        """Send a published message; the caller has checked for room."""
        if promised:
            self.await_commit()
        self._told_bytes += size
        if self.executing:
            self._told_later += pieces
        else:
            self.out += pieces
            self.mark()

    def hold(self) -> None:
        self._held_bytes = self._told_bytes if self._told_in is self.out else 0
        self._told_bytes = 0
        super().hold()

    def release(self) -> list[bytes]:
        self._held_bytes = 0
        return super().release()

    def unhold(self) -> None:
        waiting_bytes = self._held_bytes + (self._told_bytes if self._told_in is self.out else 0)
        super().unhold()
        self._told_in = self.out
        self._told_bytes = waiting_bytes

    def unsubscribe_all(self) -> None:
        for name in list(self.channels):
            self.setup.channels.unsubscribe(self, name)
        for pattern in list(self.patterns):
            self.setup.channels.unsubscribe_pattern(self, pattern)


def size_of(command: Command) -> int:
    """The approximate memory of a command."""
    return sum(map(len, command)) + WORD_OVERHEAD_BYTES * (len(command) + 1)
