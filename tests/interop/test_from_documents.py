"""Workers that were written from the documents' text alone, in Python, Node and C, with other people's libraries.

They share no code with the package, and WMP's are written from docs/protocols/wmp.md.  A Gearman client submits jobs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchgear.client import Client
from tests.client.background import url_of
from tests.support.peers import require_c_library, require_node_script, require_program
from tests.support.servers import HOST, Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.system

FOLDER = Path(__file__).parent / "from_documents"
JOBS = 5
LISTENERS = {
    "pingpong": f"pingpong://{HOST}:0?workers=0&function=pingpong",
    "wmp": f"wmp://{HOST}:0",
    "dwork": f"dwork://{HOST}:0?function=dwork",
    "gearmonkey": f"gearmonkey://{HOST}:0",
}
PROTOCOLS = ("gearman_draft", *LISTENERS)


def python_command(protocol: str, _folder: Path) -> list[str]:
    return [sys.executable, str(FOLDER / "python" / f"{protocol}.py")]


def node_command(protocol: str, _folder: Path) -> list[str]:
    return require_node_script(f"from_documents/{protocol}.mjs")


def c_command(protocol: str, folder: Path) -> list[str]:
    require_c_library("zmq.h", "libzmq3-dev")
    require_c_library("hiredis/hiredis.h", "libhiredis-dev")
    program = folder / protocol
    source = FOLDER / "c" / f"{protocol}.c"
    compiler = [require_program("cc"), "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compiler, "-o", program, source, "-lzmq", "-lhiredis"], check=True)
    return [str(program)]


COMMANDS: dict[str, Callable[[str, Path], list[str]]] = {"python": python_command, "node": node_command, "c": c_command}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that speaks all protocols."""
    listeners = [argument for url in LISTENERS.values() for argument in ("--listen", url)]
    with running_switchgear(*listeners) as running:
        yield running


def port_for_workers(server: Server, protocol: str) -> str:
    """The port of a protocol, as the server printed it."""
    if protocol == "gearman_draft":
        return str(server.port)
    pattern = r"workers=(\d+)" if protocol == "pingpong" else rf"{protocol}://[\d.]+:(\d+)"
    found = re.search(pattern, server.output())
    assert found, server.output()
    return found[1]


@pytest.mark.parametrize("language", COMMANDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_does_jobs_and_leaves(server: Server, protocol: str, language: str, tmp_path: Path) -> None:
    function = protocol if protocol in ("pingpong", "dwork") else f"{protocol} {language}".replace(" ", "-")
    command = [*COMMANDS[language](protocol, tmp_path), HOST, port_for_workers(server, protocol), function, str(JOBS)]
    with Client(url_of(server)) as client:
        submissions = [client.submit(function, b"job %d of a client" % number) for number in range(JOBS)]
        worker = subprocess.run(command, stderr=subprocess.PIPE, timeout=DEADLINE_SECONDS, check=False)
        assert worker.returncode == 0, worker.stderr.decode()
        results = [submission.wait(DEADLINE_SECONDS) for submission in submissions]
    # A dwork worker reports completion, and no bytes.
    expected = [b"" if protocol == "dwork" else b"JOB %d OF A CLIENT" % number for number in range(JOBS)]
    assert results == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_language_has_a_worker_of_every_protocol(protocol: str) -> None:
    node = Path(require_node_script(f"from_documents/{protocol}.mjs")[1])
    for source in (FOLDER / "python" / f"{protocol}.py", node, FOLDER / "c" / f"{protocol}.c"):
        assert "switchgear" not in source.read_text(), "a worker that shares code with the package"
