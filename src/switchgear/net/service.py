"""The server from start to stop: open the store, listen, serve, drain, leave.

Signals.  SIGTERM and SIGINT drain: no new connection, submission or hand-out; running jobs may finish until the
drain timeout; a second one stops at once.  SIGHUP reloads the configuration and reopens the log file.  SIGUSR1
serves on until no job is left.

A guest.  The same server may live in a thread of somebody else's program, which has signals, output and garbage of its
own.  When it stops, another server takes over within moments; so it refuses nobody but hangs up, and whoever it hangs
up on finds the other one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import cast

from switchgear.config import Config, changed_but_not_reloadable, reloaded
from switchgear.engine.dispatch import WakePolicy
from switchgear.engine.engine import Engine, EngineSettings
from switchgear.errors import ConfigError, StorageError
from switchgear.model import SECOND_US, Cause
from switchgear.net.clock import SystemClock
from switchgear.net.hub import Hub
from switchgear.net.listeners import Listeners
from switchgear.net.operations import Operations
from switchgear.net.ownership import check_database, is_open_to_others
from switchgear.net.peer_user import can_tell_users
from switchgear.net.recording import start_recorder
from switchgear.storage.open import open_store
from switchgear.telemetry import JsonFormatter, Telemetry
from switchgear.version import BUILD, VERSION

__all__ = ["Service", "check_files", "run_server"]

log = logging.getLogger("switchgear")

DRAIN_LOOK_SECONDS = 0.02
HOUSEKEEPING_SECONDS = 1.0
RETENTION_SECONDS = 30.0
DEMO_STOP_SECONDS = 1.0  # it is not to be cut off in the middle of a line
GUEST_IDS = 1_000  # one that is started with every program should not skip many numbers each time
GOODBYE_SECONDS = 0.3  # a guest's program is not to be kept waiting by a peer that does not hang up


def run_server(
    config: Config,
    *,
    reload: Callable[[], Config] | None = None,
    demo: Callable[[list[str]], None] | None = None,
    on_listening: Callable[[], None] | None = None,
) -> int:
    """Serve until told to stop; returns the exit code.

    `on_listening` is called once everybody can connect; `demo` then gets all addresses, in a thread of its own.
    """
    configure_log(config)
    service = Service(config, reload, demo, on_listening)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(service.run())


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where there is one."""
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
    ) -> None:
        self.config = config
        self._is_guest = is_guest
        self._reload = reload
        self._demo = demo
        self._on_listening = on_listening
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._finish_all = False

    async def run(self) -> int:
        """The whole life of a server."""
        async with AsyncExitStack() as house:
            for path in databases(self.config):
                check_database(path)
            self.store = open_store(
                self.config.store_url,
                sync=self.config.storage.sync,  # type: ignore[arg-type]  # checked by the configuration
                payload_memory_bytes=self.config.storage.payload_memory_bytes,
                make_directory=is_in_state_dir(self.config),
            )
            house.push_async_callback(self.store.close)
            self.telemetry = Telemetry(asyncio.get_running_loop().time)
            for path in databases(self.config):
                if is_open_to_others(path):
                    self.telemetry.emit("directory_open", path=str(path.parent))
            self.engine = Engine(engine_settings(self.config), self.telemetry)
            self.engine.wake_policy = load_wake_policy(self.config.engine.wake_policy)
            self.hub = Hub(
                self.engine, self.store, SystemClock(), self.telemetry, self.config.storage.payload_memory_bytes
            )
            self.recorder = start_recorder(self.config, self.hub, f"{handle_prefix(self.config)}:")
            if self.recorder is not None:
                house.push_async_callback(asyncio.to_thread, self.recorder.close)
            if self._is_guest:
                self.hub.ids_at_once = GUEST_IDS
            self._connect()
            await self.hub.load()
            house.push_async_callback(self.hub.close)
            await self._listen(house)
            tasks = [asyncio.create_task(self._housekeeping()), asyncio.create_task(self._retention())]
            house.push_async_callback(cancel_all, tasks)
            await self._serve()
        self.telemetry.emit("server_stopped")
        return 0

    def _connect(self) -> None:
        """Make the parts know each other."""
        prefix = handle_prefix(self.config)
        self.operations = Operations(self.hub, f"{prefix}:")
        self.operations.recorder = self.recorder
        self.hub.operator = self.operations
        self.hub.operator_in_steps = self.operations.in_steps
        self.hub.on_stop_requested = self.request_stop
        self.listeners = Listeners(self.config, self.hub, prefix)
        self.listeners.is_guest = self._is_guest
        self.listeners.is_private = self._is_guest and can_tell_users()
        self.operations.connections = self.listeners.count_connections
        self.operations.listeners = self.listeners.describe
        self.operations.open_connections = self.listeners.open_connections

    async def _listen(self, house: AsyncExitStack) -> None:
        house.push_async_callback(self.listeners.close)
        await self.listeners.open()
        if not self._is_guest:
            self._handle_signals()
            settle_garbage()
        self.telemetry.emit("server_started", version=VERSION, build=BUILD, store=self.store.url)
        addresses = self.listeners.addresses
        for address in addresses:
            self.telemetry.emit("listening", url=address)
        if not self._is_guest:
            self._announce(addresses)
        if self._on_listening is not None:
            self._on_listening()
        if self._demo:
            demo = threading.Thread(target=self._demo, args=(list(addresses),), name="demo", daemon=True)
            demo.start()
            house.push_async_callback(asyncio.to_thread, demo.join, DEMO_STOP_SECONDS)

    def _announce(self, addresses: list[str]) -> None:
        """Tell whoever has started us."""
        how = "" if BUILD == "compiled" else " Python: slower than compiled (pip install . with a C compiler)"
        print(f"switchgear {VERSION}, {BUILD}{how}")
        for address in addresses:
            print(f"{'connecting to' if address.startswith('redis:') else 'listening on'} {address}")
        print(f"keeping jobs in {self.store.url}", flush=True)

    # --- serving and stopping ---

    async def _serve(self) -> None:
        await self._stop.wait()
        if self._is_guest:
            await self._make_way()
            return
        self.listeners.stop_accepting()
        seconds = self.config.drain_timeout_seconds
        self.hub.begin_turn()
        self.engine.drain()
        if not self._stop_now.is_set():
            self.telemetry.emit("server_draining", running=self.engine.running_jobs(), seconds=seconds)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._drained(), seconds)
        self._give_back()
        await self.hub.settle()  # before anybody is hung up on: a result may be waiting for its commit

    async def _make_way(self) -> None:
        """Stop such that the peers notice no more than a lost connection, and lose nothing that they were told.

        While running jobs may finish, everybody is served as ever, except that no job is started.
        """
        self.hub.begin_turn()
        self.engine.stop_handing_out()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drained(), self.config.drain_timeout_seconds)
        self.listeners.stop_accepting()
        self.hub.begin_turn()
        self.engine.drain()
        self._give_back()
        self.listeners.stop_listening_to_peers()
        await self.hub.settle()
        await self.listeners.hang_up(GOODBYE_SECONDS)

    async def _drained(self) -> None:
        """Until nothing runs, or a second signal says that this was long enough."""
        while self.engine.running_jobs() and not self._stop_now.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop_now.wait(), DRAIN_LOOK_SECONDS)

    def _give_back(self) -> None:
        """What still runs is for the next server.  It is not the jobs' fault, so it costs them no attempt."""
        running = self.engine.running_jobs()
        if running:
            if not self._is_guest:  # whose successor has them run again as a matter of course
                log.warning("%d jobs still run; they are given back", running)
            self.hub.begin_turn()
            for worker in list(self.engine.workers.values()):
                self.engine.remove_worker(worker, Cause.GIVEN_BACK)

    def request_stop(self, graceful: bool) -> None:
        """Stop: at once, or when what runs is finished.  Asking twice means at once."""
        if not graceful or self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.request_stop, True)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        loop.add_signal_handler(signal.SIGUSR1, self._stop_when_idle)

    def _stop_when_idle(self) -> None:
        self._finish_all = True

    def reload(self) -> None:
        """Read the configuration again and take over what can be changed while running."""
        reopen_log()
        if self._reload is None:
            return
        try:
            read = self._reload()
            new = reloaded(self.config, read)
            self.listeners.admit_clients()
            configure_log(new)
        except ConfigError as error:
            self.telemetry.emit("config_not_reloaded", reason=error)
            return
        for name in changed_but_not_reloadable(self.config, read):
            self.telemetry.emit("setting_needs_restart", name=name)
        self.config = new
        self.engine.use_settings(engine_settings(new))
        self.listeners.use_config(new)
        if self.recorder is not None:
            self.recorder.keep_seconds = new.joblog.keep_seconds
            self.recorder.keep_count = new.joblog.keep_count
        self.telemetry.emit("config_reloaded")

    # --- now and then ---

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            try:
                self.hub.follow_wall_clock()
                self.hub.check_store()
                self.listeners.look_after()
            except Exception:
                log.exception("defect in looking after connections")  # and look after them again all the same
            if self._finish_all and not self.engine.job_count():
                self.request_stop(graceful=True)

    async def _retention(self) -> None:
        """Drop finished jobs that are old enough."""
        while True:
            await asyncio.sleep(RETENTION_SECONDS)
            storage = self.config.storage
            now_us = self.hub.clock.now_us()
            before_us = now_us - int(storage.keep_finished_seconds * SECOND_US)
            spare = self.engine.graph.awaited_in_vain
            try:
                count = await self.store.drop_finished(before_us, storage.keep_finished_count, spare, now_us)
            except StorageError as error:
                log.warning("could not drop finished jobs: %s", error)
                continue
            except Exception:
                log.exception("defect in dropping finished jobs")
                continue
            if count:
                self.telemetry.emit("history_dropped", count=count)


