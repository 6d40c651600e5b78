"""The groups of cells that the generators measure, with real servers."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import replace
from types import ModuleType

import pytest

from bench import beanstalk, crowds, depth, durable, gearman, generators, payloads, servers
from bench.generators import Load
from bench.servers import BenchError
from tests.support.peers import require_program

GROUPS = {
    "gearman": gearman,
    "durable": durable,
    "beanstalk": beanstalk,
    "payloads": payloads,
    "crowds": crowds,
    "depth": depth,
}


def require_all() -> None:
    for program in (os.environ.get("CC", "cc"), "gearmand", "beanstalkd"):
        require_program(program)


@pytest.mark.interop
@pytest.mark.parametrize("name", GROUPS)
def test_every_cell_is_of_its_group_and_there_once(name: str) -> None:
    require_all()
    module: ModuleType = GROUPS[name]
    cells = module.cells(True)
    assert {cell.group for cell in cells} == {name}
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(cell.settings[0].isdigit() for cell in cells)  # its version comes first


@pytest.mark.interop
@pytest.mark.parametrize(
    "peer", [servers.SWITCHGEAR_CREDITS, servers.GEARMAND_BEST, servers.BEANSTALKD_FSYNC], ids=lambda peer: peer.name
)
def test_a_reading_is_that_of_the_generator(peer: servers.Peer) -> None:
    require_all()
    reading = generators.measure(peer, Load("drain", 50, clients=2, workers=2))
    assert reading.fault == ""
    assert reading.jobs == 50
    assert reading.cpu_us is not None
    assert reading.cpu_us > 0
    assert reading.memory_bytes is not None
    assert reading.memory_bytes > 1_000_000


@pytest.mark.interop
def test_where_jobs_are_pushed_fewer_workers_take_as_many_at_a_time() -> None:
    require_all()
    load = Load("foreground", 100)
    assert load.at(servers.SWITCHGEAR).workers == 64
    assert load.at(servers.SWITCHGEAR_CREDITS).workers == 8
    cell = generators.cell("g", "w", servers.SWITCHGEAR_CREDITS, load)
    assert cell.settings.endswith("; 8 workers with 8 credits each")
    assert cell.measure().fault == ""


@pytest.mark.system
def test_a_deep_queue_is_filled_once_for_all_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    require_program(os.environ.get("CC", "cc"))
    monkeypatch.setattr(depth, "FURTHER", 200)
    queue = depth.DeepQueue(servers.SWITCHGEAR_SQLITE, 500)
    readings = {part: queue.measure(part) for part in queue.parts}
    assert [reading.fault for reading in readings.values()] == ["", "", ""]
    assert [reading.jobs for reading in readings.values()] == [200, 200, 500]
    monkeypatch.setattr(depth, "blast", None)  # nothing is left for a second look: it would have to fill again
    with pytest.raises(TypeError):
        queue.measure("restart")


@pytest.mark.system
def test_a_start_without_all_jobs_is_a_fault() -> None:
    with servers.running(servers.SWITCHGEAR) as server:
        assert depth.restart_reading(server, 5).fault == "after the start there are 0 jobs where 5 are expected"


@pytest.mark.interop
def test_who_wakes_everybody_is_seen_to() -> None:
    require_all()
    load = Load("crowd", 10, clients=1, workers=30)
    found = {peer.name: crowds.measure(peer, load) for peer in (servers.SWITCHGEAR, servers.GEARMAND_BEST)}
    assert found["switchgear"].notes["wake-ups per job"] <= 1.2
    assert found["gearmand-best"].notes["wake-ups per job"] == 30


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(BenchError, match="beanstalkd is not installed; on Debian: scripts/install-packages beanstalkd"):
        servers.require(servers.BEANSTALKD)


@pytest.mark.system
def test_a_server_that_ends_at_once_is_an_error_with_its_last_words() -> None:
    broken = replace(servers.SWITCHGEAR, options="--store nowhere:")
    with pytest.raises(BenchError, match=r"switchgear ended at once with status 2(.|\n)*nowhere"):
        servers.require(broken)


def test_more_connections_than_the_system_allows_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(BenchError, match=r"10,000 connections need 10,200 open files, and 4,096 are allowed"):
        servers.require_connections(10_000)
