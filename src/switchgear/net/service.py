"""`Service`: the server from start to stop: opens the store, listens, serves, drains, stops.

Starting. The addresses are bound before the store is read, so that clients can connect at once. They are served when
all jobs are restored.

Signals. SIGTERM and SIGINT drain: no new connection, submission or assignment; running jobs may finish until the drain
timeout; a second signal stops at once, and so does the first while jobs are restored. SIGHUP reloads the configuration
and reopens the log file. SIGUSR1 lets the server continue until no job is left.

Guest. The server can also run in a thread of a user's program (embedded mode), which has its own signals, output and
garbage collection. When it stops, another server takes over within moments; so it refuses no requests but closes the
connections, and their peers connect to the other server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from switchgear.config import Config
from switchgear.engine.engine import Engine
from switchgear.errors import SwitchgearError
from switchgear.model import Cause
from switchgear.net.clock import SystemClock
from switchgear.net.config_reload import reload_access, reload_config
from switchgear.net.connections.peer_user import can_tell_users
from switchgear.net.dashboard_on_request import DashboardOnRequest
from switchgear.net.hub import STANDSTILL_SECONDS, Hub
from switchgear.net.job_log_recording import start_recorder
from switchgear.net.listeners import Listeners
from switchgear.net.monitoring.loop_lag import LoopLag
from switchgear.net.monitoring.metrics import Metrics
from switchgear.net.operations.context import done_in_thread
from switchgear.net.operations.dispatcher import Operations
from switchgear.net.process.file_ownership import check_database, is_open_to_others
from switchgear.net.process.gc_tuning import freeze_existing_objects
from switchgear.net.process.log_setup import configure_log, logs_to_stderr, reopen_log
from switchgear.net.process.service_manager import MOST_SILENT_SECONDS, ServiceManager
from switchgear.net.restore_progress import RestoreDisplay, RestoreProgress
from switchgear.net.retention import drop_finished_jobs
from switchgear.net.service_settings import (
    databases,
    engine_settings,
    handle_prefix,
    is_in_state_dir,
    load_wake_policy,
)
from switchgear.protocol_registry import protocol_named
from switchgear.storage.base import Store
from switchgear.storage.open import open_store
from switchgear.telemetry import Telemetry
from switchgear.version import BUILD, VERSION

if TYPE_CHECKING:
    from switchgear.net.cluster import ClusterMember
    from switchgear.net.owners.member import OwnersMember

__all__ = ["Service", "run_server"]

log = logging.getLogger("switchgear")

DRAIN_LOOK_SECONDS = 0.02
# How long requests that wait may take to be answered when the server stops.
ANSWER_SECONDS = 1.0
ANSWER_LOOK_SECONDS = 0.005
HOUSEKEEPING_SECONDS = 1.0
DEMO_STOP_SECONDS = 1.0  # the demo should not be cut off in the middle of a line
GUEST_IDS = 1_000  # a server that starts with every program should not skip many ids each time
EXIT_FENCED = 75  # EX_TEMPFAIL: a supervisor may start it again
SERVING = "serving"  # as a service manager shows it
GOODBYE_SECONDS = 0.3  # a user's program must not wait for a peer that does not close its connection


def run_server(
    config: Config,
    *,
    reload: Callable[[], Config] | None = None,
    demo: Callable[[list[str]], None] | None = None,
    on_listening: Callable[[], None] | None = None,
    is_silent: bool = False,
    manager: ServiceManager | None = None,
    restore_display: RestoreDisplay | None = None,
) -> int:
    """Serve until told to stop; returns the exit code.

    `on_listening` is called when all addresses accept connections; `demo` then gets all addresses, in its own thread.
    With `is_silent`, nothing is printed to standard output.  `manager` is told how the server is, and
    `restore_display` how far it is with restoring the jobs of its store.
    """
    configure_log(config)
    service = Service(config, reload, demo, on_listening, is_silent=is_silent)
    if manager is not None:
        service.manager = manager
    service.restore_display = restore_display
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(service.run())
    except SwitchgearError as error:
        if not logs_to_stderr(config):  # there it is told by the caller
            Telemetry(time.monotonic).emit("server_failed", error=error)
        raise
    except Exception:
        if config.log.format != "json":
            raise
        log.critical("internal error", exc_info=True)  # for those who read nothing but JSON
        return 1


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop event loop, or one of asyncio where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Service:
    """All parts of a running server."""

    def __init__(
        self,
        config: Config,
        reload: Callable[[], Config] | None = None,
        demo: Callable[[list[str]], None] | None = None,
        on_listening: Callable[[], None] | None = None,
        *,
        is_guest: bool = False,
        is_silent: bool = False,
        is_private: bool = False,
    ) -> None:
        """`is_guest`: it is in somebody else's program; `is_private`: only processes of this user may connect, on a
        system that tells whose they are."""
        self.config = config
        self._is_guest = is_guest
        self._is_silent = is_silent
        self._is_private = is_private
        self._reload = reload
        self._demo = demo
        self._on_listening = on_listening
        self.on_stopping: Callable[[], None] = lambda: None  # called when every peer was told what there was to tell
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._finish_all = False
        self.manager = ServiceManager()
        self.restore_display: RestoreDisplay | None = None
        self._is_serving = False
        self._reloads_later = False  # the configuration, once the server serves
        self.store: Store
        self._member: ClusterMember | None = None  # of a cluster
        self._owners: OwnersMember | None = None  # of a cluster in which each node owns a part
        self._dashboard: DashboardOnRequest | None = None  # of an embedded directory
        self._prefix = handle_prefix(config)

    async def run(self) -> int:
        """Run the server until it is stopped; returns its exit status."""
        async with AsyncExitStack() as stack:
            for path in databases(self.config):
                check_database(path)
            self._open_store()
            stack.push_async_callback(self.store.close)
            member = self._member or self._owners
            if member is not None:
                self._prefix = await member.join(self._prefix)
            self.telemetry = Telemetry(asyncio.get_running_loop().time)
            for path in databases(self.config):
                if is_open_to_others(path):
                    self.telemetry.emit("directory_open", path=str(path.parent))
            self.engine = Engine(engine_settings(self.config), self.telemetry)
            self.engine.wake_policy = load_wake_policy(self.config.engine.wake_policy)
            self.hub = Hub(
                self.engine, self.store, SystemClock(), self.telemetry, self.config.storage.payload_memory_bytes
            )
            self.recorder = start_recorder(self.config, self.hub, f"{self._prefix}:")
            if self.recorder is not None:
                stack.push_async_callback(asyncio.to_thread, self.recorder.close)
            if self._is_guest:
                self.hub.changes.ids_at_once = GUEST_IDS
            self.hub.commits.on_fenced = self._on_fenced
            self.loop_lag = LoopLag(self._on_late_loop)
            self._connect()
            if not await self._load():
                self.telemetry.emit("server_stopped")
                return 0
            stack.push_async_callback(self.hub.close)
            await self._listen(stack)
            tasks = [asyncio.create_task(task) for task in (self._housekeeping(), self._drop_finished(), self._beat())]
            if self._member is not None:
                tasks.append(asyncio.create_task(self._member.keep_in_touch()))
            if self._owners is not None:
                tasks.append(asyncio.create_task(self._owners.run()))
            stack.push_async_callback(cancel_all, tasks)
            self.loop_lag.start()
            stack.callback(self.loop_lag.close)
            self.manager.ready(SERVING)
            stack.callback(self.manager.close)
            await self._serve()
            self.on_stopping()
        self.telemetry.emit("server_stopped")
        return 0

    def _open_store(self) -> None:
        """Open the store; of a node of a cluster, only prepare to open it."""
        if self.config.cluster.enabled and self.config.cluster.mode == "owners":
            from switchgear.net.owners.member import OwnersMember, owners_store

            self.store = owned = owners_store(self.config)
            self._owners = OwnersMember(self.config, owned)
            return
        if self.config.cluster.enabled:
            from switchgear.net.cluster import ClusterMember, clustered_store

            self.store = store = clustered_store(self.config)
            self._member = ClusterMember(self.config, store)
            return
        self.store = open_store(
            self.config.store_url,
            sync=self.config.storage.sync,  # type: ignore[arg-type]  # checked by the configuration
            payload_memory_bytes=self.config.storage.payload_memory_bytes,
            make_directory=is_in_state_dir(self.config),
        )

    def _connect(self) -> None:
        """Construct listeners and operations, and connect them with the hub."""
        prefix = self._prefix
        self.operations = self._new_operations(f"{prefix}:")
        self.hub.telemetry.handle_prefix = f"{prefix}:"
        self.operations.context.recorder = self.recorder
        self.operations.context.in_thread = done_in_thread
        self.operations.context.commit_times = self.hub.commits.commit_times
        self.operations.context.loop_lag_seconds = lambda: self.loop_lag.seconds
        self.hub.read_loop_lag = lambda: self.loop_lag.seconds
        self.operations.context.waiting_changes = lambda: len(self.hub.changes.unkept)
        self.hub.operator = self.operations.in_steps
        self.hub.watcher = self.operations.watch_in_steps
        self.hub.on_stop_requested = self.request_stop
        if self._owners is not None:
            self.hub.broadcast = self._owners.channels
        self.listeners = Listeners(self.config, self.hub, prefix)
        self.listeners.is_guest = self._is_guest
        self.listeners.is_private = self._is_private and can_tell_users()
        self.operations.context.connections = self.listeners.count_connections
        self.operations.context.listeners = self.listeners.describe
        self.operations.context.open_connections = self.listeners.open_connections
        if self._is_private:  # the server of an embedded directory, for which nobody has written a configuration
            self._dashboard = DashboardOnRequest(self.listeners)
            self.operations.context.open_dashboard = self._dashboard.open
        if self._member is not None:
            self.operations.context.nodes = self._member.describe
        if self._owners is not None:
            self.operations.context.nodes = self._owners.describe
        metrics = Metrics(self.hub, self.loop_lag)
        metrics.recorder = self.recorder
        metrics.connections = self.listeners.connections_by_protocol
        self.hub.write_metrics = metrics.write

    def _new_operations(self, prefix: str) -> Operations:
        """The verbs of operators."""
        if self._owners is None:
            return Operations(self.hub, prefix)
        from switchgear.net.owners.cluster_operations import ClusterOperations

        operations = ClusterOperations(self.hub, prefix, self._owners)
        self._owners.run_verb = operations.part_in_steps
        self._owners.ask_room = operations.ask_room
        self.hub.live_job = operations.live_job
        self.hub.key_finder = operations.find_key
        return operations

    def _on_late_loop(self, seconds: float) -> None:
        self.telemetry.emit("loop_late", seconds=round(seconds, 3))

    async def _load(self) -> bool:
        """Take over what the store has; returns False if the server was told to stop before that was done.

        A long queue takes seconds.  Whoever connects meanwhile is not refused: the system takes the connection and what
        is sent over it, and the answer comes when everything is there.
        """
        is_loaded = False
        try:
            await self.listeners.bind()
            if not self._is_guest:
                self._handle_signals()
            is_loaded = await self._stand_by() and await self._restore()
        finally:
            if not is_loaded:
                self.listeners.unbind()
        return is_loaded

    async def _stand_by(self) -> bool:
        """Wait until this node of a cluster owns the jobs; returns False if it was told to stop before that."""
        if self._member is None:
            return True
        listeners, memory = self.listeners.tcp_listeners, self.engine.memory
        standing_by = asyncio.create_task(self._member.stand_by(listeners, memory, self.telemetry))
        stopping = asyncio.create_task(self._stop.wait())
        touching = asyncio.create_task(self._member.keep_in_touch())
        try:
            await asyncio.wait({standing_by, stopping, touching}, return_when=asyncio.FIRST_COMPLETED)
            if not standing_by.done():
                return False
            standing_by.result()
            return True
        finally:
            await cancel_all([standing_by, stopping, touching])

    async def _restore(self) -> bool:
        if self._owners is not None:
            self._owners.bound_to_functions = self.listeners.bound_to_functions
            await self._owners.begin(self.hub)
            return True
        loading = asyncio.create_task(self.hub.load())
        stopping = asyncio.create_task(self._stop.wait())
        progress = RestoreProgress(self.hub, self.manager, self.restore_display, logs_to_stderr(self.config))
        reporting = [asyncio.create_task(task) for task in progress.tasks()]
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        is_given_up = not loading.done() and self.hub.is_restoring and not self._is_guest  # whose user waits for it
        if is_given_up:
            loading.cancel()  # nothing has been changed yet
        await asyncio.wait({loading})
        await cancel_all([stopping, *reporting])
        if self.restore_display is not None:
            self.restore_display.end()
        if is_given_up and loading.cancelled():
            return False
        loading.result()
        return True

    async def _listen(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self.listeners.close)
        await self.listeners.start()
        if not self._is_guest:
            freeze_existing_objects()
        self._is_serving = True
        if self._reloads_later:
            self.reload()
        addresses = self.listeners.addresses
        self._announce(addresses)
        if self._on_listening is not None:
            self._on_listening()
        if self._demo:
            demo = threading.Thread(target=self._demo, args=(list(addresses),), name="demo", daemon=True)
            demo.start()
            stack.push_async_callback(asyncio.to_thread, demo.join, DEMO_STOP_SECONDS)

    def _announce(self, addresses: list[str]) -> None:
        """Tell the version, the store and the addresses: on standard output for people, unless there is to be nothing
        but JSON; and in the log, unless people would see it twice."""
        is_printed = not (self._is_guest or self._is_silent or self.config.log.format == "json")
        is_seen = self._is_guest or (is_printed and logs_to_stderr(self.config))
        if is_seen:
            self.telemetry.for_debugging = frozenset({"server_started", "listening", "connecting"})
        self.telemetry.emit("server_started", version=VERSION, build=BUILD, store=self.store.url)
        how = "" if BUILD == "compiled" else " Python: slower than compiled (pip install . with a C compiler)"
        lines = [f"switchgear {VERSION}, {BUILD}{how}"]
        for address in addresses:
            if protocol_named(address.partition(":")[0]).is_outgoing:
                self.telemetry.emit("connecting", url=address)
                lines.append(f"connecting to {address}")
            else:
                self.telemetry.emit("listening", url=address)
                lines.append(f"listening on {address}")
        lines.append(f"keeping jobs in {self.store.url}")
        if is_printed:
            print("\n".join(lines), flush=True)

    # --- serving and stopping ---

    async def _serve(self) -> None:
        await self._stop.wait()
        if self._is_guest:
            await self._stop_as_guest()
            return
        self.listeners.stop_accepting(is_draining=True)
        seconds = self.config.drain_timeout_seconds
        if self._owners is not None:
            await self._owners.leave()
        self.manager.stopping(seconds + MOST_SILENT_SECONDS)
        self.hub.begin_turn()
        self.engine.drain()
        if not self._stop_now.is_set():
            self.telemetry.emit("server_draining", running=self.engine.running_jobs(), seconds=seconds)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._drained(), seconds)
        self.listeners.stop_accepting()
        self._give_back()
        if self._owners is not None:
            await self._owners.close()
        await self.hub.flush()  # before connections are closed: a result may be waiting for its commit
        await self._answer_waiting()

    async def _stop_as_guest(self) -> None:
        """Stop so that peers notice only a lost connection, and lose nothing that was confirmed to them.

        While running jobs may finish, all peers are served as usual, except that no job is started.
        """
        if self._dashboard is not None:
            self._dashboard.close()
        self.hub.begin_turn()
        self.engine.stop_handing_out()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drained(), self.config.drain_timeout_seconds)
        self.listeners.stop_accepting()
        self.hub.begin_turn()
        self.engine.drain()
        self._give_back()
        self.listeners.stop_listening_to_peers()
        await self.hub.flush()
        await self.listeners.hang_up(GOODBYE_SECONDS)

    async def _drained(self) -> None:
        """Wait until no job runs, or until a second signal."""
        while self.engine.running_jobs() and not self._stop_now.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop_now.wait(), DRAIN_LOOK_SECONDS)

    async def _answer_waiting(self) -> None:
        """Answer requests that wait, and those whose answers are being read from the store."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                self.hub.begin_turn()
                while self.listeners.answer_waiting():
                    await asyncio.sleep(ANSWER_LOOK_SECONDS)
                    self.hub.begin_turn()
        await self.hub.flush()

    def _give_back(self) -> None:
        """Release jobs that still run, for the next server. The attempt does not count."""
        running = self.engine.running_jobs()
        if running:
            if not self._is_guest:  # the next embedded server restores and runs them anyway
                log.warning("%d jobs still run; they return to their queues", running)
            self.hub.begin_turn()
            for worker in list(self.engine.workers.values()):
                self.engine.remove_worker(worker, Cause.GIVEN_BACK)

    def request_stop(self, graceful: bool) -> None:
        """Stop at once, or when running jobs are finished. The second request stops at once."""
        if not graceful or self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    def _on_fenced(self) -> None:
        """End at once: another server owns the jobs, and may contradict whatever this one would still say."""
        if self._is_guest:
            self.request_stop(graceful=False)
        else:
            os._exit(EXIT_FENCED)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.request_stop, True)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        loop.add_signal_handler(signal.SIGUSR1, self._stop_when_idle)

    def _stop_when_idle(self) -> None:
        self._finish_all = True

    def reload(self) -> None:
        """Read the configuration again and apply the settings that can be changed while running."""
        reopen_log()
        if not self._is_serving:
            self._reloads_later = True
            return
        if self._reload is None:
            return
        self.manager.reloading()
        reload_access(self.config, self.listeners, self._owners, self.telemetry)
        try:
            self.config = reload_config(
                self.config, self._reload, self.engine, self.listeners, self.recorder, self.telemetry
            )
        finally:
            if not self._stop.is_set():
                self.manager.ready(SERVING)

    # --- periodic tasks ---

    def _drop_finished(self) -> Coroutine[Any, Any, None]:
        return drop_finished_jobs(self.hub, lambda: self.config.storage)

    async def _housekeeping(self) -> None:
        loop = asyncio.get_running_loop()
        has_stood_still = False
        while True:
            due = loop.time() + HOUSEKEEPING_SECONDS
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            # What silent peers have sent while the process stood still is read first; they are looked at next time.
            has_stood_still = not has_stood_still and loop.time() > due + STANDSTILL_SECONDS
            try:
                self.hub.follow_wall_clock()
                self.hub.check_store()
                if not has_stood_still:
                    self.listeners.look_after()
                self.operations.series_recorder.look_after()
            except Exception:
                log.exception("internal error while checking connections")  # continue with the next check
            if self._finish_all and not self.engine.job_count():
                self.request_stop(graceful=True)

    async def _beat(self) -> None:
        """Tell the watchdog that the server is well: the event loop turns, or else nothing would be told, and the store
        works and does not hang."""
        seconds = self.manager.beat_seconds
        while seconds:
            if self.hub.storage_error is None and self.hub.commits.running_seconds < seconds:
                self.manager.beat()
            await asyncio.sleep(seconds)


async def cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
