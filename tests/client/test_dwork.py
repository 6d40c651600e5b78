"""The clients and real servers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq.auth

from switchgear.client.dwork import AsyncDworkClient, CurveKeys, DworkClient
from switchgear.errors import ServerRefused, ServerUnreachable
from switchgear.protocols.dwork.codec import decode_reply
from tests.client.dwork_servers import KINDS, Kind, Original, client_of, fake_server, running_dwork
from tests.support.servers import HOST, free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_dwork() as (_, url):
        yield url


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def client(kind: Kind, url: str) -> Iterator[Any]:
    """One that finds nothing to do, and leaves nothing to do."""
    with client_of(kind, url, location="w") as client:
        yield client
        client.exit()
        while stolen := client.steal(1000):
            client.complete([task.name for task in stolen])


def test_from_creation_to_completion(client: Any) -> None:
    assert client.create("a") == 1
    assert client.create([("b", ["a"]), ("c", ["a", "b"])]) == 2
    assert (client.status().active, client.status().ready) == (3, 1)
    order = []
    while stolen := client.steal():
        (task,) = stolen
        assert client.lookup(task.name).location == client.location == "w"
        order.append(task.name)
        assert client.complete(task.name) == ()
    assert order == ["a", "b", "c"]
    assert stolen.all_done
    assert client.lookup("c").state == "done"


def test_failures_transfers_and_what_is_unknown(client: Any) -> None:
    client.create(["a", "b", ("stuck", ["a"])])
    assert client.complete("ghost") == ("ghost",)
    assert client.transfer(["a"]) == ("a",)
    assert [task.name for task in client.steal(5)] == ["a", "b"]
    assert client.transfer(["a", "ghost"], after=["b"]) == ("ghost",)
    assert not client.steal()
    client.complete("b")
    assert [task.name for task in client.steal()] == ["a"]
    client.complete("a", error="disk full")
    record = client.lookup("a")
    assert (record.state, record.error) == ("failed", "disk full")
    assert client.steal().all_done  # what is left cannot be done
    client.create("a")  # once more
    client.complete([task.name for task in client.steal()])
    client.complete([task.name for task in client.steal()])
    assert client.lookup("stuck").state == "done"


def test_exit_gives_back(client: Any) -> None:
    client.create("a")
    assert len(client.steal()) == 1
    assert client.exit()
    assert not client.exit("nobody")
    assert len(client.steal()) == 1


def test_a_steal_that_waits(client: Any, url: str) -> None:
    def create_later() -> None:
        with DworkClient(url) as other:
            other.create("late")

    thread = threading.Timer(0.1, create_later)
    thread.start()
    assert [task.name for task in client.steal(wait_seconds=DEADLINE_SECONDS)] == ["late"]
    thread.join()
    assert not client.steal(wait_seconds=0.05)


def test_a_lease_ends_unless_there_are_signs_of_life(url: str) -> None:
    with (
        DworkClient(url, location="alive") as alive,
        DworkClient(url, location="gone") as gone,
        DworkClient(url, location="heir") as heir,
    ):
        heir.create(["kept", "lost"])
        assert [task.name for task in alive.steal(lease_seconds=1.5)] == ["kept"]
        assert [task.name for task in gone.steal(lease_seconds=1.7)] == ["lost"]

        def lost_is_found() -> bool:
            alive.heartbeat()
            return [task.name for task in heir.steal()] == ["lost"]

        eventually(lost_is_found, "the longer lease ends")
        record = heir.lookup("kept")
        assert record is not None
        assert record.location == "alive"
        assert (alive.complete("kept"), heir.complete("lost")) == ((), ())


def test_many_tasks_and_the_list_of_them(client: Any, kind: Kind) -> None:
    """In chains of ten."""
    names = [f"{kind} {number}" for number in range(2500)]
    pairs = ((name, names[number - 1 : number] if number % 10 else ()) for number, name in enumerate(names))
    assert client.create(pairs) == 2500
    listed = {record.name: record for record in client.tasks() if record.name in names}
    assert list(listed) == names
    assert (listed[names[0]].state, listed[names[1]].state) == ("ready", "waiting")
    assert listed[names[7]].after == (listed[names[6]].id,)
    for _ in range(10):
        stolen = [task.name for task in client.steal(2500)]
        assert len(stolen) == 250
        assert client.complete(stolen) == ()
    assert {record.state for record in client.tasks() if record.name in names} == {"done"}


def test_names_are_bytes(client: Any) -> None:
    client.create([b"\xff\xfe", "naïve and long " * 100])
    names = {task.name for task in client.steal(5)}
    assert names == {b"\xff\xfe".decode(errors="surrogateescape"), "naïve and long " * 100}
    assert client.complete(names) == ()


def test_an_error_has_its_reason(client: Any) -> None:
    with pytest.raises(ServerRefused, match="a -> a"):
        client.create("a", after="a")
    with pytest.raises(ServerRefused, match="empty"):
        client.create("")


def test_nobody_there(kind: Kind) -> None:
    with (
        client_of(kind, f"dwork://{HOST}:{free_port()}", timeout_seconds=0.2) as client,
        pytest.raises(ServerUnreachable, match="cannot connect"),
    ):
        client.status()


def test_nobody_answers(kind: Kind) -> None:
    with (
        fake_server(lambda query: None) as server,
        client_of(kind, server.url, timeout_seconds=0.3) as client,
        pytest.raises(ServerUnreachable, match="no answer"),
    ):
        client.status()


def test_a_client_that_is_closed_stays_closed(url: str) -> None:
    client = DworkClient(url)
    client.status()
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.status()

    async def talk() -> None:
        client = AsyncDworkClient(url)
        await client.status()
        await client.close()
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await client.status()

    asyncio.run(talk())


def test_the_original_server(kind: Kind) -> None:
    with fake_server(Original()) as server, client_of(kind, server.url, location="w") as client:
        assert client.create([f"t{number}" for number in range(3)]) == 3
        assert (client.status().active, client.status().ready) == (3, 3)
        assert [task.name for task in client.steal(2)] == ["t0", "t1"]
        assert client.complete(["t0", "t1", "ghost"]) == ()
        assert [task.name for task in client.steal()] == ["t2"]
        assert client.exit()
        assert not client.speaks_more()
        with pytest.raises(ServerRefused, match="did not say why"):
            client.lookup("t2")
        with pytest.raises(ServerRefused):
            list(client.tasks())
        assert all(query.wait_ms is query.lease_ms is query.retry_us is None for query in server.asked)


# --- asyncio ---


def test_many_calls_at_once(url: str) -> None:
    async def talk() -> None:
        async with AsyncDworkClient(url, location="crowd") as client:
            await asyncio.gather(*(client.create(f"crowd {number}") for number in range(100)))
            waiting = asyncio.create_task(client.steal(wait_seconds=DEADLINE_SECONDS))
            stolen = await asyncio.gather(*(client.steal() for _ in range(99)), waiting)
            assert {task.name for each in stolen for task in each} == {f"crowd {number}" for number in range(100)}
            await client.complete([task.name for each in stolen for task in each])

    asyncio.run(talk())


def test_a_steal_that_is_cancelled_loses_nothing(url: str) -> None:
    async def talk() -> None:
        async with AsyncDworkClient(url, location="fickle") as client:
            steal = asyncio.create_task(client.steal(wait_seconds=DEADLINE_SECONDS))
            await client.status()  # so the other one is on its way
            steal.cancel()
            await asyncio.gather(steal, return_exceptions=True)
            await client.create("for nobody")
            stolen = await client.steal(wait_seconds=DEADLINE_SECONDS)
            assert [task.name for task in stolen] == ["for nobody"]
            await client.complete("for nobody")

    asyncio.run(talk())


def test_what_comes_for_nobody_goes_back_in_the_end(url: str) -> None:
    async def talk() -> None:
        async with AsyncDworkClient(url, location="leaving") as client:
            steal = asyncio.create_task(client.steal(wait_seconds=DEADLINE_SECONDS))
            await client.status()
            steal.cancel()
            await asyncio.gather(steal, return_exceptions=True)
            await client.create("returned")
            await client.status()  # the answer to the Steal comes before this one

    asyncio.run(talk())
    with DworkClient(url) as other:
        assert eventually(lambda: other.steal().tasks, "it is back")[0].name == "returned"
        other.complete("returned")


# --- a server that dies ---


def test_a_server_that_is_killed_while_tasks_are_created_loses_and_doubles_none(kind: Kind, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    port = free_port()
    problems: list[BaseException] = []
    names = [f"t{number}" for number in range(3000)]

    def create(url: str) -> None:
        try:
            with client_of(kind, url, timeout_seconds=30.0) as client:
                for start in range(0, len(names), 20):
                    client.create(names[start : start + 20])
        except BaseException as error:
            problems.append(error)

    with running_dwork(store=store, port=port) as (server, url):
        thread = threading.Thread(target=create, args=(url,))
        thread.start()
        with DworkClient(url) as watching:
            eventually(lambda: watching.status().active > 500, "it has begun")
        server.kill()
    done: list[str] = []
    with running_dwork(store=store, port=port) as (_, url), DworkClient(url, location="w") as worker:
        # Some are done before the creation of the last is repeated.
        while thread.is_alive() or worker.status().active:
            stolen = worker.steal(100)
            done += (task.name for task in stolen)
            if stolen.tasks:
                worker.complete([task.name for task in stolen])
        thread.join()
    assert problems == []
    assert len(done) == len(set(done))
    assert sorted(done) == sorted(names)


def test_a_connection_that_is_lost_while_the_answer_is_on_its_way(kind: Kind) -> None:
    """The server hangs up on the first Create, and the client asks again on the next connection."""
    port = free_port()
    url = f"dwork://{HOST}:{port}"
    context = zmq.Context()
    try:
        context.rcvtimeo = int(DEADLINE_SECONDS * 1000)
        router = context.socket(zmq.ROUTER)
        router.bind(f"tcp://{HOST}:{port}")
        with client_of(kind, url) as client:
            result: list[int] = []
            thread = threading.Thread(target=lambda: result.append(client.create("a")))
            thread.start()
            first = router.recv_multipart()
            router.close(0)
            time_lost = time.monotonic()
            router = eventually(lambda: _bound(context, port), "the port is free again")[0]
            second = router.recv_multipart()
            passed_us = (time.monotonic() - time_lost) * 1e6
            router.send_multipart([*second[:-1], b"\x08\x06"])
            thread.join(DEADLINE_SECONDS)
            assert result == [1]
        assert second[1] == first[1]  # the tag
        assert decode_reply(first[-1]).retry_us is None
        retry_us = decode_reply(second[-1]).retry_us
        assert retry_us is not None
        assert 0 < retry_us < passed_us + 2e6
        router.close(0)
    finally:
        context.destroy(0)


def _bound(context: zmq.Context[zmq.Socket[bytes]], port: int) -> list[zmq.Socket[bytes]]:
    """A socket that listens there, or none."""
    router = context.socket(zmq.ROUTER)
    try:
        router.bind(f"tcp://{HOST}:{port}")
    except zmq.ZMQError:
        router.close(0)
        return []
    return [router]


# --- keys ---


def test_a_server_that_encrypts_and_knows_its_clients(kind: Kind, tmp_path: Path) -> None:
    clients = tmp_path / "clients"
    clients.mkdir()
    zmq.auth.create_certificates(tmp_path, "server")
    zmq.auth.create_certificates(clients, "alice")
    zmq.auth.create_certificates(tmp_path, "mallory")
    alice = CurveKeys.load(tmp_path / "server.key", clients / "alice.key_secret")
    mallory = CurveKeys.load(tmp_path / "server.key", tmp_path / "mallory.key_secret")
    config = tmp_path / "config.toml"
    config.write_text(
        f'[zeromq]\ncurve_key_file = "{tmp_path / "server.key_secret"}"\ncurve_clients_dir = "{clients}"\n'
    )
    with running_dwork("--config", str(config)) as (_, url):
        with client_of(kind, url, keys=alice) as client:
            assert client.status().active == 0
        for keys in (mallory, None):
            with (
                client_of(kind, url, timeout_seconds=0.5, keys=keys) as client,
                pytest.raises(
                    ServerUnreachable, match=r"cannot connect .* \(.+; if the server uses CURVE, check the keys\)"
                ),
            ):
                client.status()