def is_in_state_dir(config: Config) -> bool:
    """Whether the store is in the state directory, which is made; another one may be mistyped."""
    return Path(config.store_url.partition(":")[2]).parent == config.state_dir


def handle_prefix(config: Config) -> str:
    """What handles begin with, up to the last colon."""
    return config.gearman.handle_prefix or f"H:{socket.gethostname()}"


def engine_settings(config: Config) -> EngineSettings:
    return EngineSettings(
        attempts=config.engine.attempts,
        wakeups=config.engine.wakeups,
        function_order=config.engine.function_order,
        functions=config.limits.functions,
        schedules=config.limits.schedules,
        jobs=config.limits.jobs,
        jobs_per_function=config.limits.jobs_per_function,
        memory_bytes=config.limits.memory_bytes or machine_memory_bytes() // 2,
        jobs_per_worker=config.limits.jobs_per_worker,
        retention_us=int(config.storage.keep_finished_seconds * SECOND_US),
    )


def machine_memory_bytes() -> int:
    """The memory of the machine, or of the control group that this process belongs to if that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # there is no such group, or it says "max"
            sizes.append(int(Path(path).read_text()))
    return min(sizes)


def load_wake_policy(name: str) -> WakePolicy | None:
    """The operator's own choice of whom to wake, written MODULE:FUNCTION."""
    if not name:
        return None
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: a policy may lie in the directory that the server is started in
    try:
        policy = getattr(import_module(module_name), function_name)
    except Exception as error:  # whatever the operator's module raises
        raise ConfigError(f"engine.wake_policy: cannot load {name}: {type(error).__name__}: {error}") from error
    if not callable(policy):
        raise ConfigError(f"engine.wake_policy: {name} is not a function")
    return cast(WakePolicy, policy)


