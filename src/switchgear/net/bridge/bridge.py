"""The bridge as a whole: it keeps a line to its Redis, and lets both directions speak over it.

One task sends what is to be said and handles the answers, one batch at a time, so that everything happens in the order
in which it was meant.  Another one listens to what is published.  When the line is lost, the server goes on; what was
to be said waits, and is said when the line is there again.

Towards the hub the bridge is a session whose wire carries actions instead of bytes.  So what has to be kept first waits
for the store by the same rules as everybody's answers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from functools import partial
from typing import Any, Final

from switchgear.backoff import ReconnectBackoff, RetryPauses
from switchgear.config import ListenUrl
from switchgear.errors import Refused
from switchgear.model import Cause, Job, Worker
from switchgear.net.bridge.deeds import Deed, Deeds
from switchgear.net.bridge.inbound import Inbound
from switchgear.net.bridge.keys import FUNCTIONS
from switchgear.net.bridge.line import Line, LineLost
from switchgear.net.bridge.office import PROTOCOL, Action, Office
from switchgear.net.bridge.outbound import Outbound
from switchgear.net.bridge.recovery import Recovery
from switchgear.net.bridge.setup import BridgeSetup
from switchgear.net.hub import Hub
from switchgear.protocols.base import Session, Wire

__all__ = ["Bridge"]

log = logging.getLogger("switchgear")

DEEDS_AT_ONCE: Final = 500
TICK_SECONDS: Final = 0.25
BACKOFF: Final = ReconnectBackoff(first_seconds=0.1, most_seconds=5.0)
FAREWELL_SECONDS: Final = 3.0


class ActionWire(Wire):
    """What is written is done."""

    def write(self, out: list[Action]) -> None:
        for action in out:
            try:
                action()
            except Exception:
                log.exception("defect in the bridge to %s:%s", self.host, self.port)  # the others are done all the same

    def close(self) -> None:
        """There is nothing to hang up."""


class Bridge(Session):
    """One Redis, and the jobs that go over in both directions."""

    def __init__(
        self,
        url: ListenUrl,
        hub: Hub,
        setup: BridgeSetup,
        handle_prefix: bytes,
        input_bytes: int,
        bridge_workers: set[Worker],
    ) -> None:
        wire = ActionWire()
        wire.host, wire.port = url.host, url.port
        super().__init__(hub, wire)
        self.protocol = PROTOCOL
        self.url = url
        self.hub = hub
        self._loop = asyncio.get_running_loop()
        self._nudged = asyncio.Event()
        self.office = Office(
            hub=hub,
            setup=setup,
            server=secrets.token_hex(8).encode(),  # of this run: what it leaves behind must not be taken for new
            deeds=Deeds(self._nudged.set),
            say=self.send,
            promise=self._promise,
            nudge=self._nudged.set,
            input_bytes=input_bytes,
            bridge_workers=bridge_workers,
        )
        name = str(ListenUrl(url.scheme, url.host, url.port, path=url.path)).encode()
        self.outbound = Outbound(self.office, self, name, handle_prefix)
        self.inbound = Inbound(self.office, self, self.outbound.is_own)
        self._recovery = Recovery(self.office, self.inbound, self)
        self._line = Line(setup.place)
        self._task: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._next_tick = self._next_poll = self._next_renewal = 0.0
        self._lost_at = 0.0  # 0: the line is there, or was never tried
        self._pauses = RetryPauses(BACKOFF)
        self._is_leaving = False  # when everything is said

    # --- like every door ---

    def open(self) -> None:
        """Begin; the Redis need not be there."""
        self.engine.audience.append(self)
        self._task = self._loop.create_task(self._run())

    @property
    def address(self) -> str:
        return str(self.url)

    def stop_accepting(self) -> None:
        """Claim and push nothing more; what GearMonkey workers have not begun comes back."""
        self.hub.begin_turn()
        self.office.is_closing = True
        self.engine.withdraw_credit(self.outbound.worker)
        self.outbound.take_all_back()
        self.inbound.tick()  # counts us out
        self._nudged.set()

    async def close(self) -> None:
        """Say what is still to be said, if Redis takes it within a moment."""
        self.stop_accepting()
        task, self._task = self._task, None
        if task is not None:
            self._is_leaving = True
            self._nudged.set()
            if self.office.is_connected:
                await asyncio.wait([task], timeout=FAREWELL_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._stop_listening()
        await self._line.close()
        self.hub.begin_turn()
        self.engine.remove_worker(self.outbound.worker)
        self.office.bridge_workers.discard(self.outbound.worker)
        if self in self.engine.audience:
            self.engine.audience.remove(self)

    def look_after(self) -> None:
        """Once a second."""
        if not self.office.is_connected:
            self.hub.begin_turn()
            self.outbound.line_is_lost()

    # --- the line ---

    async def _run(self) -> None:
        while not self._is_leaving:
            try:
                await self._connect()
                await self._converse()
                continue
            except LineLost as error:
                self._note_lost(error)
            except Exception as error:
                log.exception("defect in the bridge to %s", self.url)
                self._note_lost(error)
            await asyncio.sleep(self._pauses.next_seconds())

    def _note_lost(self, error: Exception) -> None:
        self.office.is_connected = False
        self.hub.begin_turn()
        self.outbound.leave_all()
        self.outbound.line_is_lost()
        if not self._lost_at:
            self._lost_at = self._loop.time()
            self.hub.telemetry.emit("bridge_lost", url=str(self.url), error=str(error))

    async def _connect(self) -> None:
        await self._stop_listening()
        await self._line.connect()
        office = self.office
        office.is_cluster = self._line.is_cluster
        identity = await self._recovery.identify(self._line)
        self.hub.begin_turn()
        if office.identity and office.identity != identity:
            self.hub.telemetry.emit("bridge_replaced", url=str(self.url))
            office.deeds.clear()
            self.inbound.forget_all()
            self.outbound.push_all_again()
        office.identity = identity
        await self._recovery.run(self._line)
        self.inbound.line_made()
        self.hub.begin_turn()
        self.outbound.line_is_lost()  # for the last time
        self.outbound.poll()
        self._next_tick = self._next_poll = self._next_renewal = 0.0
        office.is_connected = True
        self._pauses.reset()
        if self._lost_at:
            seconds = round(self._loop.time() - self._lost_at, 1)
            self._lost_at = 0.0
            self.hub.telemetry.emit("bridge_recovered", url=str(self.url), seconds=seconds)

    async def _converse(self) -> None:
        """Say what is to be said, as long as the line holds, or until everything is said for good."""
        while True:
            self._nudged.clear()
            if self._is_due() or self.office.has_new_channels:
                await self._subscribe()
            self.inbound.collect()
            self.outbound.collect()
            if self.office.deeds:
                await self._say_some()
            elif self._is_leaving:
                # What was claimed meanwhile, too: the answer to the last claim may have come after the stop.
                idle = [claim for served in self.inbound.served.values() for claim in self.inbound.idle_claims(served)]
                if not idle:
                    return
                self.inbound.give_back(idle)
            else:
                await self._rest()
            if self._listener is not None and self._listener.done():
                self._listener.result()  # raises what has ended it

    async def _say_some(self) -> None:
        deeds = self.office.deeds.take(DEEDS_AT_ONCE)
        try:
            answers = await self._line.call_all([deed.command for deed in deeds])
        except BaseException:
            self.office.deeds.put_back(deeds)
            raise
        self.hub.begin_turn()
        for deed, answer in zip(deeds, answers, strict=True):
            try:
                self._answered(deed, answer)
            except Exception:
                log.exception("defect in the bridge to %s", self.url)  # the other answers count all the same

    def _answered(self, deed: Deed, answer: Any) -> None:
        if isinstance(answer, Exception):
            self.hub.telemetry.emit("bridge_refused", url=str(self.url), error=str(answer))
            deed.refused(answer)
        else:
            deed.then(answer)

    async def _rest(self) -> None:
        """Until somebody has something to say, or something is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._next_tick - self._loop.time())):
                await self._nudged.wait()

    def _is_due(self) -> bool:
        """Do what is done now and then; True if the channels may have changed."""
        now = self._loop.time()
        if now < self._next_tick:
            return False
        self._next_tick = now + TICK_SECONDS
        self.hub.begin_turn()
        self.inbound.tick()
        self.outbound.check()
        if now >= self._next_poll:
            self._next_poll = now + self.office.setup.poll_seconds
            self.outbound.poll()
        if now >= self._next_renewal:
            self._next_renewal = now + self.office.setup.lease_seconds / 3
            self.inbound.renew()
            self.office.deeds.add(("SMEMBERS", FUNCTIONS), then=self._offer_lapsed, again=False)
        return True

    def _offer_lapsed(self, functions: Any) -> None:
        self.inbound.offer_lapsed(functions)

    # --- what is published ---

    async def _subscribe(self) -> None:
        self.office.has_new_channels = False
        wanted = {b"channel:%b" % name for name in (*self.inbound.served, *self.outbound.functions)}
        await self._line.subscribe(wanted)
        if wanted and self._listener is None:
            self._listener = self._loop.create_task(self._line.listen(self._published))
            self._listener.add_done_callback(lambda task: self._nudged.set())

    async def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    def _published(self, channel: bytes, data: bytes) -> None:
        function = channel.partition(b":")[2]
        word, _, job_id = data.partition(b":")
        if word == b"create":
            self.inbound.created(function)
        elif word == b"finish":
            self.outbound.published_finish(function, job_id)

    # --- the hub's and the engine's side ---

    def _promise(self, action: Action) -> None:
        self.send(action)
        self.pledge()

    def receive(self, data: bytes) -> None:
        raise NotImplementedError("nobody speaks to a bridge in bytes")

    def closed(self) -> None:
        """There is no connection that could be."""

    def refusal(self, refused: Refused) -> bytes:
        raise NotImplementedError("a bridge promises no job to anybody who could be refused it")

    @property
    def unsent_bytes(self) -> int:
        return 0  # its actions refer to jobs that are counted elsewhere

    def job_started(self, job: Job) -> None:
        if self.inbound.by_job and job.worker is not self.outbound.worker:
            self.inbound.started(job)

    def job_progress(self, job: Job) -> None:
        self.inbound.progressed(job)

    def job_finished(self, job: Job) -> None:
        if self.inbound.by_job:
            self.inbound.finished(job)

    def assign(self, worker: Worker, job: Job) -> None:
        claim = self.inbound.by_job.get(job.id)
        if claim is None:
            self.outbound.assigned(job)
        else:
            # It came from this Redis, and GearMonkey workers can have it as it was.
            self.context.soon(partial(self.inbound.give_back, [claim]))

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        self.outbound.revoked(job)
