"""One place, and the connection to the server there while there is one."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable
from typing import Final, cast

from switchgear.app.client_protocol import AppProtocol, AppRequest, ControlRequest, SubscribeRequest
from switchgear.app.job_updates import UNKNOWN, End, JobSubscriber
from switchgear.app.server_locations import FixedLocation, ServerLocation
from switchgear.client.address import ServerAddress
from switchgear.client.connection import DEFAULT_TIMEOUT_SECONDS, keep_alive, words_of
from switchgear.errors import ConfigError, ExtensionRequired, ServerRefused, ServerUnreachable
from switchgear.text import counted

__all__ = ["ServerConnection"]

_FIRST_PAUSE_SECONDS: Final = 0.05
_MOST_PAUSE_SECONDS: Final = 5.0
# A server that was asked something, and neither answers nor takes what is sent for so long, is not there any more.
SILENCE_SECONDS: Final = 30.0

_log = logging.getLogger("switchgear.app")


class ServerConnection:
    """Connects when it is told to, and again by itself while somebody follows a job of its server."""

    def __init__(
        self,
        number: int,
        place: ServerLocation,
        on_ready: Callable[[], None],
        check_prefix: Callable[[ServerConnection, str], None] | None = None,
    ) -> None:
        """`check_prefix` may refuse what the server's handles begin with; without it, that is not asked for."""
        self.number = number
        self.place = place
        self.prefix: str | None = None  # what handles of its jobs begin with, once known; empty: a plain server
        self._check_prefix = check_prefix
        self._on_ready = on_ready
        self._wire: ServerStream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None
        self._lost_followers: list[tuple[bytes, JobSubscriber]] = []
        self._is_closed = False

    @property
    def is_ready(self) -> bool:
        """Whether questions can be put now."""
        return self._wire is not None and self._wire.conversation.is_ready

    def put(self, question: AppRequest) -> None:
        """Ask this; `flush` sends it.  Raises ExtensionRequired."""
        assert self._wire is not None
        self._wire.conversation.place = self.number
        question.put(self._wire.conversation)

    def flush(self) -> None:
        """Send what was asked."""
        if self._wire is not None:
            self._wire.flush()

    def close(self, error: ServerUnreachable) -> None:
        """Hang up for good."""
        self._is_closed = True
        for task in (self._connecting, self._returning):
            if task is not None:
                task.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.abandon()
            wire.conversation.lose(error)
        for _, follower in self._lost_followers:
            follower.give_up(error)
        self._lost_followers.clear()

    # --- connecting ---

    async def connect(self) -> None:
        """Returns when questions can be put; raises ServerUnreachable, or ConfigError if the prefix is refused.

        Whoever asks at once shares one attempt.
        """
        if self.is_ready:
            return
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(_look_at)  # whoever waited may have left
        await asyncio.shield(self._connecting)

    async def _connect(self) -> None:
        address = await self._address()
        loop = asyncio.get_running_loop()
        wire = ServerStream(str(address), self._lost)
        try:
            async with asyncio.timeout(DEFAULT_TIMEOUT_SECONDS):
                await loop.create_connection(lambda: wire, address.host, address.port)
                await wire.greeted
                if self._check_prefix is not None:
                    await self._learn_prefix(wire, self._check_prefix)
        except (OSError, UnicodeError) as error:  # a TimeoutError is an OSError
            wire.abandon()
            raise ServerUnreachable(f"cannot connect to {address}: {words_of(error)}") from error
        except BaseException:
            wire.abandon()
            raise
        if wire.problem is not None:  # it was there for a moment
            raise wire.problem
        self._wire = wire
        self._follow_again()
        self._on_ready()
        wire.flush()

    async def _learn_prefix(self, wire: ServerStream, check: Callable[[ServerConnection, str], None]) -> None:
        prefix = ""
        if wire.conversation.is_switchgear:
            question = ControlRequest("server", {})
            question.put(wire.conversation)
            wire.flush()
            try:
                prefix = str((await asyncio.wrap_future(question.future))["handle_prefix"])
            except (ServerRefused, KeyError) as error:
                raise ServerUnreachable(f"{self.place.url} does not tell its gearman.handle_prefix: {error}") from error
        check(self, prefix)
        self.prefix = prefix

    async def _address(self) -> ServerAddress:
        if isinstance(self.place, FixedLocation):
            return self.place.address()
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self.place.address)
        except ServerUnreachable:
            raise
        except Exception as error:  # whatever it is: somebody waits for an answer, and has to be told
            raise ServerUnreachable(f"{self.place.url}: {error or type(error).__name__}") from error

    # --- after a cut ---

    def _lost(self, wire: ServerStream, error: ServerUnreachable) -> None:
        """The connection is over."""
        if self._wire is not wire:
            wire.conversation.lose(error)
            return
        self._wire = None
        followers = wire.conversation.take_followers()
        wire.conversation.lose(error)
        for handle, follower in followers:
            if isinstance(follower, JobSubscriber) and follower.survives_cuts and not self._is_closed:
                self._lost_followers.append((handle, follower))
            else:
                follower.lose(error)
        if self._lost_followers and not self._is_closed:
            _log.warning("%s; %s followed again when it is back", error, _jobs_are(len(self._lost_followers)))
            self._returning = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        """Connect again, however long it takes: somebody waits for what the server has kept."""
        pause = _FIRST_PAUSE_SECONDS
        while not self.is_ready and not self._is_closed:
            try:
                await self.connect()
            except ServerUnreachable as error:
                _log.debug("%s", error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _MOST_PAUSE_SECONDS)
            except ConfigError as error:  # another server is there now, and its jobs would be taken for these
                followers, self._lost_followers = self._lost_followers, []
                for _, follower in followers:
                    follower.give_up(error)
                return

    def _follow_again(self) -> None:
        followers, self._lost_followers = self._lost_followers, []
        if followers:
            _log.info("%s is back; %s followed again", self.place.url, _jobs_are(len(followers)))
        for handle, follower in followers:
            question = SubscribeAgainRequest(handle.decode(errors="surrogateescape"), follower, self._lost_followers)
            try:
                self.put(question)
            except ExtensionRequired as error:
                question.fail(error)


