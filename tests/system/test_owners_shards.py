"""A function that is divided into shards, each with an owner, at three nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import psycopg
import pytest

from switchgear import chain, group
from switchgear.errors import PredecessorFailed, ServerRefused, SwitchgearError
from switchgear.partitions import partition_of, shard_name, shard_number
from tests.matrix.submitters import SUBMIT
from tests.matrix.workers import Nursery, running_nursery
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_flows import tasks_at
from tests.system.owner_nodes import (
    DWORK_FUNCTION,
    NAMES,
    PING_FUNCTION,
    OwnerNode,
    PlainWorker,
    function_of,
    running,
    settled,
)

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(400)]

LEASE_SECONDS = 3.0  # a busy machine must not look like a dead node
KEYS = 10_000
CELLS = [
    *((name, name) for name in ("gearman", "draft", "http", "pingpong", "gearmonkey")),
    ("python", "wmp"),
    ("python_http", "gearman"),
]
SHARDS = 4


@pytest.fixture(scope="module")
def database(postgres: Cluster) -> str:
    return postgres.new_url()


@pytest.fixture(scope="module")
def nodes(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    place = tmp_path_factory.mktemp("shards")
    made = [OwnerNode(name, database, place, lease_seconds=LEASE_SECONDS) for name in NAMES]
    with running(made):
        yield made


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with running_nursery() as nursery:
        yield nursery


def ask(node: OwnerNode, verb: str, **arguments: Any) -> Any:
    with node.client() as client:
        return client.control(verb, **arguments)


def rows_of(node: OwnerNode, function: str) -> list[dict[str, Any]]:
    return [row for row in ask(node, "functions") if row.get("shard_of") == function]


def knows(node: OwnerNode, function: str, count: int) -> bool:
    return len(ask(node, "place", function=function).get("shards", ())) == count


def divided(nodes: list[OwnerNode], function: str, count: int = SHARDS) -> list[str]:
    """Divide a function, and wait until all nodes know; returns the names of the shards."""
    answer = ask(nodes[0], "place", function=function, shards=count)
    for node in nodes:
        eventually(partial(knows, node, function, count), "all nodes know", 30)
    names: list[str] = answer["shards"]
    return names


def total(node: OwnerNode, function: str) -> int:
    return sum(row["total"] for row in rows_of(node, function))


def test_keys_that_are_submitted_at_three_nodes_make_one_job_each_and_one_worker_has_all(
    nodes: list[OwnerNode],
) -> None:
    function = function_of(nodes[1], 1)
    names = divided(nodes, function)
    assert names == [f"{function}#{number}" for number in range(1, SHARDS + 1)]
    handles: list[dict[str, str]] = [{}, {}, {}]

    def submit(number: int) -> None:
        with nodes[number].client() as client:
            for start in range(0, KEYS, 500):
                requests = [
                    client.submit(function, b"%d" % key, unique=f"k{key}", background=True)
                    for key in range(start, start + 500)
                ]
                handles[number] |= {f"k{start + place}": job.handle for place, job in enumerate(requests)}

    submitters = [threading.Thread(target=submit, args=(number,)) for number in range(3)]
    for each in submitters:
        each.start()
    for each in submitters:
        each.join()
    assert all(len(each) == KEYS for each in handles)
    rows = rows_of(nodes[2], function)
    assert sum(row["ready"] for row in rows) == KEYS
    assert {row["node"] for row in rows} == set(NAMES)  # of different nodes as far as there are nodes
    counts = dict.fromkeys(names, 0)
    for key in range(KEYS):
        counts[shard_name(function.encode(), shard_number(b"k%d" % key, SHARDS)).decode()] += 1
    assert {row["name"]: row["total"] for row in rows} == counts
    page = ask(nodes[0], "jobs", function=function, limit=50)
    assert len(page["jobs"]) == 50
    assert {job["function"] for job in page["jobs"]} <= set(names)
    with PlainWorker(nodes[0], function) as worker:
        eventually(lambda: len(worker.payloads) >= KEYS, "one worker has all", 200)
        assert sorted(worker.payloads) == sorted(b"%d" % key for key in range(KEYS))
    eventually(lambda: total(nodes[1], function) == 0, "all are done", 30)


@pytest.mark.parametrize(("submitter", "worker"), CELLS, ids=["-to-".join(cell) for cell in CELLS])
def test_clients_and_workers_of_each_protocol_know_the_divided_function(
    nodes: list[OwnerNode], nursery: Nursery, submitter: str, worker: str
) -> None:
    """The jobs are of a shard of the worker's own node, and of shards of other nodes."""
    if not knows(nodes[0], PING_FUNCTION, 3):
        divided(nodes, PING_FUNCTION, 3)
    for entry, runner in ((nodes[0], nodes[0]), (nodes[1], nodes[2])):
        with ExitStack() as closing:
            process = closing.enter_context(nursery.worker(worker, runner.addresses(PING_FUNCTION)))
            ticket = SUBMIT[submitter](entry.addresses(PING_FUNCTION), b"payload", closing)
            assert process.take() == b"payload"
            process.complete(b"result")
            ending = ticket.ending()
            assert ending.well
            assert ending.data in (b"result", None)


