"""A whole server in memory, for scripts: the real hub, engine, listeners, TCP connections and sessions.

Only what is outside the process is missing: sockets, the clock and the disk.  A `FakeTransport` stands for the socket
of a TCP connection, with the flow control of one; `MessageWire` for a ROUTER socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.net.harness import ScriptedStore

from fuzz.access import REDACTION, guarded_access
from fuzz.loop import StillLoop, quiet
from fuzz.row_targets import as_read
from fuzz.target import must
from switchgear.access.identities import OPEN_ACCESS
from switchgear.config import Config, GearmanConfig, LimitsConfig, ListenUrl, ZeromqConfig
from switchgear.engine.engine import Engine, EngineSettings
from switchgear.model import FINAL_STATES, Function, Job, Schedule
from switchgear.net.connections.tcp_connection import Connection
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.connections.zmtp_listener import ZmtpListener
from switchgear.net.hub import Hub
from switchgear.net.listeners import Listeners
from switchgear.net.operations.dispatcher import Operations
from switchgear.protocols.gearman.listener import GearmanSessionFactory
from switchgear.protocols.gearmonkey.listener import GearMonkeySessionFactory
from switchgear.protocols.http.listener import HttpSessionFactory
from switchgear.protocols.message_session import MessageSession
from switchgear.protocols.multipart import Message
from switchgear.protocols.transport import PeerTransport
from switchgear.storage.base import Store
from switchgear.storage.memory import MemoryStore
from switchgear.storage.sqlite_rows import clamped, job_from_row, job_row
from switchgear.telemetry import Telemetry
from switchgear.testing import FakeClock, check_engine

__all__ = ["FuzzServer", "MessagePeer", "StreamPeer"]

PREFIX: Final = "H:t"  # as in the transcripts that seeds are made from
PACKET_BYTES: Final = 3_000
LIMITS: Final = LimitsConfig(
    packet_bytes=PACKET_BYTES,
    name_bytes=64,
    text_line_bytes=256,
    slow_reader_bytes=100_000,
    connections=50,
    keepalive_idle_seconds=0,
)
URLS: Final = {
    "gearman": ListenUrl.parse("gearman://127.0.0.1:4730"),
    "gearmonkey": ListenUrl.parse("gearmonkey://127.0.0.1:6380"),
    "wmp": ListenUrl.parse("wmp://127.0.0.1:5714?identity=manager-1&timeout=5"),
    "pingpong": ListenUrl.parse("pingpong://127.0.0.1:5562?expire=2&resend=4"),
    "dwork": ListenUrl.parse("dwork://127.0.0.1:6125?lease=10"),
    "http": ListenUrl.parse("http://127.0.0.1:4740"),
    "gearmand-http": ListenUrl.parse("http://127.0.0.1:8080?api=gearmand"),
}
CONFIG: Final = Config(listen=tuple(URLS.values()), limits=LIMITS, gearman=GearmanConfig(shutdown="never"))
HIGH_WATER_BYTES: Final = 65_536  # when a transport asks for a pause
MEMORY_BYTES: Final = 400_000
HURRIED_TURNS: Final = 2
KEPT_SECONDS: Final = 120.0  # longer than the server keeps what nobody watches any more
# No script of some kilobytes has more to say; a peer that makes the server say more has found a way to multiply.
MOST_OUTPUT_BYTES: Final = 4_000_000


class FakeTransport:
    """The socket of a connection, and the peer behind it, who may stop reading."""

    def __init__(self, loop: StillLoop, port: int) -> None:
        self._loop = loop
        self._port = port
        self.written = bytearray()
        self.unread_bytes = 0  # while the peer does not read
        self.peer_reads = True
        self.reads = True  # the server reads what comes
        self.is_closed = False
        self.has_ended = False  # the server will write no more
        self.connection: Connection
        self._has_paused = False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", self._port), "sockname": ("127.0.0.1", 4730), "socket": self}.get(name)

    def fileno(self) -> int:
        return self._port

    def write(self, data: bytes) -> None:
        must(isinstance(data, bytes), "something else than bytes is written", data)
        must(not self.has_ended, "written to after its end", data)
        if self.is_closed:
            return
        self.written += data
        must(len(self.written) <= MOST_OUTPUT_BYTES, "output without bound")
        if not self.peer_reads:
            self.unread_bytes += len(data)
            if self.unread_bytes > HIGH_WATER_BYTES and not self._has_paused:
                self._has_paused = True
                self.connection.pause_writing()

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def read_again(self) -> None:
        """The peer takes everything."""
        self.peer_reads = True
        self.unread_bytes = 0
        if self._has_paused:
            self._has_paused = False
            self.connection.resume_writing()

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._loop.call_soon(self.connection.connection_lost, None)


class StreamPeer:
    """Somebody who connects over TCP, and again after having been hung up on."""

    def __init__(self, server: FuzzServer, listener: TcpListener, number: int) -> None:
        self.server = server
        self.listener = listener
        self.port = 40_000 + 100 * number
        self.heard: list[bytes] = []  # on each of its connections
        self.transport: FakeTransport | None = None
        self._unread: list[bytes] = []  # sent, and not read by the server yet

    def _connected(self) -> FakeTransport:
        if self.transport is None:
            self.port += 1
            transport: Any = FakeTransport(self.server.loop, self.port)
            transport.connection = Connection(self.listener)
            self.transport = transport
            transport.connection.connection_made(transport)
        assert self.transport is not None
        return self.transport

    async def send(self, pieces: list[bytes]) -> None:
        self._unread += pieces
        transport = self._connected()
        while self._unread and not transport.is_closed:
            if not transport.reads:
                return  # the rest when the server reads again
            transport.connection.data_received(self._unread.pop(0))
            self.server.note_deadline()
            await self.server.settle()
        self.server.has_hung_up |= transport.is_closed or transport.has_ended
        self.look()

    async def stop_sending(self) -> None:
        if self.transport is not None and not self._unread:
            self.transport.connection.eof_received()
            await self.server.settle()
        self.look()

    async def leave(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            await self.server.settle()
        self.look()

    async def toggle_reading(self) -> None:
        transport = self._connected()
        if transport.peer_reads:
            transport.peer_reads = False
        else:
            transport.read_again()
            await self.server.settle()
            await self.send([])

    def look(self) -> None:
        """Note what was heard on a connection that is over."""
        transport = self.transport
        if transport is not None and transport.is_closed:
            self.heard.append(bytes(transport.written))
            self.transport = None
            self._unread = []

    def everything_heard(self) -> list[bytes]:
        return [*self.heard, *([bytes(self.transport.written)] if self.transport is not None else [])]


class MessageWire(PeerTransport):
    """A ROUTER socket and the peers behind it, some of whom cannot be reached."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.host = "zeromq"
        self.gone: set[bytes] = set()
        self.heard: dict[bytes, list[Message]] = {}
        self.owner: MessageSession | None = None

    def write(self, out: list[Any]) -> None:
        for message in out:
            must(len(message) > 1 and all(type(frame) is bytes for frame in message), "no message", message)
            identity = message[0]
            if identity in self.gone:
                self._hub.soon(lambda message=message: self._return(message))  # type: ignore[misc]
            else:
                self.heard.setdefault(identity, []).append(list(message[1:]))

    def _return(self, message: Message) -> None:
        assert self.owner is not None
        self.owner.unreachable(message)

    def close(self) -> None:
        raise AssertionError("a session does not close a socket that others talk to as well")


