"""Inbound: jobs of GearMonkey clients, run by the workers that the engine has.

An id is always in some key of Redis: in its queue, or in the claimed set, from which it goes when its result is
written.  A server holds what it has claimed for as long as it renews the lease.  If it does not, the job is offered
again.  A job has one unique key, made of the Redis, the function and the id, so that a second claim joins the first;
and the same word is its name, by which a server that was started again finds results that it had not written yet.

Claimed are only as many jobs as the workers can use soon: one for each, and as many as have lately been finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import DONE, FAILED, QUEUED_STATES, RUNNING, Delivery, Function, Job, Peer
from switchgear.net.bridge.keys import FUNCTIONS, JOB_SECONDS, LOCK_SECONDS, PRIORITIES, Keys
from switchgear.net.bridge.office import FINAL, Office
from switchgear.net.bridge.scripts import SCRIPTS
from switchgear.telemetry import text_of

__all__ = ["Claim", "Inbound", "Served"]

# A client publishes `create` before it queues the job, so one look would often be too early.
LOOKS_SECONDS: Final = (0.001, 0.005, 0.020)
POLL_SECONDS: Final = 1.0
REFUSED_PAUSE_SECONDS: Final = 1.0
IDS_PER_COMMAND: Final = 500


class Claim:
    """A job that this server holds."""

    __slots__ = ("id", "is_running", "job", "progress_waits", "served")

    def __init__(self, served: Served, job_id: bytes) -> None:
        self.served = served
        self.id = job_id
        self.job: Job | None = None  # None: its input is being read
        self.is_running = False
        self.progress_waits = False  # to be told


class Served:
    """A function whose jobs are claimed."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.claims: dict[bytes, Claim] = {}
        self.is_counted = False
        self.workers = 0
        self.waiting = 0  # claims that no worker has yet
        self.finished = 0  # since the last tick
        self.finished_before = 0  # between the two ticks before
        self.is_wanted = False  # a look at the queues
        self.is_looking = False
        self.look_stage = -1  # which of LOOKS_SECONDS is next; -1: none
        self.look_anew = False  # somebody has published since the next look was planned
        self.looked_at = 0.0
        self.pause_until = 0.0
        self.unserved_since = 0.0  # 0: it has workers


