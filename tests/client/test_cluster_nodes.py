"""The nodes of a cluster as one server: any of them is used, and another one when it is gone."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from switchgear import App, Task
from switchgear.app.server_locations import location_of
from switchgear.app.worker.background_worker import start_background
from switchgear.cli.output import locators
from switchgear.client.address import ServerAddress
from switchgear.client.cluster_nodes import ClusterNodes, server_at
from switchgear.client.gearman.aio import AsyncClient
from switchgear.client.gearman.blocking import Client
from switchgear.client.gearman.worker import Worker
from switchgear.errors import ConfigError, ServerUnreachable
from tests.app.harness import hand_worker
from tests.support.proxy import Proxy, cuttable
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

WAIT = DEADLINE_SECONDS


class TestTheUrl:
    @pytest.mark.parametrize(
        ("text", "nodes", "shown"),
        [
            ("gearman://a+b", [("a", 4730, False), ("b", 4730, False)], "gearman://a:4730+b:4730"),
            ("a:1+b:2+a:1", [("a", 1, False), ("b", 2, False)], "gearman://a:1+b:2"),
            ("gearmans://a+[::1]:7", [("a", 4730, True), ("::1", 7, True)], "gearmans://a:4730+[::1]:7"),
        ],
    )
    def test_names_nodes(self, text: str, nodes: list[tuple[str, int, bool]], shown: str) -> None:
        cluster = ClusterNodes.parse(text)
        assert [(node.host, node.port, node.uses_tls) for node in cluster.nodes] == nodes
        assert str(cluster) == shown
        assert str(ClusterNodes.parse(shown)) == shown
        assert location_of(text).url == shown

    @pytest.mark.parametrize("text", ["gearman://a+", "+a", "gearman://a+b:0", "ftp://a+b", "a++b", "a+b c"])
    def test_that_is_none(self, text: str) -> None:
        with pytest.raises(ConfigError):
            server_at(text)

    def test_has_one_scheme(self) -> None:
        with pytest.raises(ConfigError, match=r"written as gearman://a:4730\+HOST:PORT, with one scheme"):
            server_at("gearman://a+gearmans://b")

    def test_one_server_is_none(self) -> None:
        assert server_at("gearman://a") == ServerAddress("a")

    def test_the_token_is_for_all_nodes(self) -> None:
        cluster = server_at("gearmans://a+b", "secret")
        assert isinstance(cluster, ClusterNodes)
        assert [node.token for node in cluster.nodes] == ["secret", "secret"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


@pytest.fixture
def nodes(server: Server) -> Iterator[list[Proxy]]:
    """Two ways to one server, as through the standbys of a cluster."""
    with ExitStack() as stack:
        yield [stack.enter_context(cuttable(server.port)) for _ in range(2)]


@pytest.fixture
def url(nodes: list[Proxy]) -> str:
    return "+".join(f"{HOST}:{node.port}" for node in nodes)


def test_each_node_is_tried_in_turn(url: str, nodes: list[Proxy]) -> None:
    cluster = ClusterNodes.parse(url)
    ports = [cluster.address().port for _ in range(4)]
    assert ports == [nodes[0].port, nodes[1].port] * 2


def test_a_node_that_is_not_there_is_passed_over(nodes: list[Proxy]) -> None:
    cluster = ClusterNodes.parse(f"{HOST}:{free_port()}+{HOST}:{nodes[0].port}")
    assert [cluster.address().port for _ in range(3)] == [nodes[0].port] * 3


def test_all_nodes_are_named_if_none_is_there() -> None:
    ports = free_port(), free_port()
    with pytest.raises(ServerUnreachable) as caught:
        ClusterNodes.parse(f"{HOST}:{ports[0]}+{HOST}:{ports[1]}").address()
    for port in ports:
        assert f"gearman://{HOST}:{port}: Connection refused" in str(caught.value)


def test_a_client_uses_another_node(url: str, nodes: list[Proxy]) -> None:
    with Client(url) as client:
        first = client.submit("a_client", b"1", background=True).handle
        nodes[0].go_away()
        nodes[1].go_away()
        with pytest.raises(ServerUnreachable):
            client.submit("a_client", b"2", background=True)
        nodes[1].come_back()

        def handles() -> list[str] | None:
            try:
                return [job["handle"] for job in client.control("jobs", function="a_client")["jobs"]]
            except ServerUnreachable:
                return None

        assert eventually(handles, "the other node answers") == [first]


def test_an_asyncio_client_uses_another_node(url: str, nodes: list[Proxy]) -> None:
    async def story() -> None:
        async with AsyncClient(url) as client:
            await client.submit("asyncio", b"1", background=True)
            nodes[0].go_away()
            async with asyncio.timeout(WAIT):
                while True:
                    try:
                        await client.submit("asyncio", b"2", background=True)
                        return
                    except ServerUnreachable:
                        continue

    asyncio.run(story())


def test_an_app_follows_its_jobs_at_another_node(url: str, nodes: list[Proxy], server: Server) -> None:
    with App(url) as app:
        task = app.task(name="follow")(lambda: None)
        job = task.submit()
        nodes[0].go_away()
        with hand_worker(server, task) as worker:
            worker.complete(worker.grab()[0], b"7")
        assert job.result(WAIT) == 7
        assert app.job(job.handle).status().state == "done"
        assert task.submit().handle


def test_a_node_that_accepts_and_does_not_answer_is_passed_over(url: str, nodes: list[Proxy]) -> None:
    nodes[0].hold_answers()
    try:
        with App(url, connect_seconds=4.0) as app:
            assert app.task(name="silent")(lambda: None).submit().handle
    finally:
        nodes[0].release_answers()


def test_a_worker_of_an_app_works_on_at_another_node(url: str, nodes: list[Proxy]) -> None:
    with App(url) as app:
        task = app.task(name="double")(lambda number: number * 2)
        with start_background(app, 1, functions=["double"]) as worker:
            eventually(lambda: worker.connected, "the worker is connected")
            assert task.submit(2).result(WAIT) == 4
            for gone, there in ((0, 1), (1, 0)):
                nodes[gone].go_away()
                nodes[there].come_back()
                assert eventually(lambda: _result(task, 3), "a job is done") == 6


def _result(task: Task[Any, Any], number: int) -> object:
    try:
        return task.submit(number).result(WAIT)
    except ServerUnreachable:
        return None


def test_a_plain_worker_may_start_before_the_cluster(server: Server) -> None:
    port = free_port()
    done: list[bytes] = []

    async def work(job: object) -> bytes:
        done.append(b"")
        return b"result"

    async def story() -> None:
        worker = Worker(f"{HOST}:{port}+{HOST}:{server.port}", {"plain": work}, 1, jobs_total=1)
        async with AsyncClient(f"gearman://{HOST}:{server.port}") as client:
            await client.submit("plain", b"", background=True)
            async with asyncio.timeout(WAIT):
                await worker.run()

    asyncio.run(story())
    assert done


def test_a_name_of_several_addresses(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As DNS gives them: those at which nobody listens are passed over."""
    look_up: Any = socket.getaddrinfo

    def give_two(host: object, *args: object, **options: object) -> list[object]:
        hosts = ("127.0.0.77", HOST) if host in ("nodes.example", b"nodes.example") else (host,)
        return [found for each in hosts for found in look_up(each, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", give_two)
    url = f"gearman://nodes.example:{server.port}"
    with Client(url) as client:
        assert client.submit("named", b"", background=True).handle
    with App(url) as app:
        assert app.task(name="named")(lambda: None).submit().handle


def test_a_command_that_works_waits_for_the_cluster(server: Server) -> None:
    """No node is there when it starts."""
    port = free_port()
    urls = locators([f"{HOST}:{port}+{HOST}:{free_port()}"])
    assert Worker(urls, {"later": ignore}, 1)._connections[0].address == ServerAddress(HOST, port)


async def ignore(job: object) -> bytes:
    return b""


def test_commands_use_a_node_that_is_there(nodes: list[Proxy]) -> None:
    server = f"gearman://{HOST}:{free_port()}+{HOST}:{nodes[0].port}"
    command = [sys.executable, "-m", "switchgear", "functions", "--json", "--server", server]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT)
    assert done.returncode == 0, done.stderr


def test_a_command_says_which_nodes_it_tried() -> None:
    ports = free_port(), free_port()
    server = f"gearman://{HOST}:{ports[0]}+{HOST}:{ports[1]}"
    command = [sys.executable, "-m", "switchgear", "functions", "--server", server]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT)
    assert done.returncode != 0
    assert "cannot connect to any node of the cluster" in done.stderr
    assert "Traceback" not in done.stderr