class MessagePeer:
    """Somebody who sends messages to a ROUTER socket."""

    def __init__(self, server: FuzzServer, session: MessageSession, number: int) -> None:
        self.server = server
        self.session = session
        self.identity = b"p%d" % number
        assert isinstance(session.transport, MessageWire)
        self.wire = session.transport

    async def send(self, messages: list[Message]) -> None:
        """In one turn."""
        self.server.hub.begin_turn()
        for frames in messages:
            if frames:
                self.session.receive_message([self.identity, *frames])
        await self.server.settle()

    async def stop_sending(self) -> None:
        """Nobody notices that of a peer on ZeroMQ."""

    async def leave(self) -> None:
        """The peer cannot be reached, or can be again."""
        self.wire.gone ^= {self.identity}

    async def toggle_reading(self) -> None:
        await self.leave()

    def everything_heard(self) -> list[Message]:
        return self.wire.heard.get(self.identity, [])


class FuzzStore(ScriptedStore):
    """A durable store whose commits end when a script says so.  Finished jobs are kept as rows have them."""

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        jobs = list(jobs)
        for job in jobs:
            if job.state in FINAL_STATES:
                kept = job_from_row(as_read(clamped(job_row(job, 1))), job.function)
                kept.payload = job.payload
                self.log[job.id] = kept
        ended = [job for job in jobs if job.state in FINAL_STATES]
        self.staged |= {job.id: (job.state.name, job.payload or self.payloads.get(job.id)) for job in ended}
        super().stage([job for job in jobs if job.state not in FINAL_STATES], functions, next_job_id, schedules)