def test_operators_see_the_shards_as_functions(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[2], 1)
    divided(nodes, function, 3)

    with nodes[0].client() as client:
        job = client.submit(function, b"foreground")
        with PlainWorker(nodes[1], function) as worker:
            assert job.wait(60) == b"FOREGROUND"
            assert worker.payloads == [b"foreground"]
        stored = client.submit(function, b"queued", background=True, unique="u")
        assert ask(nodes[2], "explain", handle=stored.handle)["shard_of"] == function
        assert ask(nodes[1], "cancel", handle=stored.handle)["cancelled"] == [stored.handle]
        for number in range(30):
            client.submit(function, b"%d" % number, background=True)
        assert ask(nodes[0], "pause", function=function) == {"function": function, "paused": True}
        assert all(row["paused"] for row in rows_of(nodes[0], function))
        ask(nodes[2], "resume", function=function)
        assert not any(row["paused"] for row in rows_of(nodes[0], function))
        assert ask(nodes[2], "cancel", function=function, limit=20)["count"] == 20
        assert ask(nodes[2], "cancel", function=function, limit=20)["count"] == 10
        assert ask(nodes[1], "retry", function=function, states=["cancelled"])["count"] == 31
        assert total(nodes[0], function) == 31
        ask(nodes[2], "cancel", function=function)


def test_workflows_go_through_divided_functions(nodes: list[OwnerNode]) -> None:
    flows = tasks_at(f"gearman://{HOST}:{nodes[1].port}")
    command = [sys.executable, "-m", "switchgear", "worker", "tests.system.owner_flows", "--slots", "4"]
    with ExitStack() as stack:
        for task in (flows.one, flows.add, flows.total):
            divided(nodes, task.name, 3)
        stack.callback(flows.app.close)
        worker = subprocess.Popen([*command, "--server", f"gearman://{HOST}:{nodes[2].port}"])
        stack.callback(worker.wait)
        stack.callback(worker.terminate)
        for _ in range(3):  # in each shard
            job = chain(flows.one.s(1), group(flows.add.s(number) for number in (10, 20)), flows.total.s()).submit()
            assert job.result(timeout=60) == 32
        assert chain(flows.grow.s(3), flows.total_of.s()).submit().result(timeout=60) == 3
        with pytest.raises(PredecessorFailed, match="no 1"):
            chain(flows.one.s(1), flows.fail.s(), flows.one.s()).submit().result(timeout=60)
        assert all(row["total"] == 0 for row in rows_of(nodes[0], flows.add.name))


