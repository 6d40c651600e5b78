"""`ForwardingSource`: takes jobs of another server, the upstream, and submits them to this server.

The upstream keeps the job.  Here it is a foreground job, which is not stored before its end: if this server dies, or
the connection is lost, the upstream gives the job to somebody else.  Then a copy that waits here is dropped, and one
that runs may finish, but its result goes nowhere; so a job runs at least once, as with every worker that is lost.

How much is taken.  A job that waits here could be run by another worker of the upstream.  So of each function only as
many are taken as workers are idle, and as many more as were finished in the last moment, which will be started within
the next.  If all workers of a function have gone, jobs that wait here for them are given back.

Circles.  Two servers that forward to each other could pass a job to and fro.  Workers that are forwarding servers
themselves, or bridges, are not counted as workers here: a job is taken only for a worker that can run it, so it never
goes around without end.  A server that is its own upstream notices that, and stops forwarding.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Final

from switchgear.config import ListenUrl
from switchgear.engine.engine import SubmitOptions
from switchgear.errors import ConfigError, Refused
from switchgear.model import DONE, FAILED, FINAL_STATES, NORMAL, QUEUED_STATES, Delivery, Function, Job, Worker
from switchgear.net.hub import Hub
from switchgear.protocols.output import Output
from switchgear.protocols.session_factory import SessionFactory
from switchgear.protocols.transport import PeerTransport
from switchgear.telemetry import text_of
from switchgear.verbs.answers import ListenerFigures

__all__ = ["ForwardedEnd", "ForwardedJob", "ForwardingFactory", "ForwardingSource"]

log = logging.getLogger("switchgear")

NAME_PREFIX: Final = "switchgear-forwarding/"
BRIDGE_PROTOCOL: Final = "gearmonkey bridge"
TICK_SECONDS: Final = 0.1
CLOSE_SECONDS: Final = 3.0
# Workers that lost their connection come back soon; if they do not, others may do the job.
GIVE_BACK_SECONDS: Final = 5.0


class ForwardTransport(PeerTransport):
    """Carries out the reports of a source, once the hub lets them go."""

    def write(self, out: list[Callable[[], None]]) -> None:
        for report in out:
            try:
                report()
            except Exception:
                log.exception("internal error in forwarding to %s:%s", self.host, self.port)  # the others count

    def close(self) -> None:
        """Nothing to do: the source closes its connection itself."""


class ForwardedEnd:
    """How a job ended here: its result, or why there is none."""

    __slots__ = ("error", "is_done", "result")

    def __init__(self, job: Job) -> None:
        self.is_done = job.state is DONE
        self.result = job.result if self.is_done else b""
        self.error = b""
        if job.state is FAILED:
            self.error = job.error or b""
        elif not self.is_done:
            self.error = b"the job was %b by the server that it was forwarded to" % job.state.name.lower().encode()


class ForwardedJob:
    """A job of the upstream, and its copy here.  Each protocol says how its events are reported."""

    def __init__(self, function: bytes, unique: bytes, payload: bytes) -> None:
        self.function = function
        self.unique = unique
        self.payload = payload
        self.job: Job | None = None  # None: not submitted, because the server takes nothing now

    @property
    def is_waiting(self) -> bool:
        """Whether the job waits for a worker."""
        return self.job is None or self.job.state in QUEUED_STATES

    def report_progress(self, numerator: int, denominator: int) -> None:
        """Report progress of the job to the upstream."""

    def report_data(self, data: bytes) -> None:
        """Report a part of the result to the upstream."""

    def report_warning(self, data: bytes) -> None:
        """Report a warning to the upstream."""

    def report_end(self, end: ForwardedEnd) -> None:
        """Report the end of the job to the upstream."""


class ForwardingSource(Output):
    """The connection to one upstream, and its jobs.  To the hub it is a session whose output are reports."""

    protocol: ClassVar[str] = ""

    def __init__(self, url: ListenUrl, hub: Hub) -> None:
        transport = ForwardTransport()
        transport.host, transport.port = url.host, url.port
        super().__init__(hub, transport)
        self.source = self.engine.source_of("forwarding")
        self.url = url
        self.hub = hub
        self.name = f"{NAME_PREFIX}{secrets.token_hex(8)}"  # by which the upstream knows this source
        self.slots = int(url.option("slots"))
        names = [name.strip().encode() for name in url.text("functions").split(",") if name.strip()]
        self._only = frozenset(names) or None
        self._loop = asyncio.get_running_loop()
        self._held: dict[ForwardedJob, None] = {}
        self._by_job: dict[int, list[ForwardedJob]] = {}
        self._finished: Counter[bytes] = Counter()  # by function, since the last tick
        self._finished_before: Counter[bytes] = Counter()
        self._unserved_since: dict[bytes, float] = {}  # functions of held jobs, and since when they have no workers
        self._is_closing = False
        self._is_circle = False
        self._is_offer_due = False
        self._ticks: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost_at = 0.0  # 0: the connection is there, or was never tried

    # --- what a protocol does ---

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether there is a connection to the upstream."""

    @abstractmethod
    async def run(self) -> None:
        """Be a worker of the upstream, until cancelled or stopped."""

    @abstractmethod
    def offer(self, rooms: dict[bytes, int]) -> None:
        """Take so many more jobs of each of these functions, which all have workers, and none of others."""

    @abstractmethod
    def give_back(self, forwarded: list[ForwardedJob]) -> None:
        """Return these jobs, which have not started here, to the upstream."""

    @abstractmethod
    async def say_goodbye(self) -> None:
        """Make sure that the last reports have arrived, and give back what has not ended."""

    # --- called by `Listeners`, as for every listener ---

    def open(self) -> None:
        """Start connecting.  The upstream need not be reachable yet."""
        self._task = self._loop.create_task(self._run())
        self._tick()

    @property
    def address(self) -> str:
        return str(self.url)

    def describe(self) -> ListenerFigures:
        """The connection to the other server, as the verb `connections` shows it."""
        held = sum(len(forwarded.payload) for forwarded in self._held if forwarded.job is None)
        return {
            "url": self.address,
            "connections": int(self.is_connected),
            "input": held,
            "output": 0,
            "largest": None,
        }

    def stop_accepting(self) -> None:
        """Take no more jobs; those that run may finish."""
        self._is_closing = True
        self._offer()

    async def close(self) -> None:
        """Say goodbye, if the upstream listens, and hang up: it gives to others what has not ended."""
        self.stop_accepting()
        if self._ticks is not None:
            self._ticks.cancel()
        task = self._task
        if task is not None:
            if self.is_connected:
                try:
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await self.say_goodbye()
                except TimeoutError:
                    log.warning("%s did not take the last reports within %g s", self.url, CLOSE_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._task = None
        self.hub.begin_turn()
        self.engine.unsubscribe(self)
        self._held.clear()
        self._by_job.clear()

    def look_after(self) -> None:
        """Called once a second: is the upstream this server itself?"""
        name = self.name.encode()
        if not self._is_circle and any(worker.name == name for worker in self.engine.workers.values()):
            self._is_circle = True
            self.hub.telemetry.emit("forwarding_circle", url=self.address)
            self._offer_soon()

    async def _run(self) -> None:
        try:
            await self.run()
        except Exception:
            log.exception("internal error in forwarding from %s", self.url)

    # --- how much to take ---

    def _tick(self) -> None:
        self._ticks = self._loop.call_later(TICK_SECONDS, self._tick)
        self._finished_before, self._finished = self._finished, Counter()
        self.hub.begin_turn()
        for forwarded in [each for each in self._held if each.job is None]:
            self._submit(forwarded)
        self._give_back_unserved()
        self._offer_soon()

    def _give_back_unserved(self) -> None:
        """Give back the jobs of functions that have had no workers for a while."""
        now = self._loop.time()
        wanted = {forwarded.function for forwarded in self._held}
        served = {name for name in wanted if self._has_workers(name)}
        self._unserved_since = {name: self._unserved_since.get(name, now) for name in wanted - served}
        late = {name for name, since in self._unserved_since.items() if now - since >= GIVE_BACK_SECONDS}
        if late:
            self.give_back([each for each in self._held if each.function in late and each.is_waiting])

    def _has_workers(self, name: bytes) -> bool:
        function = self.engine.functions.get(name)
        return function is not None and not all(map(is_forwarder, function.workers))

    @property
    def is_overfull(self) -> bool:
        """Whether the upstream has given many more jobs than it was asked for."""
        return len(self._held) > 2 * self.slots + 100

    def _offer_soon(self) -> None:
        """Offer what there is room for, after everything that happens in this turn."""
        if not self._is_offer_due:
            self._is_offer_due = True
            self._loop.call_soon(self._offer)

    def _offer(self) -> None:
        self._is_offer_due = False
        if self._is_closing or self._is_circle:
            self.offer({})
            return
        free = max(0, self.slots - len(self._held)) if self.engine.refusal is None else 0
        rooms: dict[bytes, int] = {}
        for function in self.engine.functions.values():
            if function.workers and (self._only is None or function.name in self._only):
                workers = [worker for worker in function.workers if not is_forwarder(worker)]
                if workers:
                    rooms[function.name] = min(free, self._room(function, workers))
                    free -= rooms[function.name]
        self.offer(rooms)

    def _room(self, function: Function, workers: list[Worker]) -> int:
        """How many more jobs of a function would be started soon."""
        if function.paused:
            return 0
        idle = sum(map(idle_slots, workers))
        lately = max(self._finished[function.name], self._finished_before[function.name])
        return max(0, idle + lately - function.ready)

    # --- jobs of the upstream ---

    def take(self, forwarded: ForwardedJob) -> None:
        """The upstream has given this server a job."""
        self._held[forwarded] = None
        self.hub.begin_turn()
        self._submit(forwarded)
        self._offer_soon()

    def _submit(self, forwarded: ForwardedJob) -> None:
        """Submit a job; one that is refused stays here, and is tried again."""
        self.engine.speaker = self
        try:
            job = self._submitted(forwarded, forwarded.unique)
            if job.state in FINAL_STATES:  # it holds its unique key beyond its end, and its result is not here any more
                job = self._submitted(forwarded, b"")
        except Refused:
            return
        finally:
            self.engine.speaker = None
        forwarded.job = job
        forwarded.payload = b""
        self._by_job.setdefault(job.id, []).append(forwarded)

    def _submitted(self, forwarded: ForwardedJob, unique: bytes) -> Job:
        options = SubmitOptions(origin=f"{self.url.scheme}://{self.url.host}:{self.url.port}")
        return self.engine.submit(forwarded.function, unique, forwarded.payload, NORMAL, Delivery.WAIT, self, options)

    def drop(self, forwarded: ForwardedJob, *, cancel: bool = False) -> None:
        """The upstream does not wait for this job any more: it has given it to somebody else, or cancelled it."""
        if self._held.pop(forwarded, self) is self:
            return
        job = forwarded.job
        if job is None:
            return
        self.hub.begin_turn()
        others = self._by_job.get(job.id, [])
        if forwarded in others:
            others.remove(forwarded)
        if others:
            return
        self._by_job.pop(job.id, None)
        if cancel and job.subscribers == [self]:
            self.engine.cancel(job)
        else:
            self.engine.unsubscribe_from(self, [job.id])

    # --- called by the engine, which must not be called back ---

    def job_progress(self, job: Job) -> None:
        for forwarded in self._by_job.get(job.id, ()):
            self.send(_report(forwarded.report_progress, job.numerator, job.denominator))

    def job_data(self, job: Job, data: bytes) -> None:
        for forwarded in self._by_job.get(job.id, ()):
            self.send(_report(forwarded.report_data, data))

    def job_warning(self, job: Job, data: bytes) -> None:
        for forwarded in self._by_job.get(job.id, ()):
            self.send(_report(forwarded.report_warning, data))

    def job_finished(self, job: Job) -> None:
        self._finished[job.function.name] += 1
        end = self._end_of(job)
        for forwarded in self._by_job.pop(job.id, ()):
            self._held.pop(forwarded, None)
            self.send(_report(forwarded.report_end, end))
        self._offer_soon()

    def _end_of(self, job: Job) -> ForwardedEnd:
        return ForwardedEnd(job)

    @property
    def unsent_bytes(self) -> int:
        return 0  # reports refer to jobs, whose contents are counted there

    # --- the connection, for operators ---

    def note_connected(self) -> None:
        """Log that the connection is established again, if it was lost."""
        if self._lost_at:
            seconds = round(self._loop.time() - self._lost_at, 1)
            self._lost_at = 0.0
            self.hub.telemetry.emit("forwarding_recovered", url=self.address, seconds=seconds)

    def note_lost(self, problem: str) -> None:
        """Log that the connection is lost, once."""
        if not self._lost_at:
            self._lost_at = self._loop.time()
            self.hub.telemetry.emit("forwarding_lost", url=self.address, error=text_of(problem.encode()))


class ForwardingFactory(SessionFactory):
    """Opens the sources of one protocol."""

    source: ClassVar[Any]

    def prepare(self, url: ListenUrl) -> None:
        if url.path:
            raise ConfigError(f"listen: {url}: nothing follows the port but options")

    def connect(self, url: ListenUrl, hub: Hub) -> ForwardingSource:
        """A source for the upstream that the URL names; raises ConfigError."""
        made: ForwardingSource = self.source(url, hub)
        return made


def is_forwarder(worker: Worker) -> bool:
    """Whether this is another server, or a bridge, and not a worker that runs jobs itself."""
    return worker.name.startswith(NAME_PREFIX.encode()) or worker.protocol == BRIDGE_PROTOCOL


def idle_slots(worker: Worker) -> int:
    """How many jobs a worker would start at once."""
    return worker.credits or int(worker.asleep or not worker.running)


def _report(method: Callable[..., None], *arguments: object) -> Callable[[], None]:
    return lambda: method(*arguments)
