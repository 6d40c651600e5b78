"""A worker for dwork servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from switchgear.client.dwork import AsyncDworkClient, DworkClient
from switchgear.client.dwork.task_stealer import DworkWorkerObserver, TaskStealer
from switchgear.errors import ServerUnreachable
from switchgear.protocols.dwork.messages import Query, QueryType
from tests.client.dwork_servers import Original, fake_server, running_dwork
from tests.support.servers import HOST, free_port
from tests.support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.system


@dataclass(frozen=True)
class Result:
    failure: str | None = None


class Recorder(DworkWorkerObserver[Result]):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    def started(self, name: str) -> None:
        self._hear("started", name)

    def ended(self, name: str, outcome: Result, seconds: float) -> None:
        self._hear("ended", name)

    def unreachable(self, problem: str) -> None:
        self._hear("unreachable", problem)

    def given_back(self, name: str) -> None:
        self._hear("given back", name)

    def refused(self, name: str, problem: str) -> None:
        self._hear("refused", name)

    def failure_kept(self, name: str) -> None:
        self._hear("kept", name)

    def _hear(self, event: str, about: str) -> None:
        self.heard.append((event, about))
        self.news.set()

    def names(self, event: str) -> list[str]:
        return [about for heard, about in self.heard if heard == event]

    async def until(self, event: str, count: int = 1) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.names(event)) < count:
                self.news.clear()
                await self.news.wait()


async def succeed(name: str) -> Result:
    return Result()


async def never_end(name: str) -> Result:
    await asyncio.Event().wait()
    return Result()


def working(
    url: str,
    perform: Callable[[str], Awaitable[Result]],
    meanwhile: Callable[[TaskStealer[Result], Recorder], Awaitable[None]] | None = None,
    *,
    jobs: int = 2,
    location: str = "worker",
    timeout_seconds: float = 5.0,
    patience_seconds: float = 30.0,
    lease_seconds: float = 60.0,
    waits_for_more: bool = False,
) -> Recorder:
    """Let a worker work until it stops by itself, or because of what happens meanwhile."""

    async def run() -> Recorder:
        recorder = Recorder()
        async with AsyncDworkClient(url, location=location, timeout_seconds=timeout_seconds) as client:
            worker = TaskStealer(
                client,
                perform,
                jobs,
                lease_seconds=lease_seconds,
                patience_seconds=patience_seconds,
                waits_for_more=waits_for_more,
                observer=recorder,
            )
            async with asyncio.timeout(4 * DEADLINE_SECONDS):
                if meanwhile is None:
                    await worker.run()
                else:
                    await asyncio.gather(worker.run(), meanwhile(worker, recorder))
        return recorder

    return asyncio.run(run())


@pytest.fixture(scope="module")
def module_url() -> Iterator[str]:
    with running_dwork() as (_, url):
        yield url


@pytest.fixture
def url(module_url: str) -> Iterator[str]:
    """A server that has nothing to do, and is left with nothing to do."""
    yield module_url
    with DworkClient(module_url, location="cleaner") as client:
        while stolen := client.steal(1000):
            client.complete([task.name for task in stolen])
        assert stolen.all_done


def test_it_does_everything_in_order_and_goes_home(url: str) -> None:
    with DworkClient(url) as client:
        client.create(["a", ("b", ["a"]), ("c", ["b"]), "d", "e"])
        recorder = working(url, succeed)
        ended = recorder.names("ended")
        assert sorted(ended) == ["a", "b", "c", "d", "e"]
        assert ended.index("a") < ended.index("b") < ended.index("c")
        assert client.status().active == 0
        assert not client.exit("worker")  # it has said goodbye


def test_so_many_at_once(url: str) -> None:
    running = 0
    most = 0

    async def perform(name: str) -> Result:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return Result()

    with DworkClient(url) as client:
        client.create(f"t{number}" for number in range(50))
    working(url, perform, jobs=5)
    assert most == 5


def test_a_failure_and_what_is_stuck_behind_it(url: str) -> None:
    async def perform(name: str) -> Result:
        return Result("no such file" if name == "bad" else None)

    with DworkClient(url) as client:
        client.create(["bad", ("stuck", ["bad"]), "good"])
        recorder = working(url, perform)
        assert sorted(recorder.names("ended")) == ["bad", "good"]
        record = client.lookup("bad")
        assert record is not None
        assert (record.state, record.error) == ("failed", "no such file")
        client.create("bad")  # again, so that the rest can be done


def test_it_may_wait_for_more(url: str) -> None:
    async def meanwhile(worker: TaskStealer[Result], recorder: Recorder) -> None:
        async with AsyncDworkClient(url) as client:
            await client.create("first")
            await recorder.until("ended")
            async with asyncio.timeout(DEADLINE_SECONDS):
                while (await client.status()).active:
                    pass
            await client.create("second")
            await recorder.until("ended", 2)
            worker.stop()

    recorder = working(url, succeed, meanwhile, waits_for_more=True)
    assert recorder.names("ended") == ["first", "second"]


def test_told_to_stop_it_finishes_what_it_has(url: str) -> None:
    go_on = asyncio.Event()

    async def perform(name: str) -> Result:
        await go_on.wait()
        return Result()

    async def meanwhile(worker: TaskStealer[Result], recorder: Recorder) -> None:
        await recorder.until("started")
        worker.stop()
        async with AsyncDworkClient(url) as client:
            assert (await client.status()).active == 2
        go_on.set()

    with DworkClient(url) as client:
        client.create(["a", "b"])
        recorder = working(url, perform, meanwhile, jobs=1)
        assert recorder.names("ended") == ["a"]
        assert (client.status().active, client.status().ready) == (1, 1)


def test_told_again_it_gives_back_what_it_has(url: str) -> None:
    async def meanwhile(worker: TaskStealer[Result], recorder: Recorder) -> None:
        await recorder.until("started", 2)
        worker.stop()
        worker.abandon()

    with DworkClient(url) as client:
        client.create(["a", "b", "c"])
        recorder = working(url, never_end, meanwhile)
        assert sorted(recorder.names("given back")) == ["a", "b"]
        assert (client.status().active, client.status().ready) == (3, 3)


def test_a_long_task_keeps_its_worker_alive(url: str) -> None:
    """Nobody else can steal what is run for longer than the lease, because there are signs of life."""
    go_on = asyncio.Event()

    async def perform(name: str) -> Result:
        await go_on.wait()
        return Result()

    async def meanwhile(worker: TaskStealer[Result], recorder: Recorder) -> None:
        await recorder.until("started")
        async with AsyncDworkClient(url, location="thief") as thief:
            await thief.create("bait")
            assert [task.name for task in await thief.steal(lease_seconds=1.5)] == ["bait"]
            async with AsyncDworkClient(url, location="witness") as witness:
                stolen = await witness.steal(wait_seconds=DEADLINE_SECONDS)  # until the lease of the thief is over
                assert [task.name for task in stolen] == ["bait"]
                record = await witness.lookup("long")
                assert record is not None
                assert record.location == "worker"
                await witness.complete("bait")
        go_on.set()

    with DworkClient(url) as client:
        client.create("long")
    recorder = working(url, perform, meanwhile, jobs=1, lease_seconds=1.2)
    assert recorder.names("ended") == ["long"]


def test_a_server_that_is_restarted(tmp_path: Path) -> None:
    """The worker asks until it is there again."""
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    port = free_port()

    harness = ExitStack()

    async def meanwhile(worker: TaskStealer[Result], recorder: Recorder) -> None:
        await recorder.until("unreachable")
        harness.enter_context(running_dwork(store=store, port=port))  # until the worker has left

    with running_dwork(store=store, port=port) as (server, url):
        with DworkClient(url, location="worker") as client:
            client.create([f"t{number}" for number in range(20)])
        server.kill()
    with harness:
        recorder = working(url, succeed, meanwhile, timeout_seconds=0.3)
    assert sorted(recorder.names("ended")) == sorted(f"t{number}" for number in range(20))


def test_a_server_that_stays_away_is_given_up() -> None:
    with pytest.raises(ServerUnreachable):
        working(f"dwork://{HOST}:{free_port()}", succeed, timeout_seconds=0.1, patience_seconds=0.3)


def test_giving_up_does_not_wait_for_the_timeout_of_a_request() -> None:
    with pytest.raises(ServerUnreachable, match=r"within 0\.2 s"):
        working(f"dwork://{HOST}:{free_port()}", succeed, timeout_seconds=100 * DEADLINE_SECONDS, patience_seconds=0.2)


def test_it_stops_at_once_when_there_is_no_server() -> None:
    async def meanwhile(worker: TaskStealer[Result], recorder: Recorder) -> None:
        worker.stop()

    nowhere = f"dwork://{HOST}:{free_port()}"
    working(nowhere, succeed, meanwhile, timeout_seconds=100 * DEADLINE_SECONDS, patience_seconds=1e6)


@pytest.mark.parametrize("last_words", [QueryType.STEAL, QueryType.EXIT], ids=["Steal", "Exit"])
def test_it_stops_at_once_when_the_server_has_fallen_silent(last_words: QueryType) -> None:
    """The server answers nothing from then on."""
    original = Original()
    fell_silent = threading.Event()

    def answer(query: Query) -> bytes | None:
        if query.type == last_words:
            fell_silent.set()
        return None if fell_silent.is_set() else original(query)

    async def meanwhile(worker: TaskStealer[Result], recorder: Recorder) -> None:
        if last_words == QueryType.STEAL:
            await asyncio.to_thread(fell_silent.wait, DEADLINE_SECONDS)
        worker.stop()

    with fake_server(answer) as server:
        working(
            server.url,
            succeed,
            meanwhile,
            waits_for_more=True,
            timeout_seconds=100 * DEADLINE_SECONDS,
            patience_seconds=1e6,
        )


def test_the_original_server_is_not_told_of_failures_as_if_they_were_successes() -> None:
    async def perform(name: str) -> Result:
        return Result("broken" if name == "bad" else None)

    async def meanwhile(worker: TaskStealer[Result], recorder: Recorder) -> None:
        await recorder.until("ended", 2)
        worker.stop()

    original = Original()
    original.ready = [b"bad", b"good"]
    with fake_server(original) as server:
        recorder = working(server.url, perform, meanwhile)
        assert recorder.names("kept") == ["bad"]
        assert original.assigned == {b"worker": [b"bad"]}
        assert all(query.wait_ms is query.lease_ms is None for query in server.asked)


def test_a_defect_in_what_is_performed_ends_the_worker(url: str) -> None:
    async def perform(name: str) -> Result:
        raise ZeroDivisionError

    with DworkClient(url) as client:
        client.create("a")
    with pytest.raises(ZeroDivisionError):
        working(url, perform)
