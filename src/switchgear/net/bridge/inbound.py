"""`Inbound`: claims jobs of GearMonkey clients from Redis, and submits them to the engine.

A job id is always in some key of Redis: in its queue, or in the set of claimed ids until its result is written. A
server holds a claimed job while it renews its lease. When the lease expires, the job is offered again. The unique key
of a job consists of the Redis, the function and the id, so that a second claim joins the first. The key is also the
job's name, by which a restarted server finds results that were not written yet.

The bridge claims only as many jobs as the workers can start soon: one for each worker, and as many as finished
recently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import DONE, FAILED, QUEUED_STATES, RUNNING, Delivery, Function, Job, Peer
from switchgear.net.bridge.bridge_context import FINAL, BridgeContext
from switchgear.net.bridge.keys import FUNCTIONS, JOB_SECONDS, LOCK_SECONDS, PRIORITIES, Keys
from switchgear.net.bridge.scripts import SCRIPTS
from switchgear.telemetry import text_of
from switchgear.trace_context import is_traceparent

__all__ = ["Claim", "Inbound", "Served"]

# A client publishes `create` before it queues the job, so a single look at the queue would often be too early.
LOOKS_SECONDS: Final = (0.001, 0.005, 0.020)
POLL_SECONDS: Final = 1.0
REFUSED_PAUSE_SECONDS: Final = 1.0
IDS_PER_COMMAND: Final = 500


class Claim:
    """A job of Redis that this server holds."""

    __slots__ = ("id", "is_running", "job", "progress_waits", "served")

    def __init__(self, served: Served, job_id: bytes) -> None:
        self.served = served
        self.id = job_id
        self.job: Job | None = None  # None while the input is being read
        self.is_running = False
        self.progress_waits = False  # progress that was not sent yet


class Served:
    """A function whose jobs the bridge claims from Redis, with its claims."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.claims: dict[bytes, Claim] = {}
        self.is_counted = False
        self.workers = 0
        self.waiting = 0  # claims that no worker has started
        self.finished = 0  # since the last tick
        self.finished_before = 0  # between the last two ticks
        self.is_wanted = False  # whether to look at the queues
        self.is_looking = False
        self.look_stage = -1  # index into LOOKS_SECONDS; -1: no look planned
        self.look_anew = False  # a message was published after the next look was planned
        self.looked_at = 0.0
        self.pause_until = 0.0
        self.unserved_since = 0.0  # 0: the function has workers


