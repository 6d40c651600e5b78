"""`Outbound`: pushes jobs for which the server has no worker to Redis, where GearMonkey workers run them.

The bridge is a worker of the engine. It pushes each job that it is assigned under a mark (the origin). The mark is the
same after a restart, so a job is queued once however often it is pushed. The end of a job is published on its channel;
because published messages can be missed, the bridge also polls all pushed jobs every second. It removes the mark when
the end is stored.

The bridge takes back a job that waits in Redis when the engine gets workers for it, when no GearMonkey worker is left,
and when the server stops. A job that a GearMonkey worker has begun, and that shows no sign of life for too long, is
lost: the engine's time limit of the run expires, and the rules for lost jobs apply.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from switchgear.model import SECOND_US, URGENT, Function, Job, Peer, Worker
from switchgear.net.bridge.bridge_context import FINAL, PROTOCOL, BridgeContext
from switchgear.net.bridge.keys import JOB_SECONDS, MARK_SECONDS, Keys
from switchgear.net.bridge.scripts import SCRIPTS
from switchgear.numbers import signed_number, whole_number
from switchgear.telemetry import text_of

__all__ = ["Outbound", "Pushed"]

JOBS_PER_POLL: Final = 200
FUNCTIONS_PER_CHECK: Final = 500
SURE_SECONDS: Final = 600.0
CHECK_US: Final = SECOND_US
SKIP_SECONDS: Final = 10


class Pushed:
    """A job that the engine has assigned to the bridge."""

    __slots__ = ("dividend", "id", "is_busy", "is_leaving", "job", "keys", "mark", "origin", "queue", "seen_alive_us")

    def __init__(self, job: Job, keys: Keys, origin: bytes, now_us: int) -> None:
        self.job = job
        self.keys = keys
        self.origin = origin
        self.mark = keys.mark(origin)
        self.queue = keys.queues[job.priority]
        self.id = b""  # empty: not pushed yet
        self.is_busy = False
        self.is_leaving = False  # being withdrawn
        self.dividend = b""
        self.seen_alive_us = now_us  # when the job was last seen queued or making progress


class Outbound:
    """All functions whose jobs the bridge pushes."""

    def __init__(self, shared: BridgeContext, peer: Peer, name: bytes, handle_prefix: bytes) -> None:
        self.shared = shared
        self._handle_prefix = handle_prefix
        self._busy_us = int(shared.setup.busy_seconds * SECOND_US)
        self.worker: Worker = shared.engine.add_worker(peer, PROTOCOL, name)
        shared.bridge_workers.add(self.worker)
        shared.engine.grant(self.worker, shared.setup.push)
        self.jobs: dict[int, Pushed] = {}  # by the engine's id
        self._of: dict[bytes, dict[int, Pushed]] = {}  # the same, by function
        self.by_id: dict[tuple[bytes, bytes], Pushed] = {}  # by function and GearMonkey's id
        self._keys: dict[bytes, Keys] = {}
        self._to_push: dict[bytes, list[Pushed]] = {}
        self._pushing = 0  # number of push commands in progress
        self._checked_us: dict[bytes, int] = {}  # when the number of workers of each function was last asked for
        self._skipped_until_us: dict[
            bytes, int
        ] = {}  # functions whose jobs Redis refused, and until when they are skipped
        self._early: set[tuple[bytes, bytes]] = set()  # jobs that ended before their ids were known

    @property
    def functions(self) -> list[bytes]:
        """The functions with jobs in Redis, and those that may get some."""
        return list({function.name: None for function in self.worker.order} | dict.fromkeys(self._of))

    # --- which functions ---

    def check(self) -> None:
        """Find out which functions have GearMonkey workers; once a second for each function."""
        shared = self.shared
        if shared.is_closing or not self.worker.alive:
            return
        listed = shared.setup.outbound
        asked: list[Function] = []
        for function in list(shared.engine.functions.values()):
            is_ours = self.worker in function.workers
            if not (function.ready or is_ours or function.name in self._of):
                continue
            if shared.workers_of(function) or (listed is not None and function.name not in listed):
                self._leave(function)
            elif listed is not None:
                self._enter(function)
            else:
                asked.append(function)
        now_us = shared.engine.now_us
        due = [function for function in asked if self._checked_us.get(function.name, 0) <= now_us - CHECK_US]
        for function in due[:FUNCTIONS_PER_CHECK]:
            self._checked_us[function.name] = now_us
            keys = self._keys_of(function.name)
            commands = shared.commands
            answers: list[Any] = []
            commands.add(("GET", keys.count), then=answers.append, refused=lambda error: None, again=False)
            commands.add(("ZCARD", keys.counted), then=partial(self._counted, function, answers), again=False)

    def _counted(self, function: Function, answers: list[Any], servers: int) -> None:
        """Handle the number of workers, and how many of these are bridges."""
        count = answers[0] if answers else None
        workers = signed_number(count) if count is not None else 0
        if workers is None:  # any client can write to this key
            workers = 0
        if workers - servers >= 1 and not self.shared.workers_of(function):
            self._enter(function)
        else:
            self._leave(function)

    def _enter(self, function: Function) -> None:
        shared = self.shared
        if self.worker in function.workers or shared.is_closing or function.name in shared.skipped:
            return
        if self._skipped_until_us.get(function.name, 0) > shared.engine.now_us:
            return
        if shared.is_cluster and not Keys(function.name).has_one_place:
            shared.skipped.add(function.name)
            shared.hub.telemetry.emit("bridge_function_skipped", function=text_of(function.name))
            return
        shared.has_new_channels = True
        shared.engine.can_do(self.worker, function, self._busy_us)

    def _leave(self, function: Function) -> None:
        if self.worker in function.workers:
            self.shared.engine.cannot_do(self.worker, function)
        for pushed in list(self._of.get(function.name, {}).values()):
            self.take_back(pushed)

    def _keys_of(self, function: bytes) -> Keys:
        keys = self._keys.get(function)
        if keys is None:
            keys = self._keys[function] = Keys(function)
        return keys

    # --- pushing ---

    def assigned(self, job: Job) -> None:
        """Push a job that the engine has assigned; the engine must not be called from here."""
        shared = self.shared
        pushed = Pushed(job, self._keys_of(job.function.name), self._origin(job), shared.engine.now_us)
        self.jobs[job.id] = pushed
        self._of.setdefault(job.function.name, {})[job.id] = pushed
        shared.run_action(partial(self._push_soon, pushed))

    def _take_another(self) -> None:
        """Grant the engine credit for one more job."""
        if not self.shared.is_closing:
            self.shared.engine.grant(self.worker, 1)

    def _origin(self, job: Job) -> bytes:
        """A text that identifies the job among those of all servers, and is the same after a restart."""
        return b"%b%d@%d" % (self._handle_prefix, job.id, job.created_us)

    def _push_soon(self, pushed: Pushed) -> None:
        self._to_push.setdefault(pushed.keys.function, []).append(pushed)
        self.shared.wake_sender()

    def collect(self) -> None:
        """Reserve ids for the jobs to push, many at once."""
        if not self._to_push:
            return
        waiting, self._to_push = self._to_push, {}
        for several in waiting.values():
            current = [pushed for pushed in several if self.jobs.get(pushed.job.id) is pushed]
            if self.shared.is_closing:
                self.shared.hub.begin_turn()
                for pushed in current:
                    self._release(pushed)
                continue
            if not current:
                continue
            self._pushing += len(current)
            self.shared.commands.add(
                ("INCRBY", current[0].keys.uid, len(current)),
                then=partial(self._push, current),
                refused=partial(self._not_pushed, current),
            )

    def _not_pushed(self, several: list[Pushed], error: Exception) -> None:
        """Handle a refusal: the key of the ids holds a value of another type."""
        for pushed in several:
            self._skip_function(pushed, error)

    def _skip_function(self, pushed: Pushed, error: Exception) -> None:
        """Release a job that Redis refused, and skip its function for a while."""
        self._one_less_to_push()
        function = pushed.job.function
        self._skipped_until_us[function.name] = self.shared.engine.now_us + SKIP_SECONDS * SECOND_US
        self.shared.engine.cannot_do(self.worker, function)
        self._release(pushed)

    def _push(self, several: list[Pushed], last_id: int) -> None:
        commands = self.shared.commands
        now = self.shared.engine.now_us // SECOND_US
        for number, pushed in enumerate(several, last_id - len(several) + 1):
            # Revoked meanwhile: the job may have ended and have no payload.
            if self.jobs.get(pushed.job.id) is not pushed:
                self._one_less_to_push()
                continue
            job_id = b"%d" % number
            keys = pushed.keys
            score = now if pushed.job.priority == URGENT else ""
            words = (
                pushed.origin,
                job_id,
                pushed.job.payload or b"",
                keys.channel,
                MARK_SECONDS,
                score,
                pushed.job.trace,
            )
            commands.add(
                ("EVALSHA", SCRIPTS.push, 3, pushed.mark, keys.job(job_id), pushed.queue, *words),
                then=partial(self._is_pushed, pushed, job_id),
                refused=partial(self._skip_function, pushed),
            )

    def _one_less_to_push(self) -> None:
        self._pushing -= 1
        if not self._pushing:
            self._early.clear()

    def _is_pushed(self, pushed: Pushed, new_id: bytes, answer: bytes) -> None:
        key = (pushed.keys.function, answer)
        is_early = key in self._early
        self._one_less_to_push()
        if self.jobs.get(pushed.job.id) is not pushed:  # revoked meanwhile
            self._withdraw(pushed, answer, in_any_case=True)
            return
        pushed.id = answer
        pushed.seen_alive_us = self.shared.engine.now_us
        self.by_id[key] = pushed
        if answer != new_id or is_early:
            self._fetch(pushed)
        if self.shared.is_closing or self.shared.workers_of(pushed.job.function):
            self.take_back(pushed)

    # --- the end of pushed jobs ---

    def published_finish(self, function: bytes, job_id: bytes) -> None:
        pushed = self.by_id.get((function, job_id))
        if pushed is not None:
            self._fetch(pushed)
        elif self._pushing and function in self._keys:
            self._early.add((function, job_id))

    def poll(self) -> None:
        """Read the state of all pushed jobs; once a second."""
        for jobs in self._of.values():
            several = [pushed for pushed in jobs.values() if pushed.id]
            for start in range(0, len(several), JOBS_PER_POLL):
                piece = several[start : start + JOBS_PER_POLL]
                keys = [each.keys.job(each.id) for each in piece]
                self.shared.commands.add(
                    ("EVALSHA", SCRIPTS.poll, len(keys), *keys), then=partial(self._polled, piece), again=False
                )

    def _polled(self, several: list[Pushed], answer: list[bytes]) -> None:
        for index, pushed in enumerate(several):
            if self.jobs.get(pushed.job.id) is pushed:
                self._note(pushed, *answer[3 * index : 3 * index + 3])

    def _note(self, pushed: Pushed, status: bytes, dividend: bytes, divisor: bytes) -> None:
        engine = self.shared.engine
        if status in FINAL:
            self._fetch(pushed)
        elif not status:  # Redis has lost the job, with or without its mark
            del self.by_id[pushed.keys.function, pushed.id]
            self.shared.commands.add(("DEL", pushed.mark))
            pushed.id = b""
            self._push_soon(pushed)
        elif status == b"idle":
            self._see_that_it_waits(pushed)
        elif not pushed.is_busy or dividend != pushed.dividend:
            pushed.is_busy = True
            pushed.dividend = dividend
            self._renew(pushed)
            numerator, denominator = whole_number(dividend), whole_number(divisor)
            if numerator is not None and denominator is not None:
                engine.progress(self.worker, pushed.job.id, numerator, denominator)

    def _see_that_it_waits(self, pushed: Pushed) -> None:
        """Push a job again that is idle and in no queue, because a worker died just after taking it."""
        engine = self.shared.engine
        if (engine.now_us - pushed.seen_alive_us) * 4 < (self.shared.setup.busy_seconds or SURE_SECONDS) * SECOND_US:
            return
        command = "ZSCORE" if pushed.job.priority == URGENT else "LPOS"
        self.shared.commands.add((command, pushed.queue, pushed.id), then=partial(self._seen, pushed), again=False)

    def _seen(self, pushed: Pushed, answer: object) -> None:
        if answer is not None and self.jobs.get(pushed.job.id) is pushed:
            self._renew(pushed)
            self.shared.commands.add(("EXPIRE", pushed.mark, MARK_SECONDS), again=False)

    def _renew(self, pushed: Pushed) -> None:
        """Renew the time limit of the run. The time is explicit, because the bridge may no longer serve the
        function."""
        engine = self.shared.engine
        pushed.seen_alive_us = engine.now_us
        engine.renew_run(self.worker, pushed.job.id, self._busy_us)

    def leave_all(self) -> None:
        """Release jobs that are not pushed yet: the connection is lost, and other workers may run them meanwhile."""
        for function in list(self.worker.order):
            self.shared.engine.cannot_do(self.worker, function)
        waiting, self._to_push = self._to_push, {}
        for several in waiting.values():
            for pushed in several:
                self._release(pushed)

    def push_all_again(self) -> None:
        """Push all jobs again: this is another Redis, or it has lost its data."""
        self.by_id.clear()
        self._early.clear()
        self._pushing = 0
        self._to_push.clear()
        for pushed in self.jobs.values():
            pushed.id = b""
            pushed.is_leaving = pushed.is_busy = False
            self._push_soon(pushed)

    def on_connection_lost(self) -> None:
        """Renew the time limits of all pushed jobs: without a connection their progress cannot be seen. Once a
        second."""
        for pushed in self.jobs.values():
            self._renew(pushed)

    def _fetch(self, pushed: Pushed) -> None:
        self.shared.commands.add(
            ("EVALSHA", SCRIPTS.fetch, 2, pushed.mark, pushed.keys.job(pushed.id), JOB_SECONDS),
            then=partial(self._fetched, pushed),
        )

    def _fetched(self, pushed: Pushed, fields: list[bytes | None]) -> None:
        status, output = fields
        if status not in FINAL or self.jobs.get(pushed.job.id) is not pushed:
            return
        engine = self.shared.engine
        self._drop(pushed)
        if status == b"success":
            engine.complete(self.worker, pushed.job.id, output or b"")
        else:
            engine.fail(self.worker, pushed.job.id, 1, output or b"")
        self._take_another()
        self.shared.run_action(partial(self.shared.commands.add, ("DEL", pushed.mark)))

    def _drop(self, pushed: Pushed) -> None:
        if self.jobs.get(pushed.job.id) is pushed:
            del self.jobs[pushed.job.id]
            others = self._of[pushed.keys.function]
            del others[pushed.job.id]
            if not others:
                del self._of[pushed.keys.function]
        self.by_id.pop((pushed.keys.function, pushed.id), None)

    # --- taking back ---

    def take_back(self, pushed: Pushed) -> None:
        """Withdraw a job that no GearMonkey worker has begun."""
        if pushed.id and not pushed.is_leaving:
            pushed.is_leaving = True
            self._withdraw(pushed, pushed.id)

    def take_all_back(self) -> None:
        for pushed in list(self.jobs.values()):
            self.take_back(pushed)  # jobs being pushed are taken back afterwards

    def _withdraw(self, pushed: Pushed, job_id: bytes, in_any_case: bool = False) -> None:
        keys = pushed.keys
        command = "ZREM" if pushed.job.priority == URGENT else "LREM"
        words = (job_id, command, "yes" if in_any_case else "no")
        self.shared.commands.add(
            ("EVALSHA", SCRIPTS.withdraw, 3, pushed.mark, keys.job(job_id), pushed.queue, *words),
            then=partial(self._withdrawn, pushed),
        )

    def _withdrawn(self, pushed: Pushed, answer: int) -> None:
        pushed.is_leaving = False
        if answer and self.jobs.get(pushed.job.id) is pushed:
            self._release(pushed)

    def _release(self, pushed: Pushed) -> None:
        if self.jobs.get(pushed.job.id) is not pushed:
            return
        engine = self.shared.engine
        self._drop(pushed)
        engine.release(self.worker, pushed.job.id)
        self._take_another()

    def is_own(self, keys: Keys, job_id: bytes, origin: bytes | None) -> bool:
        """Whether this server has pushed the claimed job; if so, the engine gets the job back."""
        if not origin or not origin.startswith(self._handle_prefix):
            return False
        number = origin[len(self._handle_prefix) :].partition(b"@")[0]
        job = self.shared.engine.job(whole_number(number) or 0)
        if job is None or self._origin(job) != origin:
            return False
        self.shared.commands.add(("DEL", keys.job(job_id)))
        self.shared.commands.add(("DEL", keys.mark(origin)))
        pushed = self.by_id.get((keys.function, job_id))
        if pushed is not None:
            self._release(pushed)
        return True

    def revoked(self, job: Job) -> None:
        """Withdraw a job whose result the engine no longer needs; the engine must not be called from here."""
        pushed = self.jobs.get(job.id)
        if pushed is not None:
            self._drop(pushed)
            if pushed.id:
                self.shared.run_action(partial(self._withdraw, pushed, pushed.id, True))
        self.shared.hub.soon(partial(self._free, job))

    def _free(self, job: Job) -> None:
        """Release a job that the bridge no longer has, so that it can be assigned another."""
        engine = self.shared.engine
        if job.worker is not self.worker:
            engine.fail(self.worker, job.id)
        self._take_another()