def test_what_needs_one_owner_is_refused(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[0], 2)
    with nodes[1].client() as client:
        client.submit(function, b"x", background=True)
        with pytest.raises(ServerRefused, match="1 unfinished job: wait until it has none"):
            client.control("place", function=function, shards=3)
        assert client.control("cancel", function=function)["count"] == 1
        client.control("limit", function=function, concurrency=3)
        with pytest.raises(ServerRefused, match="has limits, which cannot be exact"):
            client.control("place", function=function, shards=3)
        client.control("limit", function=function, concurrency=0)
        with pytest.raises(ServerRefused, match="is the function of a dwork listener"):
            client.control("place", function=DWORK_FUNCTION, shards=3)
        names = divided(nodes, function, 3)
        for verb, arguments in (
            ("limit", {"concurrency": 2}),
            ("schedule", {"name": "s", "every_seconds": 60}),
            ("place", {"partition": 3}),
            ("times", {}),
        ):
            with pytest.raises(ServerRefused, match=f"is divided into the shards {names[0]} to {names[-1]}"):
                client.control(verb, function=function, **arguments)
        with pytest.raises(ServerRefused, match="has 3 shards: unite them first"):
            client.control("place", function=function, shards=2)
        with pytest.raises(ServerRefused, match="is a shard itself"):
            client.control("place", function=names[0], shards=2)
        for arguments, reason in (({"shards": 65}, "expected"), ({"shards": 2, "beside": "x"}, "contradict")):
            with pytest.raises(ServerRefused, match=reason):
                client.control("place", function=function, **arguments)
        client.control("limit", function=names[1], concurrency=2)  # of one shard it is exact
        client.control("limit", function=names[1], concurrency=0)


def test_shards_are_united_when_they_have_no_jobs(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[2], 3)
    divided(nodes, function, 3)
    command = [sys.executable, "-m", "switchgear", "place", function, "--server", f"gearman://{HOST}:{nodes[0].port}"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "200"}
        return subprocess.run(
            [*command, *words], capture_output=True, text=True, check=False, timeout=60, env=environment
        )

    assert run().stdout == f"{function}: divided into 3 shards, {function}#1 to {function}#3\n"
    with PlainWorker(nodes[0], function) as worker, nodes[1].client() as client:
        assert client.submit(function, b"a").wait(60) == b"A"
        ask(nodes[0], "pause", function=function)
        client.submit(function, b"b", unique="b", background=True)
        assert "have 1 unfinished job: wait until they have none" in run("--shards", "1").stderr
        ask(nodes[0], "resume", function=function)
        eventually(lambda: total(nodes[0], function) == 0, "it is done", 30)
        assert "partition" in run("--shards", "1").stdout
        for node in nodes:
            eventually(partial(knows, node, function, 0), "all nodes know", 30)
        for number in range(20):
            client.submit(function, b"c%d" % number, background=True)
        client.submit(f"{function}#2", b"late", background=True)  # as a node that does not know yet would
        eventually(lambda: len(worker.payloads) == 23, "they run", 30)
        row = next(row for row in ask(nodes[0], "functions") if row["name"] == function)
        assert (row["node"], row["total"]) == (nodes[2].name, 0)


@pytest.mark.parametrize("count", [3, 1], ids=["divide", "unite"])
def test_a_key_is_taken_once_while_a_function_is_divided_or_united(nodes: list[OwnerNode], count: int) -> None:
    """Nodes that do not know yet submit to the owners that the function had."""
    function, keys = function_of(nodes[2], 5), 200
    divided(nodes, function, 3)
    if count == 3:
        ask(nodes[0], "place", function=function, shards=1)
    handles: list[list[str]] = [[], [], []]
    begin = threading.Barrier(4)

    def submit(number: int) -> None:
        with nodes[number].client() as client:
            begin.wait()
            for key in range(keys):
                handles[number].append(client.submit(function, b"x", unique=f"k{key}", background=True).handle)

    submitters = [threading.Thread(target=submit, args=(number,)) for number in range(3)]
    for each in submitters:
        each.start()
    with nodes[1].client() as client, suppress(ServerRefused):  # it may have jobs already
        begin.wait()
        client.control("place", function=function, shards=count)
    for each in submitters:
        each.join()
    assert handles[0] == handles[1] == handles[2]
    assert len(set(handles[0])) == keys
    rows = [row for row in ask(nodes[0], "functions") if row["name"].split("#")[0] == function]
    assert sum(row["total"] for row in rows) == keys
    with PlainWorker(nodes[1], function) as worker:
        eventually(lambda: len(worker.payloads) >= keys, "all have run", 60)
        assert len(worker.payloads) == keys


