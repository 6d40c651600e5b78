"""Peers that keep a server busy in every way at once, and write down all that is said.

They run until the server is gone.  What each of them does is drawn from one generator; what comes of it depends on
timing.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from tests.support.wire import Kind, request
from tests.system.crash_history import History, Question

FUNCTIONS = (b"resize", b"mail", b"index")
BACKGROUND = (Kind.SUBMIT_JOB_BG, Kind.SUBMIT_JOB_HIGH_BG, Kind.SUBMIT_JOB_LOW_BG)
ANSWERS = ("submitted", "told", "cancelled", "worked")  # what they may be about
CONTROL = 1001  # an extension of this server: verb and JSON
CONTROL_RES = 1002
# More waiting jobs than this only make the lists longer that are compared after each crash.
MOST_OWED = 600
_HEADER = struct.Struct(">4sII")


class ServerGoneError(Exception):
    """The connection ended."""


class Peer:
    """One connection."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._reader = reader
        self._writer = writer

    def send(self, *packets: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(b"".join(packets))

    async def receive(self) -> tuple[int, bytes]:
        try:
            _, kind, size = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
            return kind, await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError):
            raise ServerGoneError from None

    async def receive_line(self) -> bytes:
        try:
            line = await self._reader.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            raise ServerGoneError
        return line

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class Load:
    """Everybody who speaks to one life of the server."""

    def __init__(self, port: int, history: History, chance: random.Random, on_answer: Callable[[str], None]) -> None:
        self._port = port
        self._history = history
        self._chance = chance
        self._on_answer = on_answer
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the server is gone."""
        peers: list[Coroutine[Any, Any, None]] = [
            self._submitter(),
            self._submitter(),
            self._streaming_submitter(),
            self._streaming_submitter(),
            self._waiting_client(),
            self._worker(most_held=1),
            self._worker(most_held=4),
            self._worker(most_held=4),
            self._canceller_by_text(),
            self._canceller_by_packet(),
        ]
        await asyncio.gather(*(self._until_gone(peer) for peer in peers))

    async def drain(self) -> None:
        """Healthy workers finish all jobs, until there is none."""
        await asyncio.gather(*(self._until_gone(self._healthy_worker()) for _ in range(2)))

    async def _until_gone(self, peer: Coroutine[Any, Any, None]) -> None:
        with suppress(ServerGoneError):
            await peer

    async def _connect(self, role: str) -> Peer:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            raise ServerGoneError from None
        return Peer(f"{role} {self._history.life}.{next(self._numbers)}", reader, writer)

    def _token(self) -> bytes:
        return b"%d-%d" % (self._history.life, next(self._numbers))

    def _payload(self, token: bytes) -> bytes:
        """The token, and sometimes so much more that the store treats it differently."""
        return token + b" " + b"x" * self._chance.choice((0, 20, 20, 20, 900, 3000))

    # --- clients ---

    async def _submitter(self) -> None:
        """Background submissions, sent on while the answers to earlier ones are not there yet."""
        peer = await self._connect("submitter")
        try:
            waiting: deque[bytes] = deque()  # tokens; b"" stands for an echo
            while True:
                self._submit_more(peer, waiting, self._chance.randint(1, 40))
                await self._submission_answer(peer, waiting.popleft())
        finally:
            await peer.close()

    async def _streaming_submitter(self) -> None:
        """Background submissions one by one, without a look at the answers, so that some arrive while the server is in
        the middle of anything."""
        peer = await self._connect("streaming submitter")
        try:
            while True:
                waiting: deque[bytes] = deque()
                for _ in range(self._chance.randint(5, 60)):
                    self._submit_more(peer, waiting, len(waiting) + 1)
                    await asyncio.sleep(0)
                while waiting:
                    await self._submission_answer(peer, waiting.popleft())
        finally:
            await peer.close()

    def _submit_more(self, peer: Peer, waiting: deque[bytes], window: int) -> None:
        packets = []
        while len(waiting) < window:
            if len(self._history.owed) >= MOST_OWED:
                if waiting:
                    break
                waiting.append(b"")
                packets.append(request(Kind.ECHO_REQ, b"anybody there?"))
                continue
            token = self._token()
            unique = self._chance.choice((b"", token))
            kind = self._chance.choice(BACKGROUND)
            packets.append(request(kind, self._chance.choice(FUNCTIONS), unique, self._payload(token)))
            waiting.append(token)
        if packets:
            peer.send(*packets)

    async def _submission_answer(self, peer: Peer, token: bytes) -> None:
        kind, body = await peer.receive()
        if kind == Kind.JOB_CREATED:
            self._history.created(token, body, background=True, by=peer.name)
        elif token:
            self._history.refused(token, body, peer.name)
        self._on_answer("submitted")

    async def _waiting_client(self) -> None:
        """Foreground submissions, half of which somebody else submits in the background too."""
        peer = await self._connect("waiting client")
        try:
            twin = await self._connect("its twin")
            try:
                while True:
                    token = self._token()
                    function, payload = self._chance.choice(FUNCTIONS), self._payload(token)
                    peer.send(request(Kind.SUBMIT_JOB_HIGH, function, token, payload))
                    if self._chance.random() < 0.5:
                        twin.send(request(Kind.SUBMIT_JOB_BG, function, token, payload))
                        await asyncio.gather(self._wait_end(peer, token), self._submission_answer(twin, token))
                    else:
                        await self._wait_end(peer, token)
            finally:
                await twin.close()
        finally:
            await peer.close()

    async def _wait_end(self, peer: Peer, token: bytes) -> None:
        while True:
            kind, body = await peer.receive()
            if kind == Kind.JOB_CREATED:
                self._history.created(token, body, background=False, by=peer.name)
            elif kind == Kind.ERROR:
                self._history.refused(token, body, peer.name)
                return
            else:
                self._history.told_end(body.partition(b"\0")[0], token, peer.name)
                self._on_answer("told")
                return

    async def _canceller_by_text(self) -> None:
        peer = await self._connect("text canceller")
        try:
            while True:
                handle = await self._prey(peer)
                peer.send(b"cancel job %b\n" % handle)
                self._cancel_answer(peer, handle, (await peer.receive_line()).startswith(b"OK"))
        finally:
            await peer.close()

    async def _canceller_by_packet(self) -> None:
        peer = await self._connect("packet canceller")
        try:
            while True:
                handle = await self._prey(peer)
                peer.send(request(CONTROL, b"cancel", b'{"handle": "%b"}' % handle))
                self._cancel_answer(peer, handle, (await peer.receive())[0] == CONTROL_RES)
        finally:
            await peer.close()

    async def _prey(self, peer: Peer) -> bytes:
        """Some job that waits or runs; now and then, so that most jobs live."""
        while True:
            for _ in range(self._chance.randint(5, 50)):
                peer.send(request(Kind.ECHO_REQ, b"not yet"))
                await peer.receive()
            owed = self._history.owed
            if owed:
                place = self._chance.randrange(min(len(owed), 100))
                handle = next(itertools.islice(owed, place, None))
                self._history.cancelling(handle, peer.name)
                return handle

    def _cancel_answer(self, peer: Peer, handle: bytes, done: bool) -> None:
        if done:
            self._history.cancelled(handle, peer.name)
        else:
            self._history.not_cancelled(handle, peer.name)
        self._on_answer("cancelled")

    # --- workers ---

    async def _worker(self, most_held: int) -> None:
        """Takes up to so many jobs, reports on them in any order or not at all, and hangs up when it likes."""
        while True:
            peer = await self._connect("worker")
            try:
                await self._work(peer, most_held)
            finally:
                self._history.closed(peer.name)
                await peer.close()

    async def _work(self, peer: Peer, most_held: int) -> None:
        peer.send(*(request(Kind.CAN_DO, function) for function in FUNCTIONS))
        held: list[bytes] = []
        forgotten = 0
        while forgotten < 3 and self._chance.random() > 0.002:
            packets = []
            self._chance.shuffle(held)
            for _ in range(self._chance.randint(0, len(held))):
                draw = self._chance.random()
                handle = held.pop()
                if draw < 0.03:
                    forgotten += 1  # never reported; it goes back when we hang up
                    continue
                packets.append(self._report(peer, handle, failing=draw < 0.1))
            wanted = self._chance.randint(1, max(1, most_held - len(held)))
            questions = []
            for _ in range(wanted):
                packets.append(request(Kind.GRAB_JOB))
                questions.append(self._history.asks(peer.name))
            peer.send(*packets)
            given = [await self._grabbed(peer, question) for question in questions]
            held += [handle for handle in given if handle]
            if not held and not any(given):
                await self._sleep(peer)

    def _report(self, peer: Peer, handle: bytes, *, failing: bool) -> bytes:
        if failing:
            self._history.reporting(handle, "WORK_FAIL", peer.name)
            return request(Kind.WORK_FAIL, handle)
        self._history.reporting(handle, "WORK_COMPLETE", peer.name)
        return request(Kind.WORK_COMPLETE, handle, b"done")

    async def _grabbed(self, peer: Peer, question: Question) -> bytes:
        """The handle of the job that was given, or nothing."""
        kind = Kind.NOOP
        while kind == Kind.NOOP:
            received, body = await peer.receive()
            kind = Kind(received)
            if kind == Kind.ERROR:
                self._history.report_denied(question, body, peer.name)
                kind = Kind.NOOP
        self._history.answered(question, peer.name)
        handle = b""
        if kind == Kind.JOB_ASSIGN:
            handle, _, payload = body.split(b"\0", 2)
            self._history.assigned(handle, payload.partition(b" ")[0], question, peer.name)
        self._on_answer("worked")
        return handle

    async def _sleep(self, peer: Peer) -> None:
        peer.send(request(Kind.PRE_SLEEP))
        while (await peer.receive())[0] != Kind.NOOP:
            pass

    async def _healthy_worker(self) -> None:
        peer = await self._connect("healthy worker")
        try:
            peer.send(*(request(Kind.CAN_DO, function) for function in FUNCTIONS))
            packets: list[bytes] = []
            while True:
                questions = []
                for _ in range(50):
                    packets.append(request(Kind.GRAB_JOB))
                    questions.append(self._history.asks(peer.name))
                peer.send(*packets)
                given = [await self._grabbed(peer, question) for question in questions]
                packets = [self._report(peer, handle, failing=False) for handle in given if handle]
                if not packets:
                    return
        finally:
            self._history.closed(peer.name)
            await peer.close()
