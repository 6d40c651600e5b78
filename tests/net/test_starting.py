"""A server that starts with a long queue: clients connect at once, are served when it is there, and may stop it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from switchgear.config import Config, ListenUrl
from switchgear.errors import ConfigError, StorageError
from switchgear.net import restore_progress
from switchgear.net import service as service_module
from switchgear.net.service import Service
from switchgear.storage.base import Store
from switchgear.storage.memory import MemoryStore
from switchgear.testing import SlowStore
from tests.support.servers import HOST, free_port
from tests.support.wire import Kind, request

ECHO = request(Kind.ECHO_REQ, b"hello")


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(1_000_000):
        if is_true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not become true")


class StartingServer:
    """A server whose store is read when a test says so."""

    def __init__(self, store: SlowStore, service: Service, port: int) -> None:
        self.store = store
        self.service = service
        self.port = port
        self.running = asyncio.create_task(service.run())

    async def until_it_restores(self) -> None:
        await until(lambda: self.store.waiting > 0 or self.running.done())

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.port)


@asynccontextmanager
async def starting_server(
    monkeypatch: pytest.MonkeyPatch, port: int = 0, store: SlowStore | None = None
) -> AsyncIterator[StartingServer]:
    store = SlowStore(MemoryStore()) if store is None else store
    store.hold_reads()

    def opened(url: str, **options: object) -> Store:
        store.open()
        return store

    monkeypatch.setattr(service_module, "open_store", opened)
    monkeypatch.setattr(service_module, "freeze_existing_objects", lambda: None)  # which is for a process of its own
    port = port or free_port()
    config = Config(store="memory:", listen=(ListenUrl("gearman", HOST, port), ListenUrl("dwork", HOST, free_port())))
    server = StartingServer(store, Service(config), port)
    try:
        yield server
    finally:
        server.service.request_stop(graceful=False)
        store.release_reads()
        await asyncio.gather(server.running, return_exceptions=True)


def test_clients_connect_at_once_and_are_answered_when_everything_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with starting_server(monkeypatch) as server:
            await server.until_it_restores()
            clients = [await server.connect() for _ in range(20)]
            for _, writer in clients:
                writer.write(ECHO)
            _, gone = await server.connect()
            gone.write(ECHO)
            gone.close()  # before anybody has looked at it
            for _ in range(100):
                await asyncio.sleep(0)
            assert not any(reader._buffer for reader, _ in clients)  # type: ignore[attr-defined]
            server.store.release_reads()
            for reader, writer in clients:
                assert (await reader.readexactly(17))[12:] == b"hello"
                writer.close()
            assert not server.running.done()

    asyncio.run(asyncio.wait_for(story(), 30))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_that_restores(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    async def story() -> None:
        async with starting_server(monkeypatch) as server:
            await server.until_it_restores()
            reader, writer = await server.connect()
            writer.write(ECHO)
            signal.raise_signal(number)
            assert await server.running == 0
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await server.connect()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_store_that_cannot_be_read_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with starting_server(monkeypatch) as server:
            await server.until_it_restores()
            server.store.fail_reads(StorageError("it is damaged"))
            with pytest.raises(StorageError, match="it is damaged"):
                await server.running
            with pytest.raises(ConnectionRefusedError):
                await server.connect()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_an_address_that_is_taken_is_known_before_the_store_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        other = await asyncio.start_server(lambda reader, writer: None, HOST, 0)
        port = other.sockets[0].getsockname()[1]
        async with other, starting_server(monkeypatch, port) as server:
            with pytest.raises(ConfigError, match="in use"):
                await server.running
            assert server.store.reads == []

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_configuration_that_is_to_be_read_again_is_read_when_the_server_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with starting_server(monkeypatch) as server:
            reloads: list[bool] = []

            def reload() -> Config:
                reloads.append(server.service.hub.is_restoring)
                return server.service.config

            server.service._reload = reload
            await server.until_it_restores()
            signal.raise_signal(signal.SIGHUP)
            for _ in range(20):
                await asyncio.sleep(0)
            assert reloads == []
            server.store.release_reads()
            await until(lambda: bool(reloads))
            assert reloads == [False]

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_long_restore_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(restore_progress, "LOG_SECONDS", 0.0)
        async with starting_server(monkeypatch) as server:
            await server.until_it_restores()
            await until(lambda: server.service.telemetry.counts["restoring"] > 0)
            server.store.release_reads()

    asyncio.run(asyncio.wait_for(story(), 30))


class LongQueue(SlowStore):
    """A store that says that it has jobs to restore."""

    async def count_jobs(self, *, only_unfinished: bool = False) -> int:
        return 7 if only_unfinished else 100

    def jobs_read(self) -> int:
        return 4


class NotedProgress:
    """What a progress bar would show."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, int]] = []
        self.is_ended = False

    def show(self, done: int, total: int) -> None:
        self.shown.append((done, total))

    def end(self) -> None:
        self.is_ended = True


def test_a_long_restore_is_shown_to_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(restore_progress, "LOG_SECONDS", 0.0)
        monkeypatch.setattr(restore_progress, "SHOWING_SECONDS", 0.0)
        async with starting_server(monkeypatch, store=LongQueue(MemoryStore())) as server:
            server.service.restore_display = display = NotedProgress()
            await server.until_it_restores()
            await until(lambda: len(display.shown) > 1)
            assert set(display.shown) == {(2, 7)}
            server.store.release_reads()
            await until(lambda: display.is_ended)
            assert server.service.telemetry.counts["restoring"] == 0  # it would be told twice

    asyncio.run(asyncio.wait_for(story(), 30))
