"""Schedules that get a function of another owner: whoever dies, some node has them, and each tick is met once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from switchgear.errors import SwitchgearError
from tests.support.postgres import Cluster
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, OwnerNode, function_of, running, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(300)]

LEASE_SECONDS = 3.0


@pytest.fixture(scope="module")
def database(postgres: Cluster) -> str:
    return postgres.new_url()


@pytest.fixture(scope="module")
def nodes(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    place = tmp_path_factory.mktemp("schedules")
    made = [OwnerNode(name, database, place, lease_seconds=LEASE_SECONDS) for name in NAMES]
    with running(made):
        yield made


def ask(node: OwnerNode, verb: str, **arguments: Any) -> Any:
    with node.client() as client:
        return client.control(verb, **arguments)


def listed(node: OwnerNode, name: str) -> list[tuple[str, str]]:
    """The function and the node of the schedules with this name: one."""
    return [(each["function"], each["node"]) for each in ask(node, "schedules") if each["name"] == name]


def is_listed(nodes: list[OwnerNode], name: str, function: str, owner: str) -> bool:
    return all(listed(node, name) == [(function, owner)] for node in nodes)


@pytest.mark.parametrize("entry", range(3), ids=["third", "old", "new"])
def test_a_schedule_moves_with_its_function(nodes: list[OwnerNode], entry: int) -> None:
    """Whichever node is asked; its figures and its pause stay."""
    old, new = nodes[1], nodes[2]
    first, second = function_of(old, 1), function_of(new, 1)
    name = f"moves-{entry}"
    ask(nodes[0], "schedule", name=name, function=first, every_seconds=86_400)
    ask(nodes[0], "run_schedule", name=name)
    ask(nodes[0], "pause_schedule", name=name)
    before = next(each for each in ask(nodes[0], "schedules") if each["name"] == name)
    answer = ask(
        nodes[entry], "schedule", name=name, function=second, every_seconds=86_400, options={"priority": "high"}
    )
    assert (answer["function"], answer["options"]["priority"]) == (second, "high")
    assert (answer["paused"], answer["fired"], answer["last_job"]) == (True, before["fired"], before["last_job"])
    assert is_listed(nodes, name, second, new.name)
    back = ask(nodes[entry], "schedule", name=name, function=first, every_seconds=3_600)
    assert (back["function"], back["spec"]) == (first, "every 1h") or back["function"] == first
    assert is_listed(nodes, name, first, old.name)
    assert ask(nodes[entry], "unschedule", name=name)["removed"]
    assert all(listed(node, name) == [] for node in nodes)


def test_the_new_owner_dies_before_it_has_the_schedule(nodes: list[OwnerNode], database: str) -> None:
    """The row has changed already, so the next owner of the function has it; and it is never there twice."""
    entry, old, new = nodes
    first, second = function_of(old, 2), function_of(new, 2)
    ask(entry, "schedule", name="dies", function=first, every_seconds=86_400)
    new.signal(signal.SIGSTOP)
    moving = threading.Thread(target=try_to_move, args=(entry, "dies", second))
    moving.start()
    with psycopg.connect(database, autocommit=True) as connection:
        eventually(partial(is_stored, connection, second), "it is stored with its new function", 30)
    new.signal(signal.SIGKILL)
    new.wait()
    eventually(lambda: [name for name, _ in listed(entry, "dies")] == [second], "another node has it", 30)
    moving.join()
    new.start()
    new.wait_until_it_answers()
    settled(nodes)
    eventually(partial(is_listed, nodes, "dies", second, new.name), "it has come back", 30)


def is_stored(connection: psycopg.Connection[Any], function: str) -> bool:
    rows = connection.execute("SELECT fields FROM sg_schedule").fetchall()
    return any(function.encode() in bytes(fields) for (fields,) in rows)


def try_to_move(node: OwnerNode, name: str, function: str) -> None:
    try:
        ask(node, "schedule", name=name, function=function, every_seconds=86_400)
    except (SwitchgearError, OSError):
        pass


def test_the_old_owner_dies_while_it_gives_the_schedule(nodes: list[OwnerNode]) -> None:
    """Some node has it, with the old or the new function, and with the new one if it is asked again."""
    entry, old, new = nodes
    first, second = function_of(old, 3), function_of(new, 3)
    ask(entry, "schedule", name="given", function=first, every_seconds=86_400)
    moving = threading.Thread(target=try_to_move, args=(entry, "given", second))
    moving.start()
    old.signal(signal.SIGKILL)
    old.wait()
    moving.join()
    eventually(lambda: len(listed(entry, "given")) == 1, "some node has it", 30)
    old.start()
    old.wait_until_it_answers()
    settled(nodes)
    assert ask(entry, "schedule", name="given", function=second, every_seconds=86_400)["function"] == second
    eventually(partial(is_listed, nodes, "given", second, new.name), "it has moved", 30)


def test_each_tick_is_met_once_while_a_schedule_moves_to_and_fro(nodes: list[OwnerNode]) -> None:
    first, second = function_of(nodes[1], 4), function_of(nodes[2], 4)
    options = {"catch_up": "all", "overlap": True}
    for number in range(8):
        ask(nodes[0], "schedule", name="ticks", function=(first, second)[number % 2], every_seconds=1, **options)
        wanted = number + 1
        eventually(partial(has_fired, nodes[0], wanted), "it goes on", 30)
    ask(nodes[0], "pause_schedule", name="ticks")
    times: list[int] = []
    for function in (first, second):
        jobs = ask(nodes[0], "jobs", function=function, limit=1_000)["jobs"]
        times += [ask(nodes[0], "job", handle=job["handle"])["run_at"] for job in jobs]
    assert len(times) >= 8
    assert len(times) == len(set(times))
    assert max(times) - min(times) == pytest.approx(len(times) - 1)  # and none is missing
    ask(nodes[0], "unschedule", name="ticks")


def has_fired(node: OwnerNode, count: int) -> bool:
    return any(each["fired"] >= count for each in ask(node, "schedules") if each["name"] == "ticks")
