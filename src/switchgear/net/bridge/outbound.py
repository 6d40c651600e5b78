"""Outbound: jobs of ours that nobody in the engine serves, run by GearMonkey workers.

The bridge is a worker of the engine.  What it is assigned it pushes, under a mark (the origin) that is the same after a
restart, so that a job is queued once however often it is pushed.  It hears of the end by the channel, and looks at all
pushed jobs each second, because what is published may be missed.  The mark is removed when the end is kept.

A job that is waiting in Redis is taken back when the engine gets workers for it, when no GearMonkey worker is left, and
when the server stops.  One that a GearMonkey worker has begun, and of which nothing is heard for too long, is lost: the
engine's time limit for the run says so, and the rules for lost jobs apply.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from switchgear.errors import Refused
from switchgear.model import SECOND_US, URGENT, Function, Job, Peer, Worker
from switchgear.net.bridge.keys import JOB_SECONDS, MARK_SECONDS, Keys
from switchgear.net.bridge.office import FINAL, PROTOCOL, Office
from switchgear.net.bridge.scripts import SCRIPTS
from switchgear.numbers import signed_number, whole_number
from switchgear.telemetry import text_of

__all__ = ["Outbound", "Pushed"]

JOBS_PER_POLL: Final = 200
FUNCTIONS_PER_CHECK: Final = 500
SURE_SECONDS: Final = 600.0
CHECK_US: Final = SECOND_US
SHUN_SECONDS: Final = 10


class Pushed:
    """A job that the engine has given to the bridge."""

    __slots__ = ("dividend", "id", "is_busy", "is_leaving", "job", "keys", "mark", "origin", "queue", "sure_us")

    def __init__(self, job: Job, keys: Keys, origin: bytes, now_us: int) -> None:
        self.job = job
        self.keys = keys
        self.origin = origin
        self.mark = keys.mark(origin)
        self.queue = keys.queues[job.priority]
        self.id = b""  # empty: not pushed yet
        self.is_busy = False
        self.is_leaving = False  # is being withdrawn
        self.dividend = b""
        self.sure_us = now_us  # when it was last seen to wait or to get on


class Outbound:
    """All functions that a bridge pushes jobs of."""

    def __init__(self, office: Office, peer: Peer, name: bytes, handle_prefix: bytes) -> None:
        self.office = office
        self._handle_prefix = handle_prefix
        self._busy_us = int(office.setup.busy_seconds * SECOND_US)
        self.worker: Worker = office.engine.add_worker(peer, PROTOCOL, name)
        office.bridge_workers.add(self.worker)
        office.engine.grant(self.worker, office.setup.push)
        self.jobs: dict[int, Pushed] = {}  # by the engine's id
        self._of: dict[bytes, dict[int, Pushed]] = {}  # the same, by function
        self.by_id: dict[tuple[bytes, bytes], Pushed] = {}  # by function and GearMonkey's id
        self._keys: dict[bytes, Keys] = {}
        self._to_push: dict[bytes, list[Pushed]] = {}
        self._pushing = 0  # under way
        self._checked_us: dict[bytes, int] = {}  # functions, and when it was last asked who serves them
        self._shunned: dict[bytes, int] = {}  # functions whose jobs Redis did not take, and until when
        self._early: set[tuple[bytes, bytes]] = set()  # ended before we knew their ids

    @property
    def functions(self) -> list[bytes]:
        """Those with jobs in Redis, and those that may get some."""
        return list({function.name: None for function in self.worker.order} | dict.fromkeys(self._of))

    # --- which functions ---

    def check(self) -> None:
        """See which functions GearMonkey workers serve; each once a second."""
        office = self.office
        if office.is_closing or not self.worker.alive:
            return
        listed = office.setup.outbound
        asked: list[Function] = []
        for function in list(office.engine.functions.values()):
            is_ours = self.worker in function.workers
            if not (function.ready or is_ours or function.name in self._of):
                continue
            if office.workers_of(function) or (listed is not None and function.name not in listed):
                self._leave(function)
            elif listed is not None:
                self._enter(function)
            else:
                asked.append(function)
        now_us = office.engine.now_us
        due = [function for function in asked if self._checked_us.get(function.name, 0) <= now_us - CHECK_US]
        for function in due[:FUNCTIONS_PER_CHECK]:
            self._checked_us[function.name] = now_us
            keys = self._keys_of(function.name)
            deeds = office.deeds
            answers: list[Any] = []
            deeds.add(("GET", keys.count), then=answers.append, refused=lambda error: None, again=False)
            deeds.add(("ZCARD", keys.counted), then=partial(self._counted, function, answers), again=False)

    def _counted(self, function: Function, answers: list[Any], servers: int) -> None:
        """How many workers there are, and how many of these are bridges."""
        count = answers[0] if answers else None
        workers = signed_number(count) if count is not None else 0
        if workers is None:  # anybody can write there
            workers = 0
        if workers - servers >= 1 and not self.office.workers_of(function):
            self._enter(function)
        else:
            self._leave(function)

    def _enter(self, function: Function) -> None:
        office = self.office
        if self.worker in function.workers or office.is_closing or function.name in office.skipped:
            return
        if self._shunned.get(function.name, 0) > office.engine.now_us:
            return
        if office.is_cluster and not Keys(function.name).has_one_place:
            office.skipped.add(function.name)
            office.hub.telemetry.emit("bridge_function_skipped", function=text_of(function.name))
            return
        office.has_new_channels = True
        office.engine.can_do(self.worker, function, self._busy_us)

    def _leave(self, function: Function) -> None:
        if self.worker in function.workers:
            self.office.engine.cannot_do(self.worker, function)
        for pushed in list(self._of.get(function.name, {}).values()):
            self.take_back(pushed)

    def _keys_of(self, function: bytes) -> Keys:
        keys = self._keys.get(function)
        if keys is None:
            keys = self._keys[function] = Keys(function)
        return keys

    # --- pushing ---

    def assigned(self, job: Job) -> None:
        """The engine gives the bridge a job; the engine must not be called back."""
        if job.payload is None and not self._has_payload(job):
            return
        office = self.office
        pushed = Pushed(job, self._keys_of(job.function.name), self._origin(job), office.engine.now_us)
        self.jobs[job.id] = pushed
        self._of.setdefault(job.function.name, {})[job.id] = pushed
        if job.delivery and office.engine.start_must_be_kept(job):
            office.promise(partial(self._push_soon, pushed))  # should the server die now, this attempt was made
        else:
            office.say(partial(self._push_soon, pushed))

    def _has_payload(self, job: Job) -> bool:
        hub = self.office.hub
        lost = b""
        try:
            hub.payload(job)
        except Refused:
            pass
        except LookupError as error:
            lost = str(error.args[0]).encode()
        else:
            return True
        hub.soon(partial(self._could_not_be_read, job, lost))
        return False

    def _could_not_be_read(self, job: Job, lost: bytes) -> None:
        engine = self.office.engine
        engine.could_not_be_sent(self.worker, job.id, lost)
        self._take_another()

    def _take_another(self) -> None:
        """One job less is with us."""
        if not self.office.is_closing:
            self.office.engine.grant(self.worker, 1)

    def _origin(self, job: Job) -> bytes:
        """What tells the job from all others of all servers, before a restart and after it."""
        return b"%b%d@%d" % (self._handle_prefix, job.id, job.created_us)

    def _push_soon(self, pushed: Pushed) -> None:
        self._to_push.setdefault(pushed.keys.function, []).append(pushed)
        self.office.nudge()

    def collect(self) -> None:
        """Get ids for what is to be pushed, many at once."""
        if not self._to_push:
            return
        waiting, self._to_push = self._to_push, {}
        for several in waiting.values():
            current = [pushed for pushed in several if self.jobs.get(pushed.job.id) is pushed]
            if self.office.is_closing:
                self.office.hub.begin_turn()
                for pushed in current:
                    self._hand_back(pushed)
                continue
            if not current:
                continue
            self._pushing += len(current)
            self.office.deeds.add(
                ("INCRBY", current[0].keys.uid, len(current)),
                then=partial(self._push, current),
                refused=partial(self._not_pushed, current),
            )

    def _not_pushed(self, several: list[Pushed], error: Exception) -> None:
        """Somebody has put something else where the ids should be."""
        for pushed in several:
            self._shun(pushed, error)

    def _shun(self, pushed: Pushed, error: Exception) -> None:
        """Redis does not take a job; those of its function are left alone for a while."""
        self._one_less_to_push()
        function = pushed.job.function
        self._shunned[function.name] = self.office.engine.now_us + SHUN_SECONDS * SECOND_US
        self.office.engine.cannot_do(self.worker, function)
        self._hand_back(pushed)

    def _push(self, several: list[Pushed], last_id: int) -> None:
        deeds = self.office.deeds
        now = self.office.engine.now_us // SECOND_US
        for number, pushed in enumerate(several, last_id - len(several) + 1):
            if self.jobs.get(pushed.job.id) is not pushed:  # revoked meanwhile: it may have ended, and have no payload
                self._one_less_to_push()
                continue
            job_id = b"%d" % number
            keys = pushed.keys
            score = now if pushed.job.priority == URGENT else ""
            words = (pushed.origin, job_id, pushed.job.payload or b"", keys.channel, MARK_SECONDS, score)
            deeds.add(
                ("EVALSHA", SCRIPTS.push, 3, pushed.mark, keys.job(job_id), pushed.queue, *words),
                then=partial(self._is_pushed, pushed, job_id),
                refused=partial(self._shun, pushed),
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
        pushed.sure_us = self.office.engine.now_us
        self.by_id[key] = pushed
        if answer != new_id or is_early:
            self._fetch(pushed)
        if self.office.is_closing or self.office.workers_of(pushed.job.function):
            self.take_back(pushed)

    # --- hearing of the end ---

    def published_finish(self, function: bytes, job_id: bytes) -> None:
        pushed = self.by_id.get((function, job_id))
        if pushed is not None:
            self._fetch(pushed)
        elif self._pushing and function in self._keys:
            self._early.add((function, job_id))

    def poll(self) -> None:
        """Look at all that was pushed; once a second."""
        for jobs in self._of.values():
            several = [pushed for pushed in jobs.values() if pushed.id]
            for start in range(0, len(several), JOBS_PER_POLL):
                piece = several[start : start + JOBS_PER_POLL]
                keys = [each.keys.job(each.id) for each in piece]
                self.office.deeds.add(
                    ("EVALSHA", SCRIPTS.poll, len(keys), *keys), then=partial(self._polled, piece), again=False
                )

    def _polled(self, several: list[Pushed], answer: list[bytes]) -> None:
        for index, pushed in enumerate(several):
            if self.jobs.get(pushed.job.id) is pushed:
                self._note(pushed, *answer[3 * index : 3 * index + 3])

    def _note(self, pushed: Pushed, status: bytes, dividend: bytes, divisor: bytes) -> None:
        engine = self.office.engine
        if status in FINAL:
            self._fetch(pushed)
        elif not status:  # Redis has lost it, with its mark or without
            del self.by_id[pushed.keys.function, pushed.id]
            self.office.deeds.add(("DEL", pushed.mark))
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
        """A worker that dies just after taking a job leaves it idle, and in no queue."""
        engine = self.office.engine
        if (engine.now_us - pushed.sure_us) * 4 < (self.office.setup.busy_seconds or SURE_SECONDS) * SECOND_US:
            return
        command = "ZSCORE" if pushed.job.priority == URGENT else "LPOS"
        self.office.deeds.add((command, pushed.queue, pushed.id), then=partial(self._seen, pushed), again=False)

    def _seen(self, pushed: Pushed, answer: object) -> None:
        if answer is not None and self.jobs.get(pushed.job.id) is pushed:
            self._renew(pushed)
            self.office.deeds.add(("EXPIRE", pushed.mark, MARK_SECONDS), again=False)

    def _renew(self, pushed: Pushed) -> None:
        """It is not lost.  The span is named, because we may not do jobs of its function any more."""
        engine = self.office.engine
        pushed.sure_us = engine.now_us
        engine.renew_run(self.worker, pushed.job.id, self._busy_us)

    def leave_all(self) -> None:
        """The line is lost: until it is there again, others may do what is not pushed yet."""
        for function in list(self.worker.order):
            self.office.engine.cannot_do(self.worker, function)
        waiting, self._to_push = self._to_push, {}
        for several in waiting.values():
            for pushed in several:
                self._hand_back(pushed)

    def push_all_again(self) -> None:
        """Redis is another one, and knows nothing of what was pushed."""
        self.by_id.clear()
        self._early.clear()
        self._pushing = 0
        self._to_push.clear()
        for pushed in self.jobs.values():
            pushed.id = b""
            pushed.is_leaving = pushed.is_busy = False
            self._push_soon(pushed)

    def line_is_lost(self) -> None:
        """Nobody can be blamed for silence now; once a second."""
        for pushed in self.jobs.values():
            self._renew(pushed)

    def _fetch(self, pushed: Pushed) -> None:
        self.office.deeds.add(
            ("EVALSHA", SCRIPTS.fetch, 2, pushed.mark, pushed.keys.job(pushed.id), JOB_SECONDS),
            then=partial(self._fetched, pushed),
        )

    def _fetched(self, pushed: Pushed, fields: list[bytes | None]) -> None:
        status, output = fields
        if status not in FINAL or self.jobs.get(pushed.job.id) is not pushed:
            return
        engine = self.office.engine
        self._drop(pushed)
        if status == b"success":
            engine.complete(self.worker, pushed.job.id, output or b"")
        else:
            engine.fail(self.worker, pushed.job.id, 1, output or b"")
        self._take_another()
        forget = partial(self.office.deeds.add, ("DEL", pushed.mark))
        if pushed.job.delivery:
            self.office.promise(forget)
        else:
            self.office.say(forget)

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
            self.take_back(pushed)  # those that are being pushed follow

    def _withdraw(self, pushed: Pushed, job_id: bytes, in_any_case: bool = False) -> None:
        keys = pushed.keys
        command = "ZREM" if pushed.job.priority == URGENT else "LREM"
        words = (job_id, command, "yes" if in_any_case else "no")
        self.office.deeds.add(
            ("EVALSHA", SCRIPTS.withdraw, 3, pushed.mark, keys.job(job_id), pushed.queue, *words),
            then=partial(self._withdrawn, pushed),
        )

    def _withdrawn(self, pushed: Pushed, answer: int) -> None:
        pushed.is_leaving = False
        if answer and self.jobs.get(pushed.job.id) is pushed:
            self._hand_back(pushed)

    def _hand_back(self, pushed: Pushed) -> None:
        if self.jobs.get(pushed.job.id) is not pushed:
            return
        engine = self.office.engine
        self._drop(pushed)
        engine.hand_back(self.worker, pushed.job.id)
        self._take_another()

    def is_own(self, keys: Keys, job_id: bytes, origin: bytes | None) -> bool:
        """Whether a claimed job is one that this server has pushed; then the engine gets it back."""
        if not origin or not origin.startswith(self._handle_prefix):
            return False
        number = origin[len(self._handle_prefix) :].partition(b"@")[0]
        job = self.office.engine.job(whole_number(number) or 0)
        if job is None or self._origin(job) != origin:
            return False
        self.office.deeds.add(("DEL", keys.job(job_id)))
        self.office.deeds.add(("DEL", keys.mark(origin)))
        pushed = self.by_id.get((keys.function, job_id))
        if pushed is not None:
            self._hand_back(pushed)
        return True

    def revoked(self, job: Job) -> None:
        """The engine wants no result from us any more, and must not be called back."""
        pushed = self.jobs.get(job.id)
        if pushed is not None:
            self._drop(pushed)
            if pushed.id:
                self.office.say(partial(self._withdraw, pushed, pushed.id, True))
        self.office.hub.soon(partial(self._free, job))

    def _free(self, job: Job) -> None:
        """Answer for a job that is not ours any more, so that another may take its place."""
        engine = self.office.engine
        if job.worker is not self.worker:
            engine.fail(self.worker, job.id)
        self._take_another()
