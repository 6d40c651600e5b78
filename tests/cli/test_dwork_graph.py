"""`switchgear dwork graph`."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear.client.dwork import DworkClient
from tests.cli.dwork_calls import dwork, dwork_json
from tests.client.dwork_servers import Original, fake_server, running_dwork


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server on which something has failed."""
    with running_dwork() as (_, url):
        with DworkClient(url) as client:
            client.create(["fetch", ("unpack", ["fetch"]), ("index", ["unpack"]), ("publish", ["index"]), "logo"])
            for name in ("fetch", "unpack"):
                assert [task.name for task in client.steal()] == [name]
                client.complete(name)
            client.steal()
            client.complete("index", error="disk full")
        yield url


@pytest.mark.system
def test_a_server_in_words(url: str) -> None:
    lines = dwork("graph", url=url).stdout.splitlines()
    assert lines[0] == "5 tasks: 2 done, 1 ready, 1 stuck, 1 failed"
    assert lines[1].startswith("critical path: ")
    assert lines[1].endswith(", fetch -> unpack -> index")
    assert lines[2:] == ["failed: index: disk full (1 stuck behind it)"]


@pytest.mark.system
def test_a_server_for_programs(url: str) -> None:
    told = dwork_json("graph", url=url)
    assert told["counts"] == {"done": 2, "ready": 1, "stuck": 1, "failed": 1}
    assert told["critical_path"] == ["fetch", "unpack", "index"]
    assert told["unsuccessful"] == [{"task": "index", "state": "failed", "error": "disk full", "stuck": 1}]


@pytest.mark.system
def test_pictures_of_a_server(url: str, tmp_path: Path) -> None:
    svg, dot = tmp_path / "graph.svg", tmp_path / "graph.dot"
    assert dwork("graph", "--svg", str(svg), "--dot", str(dot), url=url).exit_code == 0
    assert {"fetch", "publish", "stuck: 1"} <= {element.text for element in ET.parse(svg).iter()}
    assert dot.read_text().count("->") == 3


@pytest.mark.system
def test_a_server_that_cannot_list_its_tasks() -> None:
    with fake_server(Original()) as server:
        assert dwork("graph", url=server.url).exit_code == 1


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks"
    path.write_text("b,a\na\n")
    result = dwork("graph", "--file", str(path))
    assert (result.exit_code, result.stdout) == (0, "2 tasks: 1 ready, 1 waiting\n")
    assert "t2 -> t1;" in dwork("graph", "--file", str(path), "--dot", "-").stdout
    assert dwork("graph", "--file", str(path), "--svg", "-").stdout.startswith("<svg ")


def test_too_many_for_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "tasks"
    path.write_text("".join(f"task {number}\n" for number in range(201)))
    svg, dot = tmp_path / "graph.svg", tmp_path / "graph.dot"
    result = dwork("graph", "--file", str(path), "--svg", str(svg), "--dot", str(dot))
    assert result.exit_code == 1
    assert "201 tasks are too many" in result.stderr
    assert not svg.exists()
    assert dot.exists()


def test_a_circle_in_a_file() -> None:
    result = dwork("graph", "--file", "-", stdin=b"a,b\nb,a\n")
    assert result.exit_code == 2
    assert "a -> b -> a" in result.stderr


@pytest.mark.parametrize("args", [["--dot", "-", "--svg", "-"], ["--dot", "-", "--json"]])
def test_one_thing_on_standard_output(args: list[str]) -> None:
    assert dwork("graph", "--file", "-", *args).exit_code == 2


@pytest.mark.system
def test_many_failures_are_not_all_named() -> None:
    with running_dwork() as (_, url), DworkClient(url) as client:
        client.create(f"t{number}" for number in range(25))
        client.complete([task.name for task in client.steal(25)], error="no")
        lines = dwork("graph", url=url).stdout.splitlines()
        assert lines[-1] == "… and 5 more"
        assert len(json.loads(dwork("graph", "--json", url=url).stdout)["unsuccessful"]) == 25