def _jobs_are(number: int) -> str:
    return f"{counted(number, 'job')} {'is' if number == 1 else 'are'}"


def _look_at(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


class SubscribeAgainRequest(SubscribeRequest):
    """Follow a job again, after a cut."""

    def __init__(self, handle: str, follower: JobSubscriber, lost_again: list[tuple[bytes, JobSubscriber]]) -> None:
        super().__init__(handle, follower)
        self._lost_again = lost_again

    def succeed(self, value: str) -> None:
        if value == UNKNOWN:
            self.follower.end(End(UNKNOWN))

    def fail(self, error: Exception) -> None:
        self.follower.give_up(error)

    def lose(self, error: ServerUnreachable) -> None:
        self._lost_again.append((self.handle.encode(errors="surrogateescape"), self.follower))


class ServerStream(asyncio.Protocol):
    """A connection: bytes in, bytes out."""

    def __init__(self, server: str, on_lost: Callable[[ServerStream, ServerUnreachable], None]) -> None:
        self.server = server
        self.conversation = AppProtocol(server, self._on_greeted)
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self.problem: ServerUnreachable | None = None  # why the connection is over
        self._listening: asyncio.TimerHandle | None = None  # for a sign of life, while there are questions
        self._has_heard = False  # since then
        self._unsent_bytes = 0  # at that time

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of another class
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock)
        self.conversation.greet()
        self.flush()

    def _on_greeted(self) -> None:
        if not self.greeted.done():
            self.greeted.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        try:
            self.conversation.receive(data)
        except ServerUnreachable as error:
            self.problem = ServerUnreachable(f"{self.server}: {error}")
            self.abandon()

    def flush(self) -> None:
        """Send what the conversation has to say."""
        if self.conversation.outgoing and self._transport is not None:
            self._transport.write(self.conversation.take_outgoing())
            if self._listening is None and self.conversation.unanswered:
                self._listen()

    def _listen(self) -> None:
        assert self._transport is not None
        self._has_heard = False
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._listening = asyncio.get_running_loop().call_later(SILENCE_SECONDS, self._look)

    def _look(self) -> None:
        """Hang up if nothing has come and nothing was taken.  TCP alone may take a quarter of an hour to notice."""
        self._listening = None
        if self._transport is None or not self.conversation.unanswered:
            return
        if self._has_heard or self._transport.get_write_buffer_size() != self._unsent_bytes:
            self._listen()
        else:
            self.problem = ServerUnreachable(f"{self.server} has not answered for {SILENCE_SECONDS:g} s")
            self.abandon()

    def abandon(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._listening is not None:
            self._listening.cancel()
        if self.problem is None and isinstance(error, OSError):
            self.problem = ServerUnreachable(f"the connection to {self.server} was lost: {words_of(error)}")
        if self.problem is None:
            self.problem = ServerUnreachable(f"{self.server} closed the connection")
        if not self.greeted.done():
            self.greeted.set_exception(self.problem)
            self.greeted.exception()  # nobody may be waiting any more
        self._on_lost(self, self.problem)