class FuzzServer:
    """All parts, connected.  To be made within a running `StillLoop`."""

    def __init__(self, loop: StillLoop, *, keeps: bool, has_little_memory: bool, is_hurried: bool) -> None:
        self.loop = loop
        self.has_been_due = False
        self.has_hung_up = False  # because of what a peer has sent
        self.is_hurried = is_hurried  # steps follow each other while long requests are still being worked off
        self.functions: set[bytes] = set()  # for which there were jobs
        self.clock = FakeClock()
        self.telemetry = Telemetry(loop.time)
        settings = EngineSettings(
            attempts=2,
            functions=40,
            jobs=300,
            schedules=10,
            warning_bytes=500,
            collected_bytes=5_000,
            memory_bytes=MEMORY_BYTES if has_little_memory else 0,
        )
        self.engine = Engine(settings, self.telemetry)
        self.store: Store = FuzzStore() if keeps else MemoryStore(keep_count=100, keep_bytes=100_000)
        self.hub = Hub(self.engine, self.store, self.clock, self.telemetry, 20_000)
        operations = Operations(self.hub, f"{PREFIX}:")
        self.hub.operator = operations.in_steps
        self.listeners = Listeners(CONFIG, self.hub, PREFIX)
        http = self.listeners.factory("http")
        assert isinstance(http, HttpSessionFactory)
        self._http = http
        self.http_workers = http.state.workers
        self.http_workers.run = operations.bulk.run = "fuzz"  # so that ids are always the same
        self._listeners: dict[str, TcpListener] = {}
        self._sessions: dict[str, MessageSession] = {}

    async def settle(self) -> None:
        """Let the server do what is to be done, or some of it."""
        if self.is_hurried:
            for _ in range(HURRIED_TURNS):
                await asyncio.sleep(0)
        else:
            await quiet(self.loop)

    def note_deadline(self) -> None:
        """Note whether something is due at once: it happens between this piece of a stream and the next."""
        due_us = self.engine.next_deadline_us
        if due_us is not None and due_us <= self.clock.now_us():
            self.has_been_due = True

    async def open(self) -> None:
        await self.hub.load()
        await quiet(self.loop)
        if self.is_hurried:
            self.hub.long_operations.steps_per_turn = 1
        if isinstance(self.store, ScriptedStore):
            self.store.obedient = False

    def peer(self, where: str, number: int) -> StreamPeer | MessagePeer:
        """Somebody at this listener: the scheme of its URL, for PING/PONG with `/clients` or `/workers` behind it; or
        `zmtp`, for one that speaks ZMTP byte by byte to the listener of dwork.  With `/access` behind the scheme, the
        listener demands identities."""
        scheme, _, kind = where.partition("/")
        if scheme == "zmtp":
            return StreamPeer(self, self._zmtp_listener(), number)
        if scheme in ("gearman", "gearmonkey", "http", "gearmand-http"):
            listener = self._listeners.get(where)
            if listener is None:
                url = URLS[scheme]
                make = self.listeners.tcp_sessions(url)
                access = guarded_access() if kind == "access" else OPEN_ACCESS
                if where == "http/access":
                    self._http.setups[-1].use_redaction(REDACTION)
                listener = self._listeners[where] = TcpListener(
                    url, self.hub, LIMITS, make, self.listeners.tcp_listeners, access
                )
                self.listeners.tcp_listeners.append(listener)
            return StreamPeer(self, listener, number)
        if where not in self._sessions:
            makers = [each.make_session for each in self.listeners.zeromq_sockets(URLS[scheme])]
            names = [where] if len(makers) == 1 else [f"{scheme}/clients", f"{scheme}/workers"]
            for name, make_session in zip(names, makers):
                wire = MessageWire(self.hub)
                self._sessions[name] = wire.owner = make_session(self.hub, wire)
        return MessagePeer(self, self._sessions[where], number)

    def _zmtp_listener(self) -> TcpListener:
        listener = self._listeners.get("zmtp")
        if listener is None:
            url = URLS["dwork"]
            (make,) = [each.make_session for each in self.listeners.zeromq_sockets(url)]
            listeners = self.listeners.tcp_listeners
            listener = ZmtpListener(url, self.hub, LIMITS, make, ZeromqConfig(), listeners=listeners)
            self._listeners["zmtp"] = listener
            self._sessions["zmtp"] = listener.router.messages
            listeners.append(listener)
        return listener

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, stopping wherever something happens by itself."""
        end_us = self.clock.now_us() + round(seconds * 1e6)
        for _ in range(200):
            next_us = self.engine.next_deadline_us
            if next_us is None or next_us >= end_us:
                break
            await self._go_to(max(next_us, self.clock.now_us() + 1))
        await self._go_to(max(end_us, self.clock.now_us()))
        for listener in self._listeners.values():
            listener.look_after()
        await self.settle()

    async def _go_to(self, now_us: int) -> None:
        step_seconds = (now_us - self.clock.now_us()) / 1e6
        self.clock.advance(step_seconds)
        self.loop.now_seconds += step_seconds
        self.hub.begin_turn()
        await self.settle()

    async def set_clock(self, seconds: float) -> None:
        self.clock.set_wall_clock(seconds)
        self.hub.follow_wall_clock()
        await self.settle()

    async def end_commit(self, *, well: bool) -> None:
        store = self.store
        if isinstance(store, ScriptedStore) and store.is_committing:
            if well:
                store.succeed_soon()
            else:
                store.fail_soon()
            await self.settle()

    # --- what must be true between any two steps ---

    def check(self) -> None:
        hub = self.hub
        for error in self.loop.errors:
            raise error
        unstored = {id(job): job for job in (*hub.changes.unkept, *hub.changes.in_commit, *self.engine.changed)}
        check_engine(self.engine, unstored.values())
        self.functions |= {job.function.name for job in self.engine.jobs.values()}
        self._check_memory()
        for listener in self._listeners.values():
            for connection in listener.connections:
                self._check_connection(connection)

    def _check_memory(self) -> None:
        memory = self.engine.memory
        connections = [connection for listener in self._listeners.values() for connection in listener.connections]
        counted = sum(connection.input_bytes for connection in connections)
        is_working = bool(self.hub.long_operations) or any(
            getattr(each, "_behind", None) for each in self._sessions.values()
        )
        must(is_working or memory.input_bytes == counted, "input is counted wrongly", memory.input_bytes, counted)
        counted = sum(connection.output_bytes for connection in connections)
        must(memory.output_bytes == counted, "output is counted wrongly", memory.output_bytes, counted)
        for name in ("job_bytes", "history_bytes", "draft_bytes", "subscription_bytes"):
            must(getattr(memory, name) >= 0, f"{name} is below zero", getattr(memory, name))

    def _check_connection(self, connection: Connection) -> None:
        session = connection.session
        if session is None:
            return
        must(session.buffered_bytes <= 4 * PACKET_BYTES + 70_000, "too much is held", session.buffered_bytes)
        must(session.marked == (session in self.hub.marked), "marked, and not in the list")

    async def check_end(self) -> None:
        """Everybody is gone: nothing is held for anybody."""
        await quiet(self.loop)
        memory = self.engine.memory
        listeners = self.listeners
        gearman, gearmonkey = listeners.factories.get("gearman"), listeners.factories.get("gearmonkey")
        if isinstance(gearman, GearmanSessionFactory):
            must(not gearman.gearman.sessions, "sessions of those who left are listed")
        if isinstance(gearmonkey, GearMonkeySessionFactory):
            must(not gearmonkey.setup.sessions, "GearMonkey sessions of those who left are listed")
        must(
            not any(listener.connections for listener in self._listeners.values()),
            "connections of those who left are listed",
        )
        must(memory.output_bytes == 0, "output is held for nobody", memory.output_bytes)
        if memory.subscription_bytes:  # what was watched is kept for a moment, for viewers that come back
            await self.pass_time(KEPT_SECONDS)
            await quiet(self.loop)
        must(memory.subscription_bytes == 0, "subscriptions of nobody", memory.subscription_bytes)
        if not self.hub.long_operations:
            must(memory.input_bytes == 0, "input is held of nobody", memory.input_bytes)
        own = {"gearman", "gearman-draft"}
        left = [worker for worker in self.engine.workers.values() if worker.protocol in own]
        must(not left, "workers that are gone", left)
        workers = self.http_workers
        known = {*workers.by_id.values(), *(peer for peer, _ in workers.by_job.values())}
        must(all(peer.session is None for peer in known), "HTTP workers that wait for nobody")
        must(all(peer.worker is not None for peer in known), "HTTP workers that the engine does not have")
        self.check()


class _Defects(logging.Handler):
    """Notes the exceptions that the server has caught and logged: there must be none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(record.exc_info[1])


@contextmanager
def caught_defects() -> Iterator[Callable[[], None]]:
    """Within this, nothing is logged; what is yielded raises the first exception that the server has caught."""
    log = logging.getLogger("switchgear")
    level, propagates = log.level, log.propagate
    handler = _Defects()
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False

    def raise_first() -> None:
        if handler.errors:
            raise handler.errors[0]

    try:
        yield raise_first
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagates


_loop: StillLoop | None = None


def fuzz_loop() -> StillLoop:
    """The loop of this process; making one takes longer than most scripts."""
    global _loop
    if _loop is None or _loop.is_closed():
        _loop = StillLoop()
    for name in ("_ready", "_scheduled"):
        getattr(_loop, name).clear()  # what an earlier server has left
    _loop.errors.clear()
    _loop.now_seconds = 1000.0
    return _loop


def in_loop(main: Callable[[StillLoop], Any]) -> Any:
    """Run a coroutine that is made with the loop."""
    loop = fuzz_loop()
    try:
        return loop.run(main(loop))
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