def check_files(config: Config) -> list[str]:
    """What is wrong with the files that a configuration names."""
    from switchgear.net.curve_keys import check_client_keys, load_server_keys

    problems = []
    checks: list[Callable[[], object]] = [lambda: load_wake_policy(config.engine.wake_policy)]
    checks += [partial(check_database, path) for path in databases(config)]
    if config.zeromq.curve_key_file:
        checks.append(lambda: load_server_keys(config.zeromq))
    if config.zeromq.curve_clients_dir:
        checks.append(lambda: check_client_keys(config.zeromq))
    for check in checks:
        try:
            check()
        except ConfigError as error:
            problems.append(str(error))
    return problems


def databases(config: Config) -> list[Path]:
    """The files that a configuration names for jobs and the job log."""
    urls = (config.store_url, config.joblog_url)
    return [Path(url.removeprefix("sqlite:")) for url in urls if url.startswith("sqlite:")]


async def cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def settle_garbage() -> None:
    """What exists now lives as long as the server: never look at it again.  Jobs make no cycles, so collecting is
    only for what connections leave behind; a collection of everything would stop the server for as long as it takes to
    visit every queued job."""
    gc.collect()
    gc.freeze()
    # Compiled, jobs are not even counted.  Uncompiled, a look at 100,000 new objects takes some milliseconds, and no
    # one need wait longer than that.  What survives is looked at again after fifty such looks, so that whatever closed
    # connections leave behind goes, and the oldest hardly ever.
    gc.set_threshold(100_000, 50, 1_000)


def configure_log(config: Config) -> None:
    """Send the log where it should go, in place of where it went before."""
    handler: logging.Handler
    if config.log.file == "none":
        handler = logging.NullHandler()
    elif config.log.file and config.log.file != "stderr":
        try:
            handler = WatchedFileHandler(config.log.file, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"log.file: cannot write {config.log.file}: {error.strerror}") from error
    else:
        handler = logging.StreamHandler(sys.stderr)
    if config.log.format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    root = logging.getLogger("switchgear")
    for old in list(root.handlers):
        if isinstance(old, (logging.StreamHandler, logging.NullHandler)):
            root.removeHandler(old)
            old.close()
    root.addHandler(handler)
    logging.raiseExceptions = False  # a full disk: a lost line must not become a traceback
    root.setLevel(config.log.level.upper())
    root.propagate = False


def reopen_log() -> None:
    for handler in logging.getLogger("switchgear").handlers:
        if isinstance(handler, WatchedFileHandler):
            handler.reopenIfNeeded()