class Inbound:
    """All functions that a bridge takes jobs of."""

    def __init__(self, office: Office, watcher: Peer, is_own: Callable[[Keys, bytes, bytes | None], bool]) -> None:
        """`is_own` gives a claimed job back to the engine, if it was this server that had pushed it."""
        self.office = office
        self._watcher = watcher
        self._is_own = is_own
        self.served: dict[bytes, Served] = {}
        self.by_job: dict[int, Claim] = {}
        self._wanted: dict[bytes, Served] = {}
        self._loop = asyncio.get_running_loop()

    def serve(self, function: bytes) -> Served:
        served = self.served.get(function)
        if served is None:
            served = self.served[function] = Served(Keys(function))
            self.office.deeds.add(("SADD", FUNCTIONS, function))
        return served

    # --- who has workers ---

    def tick(self) -> None:
        """See who has workers now; several times a second."""
        office = self.office
        only = office.setup.functions
        now = self._loop.time()
        for function in list(office.engine.functions.values()):
            if function.workers and (only is None or function.name in only):
                self._note_workers(function)
        for served in list(self.served.values()):
            known = office.engine.functions.get(served.keys.function)
            served.workers = office.workers_of(known) if known is not None else 0
            served.finished_before, served.finished = served.finished, 0
            self._recount(served)
            if served.workers and not office.is_closing:
                self._tick_served(served, now)
            else:
                self._tick_unserved(served, now)

    @staticmethod
    def _recount(served: Served) -> None:
        """A job whose worker was lost waits again."""
        for claim in served.claims.values():
            claim.is_running = claim.job is not None and claim.job.state not in QUEUED_STATES
        served.waiting = sum(not claim.is_running for claim in served.claims.values())

    def _note_workers(self, function: Function) -> None:
        office = self.office
        name = function.name
        if name in self.served or name in office.skipped or not office.workers_of(function):
            return
        if office.is_cluster and not Keys(name).has_one_place:
            office.skipped.add(name)
            office.hub.telemetry.emit("bridge_function_skipped", function=text_of(name))
            return
        self.serve(name)

    def _tick_served(self, served: Served, now: float) -> None:
        served.unserved_since = 0.0
        if not served.is_counted:
            self._count(served)
            self.look(served)
        elif now - served.looked_at >= POLL_SECONDS:
            self.look(served)

    def _tick_unserved(self, served: Served, now: float) -> None:
        if served.is_counted:
            served.is_counted = False
            self.office.deeds.add(("EVALSHA", SCRIPTS.count, 2, *self._count_keys(served), self.office.server, ""))
        served.unserved_since = served.unserved_since or now
        # Workers that lost their connection come back; others may do the job if they do not.
        if served.claims and now - served.unserved_since >= self.office.setup.lease_seconds:
            self.give_back(self.idle_claims(served))

    @staticmethod
    def idle_claims(served: Served) -> list[Claim]:
        """Those whose jobs no worker has."""
        return [claim for claim in served.claims.values() if claim.job is not None and claim.job.state in QUEUED_STATES]

    def _count(self, served: Served) -> None:
        served.is_counted = True
        office = self.office
        office.deeds.add(("EVALSHA", SCRIPTS.count, 2, *self._count_keys(served), office.server, office.lease_ms))

    @staticmethod
    def _count_keys(served: Served) -> tuple[bytes, bytes]:
        return served.keys.count, served.keys.counted

    def renew(self) -> None:
        """Say that we are alive, and see who is not; several times in a lease."""
        office = self.office
        for served in self.served.values():
            if served.is_counted:
                self._count(served)
            keys = served.keys
            for ids in _pieces(list(served.claims)):
                words = (keys.claimed, keys.holders, office.lease_ms, office.server, *ids)
                office.deeds.add(("EVALSHA", SCRIPTS.renew, 2, *words), again=False)

    def offer_lapsed(self, functions: Iterable[bytes]) -> None:
        """Put back what others have claimed and do not hold any more."""
        for function in functions:
            keys = Keys(function)
            words = (*keys.queues.values(), keys.claimed, keys.holders, "", IDS_PER_COMMAND)
            self.office.deeds.add(("EVALSHA", SCRIPTS.give_back, 6, *words), again=False)

    # --- looking for jobs ---

    def created(self, function: bytes) -> None:
        """Somebody says that there is a new job, or soon will be."""
        served = self.served.get(function)
        if served is None or not served.workers:
            return
        if served.look_stage < 0:
            self._plan_look(served, 0)
        else:
            served.look_anew = True

    def _plan_look(self, served: Served, stage: int) -> None:
        served.look_stage = stage
        served.look_anew = False
        self._loop.call_later(LOOKS_SECONDS[stage], self._look_as_planned, served)

    def _look_as_planned(self, served: Served) -> None:
        self.look(served)
        stage = 0 if served.look_anew else served.look_stage + 1
        if stage < len(LOOKS_SECONDS):
            self._plan_look(served, stage)
        else:
            served.look_stage = -1

    def look(self, served: Served) -> None:
        served.is_wanted = True
        self._wanted[served.keys.function] = served
        self.office.nudge()

    def collect(self) -> None:
        """Claim where there is room and something may be waiting."""
        office = self.office
        if not self._wanted or office.is_closing or office.engine.refusal is not None:
            return
        for name, served in list(self._wanted.items()):
            room = 0 if served.is_looking else self._room(served)
            if room <= 0:
                continue
            del self._wanted[name]
            served.is_wanted = False
            served.is_looking = True
            served.looked_at = self._loop.time()
            keys = served.keys
            words = (*keys.queues.values(), keys.claimed, keys.holders, room, office.lease_ms, office.server)
            office.deeds.add(
                ("EVALSHA", SCRIPTS.claim, 6, *words),
                then=partial(self._claimed, served, room),
                refused=partial(self._not_claimed, served),
                again=False,
            )

    def _room(self, served: Served) -> int:
        function = self.office.engine.functions.get(served.keys.function)
        if function is None or function.paused or not served.workers or served.pause_until > self._loop.time():
            return 0
        soon = min(self.office.setup.claim, served.workers + max(served.finished, served.finished_before))
        room = soon - served.waiting
        return room if 2 * room >= soon else 0  # many at once, rather than one after the other

    def _not_claimed(self, served: Served, error: Exception) -> None:
        served.is_looking = False
        served.pause_until = self._loop.time() + REFUSED_PAUSE_SECONDS

    def _claimed(self, served: Served, room: int, answer: list[bytes]) -> None:
        served.is_looking = False
        for index in range(0, len(answer), 2):
            self.read(served, answer[index], answer[index + 1])
        if len(answer) >= 2 * room:
            self.look(served)

    # --- taking a job in ---

    def read(self, served: Served, job_id: bytes, queue: bytes) -> None:
        """Get the job of an id that this server holds, and take it in."""
        if job_id in served.claims:
            return
        claim = served.claims[job_id] = Claim(served, job_id)
        served.waiting += 1
        self.office.deeds.add(
            ("HMGET", served.keys.job(job_id), "input", "status", "origin"),
            then=partial(self._submit, claim, queue),
            refused=lambda error: self._forget(claim),
        )

    def unique(self, function: bytes, job_id: bytes) -> bytes:
        return b"%b%b:%b" % (self.office.unique_prefix, function, job_id)

    def _submit(self, claim: Claim, queue: bytes, fields: list[bytes | None]) -> None:
        if not self._is_held(claim):
            return
        data, status, origin = fields
        keys = claim.served.keys
        if status is None or status in FINAL or self._is_own(keys, claim.id, origin):
            self._forget(claim)  # it is gone, has ended, or is ours
            return
        data = data or b""
        if len(data) > self.office.input_bytes:
            text = b"an input of %d bytes; the server takes %d" % (len(data), self.office.input_bytes)
            self._write_end(claim, b"error", text)
            return
        unique = self.unique(keys.function, claim.id)
        options = SubmitOptions(name=unique, origin=self.office.server.decode())
        try:
            job = self.office.engine.submit(
                keys.function, unique, data, PRIORITIES[queue], Delivery.HANDLE, self._watcher, options
            )
        except Refused:
            claim.served.pause_until = self._loop.time() + REFUSED_PAUSE_SECONDS
            self.give_back([claim])
            return
        self.adopt(claim, job)
        self.office.promise(lambda: None)  # whatever is said of it, it is kept first

    def adopt(self, claim: Claim, job: Job) -> None:
        """The claim is this job's; the bridge watches it already."""
        claim.job = job
        self.by_job[job.id] = claim
        if job.state is RUNNING:
            self.started(job)

    def _forget(self, claim: Claim) -> None:
        """Nothing is to be done for this id."""
        keys = claim.served.keys
        self._drop(claim)
        self.office.deeds.add(("ZREM", keys.claimed, claim.id))
        self.office.deeds.add(("HDEL", keys.holders, claim.id))

    def _drop(self, claim: Claim) -> None:
        """Stop caring for a claim."""
        if claim.served.claims.pop(claim.id, None) is None:
            return
        if not claim.is_running:
            claim.served.waiting -= 1
        if claim.job is not None:
            self.by_job.pop(claim.job.id, None)

    def give_back(self, claims: list[Claim]) -> None:
        """Let others have these; the engine forgets them when Redis has them."""
        for served, held in _by_function(claims):
            keys = served.keys
            for piece in _pieces(held):
                words = (*keys.queues.values(), keys.claimed, keys.holders, self.office.server)
                self.office.deeds.add(
                    ("EVALSHA", SCRIPTS.give_back, 6, *words, *(claim.id for claim in piece)),
                    then=partial(self._given_back, piece),
                )

    def _given_back(self, claims: list[Claim], answer: int) -> None:
        engine = self.office.engine
        for claim in claims:
            self._drop(claim)
            if claim.job is not None:
                engine.cancel(claim.job)

    def lose(self, claim: Claim) -> None:
        """Somebody else has it, since our lease has passed.  What runs may finish; the first result counts."""
        if claim.job is None or claim.job.state in QUEUED_STATES:
            self._drop(claim)
            if claim.job is not None:
                self.office.engine.cancel(claim.job)

    # --- what becomes of a job: called by the engine, which must not be called back ---

    def started(self, job: Job) -> None:
        claim = self.by_job.get(job.id)
        if claim is not None:
            if not claim.is_running:
                claim.is_running = True
                claim.served.waiting -= 1
            self.office.say(partial(self._write_start, claim))

    def progressed(self, job: Job) -> None:
        claim = self.by_job.get(job.id)
        if claim is not None and not claim.progress_waits:
            claim.progress_waits = True
            self.office.say(partial(self._write_progress, claim))

    def finished(self, job: Job) -> None:
        claim = self.by_job.pop(job.id, None)
        if claim is not None:
            claim.served.finished += 1
            if not claim.is_running:
                claim.is_running = True
                claim.served.waiting -= 1
            self.office.promise(partial(self._write_result, claim, outcome(job)))  # the job will not have it by then

    # --- and is told to Redis ---

    def _is_held(self, claim: Claim) -> bool:
        """Whether it was not dropped since."""
        return claim.served.claims.get(claim.id) is claim

    def _write_start(self, claim: Claim) -> None:
        if not self._is_held(claim):
            return
        keys = claim.served.keys
        words = (claim.id, self.office.server, keys.channel, b"start:%b" % claim.id, "status", "busy")
        self.office.deeds.add(("EVALSHA", SCRIPTS.report, 2, keys.job(claim.id), keys.holders, *words))
        if claim.served.is_wanted:
            self.office.nudge()

    def _write_progress(self, claim: Claim) -> None:
        claim.progress_waits = False
        job = claim.job
        if job is None or not self.office.is_connected or not self._is_held(claim):  # the next figures are newer
            return
        keys = claim.served.keys
        figures = ("status:dividend", job.numerator, "status:divisor", job.denominator)
        words = (claim.id, self.office.server, keys.channel, "", *figures)
        self.office.deeds.add(("EVALSHA", SCRIPTS.report, 2, keys.job(claim.id), keys.holders, *words), again=False)

    def _write_result(self, claim: Claim, result: tuple[bytes, bytes]) -> None:
        if self._is_held(claim):
            self._write_end(claim, *result)
        if claim.served.is_wanted:
            self.office.nudge()

    def _write_end(self, claim: Claim, status: bytes, output: bytes) -> None:
        keys = claim.served.keys
        words = (claim.id, status, output, keys.channel, JOB_SECONDS, LOCK_SECONDS)
        names = (keys.job(claim.id), keys.lock(claim.id), keys.claimed, keys.holders, *keys.queues.values())
        self.office.deeds.add(
            ("EVALSHA", SCRIPTS.finish, 8, *names, *words),
            then=lambda answer: self._drop(claim),
            refused=lambda error: self._forget(claim),
        )

    def write_found(self, served: Served, job_id: bytes, job: Job) -> None:
        """The result of a job that ended when we could not write it: at the end of an earlier run, or just now."""
        claim = served.claims[job_id] = Claim(served, job_id)
        claim.is_running = True
        self.office.promise(partial(self._write_result, claim, outcome(job)))

    # --- the line ---

    def line_made(self) -> None:
        """What was asked before has no answer."""
        for served in self.served.values():
            served.is_looking = False
            self.office.deeds.add(("SADD", FUNCTIONS, served.keys.function))
            if served.is_counted:
                self._count(served)
            if served.workers:
                self.look(served)

    def forget_all(self) -> None:
        """Redis is another one, and knows nothing of what was claimed."""
        engine = self.office.engine
        for served in self.served.values():
            claims = list(served.claims.values())
            for claim in claims:
                self._drop(claim)
                if claim.job is not None and not claim.is_running:
                    engine.cancel(claim.job)
            served.claims.clear()
            served.waiting = 0


def outcome(job: Job) -> tuple[bytes, bytes]:
    """How a job ended, in the words of GearMonkey."""
    if job.state is DONE:
        return b"success", job.whole_result
    if job.state is FAILED:
        return b"error", job.error or job.whole_result or b"failed with code %d" % job.result_code
    return b"error", job.state.name.lower().encode()


def _pieces(items: list[Any]) -> Iterable[list[Any]]:
    return (items[start : start + IDS_PER_COMMAND] for start in range(0, len(items), IDS_PER_COMMAND))


def _by_function(claims: list[Claim]) -> Iterable[tuple[Served, list[Claim]]]:
    found: dict[bytes, tuple[Served, list[Claim]]] = {}
    for claim in claims:
        found.setdefault(claim.served.keys.function, (claim.served, []))[1].append(claim)
    return found.values()
