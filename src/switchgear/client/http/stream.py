"""`HttpStream`: connects a Gearman core to an HTTP server; the core uses it like a TCP transport.

Requests are made side by side, each on a connection of its own.  One that does no harm if it is made twice is repeated
if nobody answers: for some seconds, or as long as jobs go on that will have to be reported.  When a request fails for
good, the stream ends as a lost connection does, and its owner connects again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from switchgear.backoff import ReconnectBackoff, RetryPauses
from switchgear.client.address import HttpServerAddress
from switchgear.client.http.answers import HttpAnswer
from switchgear.client.http.connection_pool import HttpConnectionPool, NoAnswer
from switchgear.client.http.exchange import HttpExchange, request_start
from switchgear.client.http.packet_translator import PacketTranslator
from switchgear.client.sockets import CONNECT_SECONDS, is_certificate_error
from switchgear.errors import PeerError, ServerUnreachable

__all__ = ["HttpStream"]

ANSWER_SECONDS: Final = 30.0  # for a request that does not wait for a job, or beyond its wait
REPEAT_SECONDS: Final = 5.0  # how long a request is repeated, if no job goes on
FAREWELL_SECONDS: Final = 2.0
MOST_REQUESTS: Final = 8  # at once, beside those that wait
_BACKOFF: Final = ReconnectBackoff(first_seconds=0.05, most_seconds=1.0)

_log = logging.getLogger("switchgear.client")


class HttpStream(asyncio.Transport):
    """The transport of a Gearman protocol whose server is reached over HTTP."""

    def __init__(self, protocol: asyncio.Protocol, address: HttpServerAddress) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._address = address
        self._start = request_start(address.path, address.host_header, address.token)
        self._translator = PacketTranslator(str(address))
        self._pool = HttpConnectionPool(address, CONNECT_SECONDS)
        self._free = asyncio.Semaphore(MOST_REQUESTS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reports: set[asyncio.Task[None]] = set()  # those that report on jobs
        self._is_closing = False
        self._farewell: asyncio.Task[None] | None = None
        self._is_unreachable = False  # it was logged

    @classmethod
    async def open(cls, factory: Callable[[], asyncio.Protocol], address: HttpServerAddress) -> HttpStream:
        """Connect a protocol to a server; raises ServerUnreachable, or ConfigError."""
        stream = cls(factory(), address)
        try:
            await stream._greet()
        except BaseException:
            stream._pool.close()
            raise
        stream._protocol.connection_made(stream)
        return stream

    async def _greet(self) -> None:
        """Ask who we are: so the server is there, speaks our HTTP, and accepts the token."""
        exchange = HttpExchange("GET", "/v1/session", on_answer=_ignore)
        try:
            answer = await self._pool.request(exchange.encode(self._start), CONNECT_SECONDS)
        except NoAnswer as problem:
            is_lasting = problem.__cause__ is not None and is_certificate_error(problem.__cause__)
            text = f"cannot connect to {self._address}: {_without_prefix(problem)}"
            raise ServerUnreachable(text, is_lasting=is_lasting) from problem
        obstacle = answer.obstacle()
        if obstacle:
            raise ServerUnreachable(f"{self._address}: {obstacle}")
        told = answer.problem()
        if told is not None and told[0] == "invalid_token":
            text = f"{self._address}: the server does not accept the token: {told[1]}"
            raise ServerUnreachable(text, is_lasting=True)
        if told is not None:
            raise ServerUnreachable(f"{self._address}: {told[1]}")
        try:
            is_ours = answer.is_good and "roles" in answer.json()
        except (PeerError, TypeError):
            is_ours = False
        if not is_ours:
            words = f"it answered GET /v1/session with {answer.words}"
            raise ServerUnreachable(f"{self._address} is not the HTTP interface of a Switchgear server: {words}")

    # --- asyncio.Transport ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        try:
            self._translator.receive(bytes(data))
        except PeerError as error:
            self._lose(str(error))
            return
        self._go_on()

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._end(None, is_abrupt=False)

    def abort(self) -> None:
        self._end(None)

    async def wait_closed(self) -> None:
        """Wait, but not for long, until the server knows that a worker has left."""
        if self._farewell is not None:
            await asyncio.wait({self._farewell}, timeout=FAREWELL_SECONDS)

    # --- requests ---

    def _go_on(self) -> None:
        """Make the requests of the translator, and pass its packets to the core."""
        for exchange in self._translator.take_exchanges():
            if self._is_closing and not exchange.attempt:
                continue
            task = self._loop.create_task(self._run(exchange))
            tasks = self._reports if exchange.attempt else self._tasks
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        data = self._translator.take_output()
        if data:
            self._loop.call_soon(self._pass_on, data)

    def _pass_on(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)

    async def _run(self, exchange: HttpExchange) -> None:
        if exchange.delay_seconds:
            await asyncio.sleep(exchange.delay_seconds)
        try:
            if exchange.wait_seconds:
                answer = await self._answered(exchange)
            else:
                async with self._free:
                    answer = await self._answered(exchange)
        except NoAnswer as problem:
            if not self._translator.on_failed(exchange):
                self._lose(_without_prefix(problem))
            self._go_on()
            return
        self._note_reachable()
        try:
            self._translator.on_answer(exchange, answer)
        except PeerError as error:
            self._lose(str(error))
            return
        self._go_on()

    async def _answered(self, exchange: HttpExchange) -> HttpAnswer:
        """The answer to a request, which is repeated while that makes sense; raises NoAnswer."""
        pauses = RetryPauses(_BACKOFF)
        give_up_at = self._loop.time() + REPEAT_SECONDS
        while True:
            exchange.tries += 1
            try:
                answer = await self._pool.request(exchange.encode(self._start), ANSWER_SECONDS + exchange.wait_seconds)
                obstacle = answer.obstacle()
                if not obstacle:
                    return answer
                problem = NoAnswer(obstacle, was_sent=True)
            except NoAnswer as failed:
                problem = failed
            if problem.was_sent and not exchange.is_repeatable:
                raise problem
            has_jobs = self._translator.worker.has_jobs
            if not has_jobs and not problem.is_stale and self._loop.time() >= give_up_at:
                raise problem
            if has_jobs:
                self._note_unreachable(problem)
            if not problem.is_stale:
                await asyncio.sleep(pauses.next_seconds())
            if exchange.on_repeat is not None:
                exchange.on_repeat()

    def _note_unreachable(self, problem: NoAnswer) -> None:
        if not self._is_unreachable:
            self._is_unreachable = True
            _log.warning("%s: %s; jobs go on, and are reported when it is back", self._address, problem)

    def _note_reachable(self) -> None:
        if self._is_unreachable:
            self._is_unreachable = False
            _log.info("%s is back", self._address)

    # --- the end ---

    def _lose(self, problem: str) -> None:
        self._end(ServerLost(problem))

    def _end(self, error: Exception | None, *, is_abrupt: bool = True) -> None:
        """`is_abrupt`: reports that are on their way do not matter."""
        if self._is_closing:
            return
        self._is_closing = True
        for task in (*self._tasks, *(self._reports if is_abrupt else ())):
            if task is not asyncio.current_task():
                task.cancel()
        exchanges = self._translator.worker.farewell()
        if not is_abrupt:
            self._go_on()
        if (exchanges or self._reports) and not self._loop.is_closed():
            self._farewell = self._loop.create_task(self._say_farewell(exchanges))
        else:
            self._pool.close()
        self._loop.call_soon(self._protocol.connection_lost, error)

    async def _say_farewell(self, exchanges: list[HttpExchange]) -> None:
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                while self._reports:
                    await asyncio.wait(self._reports)
                for exchange in exchanges:
                    await self._pool.request(exchange.encode(self._start), FAREWELL_SECONDS)
        except (NoAnswer, TimeoutError):
            _log.debug("%s was not told that the worker has left", self._address)
        finally:
            for task in self._reports:
                task.cancel()
            self._pool.close()


class ServerLost(OSError):
    """The connection of an event stream has ended; the text says why."""


def _ignore(answer: HttpAnswer) -> None:
    pass


def _without_prefix(problem: NoAnswer) -> str:
    return str(problem).removeprefix("cannot connect: ")
