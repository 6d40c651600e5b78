"""Several nodes on one PostgreSQL that each own some functions: what is submitted at one is run at any."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
import pytest

from switchgear.client.gearman.blocking import Client
from switchgear.errors import ServerRefused, SwitchgearError
from switchgear.partitions import partition_of, preferred_node
from tests.matrix.submitters import SUBMIT
from tests.matrix.workers import Nursery, running_nursery
from tests.support.postgres import Cluster
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, PING_FUNCTION, OwnerNode, PlainWorker, function_of, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]

PING_OWNER = preferred_node(partition_of(PING_FUNCTION.encode()), NAMES)


@pytest.fixture(scope="module")
def database(postgres: Cluster) -> str:
    return postgres.new_url()


@pytest.fixture(scope="module")
def nodes(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    place = tmp_path_factory.mktemp("owners")
    made = [OwnerNode(name, database, place) for name in NAMES]
    with ExitStack() as stack:
        for node in made:
            stack.callback(node.end)
        for node in made:
            node.start()
        for node in made:
            node.wait_until_it_answers()
        settled(made)
        yield made


def is_done(client: Client, handle: str) -> bool:
    return bool(client.control("job", handle=handle)["state"] == "done")


def has_run(worker: PlainWorker, payload: bytes) -> bool:
    return payload in worker.payloads


def has_more(acknowledged: dict[str, bytes], count: int) -> bool:
    return len(acknowledged) > count


def test_nodes_share_all_partitions(nodes: list[OwnerNode]) -> None:
    shares = [node.partitions() for node in nodes]
    assert shares[0] == shares[1] == shares[2]
    assert sum(shares[0].values()) == 64
    assert min(shares[0].values()) > 8


def test_a_job_is_submitted_at_one_node_owned_by_another_and_run_at_a_third(nodes: list[OwnerNode]) -> None:
    submitter, owner, runner = nodes
    function = function_of(owner)
    with PlainWorker(runner, function) as worker, submitter.client() as client:
        assert client.submit(function, b"one").wait(20) == b"ONE"
        handle = client.submit(function, b"two", background=True).handle
        eventually(partial(has_run, worker, b"two"), "the background job ran")
        assert worker.handles[1].decode() == handle
        for node in nodes:
            with node.client() as other:
                eventually(partial(is_done, other, handle), "its end is known")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with running_nursery() as nursery:
        yield nursery


CELLS = [
    *(
        (submitter, "gearman")
        for submitter in ("gearman", "draft", "http", "python", "python_http", "pingpong", "gearmonkey")
    ),
    *(("gearman", worker) for worker in ("draft", "http", "wmp", "pingpong", "gearmonkey")),
    ("gearmonkey", "gearmonkey"),
]


@pytest.mark.parametrize(("submitter", "worker"), CELLS, ids=["-to-".join(cell) for cell in CELLS])
def test_each_protocol_reaches_workers_of_other_nodes(
    nodes: list[OwnerNode], nursery: Nursery, submitter: str, worker: str
) -> None:
    """Submitter, owner and worker are at three nodes."""
    is_pingpong = "pingpong" in (submitter, worker)
    owner = next(node for node in nodes if not is_pingpong or node.name == PING_OWNER)
    function = PING_FUNCTION if is_pingpong else function_of(owner, 5 + CELLS.index((submitter, worker)))
    entry, runner = (node for node in nodes if node is not owner)
    with ExitStack() as closing:
        process = closing.enter_context(nursery.worker(worker, runner.addresses(function)))
        ticket = SUBMIT[submitter](entry.addresses(function), b"payload", closing)
        assert process.take() == b"payload"
        process.complete(b"result")
        ending = ticket.ending()
        assert ending.well
        assert ending.data in (b"result", None)


def test_a_unique_key_is_taken_once_wherever_it_is_submitted(nodes: list[OwnerNode], database: str) -> None:
    """Each node submits the same keys at the same time."""
    function = function_of(nodes[1], 1)
    keys = 300
    handles: dict[str, list[str]] = {node.name: [] for node in nodes}

    def submit_all(node: OwnerNode) -> None:
        with node.client() as client:
            for key in range(keys):
                handles[node.name].append(client.submit(function, b"x", unique=f"k{key}", background=True).handle)

    threads = [threading.Thread(target=submit_all, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert handles["ada"] == handles["bob"] == handles["cleo"]
    assert len(set(handles["ada"])) == keys
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT count(*) FROM sg_job JOIN sg_function ON sg_function.id = function_id WHERE sg_function.name = %s",
            [function.encode()],
        ).fetchone()
    assert row == (keys,)


def test_a_name_is_taken_once_wherever_it_is_submitted(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[1], 2)
    with nodes[0].client() as client, nodes[2].client() as other:
        handle = client.submit(function, b"x", background=True, name="a-name").handle
        with pytest.raises(ServerRefused, match="there is an unfinished job named"):
            other.submit(function, b"x", background=True, name="a-name")
        assert other.control("job", handle=handle)["name"] == "a-name"


def test_a_killed_node_loses_nothing_that_was_acknowledged(postgres: Cluster, tmp_path: Path) -> None:
    """Clients submit at two nodes to functions of all three, while one of them is killed and started again."""
    url = postgres.new_url()
    nodes = [OwnerNode(name, url, tmp_path) for name in NAMES]
    functions = [function_of(node, number) for node in nodes for number in range(2)]
    acknowledged: dict[str, bytes] = {}
    refused: list[str] = []
    stop = threading.Event()

    def submit(node: OwnerNode, tag: str) -> None:
        number = 0
        while not stop.is_set():
            try:
                with node.client() as client:
                    while not stop.is_set():
                        number += 1
                        payload = f"{tag}-{number}".encode()
                        function = functions[number % len(functions)]
                        acknowledged[client.submit(function, payload, background=True).handle] = payload
            except ServerRefused as error:
                refused.append(str(error))
            except (SwitchgearError, OSError):
                time.sleep(0.1)

    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.end)
            node.start()
        for node in nodes:
            node.wait_until_it_answers()
        settled(nodes)
        workers = [stack.enter_context(PlainWorker(nodes[0], function)) for function in functions]
        threads = [threading.Thread(target=submit, args=(node, node.name)) for node in nodes[:2]]
        for thread in threads:
            thread.start()
        for _ in range(2):
            eventually(partial(has_more, acknowledged, len(acknowledged) + 50), "jobs are acknowledged", 60)
            nodes[2].signal(signal.SIGKILL)
            nodes[2].wait()
            eventually(partial(has_more, acknowledged, len(acknowledged) + 50), "jobs are acknowledged again", 60)
            nodes[2].start()
            nodes[2].wait_until_it_answers()
            settled(nodes)
        stop.set()
        for thread in threads:
            thread.join()

        def missing() -> set[bytes]:
            return set(acknowledged.values()) - {payload for worker in workers for payload in list(worker.payloads)}

        eventually(lambda: not missing(), "everything acknowledged has run", 60)
        assert not refused, refused[:3]
