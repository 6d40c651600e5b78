"""`Bridge`: connects the server to a Redis with GearMonkey's keys, and runs both directions over that connection.

One asyncio task sends the pending commands in batches and handles the answers, so that commands are executed in the
order in which they were added. Another task receives published messages. The server continues while the connection is
lost; pending commands are sent after the reconnection.

To the hub a bridge is a session whose output is actions (callables) instead of bytes. An action that depends on a
commit therefore waits for the store by the same rule as the answers of every other session.
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
from switchgear.model import Cause, Job, Worker
from switchgear.net.bridge.bridge_context import PROTOCOL, Action, BridgeContext
from switchgear.net.bridge.inbound import Inbound
from switchgear.net.bridge.keys import FUNCTIONS
from switchgear.net.bridge.outbound import Outbound
from switchgear.net.bridge.pending_commands import PendingCommand, PendingCommands
from switchgear.net.bridge.recovery import Recovery
from switchgear.net.bridge.redis_connection import RedisConnection, RedisConnectionLost
from switchgear.net.bridge.settings import BridgeSettings
from switchgear.net.hub import Hub
from switchgear.protocols.output import Output
from switchgear.protocols.transport import PeerTransport
from switchgear.verbs.answers import ListenerFigures

__all__ = ["Bridge"]

log = logging.getLogger("switchgear")

COMMANDS_PER_BATCH: Final = 500
TICK_SECONDS: Final = 0.25
BACKOFF: Final = ReconnectBackoff(first_seconds=0.1, most_seconds=5.0)
FAREWELL_SECONDS: Final = 3.0


class ActionTransport(PeerTransport):
    """Runs the actions that the bridge writes."""

    def write(self, out: list[Action]) -> None:
        for action in out:
            try:
                action()
            except Exception:
                # Continue with the other actions.
                log.exception("internal error in the bridge to %s:%s", self.host, self.port)

    def close(self) -> None:
        """Do nothing: a bridge has no connection to a peer."""


class Bridge(Output):
    """The connection to one Redis, and the jobs that the bridge transfers in both directions."""

    def __init__(
        self,
        url: ListenUrl,
        hub: Hub,
        setup: BridgeSettings,
        handle_prefix: bytes,
        input_bytes: int,
        bridge_workers: set[Worker],
    ) -> None:
        transport = ActionTransport()
        transport.host, transport.port = url.host, url.port
        super().__init__(hub, transport)
        self.source = self.engine.source_of(PROTOCOL)
        self.url = url
        self.hub = hub
        self._loop = asyncio.get_running_loop()
        self._sender_wakeup = asyncio.Event()
        self.shared = BridgeContext(
            hub=hub,
            setup=setup,
            # A new name for each run: commands of an earlier run must not count as commands of this one.
            server=secrets.token_hex(8).encode(),
            commands=PendingCommands(self._sender_wakeup.set),
            run_action=self.send,
            run_when_stored=self._say_when_stored,
            wake_sender=self._sender_wakeup.set,
            input_bytes=input_bytes,
            bridge_workers=bridge_workers,
        )
        name = str(ListenUrl(url.scheme, url.host, url.port, path=url.path)).encode()
        self.outbound = Outbound(self.shared, self, name, handle_prefix)
        self.inbound = Inbound(self.shared, self, self.outbound.is_own)
        self._recovery = Recovery(self.shared, self.inbound, self)
        self._connection = RedisConnection(setup.location)
        self._task: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._next_tick = self._next_poll = self._next_renewal = 0.0
        self._lost_at = 0.0  # 0: connected, or not tried yet
        self._pauses = RetryPauses(BACKOFF)
        self._is_leaving = False  # True when all commands were sent

    # --- called by `Listeners`, as for every listener ---

    def open(self) -> None:
        """Start to connect. Redis need not be reachable yet."""
        self.engine.global_subscribers.append(self)
        self._task = self._loop.create_task(self._run())

    @property
    def address(self) -> str:
        return str(self.url)

    def stop_accepting(self) -> None:
        """Claim and push no more jobs; jobs that no GearMonkey worker has begun are taken back."""
        self.hub.begin_turn()
        self.shared.is_closing = True
        self.engine.withdraw_credit(self.outbound.worker)
        self.outbound.take_all_back()
        self.inbound.tick()  # removes this server from the worker count
        self._sender_wakeup.set()

    async def close(self) -> None:
        """Send the remaining commands, if Redis accepts them within a few seconds."""
        self.stop_accepting()
        task, self._task = self._task, None
        if task is not None:
            self._is_leaving = True
            self._sender_wakeup.set()
            if self.shared.is_connected:
                await asyncio.wait([task], timeout=FAREWELL_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._stop_listening()
        await self._connection.close()
        self.hub.begin_turn()
        self.engine.remove_worker(self.outbound.worker)
        self.shared.bridge_workers.discard(self.outbound.worker)
        if self in self.engine.global_subscribers:
            self.engine.global_subscribers.remove(self)

    def describe(self) -> ListenerFigures:
        """The connection to Redis, as the verb `connections` shows it."""
        return {
            "url": self.address,
            "connections": int(self.shared.is_connected),
            "input": 0,
            "output": 0,
            "largest": None,
        }

    def look_after(self) -> None:
        """Called once a second: release jobs whose time has passed, if Redis cannot be reached."""
        if not self.shared.is_connected:
            self.hub.begin_turn()
            self.outbound.on_connection_lost()

    # --- connection ---

    async def _run(self) -> None:
        while not self._is_leaving:
            try:
                await self._connect()
                await self._send_commands()
                continue
            except RedisConnectionLost as error:
                self._note_lost(error)
            except Exception as error:
                log.exception("internal error in the bridge to %s", self.url)
                self._note_lost(error)
            await asyncio.sleep(self._pauses.next_seconds())

    def _note_lost(self, error: Exception) -> None:
        self.shared.is_connected = False
        self.hub.begin_turn()
        self.outbound.leave_all()
        self.outbound.on_connection_lost()
        if not self._lost_at:
            self._lost_at = self._loop.time()
            self.hub.telemetry.emit("bridge_lost", url=str(self.url), error=str(error))

    async def _connect(self) -> None:
        await self._stop_listening()
        await self._connection.connect()
        shared = self.shared
        shared.is_cluster = self._connection.is_cluster
        identity = await self._recovery.identify(self._connection)
        self.hub.begin_turn()
        if shared.identity and shared.identity != identity:
            self.hub.telemetry.emit("bridge_replaced", url=str(self.url))
            shared.commands.clear()
            self.inbound.forget_all()
            self.outbound.push_all_again()
        shared.identity = identity
        await self._recovery.run(self._connection)
        self.inbound.on_connected()
        self.hub.begin_turn()
        self.outbound.on_connection_lost()  # one last time
        self.outbound.poll()
        self._next_tick = self._next_poll = self._next_renewal = 0.0
        shared.is_connected = True
        self._pauses.reset()
        if self._lost_at:
            seconds = round(self._loop.time() - self._lost_at, 1)
            self._lost_at = 0.0
            self.hub.telemetry.emit("bridge_recovered", url=str(self.url), seconds=seconds)

    async def _send_commands(self) -> None:
        """Send pending commands until the connection is lost, or until the bridge is closing and all commands were
        sent.
        """
        while True:
            self._sender_wakeup.clear()
            if self._run_due_tasks() or self.shared.has_new_channels:
                await self._subscribe()
            self.inbound.collect()
            self.outbound.collect()
            if self.shared.commands:
                await self._say_some()
            elif self._is_leaving:
                # This includes jobs claimed meanwhile: the answer to the last claim may have come after the stop.
                idle = [claim for served in self.inbound.served.values() for claim in self.inbound.idle_claims(served)]
                if not idle:
                    return
                self.inbound.give_back(idle)
            else:
                await self._wait_for_work()
            if self._listener is not None and self._listener.done():
                self._listener.result()  # raises the error that ended the task

    async def _say_some(self) -> None:
        commands = self.shared.commands.take(COMMANDS_PER_BATCH)
        try:
            answers = await self._connection.call_all([pending.command for pending in commands])
        except BaseException:
            self.shared.commands.put_back(commands)
            raise
        self.hub.begin_turn()
        for pending, answer in zip(commands, answers, strict=True):
            self.engine.speaker = self
            try:
                self._answered(pending, answer)
            except Exception:
                log.exception("internal error in the bridge to %s", self.url)  # handle the other answers
            finally:
                self.engine.speaker = None

    def _answered(self, pending: PendingCommand, answer: Any) -> None:
        if isinstance(answer, Exception):
            self.hub.telemetry.emit("bridge_refused", url=str(self.url), error=str(answer))
            pending.refused(answer)
        else:
            pending.then(answer)

    async def _wait_for_work(self) -> None:
        """Wait until a command is added or the next periodic task is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._next_tick - self._loop.time())):
                await self._sender_wakeup.wait()

    def _run_due_tasks(self) -> bool:
        """Run the periodic tasks that are due; returns True if the set of channels may have changed."""
        now = self._loop.time()
        if now < self._next_tick:
            return False
        self._next_tick = now + TICK_SECONDS
        self.hub.begin_turn()
        self.inbound.tick()
        self.outbound.check()
        if now >= self._next_poll:
            self._next_poll = now + self.shared.setup.poll_seconds
            self.outbound.poll()
        if now >= self._next_renewal:
            self._next_renewal = now + self.shared.setup.lease_seconds / 3
            self.inbound.renew()
            self.shared.commands.add(("SMEMBERS", FUNCTIONS), then=self._offer_lapsed, again=False)
        return True

    def _offer_lapsed(self, functions: Any) -> None:
        self.inbound.offer_lapsed(functions)

    # --- published messages ---

    async def _subscribe(self) -> None:
        self.shared.has_new_channels = False
        wanted = {b"channel:%b" % name for name in (*self.inbound.served, *self.outbound.functions)}
        await self._connection.subscribe(wanted)
        if wanted and self._listener is None:
            self._listener = self._loop.create_task(self._connection.listen(self._published))
            self._listener.add_done_callback(lambda task: self._sender_wakeup.set())

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

    # --- called by the hub and the engine ---

    def _say_when_stored(self, action: Action) -> None:
        self.await_commit()
        self.send(action)

    @property
    def unsent_bytes(self) -> int:
        return 0  # its actions refer to jobs, which the engine counts

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
            # The job came from this Redis, and GearMonkey workers can run it as it was submitted.
            self.context.soon(partial(self.inbound.give_back, [claim]))

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        self.outbound.revoked(job)