def test_a_graph_that_was_stored_while_its_function_was_divided_runs(nodes: list[OwnerNode], database: str) -> None:
    """By a node that did not know yet: the rows of its jobs have the name that the function had."""
    function = function_of(nodes[1], 4)
    job_id, function_id = 1_500_000, "SELECT id FROM sg_function WHERE name = %s"
    with nodes[0].client() as client, psycopg.connect(database, autocommit=True) as connection:
        job = client.submit(function, b"stray", background=True)
        connection.execute(
            f"CREATE TABLE stray AS SELECT * FROM sg_job WHERE function_id = ({function_id})", [function]
        )
        ask(nodes[0], "cancel", handle=job.handle)
        divided(nodes, function, 3)
        connection.execute("UPDATE stray SET id = %s", [job_id])
        connection.execute("INSERT INTO sg_job SELECT * FROM stray")
        put = "INSERT INTO sg_inbox (partition, jobs) VALUES (%s, ARRAY[%s::bigint])"
        connection.execute(put, [partition_of(function.encode()), job_id])
        eventually(lambda: total(nodes[2], function) == 1, "the owner of a shard has it", 30)
        assert ask(nodes[2], "job", handle=str(job_id))["state"] == "ready"
        with PlainWorker(nodes[0], function) as worker:
            eventually(lambda: worker.payloads == [b"stray"], "it runs", 30)
            eventually(lambda: is_inbox_empty(connection), "nothing is left of it", 30)
            assert worker.payloads == [b"stray"]


def is_inbox_empty(connection: psycopg.Connection[Any]) -> bool:
    return connection.execute("SELECT count(*) FROM sg_inbox").fetchone() == (0,)


def test_nothing_is_lost_when_the_owner_of_a_shard_is_killed(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[0], 3)
    divided(nodes, function, 3)
    payloads = {b"%d" % number for number in range(600)}
    with ExitStack() as stack:
        client = stack.enter_context(nodes[0].client())
        ask(nodes[0], "pause", function=function)
        handles = {
            payload: client.submit(function, payload, unique=payload.decode(), background=True).handle
            for payload in sorted(payloads)
        }
        ask(nodes[0], "resume", function=function)
        worker = stack.enter_context(PlainWorker(nodes[0], function))
        eventually(lambda: len(worker.payloads) >= 50, "some have run", 60)
        nodes[1].signal(signal.SIGKILL)
        nodes[1].wait()
        again = client.submit(function, b"599", unique="599", background=True).handle
        eventually(lambda: payloads <= set(worker.payloads), "all have run", 120)
        assert again == handles[b"599"] or worker.payloads.count(b"599") <= 2  # it had ended, or it was joined
        eventually(lambda: total(nodes[0], function) == 0, "all have ended", 60)
        nodes[1].start()
        nodes[1].wait_until_it_answers()
        settled(nodes)
        assert client.submit(function, b"more", unique="x").wait(60) == b"MORE"


@pytest.mark.parametrize("count", [3, 1], ids=["divide", "unite"])
def test_a_function_can_be_used_after_its_owner_is_killed_while_it_is_divided(
    nodes: list[OwnerNode], count: int
) -> None:
    function = function_of(nodes[2], 6 + count)
    if count == 1:
        divided(nodes, function, 3)
    changing = threading.Thread(target=try_to_divide, args=(nodes[0], function, count))
    changing.start()
    nodes[2].signal(signal.SIGKILL)
    nodes[2].wait()
    changing.join()
    with PlainWorker(nodes[1], function) as worker, nodes[0].client() as client:
        for number in range(50):
            client.submit(function, b"%d" % number, unique=f"k{number}", background=True)
        eventually(lambda: len(set(worker.payloads)) == 50, "all have run", 60)
        nodes[2].start()
        nodes[2].wait_until_it_answers()
        settled(nodes)
        eventually(partial(has_become, nodes[1], function, count), "it is as it was wanted", 60)
        assert client.submit(function, b"again").wait(60) == b"AGAIN"


def try_to_divide(node: OwnerNode, function: str, count: int) -> bool:
    try:
        ask(node, "place", function=function, shards=count)
    except (SwitchgearError, OSError):
        return False
    return True


def has_become(node: OwnerNode, function: str, count: int) -> bool:
    """Asks again, which may be refused for a moment."""
    return try_to_divide(node, function, count) and knows(node, function, count if count > 1 else 0)