class Inbound:
    """All functions whose jobs the bridge claims."""

    def __init__(
        self, shared: BridgeContext, watcher: Peer, is_own: Callable[[Keys, bytes, bytes | None], bool]
    ) -> None:
        """`is_own` returns a claimed job to the engine, if this server had pushed it."""
        self.shared = shared
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
            self.shared.commands.add(("SADD", FUNCTIONS, function))
        return served

    # --- functions with workers ---

    def tick(self) -> None:
        """Update which functions have workers; called several times a second."""
        shared = self.shared
        only = shared.setup.functions
        now = self._loop.time()
        for function in list(shared.engine.functions.values()):
            if function.workers and (only is None or function.name in only):
                self._note_workers(function)
        for served in list(self.served.values()):
            known = shared.engine.functions.get(served.keys.function)
            served.workers = shared.workers_of(known) if known is not None else 0
            served.finished_before, served.finished = served.finished, 0
            self._recount(served)
            if served.workers and not shared.is_closing:
                self._tick_served(served, now)
            else:
                self._tick_unserved(served, now)

    @staticmethod
    def _recount(served: Served) -> None:
        """Count the claims without a worker again: the job of a lost worker is ready again."""
        for claim in served.claims.values():
            claim.is_running = claim.job is not None and claim.job.state not in QUEUED_STATES
        served.waiting = sum(not claim.is_running for claim in served.claims.values())

    def _note_workers(self, function: Function) -> None:
        shared = self.shared
        name = function.name
        if name in self.served or name in shared.skipped or not shared.workers_of(function):
            return
        if shared.is_cluster and not Keys(name).has_one_place:
            shared.skipped.add(name)
            shared.hub.telemetry.emit("bridge_function_skipped", function=text_of(name))
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
            self.shared.commands.add(("EVALSHA", SCRIPTS.count, 2, *self._count_keys(served), self.shared.server, ""))
        served.unserved_since = served.unserved_since or now
        # Workers that lost their connection may come back; other servers may run the job if they do not.
        if served.claims and now - served.unserved_since >= self.shared.setup.lease_seconds:
            self.give_back(self.idle_claims(served))

    @staticmethod
    def idle_claims(served: Served) -> list[Claim]:
        """The claims whose jobs no worker has started."""
        return [claim for claim in served.claims.values() if claim.job is not None and claim.job.state in QUEUED_STATES]

    def _count(self, served: Served) -> None:
        served.is_counted = True
        shared = self.shared
        shared.commands.add(("EVALSHA", SCRIPTS.count, 2, *self._count_keys(served), shared.server, shared.lease_ms))

    @staticmethod
    def _count_keys(served: Served) -> tuple[bytes, bytes]:
        return served.keys.count, served.keys.counted

    def renew(self) -> None:
        """Renew the lease of this server, and find servers whose lease has expired; several times in a lease."""
        shared = self.shared
        for served in self.served.values():
            if served.is_counted:
                self._count(served)
            keys = served.keys
            for ids in _pieces(list(served.claims)):
                words = (keys.claimed, keys.holders, shared.lease_ms, shared.server, *ids)
                shared.commands.add(("EVALSHA", SCRIPTS.renew, 2, *words), again=False)

    def offer_lapsed(self, functions: Iterable[bytes]) -> None:
        """Queue jobs again whose claims have expired."""
        for function in functions:
            keys = Keys(function)
            words = (*keys.queues.values(), keys.claimed, keys.holders, "", IDS_PER_COMMAND)
            self.shared.commands.add(("EVALSHA", SCRIPTS.give_back, 6, *words), again=False)

    # --- looking for jobs ---

    def created(self, function: bytes) -> None:
        """Handle the message that a job was created, or is about to be."""
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
        self.shared.wake_sender()

    def collect(self) -> None:
        """Claim jobs of functions that have room and may have jobs queued."""
        shared = self.shared
        if not self._wanted or shared.is_closing or shared.engine.refusal is not None:
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
            words = (*keys.queues.values(), keys.claimed, keys.holders, room, shared.lease_ms, shared.server)
            shared.commands.add(
                ("EVALSHA", SCRIPTS.claim, 6, *words),
                then=partial(self._claimed, served, room),
                refused=partial(self._not_claimed, served),
                again=False,
            )

    def _room(self, served: Served) -> int:
        function = self.shared.engine.functions.get(served.keys.function)
        if function is None or function.paused or not served.workers or served.pause_until > self._loop.time():
            return 0
        soon = min(self.shared.setup.claim, served.workers + max(served.finished, served.finished_before))
        room = soon - served.waiting
        return room if 2 * room >= soon else 0  # claim many at once, not one by one

    def _not_claimed(self, served: Served, error: Exception) -> None:
        served.is_looking = False
        served.pause_until = self._loop.time() + REFUSED_PAUSE_SECONDS

    def _claimed(self, served: Served, room: int, answer: list[bytes]) -> None:
        served.is_looking = False
        for index in range(0, len(answer), 2):
            self.read(served, answer[index], answer[index + 1])
        if len(answer) >= 2 * room:
            self.look(served)

    # --- reading and submitting a job ---

    def read(self, served: Served, job_id: bytes, queue: bytes) -> None:
        """Read the job of a claimed id, and submit it."""
        if job_id in served.claims:
            return
        claim = served.claims[job_id] = Claim(served, job_id)
        served.waiting += 1
        self.shared.commands.add(
            ("HMGET", served.keys.job(job_id), "input", "status", "origin", "traceparent"),
            then=partial(self._submit, claim, queue),
            refused=lambda error: self._forget(claim),
        )

    def unique(self, function: bytes, job_id: bytes) -> bytes:
        return b"%b%b:%b" % (self.shared.unique_prefix, function, job_id)

    def _submit(self, claim: Claim, queue: bytes, fields: list[bytes | None]) -> None:
        if not self._is_held(claim):
            return
        data, status, origin, trace = fields
        keys = claim.served.keys
        if status is None or status in FINAL or self._is_own(keys, claim.id, origin):
            self._forget(claim)  # the job is gone, has ended, or was pushed by this server
            return
        data = data or b""
        if len(data) > self.shared.input_bytes:
            text = b"an input of %d bytes; the server takes %d" % (len(data), self.shared.input_bytes)
            self._write_end(claim, b"error", text)
            return
        unique = self.unique(keys.function, claim.id)
        if trace is None or not is_traceparent(trace):
            trace = b""
        options = SubmitOptions(name=unique, origin=self.shared.server.decode(), trace=trace)
        self.shared.engine.await_submissions()  # Redis still has the job if the server dies
        try:
            job = self.shared.engine.submit(
                keys.function, unique, data, PRIORITIES[queue], Delivery.HANDLE, self._watcher, options
            )
        except Refused:
            claim.served.pause_until = self._loop.time() + REFUSED_PAUSE_SECONDS
            self.give_back([claim])
            return
        self.adopt(claim, job)

    def adopt(self, claim: Claim, job: Job) -> None:
        """Attach a claim to a job; the bridge is already subscribed to the job."""
        claim.job = job
        self.by_job[job.id] = claim
        if job.state is RUNNING:
            self.started(job)

    def _forget(self, claim: Claim) -> None:
        """Release a claim: this id needs no work."""
        keys = claim.served.keys
        self._drop(claim)
        self.shared.commands.add(("ZREM", keys.claimed, claim.id))
        self.shared.commands.add(("HDEL", keys.holders, claim.id))

    def _drop(self, claim: Claim) -> None:
        """Remove a claim from the tables, without telling Redis."""
        if claim.served.claims.pop(claim.id, None) is None:
            return
        if not claim.is_running:
            claim.served.waiting -= 1
        if claim.job is not None:
            self.by_job.pop(claim.job.id, None)

    def give_back(self, claims: list[Claim]) -> None:
        """Return claims to their queues; the engine drops the jobs when Redis has confirmed."""
        for served, held in _by_function(claims):
            keys = served.keys
            for piece in _pieces(held):
                words = (*keys.queues.values(), keys.claimed, keys.holders, self.shared.server)
                self.shared.commands.add(
                    ("EVALSHA", SCRIPTS.give_back, 6, *words, *(claim.id for claim in piece)),
                    then=partial(self._given_back, piece),
                )

    def _given_back(self, claims: list[Claim], answer: int) -> None:
        engine = self.shared.engine
        for claim in claims:
            self._drop(claim)
            if claim.job is not None:
                engine.cancel(claim.job)

    def lose(self, claim: Claim) -> None:
        """Give up a claim that another server has taken after our lease expired. A running job may finish; the first
        result counts.
        """
        if claim.job is None or claim.job.state in QUEUED_STATES:
            self._drop(claim)
            if claim.job is not None:
                self.shared.engine.cancel(claim.job)

    # --- events of the engine, which must not be called from here ---

    def started(self, job: Job) -> None:
        claim = self.by_job.get(job.id)
        if claim is not None:
            if not claim.is_running:
                claim.is_running = True
                claim.served.waiting -= 1
            self.shared.run_action(partial(self._write_start, claim))

    def progressed(self, job: Job) -> None:
        claim = self.by_job.get(job.id)
        if claim is not None and not claim.progress_waits:
            claim.progress_waits = True
            self.shared.run_action(partial(self._write_progress, claim))

    def finished(self, job: Job) -> None:
        claim = self.by_job.pop(job.id, None)
        if claim is not None:
            claim.served.finished += 1
            if not claim.is_running:
                claim.is_running = True
                claim.served.waiting -= 1
            # The job has no result any more when the action runs.
            self.shared.run_action(partial(self._write_result, claim, outcome(job)))

    # --- results to Redis ---

    def _is_held(self, claim: Claim) -> bool:
        """Whether the claim was not dropped meanwhile."""
        return claim.served.claims.get(claim.id) is claim

    def _write_start(self, claim: Claim) -> None:
        if not self._is_held(claim):
            return
        keys = claim.served.keys
        words = (claim.id, self.shared.server, keys.channel, b"start:%b" % claim.id, "status", "busy")
        self.shared.commands.add(("EVALSHA", SCRIPTS.report, 2, keys.job(claim.id), keys.holders, *words))
        if claim.served.is_wanted:
            self.shared.wake_sender()

    def _write_progress(self, claim: Claim) -> None:
        claim.progress_waits = False
        job = claim.job
        if job is None or not self.shared.is_connected or not self._is_held(claim):  # later figures replace these
            return
        keys = claim.served.keys
        figures = ("status:dividend", job.numerator, "status:divisor", job.denominator)
        words = (claim.id, self.shared.server, keys.channel, "", *figures)
        self.shared.commands.add(("EVALSHA", SCRIPTS.report, 2, keys.job(claim.id), keys.holders, *words), again=False)

    def _write_result(self, claim: Claim, result: tuple[bytes, bytes]) -> None:
        if self._is_held(claim):
            self._write_end(claim, *result)
        if claim.served.is_wanted:
            self.shared.wake_sender()

    def _write_end(self, claim: Claim, status: bytes, output: bytes) -> None:
        keys = claim.served.keys
        words = (claim.id, status, output, keys.channel, JOB_SECONDS, LOCK_SECONDS)
        names = (keys.job(claim.id), keys.lock(claim.id), keys.claimed, keys.holders, *keys.queues.values())
        self.shared.commands.add(
            ("EVALSHA", SCRIPTS.finish, 8, *names, *words),
            then=lambda answer: self._drop(claim),
            refused=lambda error: self._forget(claim),
        )

    def write_found(self, served: Served, job_id: bytes, job: Job) -> None:
        """Write the result of a job that ended while it could not be written: in an earlier run, or just now."""
        claim = served.claims[job_id] = Claim(served, job_id)
        claim.is_running = True
        self.shared.run_when_stored(partial(self._write_result, claim, outcome(job)))

    # --- the connection ---

    def on_connected(self) -> None:
        """Forget requests that were sent over the lost connection: they get no answer."""
        for served in self.served.values():
            served.is_looking = False
            self.shared.commands.add(("SADD", FUNCTIONS, served.keys.function))
            if served.is_counted:
                self._count(served)
            if served.workers:
                self.look(served)

    def forget_all(self) -> None:
        """Drop all claims: this is another Redis, or it has lost its data."""
        engine = self.shared.engine
        for served in self.served.values():
            claims = list(served.claims.values())
            for claim in claims:
                self._drop(claim)
                if claim.job is not None and not claim.is_running:
                    engine.cancel(claim.job)
            served.claims.clear()
            served.waiting = 0


def outcome(job: Job) -> tuple[bytes, bytes]:
    """The status and output of a finished job in GearMonkey's terms."""
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
