"""Servers that speak dwork, one that only looks like it, and both clients behind one face."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, Self

import zmq

from switchgear.client.dwork import AsyncDworkClient, DworkClient
from switchgear.client.dwork.records import TaskRecord
from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.messages import Query, QueryType
from tests.client.draft_faces import EventLoopThread
from tests.support.servers import HOST, Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

Kind = Literal["blocking", "asyncio"]
KINDS: Final[tuple[Kind, ...]] = ("blocking", "asyncio")


@contextmanager
def running_dwork(*args: str, store: str = "memory:", port: int = 0) -> Iterator[tuple[Server, str]]:
    """``switchgear serve`` with a dwork listener, and the address of that."""
    with running_switchgear("--listen", f"dwork://{HOST}:{port}?lease=60", *args, store=store) as server:
        yield (
            server,
            eventually(lambda: re.findall(r"listening on (dwork://[^?\s]+)", server.output()), "it listens")[0],
        )


class AsyncFace:
    """An `AsyncDworkClient`, used as if it were blocking."""

    def __init__(self, url: str, **options: Any) -> None:
        self._thread = EventLoopThread()
        self.client = AsyncDworkClient(url, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.do(self.client.close())
        self._thread.close()

    @property
    def location(self) -> str:
        return self.client.location

    def tasks(self) -> Iterator[TaskRecord]:
        async def collect() -> list[TaskRecord]:
            return [record async for record in self.client.tasks()]

        return iter(self._thread.do(collect()))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)
        return lambda *args, **options: self._thread.do(method(*args, **options))


def client_of(kind: Kind, url: str, **options: Any) -> Any:
    """A client with the methods of `DworkClient`."""
    return DworkClient(url, **options) if kind == "blocking" else AsyncFace(url, **options)


class FakeServer:
    """A ROUTER socket whose answers are up to the test; it runs in a thread."""

    def __init__(self, answer: Callable[[Query], bytes | None]) -> None:
        self._answer = answer
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, 0)
        port = self._socket.bind_to_random_port(f"tcp://{HOST}")
        self.url = f"dwork://{HOST}:{port}"
        self.asked: list[Query] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            if self._socket.poll(20):
                *envelope, payload = self._socket.recv_multipart()
                query = decode_reply(payload)
                self.asked.append(query)
                answer = self._answer(query)
                if answer is not None:
                    self._socket.send_multipart([*envelope, answer])
        self._socket.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)
        self._context.destroy(0)


class Original:
    """The original server, as far as a client can tell."""

    def __init__(self) -> None:
        self.ready: list[bytes] = []
        self.assigned: dict[bytes, list[bytes]] = {}

    def __call__(self, query: Query) -> bytes:
        if query.type == QueryType.CREATE:
            self.ready += (task.name for task in query.tasks)
        elif query.type == QueryType.STEAL:
            taken = [self.ready.pop(0) for _ in range(min(1 if query.n is None else query.n, len(self.ready)))]
            held = self.assigned.setdefault(query.location or b"", [])
            held += taken
            if taken:
                return b"\x08\x03" + b"".join(
                    b"\x12%c\n%c%b\x12\x02vm" % (len(name) + 6, len(name), name) for name in taken
                )
            return b"\x08\x05" if any(self.assigned.values()) else b"\x08\x07"
        elif query.type == QueryType.COMPLETE:
            for held in self.assigned.values():
                held[:] = [name for name in held if name not in {task.name for task in query.tasks}]
        elif query.type == QueryType.EXIT:
            self.ready += self.assigned.pop(query.location or b"", [])
        elif query.type == QueryType.OK:
            active = len(self.ready) + sum(map(len, self.assigned.values()))
            text = b"dhub: %d active tasks, %d ready." % (active, len(self.ready))
            return encode(Query(QueryType.OK, name=text, n=len(self.ready)))
        elif query.type != QueryType.TRANSFER:
            return b"\x08\x08"
        return b"\x08\x06"


@contextmanager
def fake_server(answer: Callable[[Query], bytes | None]) -> Iterator[FakeServer]:
    server = FakeServer(answer)
    try:
        yield server
    finally:
        server.close()
