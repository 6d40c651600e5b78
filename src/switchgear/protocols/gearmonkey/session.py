"""One connection of a GearMonkey client or worker, which takes this server for its Redis.

A connection is answered in the order of its commands.  One that waits (BRPOP) handles none of those behind it until it
has its answer, so they are kept in `behind`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from switchgear.engine.core import REFUSED_FULL, REFUSED_STORAGE
from switchgear.errors import PeerError, Refused
from switchgear.model import HIGH, URGENT, Cause, Function, Job, Worker
from switchgear.protocols.base import MOST_FUNCTIONS, Context, Session, Wire
from switchgear.protocols.gearmonkey.keys import CHANNEL, Key, parse_key, queue_key
from switchgear.protocols.gearmonkey.resp import Command, Decoder, array, bulk, error, null_array
from switchgear.protocols.gearmonkey.setup import PROTOCOL, GearMonkeySetup, Verb, remember
from switchgear.protocols.gearmonkey.waiting import LockWait, PopPlan, QueueWait
from switchgear.text import harmless

__all__ = ["GearMonkeySession"]

# When long answers of so many bytes wait to be sent, further commands are put off until the peer has taken them.
LONG_BYTES = 8 * 1024 * 1024
LONG_ANSWER_BYTES: Final = 4096

# When publishing has taken so many steps (`Pattern.steps`), others are served before the next command is.
MOST_STEPS_AT_ONCE = 150_000

# One command, or one transaction, is answered by at most so many bytes.
MOST_ANSWER_BYTES = 256 * 1024 * 1024

MOST_BEHIND = 10_000  # commands behind one that waits
MOST_QUEUED = 10_000  # commands in a transaction
WORD_OVERHEAD_BYTES: Final = 64  # of each word in them, whatever its length, and of each command
MOST_REGISTERED = 2 * MOST_FUNCTIONS  # functions in all of these sets
MOST_WORKERS = 100  # different sets of functions that one connection pops from

REFUSAL_WORDS: Final = {REFUSED_FULL: "OOM", REFUSED_STORAGE: "MISCONF"}
ONLY_WHILE_SUBSCRIBED: Final = (
    "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
)


class GearMonkeySession(Session):
    """A conversation in RESP."""

    protocol = PROTOCOL

    def __init__(self, context: Context, wire: Wire, setup: GearMonkeySetup) -> None:
        super().__init__(context, wire)
        self.setup = setup
        self.decoder = Decoder(setup.packet_bytes)
        self.version = 2  # of RESP
        self.client_id = b""
        setup.last_number += 1
        self.number = setup.last_number
        self.behind: deque[Command] = deque()
        self.behind_bytes = 0  # about how much of that came while waiting
        self.blocked: QueueWait | LockWait | None = None
        self.workers: dict[frozenset[Function], Worker] = {}
        self.popped: set[int] = set()  # jobs that were given to this connection and not reported on
        self.counted: set[bytes] = set()  # functions it has registered workers for
        self.channels: dict[bytes, None] = {}
        self.patterns: dict[bytes, None] = {}
        self.pattern_steps = 0  # the work of comparing a name with these
        self.steps_before = 0  # the work that all publishing had been when the transaction began that is executed
        self.queued: list[Command] | None = None  # the commands of a transaction
        self.queued_bytes = 0
        self.is_broken = False  # the transaction has a mistake in it
        self.executing = False
        self.ended = False  # the peer will send no more
        self._told_later: list[bytes] = []  # messages that came in the middle of a transaction's replies
        self._told_in = self.out
        self._told_bytes = 0  # how much of that output is messages
        self._held_bytes = 0  # how much of what is held is
        self._is_working = False
        self._plan: PopPlan | None = None
        setup.sessions[self] = None

    # --- the wire side ---

    def receive(self, data: bytes) -> None:
        if self.closing:
            return
        self.behind.extend(self.decoder.feed(data))
        if self.long_bytes and not self.out:
            self.long_bytes = 0
        if self.blocked is None:
            self._work()
            return
        self.behind_bytes += len(data)
        if len(self.behind) > MOST_BEHIND or self.behind_bytes > self.setup.packet_bytes:
            self.context.count_bad_input(self, "ERR", "too much is sent behind a command that waits")
            self.closing = True
            self.mark()

    def _work(self) -> None:
        """Handle commands until one has to wait."""
        behind = self.behind
        channels = self.setup.channels
        most_steps = channels.spent_steps + MOST_STEPS_AT_ONCE
        self._is_working = True
        while behind and self.blocked is None and not self.closing:
            if self.long_bytes > LONG_BYTES or channels.spent_steps > most_steps:
                self.put_off = [(len(behind), b"")]  # how many and which is known here; that there are some is not
                self.mark()
                break
            self.handle(behind.popleft())
        self._is_working = False
        if not behind:
            self.behind_bytes = 0
            failure = self.decoder.failure
            if failure is not None and self.blocked is None and not self.closing:
                self._complain(failure)
                self.closing = True

    def go_on(self) -> None:
        self.put_off = []
        self.long_bytes = 0
        if self.blocked is None:
            self._work()
        if self.ended and not self.put_off:
            super().eof()

    def eof(self) -> None:
        self.ended = True
        if not self.put_off:
            super().eof()

    @property
    def buffered_bytes(self) -> int:
        return self.decoder.buffered_bytes + self.behind_bytes + self.queued_bytes

    def closed(self) -> None:
        setup = self.setup
        setup.sessions.pop(self, None)
        self.stop_waiting()
        self.unsubscribe_all()
        setup.counts.forget(self)
        self.engine.unwatch(self)
        for job_id in self.popped:
            remember(setup.lost, job_id, None)
        for functions, worker in self.workers.items():
            setup.counts.worker_removed(functions)
            self.engine.remove_worker(worker)
        self.workers.clear()

    # --- commands ---

    def handle(self, command: Command) -> None:
        """Answer one command, or begin to wait for its answer."""
        try:
            verb = self._find_verb(command)
            if self.queued is not None and verb.in_transaction:
                self._queue(command)
                return
            if (self.channels or self.patterns) and self.version == 2 and not verb.while_subscribed:
                raise PeerError(f"Can't execute '{text_of(command[0]).lower()}': {ONLY_WHILE_SUBSCRIBED}", code="ERR")
            verb.handler(self, command)
        except PeerError as mistake:
            self.is_broken = True  # of consequence only in a transaction
            self._complain(mistake)
        except Refused as refused:
            self.send(self.refusal(refused))

    def _find_verb(self, command: Command) -> Verb:
        verbs = self.setup.verbs
        verb = verbs.get(command[0]) or verbs.get(command[0].upper())
        if verb is None:
            raise unknown(command)
        shown = command[:1]
        if verb.subcommands and len(command) > 1:
            verb = verb.subcommands.get(command[1].upper())
            shown = command[:2]
            if verb is None:
                container, word = [text_of(name) for name in shown]
                raise PeerError(f"unknown subcommand '{word}'. Try {container.upper()} HELP.", code="ERR")
        if len(command) != verb.words and (verb.words >= 0 or len(command) < -verb.words):
            name = "|".join(text_of(word) for word in shown).lower()
            raise PeerError(f"wrong number of arguments for '{name}' command", code="ERR")
        return verb

    def _complain(self, mistake: PeerError) -> None:
        text = harmless(str(mistake))
        self.context.count_bad_input(self, mistake.code, text)
        self.send(error(f"{mistake.code} {text}"))

    def refusal(self, refused: Refused) -> bytes:
        return error(f"{REFUSAL_WORDS.get(refused.reason, 'ERR')} {refused}")

    def refuse_withdrawn(self, refused: Refused) -> None:
        for _, job in self.pledged_jobs:
            if job.withdrawn:
                self.setup.drafts.put_back(job, self.setup.extras.forget(job.id))
        super().refuse_withdrawn(refused)

    def send_long(self, answer: bytes) -> None:
        """Send what may be long."""
        if len(answer) > LONG_ANSWER_BYTES:
            self.long_bytes += len(answer)
        self.send(answer)

    def send_pieces(self, pieces: list[bytes]) -> None:
        """Send what may be long, and has pieces that others may share."""
        size = sum(map(len, pieces))
        if size > LONG_ANSWER_BYTES:
            self.long_bytes += size
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
        queued_bytes = self.queued_bytes + sum(map(len, command)) + WORD_OVERHEAD_BYTES * (len(command) + 1)
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

    # --- being a worker ---

    def worker_for(self, functions: frozenset[Function]) -> Worker:
        """This connection as a worker for these functions."""
        worker = self.workers.get(functions)
        if worker is None or not worker.alive:  # one that is not was given up by the server, which stops
            if len(self.workers) >= MOST_WORKERS:
                raise PeerError(f"a connection may pop from {MOST_WORKERS} different sets of queues", code="ERR")
            if len(functions) + sum(map(len, self.workers)) > MOST_REGISTERED:
                raise PeerError(f"the sets of queues of a connection may name {MOST_REGISTERED} functions", code="ERR")
            worker = self.engine.add_worker(self, self.protocol, self.client_id)
            for function in functions:
                self.engine.can_do(worker, function)
            if functions not in self.workers:
                self.setup.counts.worker_added(functions)
            self.workers[functions] = worker
        return worker

    def plan_for(self, keys: Sequence[bytes]) -> PopPlan:
        """What to do for a pop from these queues; mostly they are those of the last time."""
        plan = self._plan
        if plan is None or plan.keys != keys or not plan.worker.alive:
            plan = self._plan = PopPlan.make(self, keys)
        return plan

    def give(self, job: Job) -> None:
        """Answer a pop with the id of a job that is this connection's now.

        A worker may know nothing of keys that it has not named.  So a scheduled job that it has not asked for comes
        from the queue ahead of which it goes.
        """
        self.take_over(job)
        priority = HIGH if job.priority == URGENT else job.priority
        self.send(array((bulk(queue_key(job.function.name, priority)), bulk(b"%d" % job.id))))

    def take_over(self, job: Job) -> None:
        """The job is this connection's now, and will be named in an answer."""
        self.popped.add(job.id)
        if job.delivery and self.engine.start_must_be_kept(job):
            self.pledge()  # should the server die now, it must remember that this attempt was made

    def is_held(self, job: Job) -> bool:
        """Whether a connection of GearMonkey's, this or another, holds the job."""
        return job.worker is not None and job.worker.protocol == self.protocol

    # --- waiting ---

    def block(self, wait: QueueWait | LockWait) -> None:
        """Let this connection wait."""
        self.blocked = wait
        wait.begin(self)

    def stop_waiting(self) -> None:
        """Whatever it waits for, it does so no more."""
        wait, self.blocked = self.blocked, None
        if wait is not None:
            wait.end(self)

    def unblock(self) -> None:
        """It has its answer.  This may be called by the engine, so what comes next happens in a turn of its own."""
        self.blocked = None
        if not self._is_working and (self.behind or self.watching or self.decoder.failure is not None):
            self.context.soon(self._resume)

    def _resume(self) -> None:
        if self.blocked is None and not self.closing:
            if self.watching:
                self.engine.unwatch(self)
            if not self.put_off:
                self._work()

    def assign(self, worker: Worker, job: Job) -> None:
        self.unblock()
        self.give(job)

    def waited_in_vain(self, worker: Worker, ticket: int) -> None:
        wait = self.blocked
        if isinstance(wait, QueueWait) and wait.is_polling:
            if ticket == wait.end_ticket:
                wait.is_over = True
            self.context.soon(partial(wait.poll, self))
        else:
            self.give_up()

    def give_up(self) -> None:
        """The time is over: nothing was to be had."""
        if isinstance(self.blocked, LockWait):
            self.blocked.end(self)
        self.unblock()
        self.send(null_array(self.version))

    def job_finished(self, job: Job) -> None:
        if isinstance(self.blocked, LockWait):
            self.blocked.job_finished(self, job)

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        if job.id in worker.running:  # until it reports; it tells of the end itself
            self.setup.channels.spoken_for = job.id
        else:
            self.popped.discard(job.id)
            remember(self.setup.lost, job.id, None)

    # --- messages ---

    @property
    def channel_bytes(self) -> int:
        """How long the name of a channel may be, or a pattern."""
        return self.setup.name_bytes + len(CHANNEL)

    def has_room_for(self, more_bytes: int) -> bool:
        """Whether so much more may wait to be read by this peer, which has no say in how much it is told.

        If not, it is hung up on as one that does not read, before anything is written for it.
        """
        if self.closing:
            return False
        if self._told_in is not self.out:  # what was counted is on its way
            self._told_in = self.out
            self._told_bytes = 0
        waiting_bytes = self._told_bytes + self._held_bytes + self.wire.unsent_bytes + more_bytes
        if waiting_bytes <= self.setup.output_bytes:
            return True
        self.closing = True
        self._told_later = []
        self.wire.give_up_on_slow_reader(waiting_bytes)
        return False

    def tell(self, pieces: list[bytes], size: int, *, promised: bool) -> None:
        """Pass on what was published, for which there is room."""
        if promised:
            self.pledge()
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


def text_of(word: bytes) -> str:
    return word[:128].decode("utf-8", "replace")


def unknown(command: Command) -> PeerError:
    """There is no such command; in the words of Redis."""
    shown = ""
    for word in command[1:]:
        if len(shown) >= 128:
            break
        shown += "'" + text_of(word)[: 128 - len(shown)] + "' "
    return PeerError(f"unknown command '{text_of(command[0])}', with args beginning with: {shown}", code="ERR")
