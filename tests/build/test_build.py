"""What runs is what was built: compiled modules in the one run of the tests, plain Python in the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import switchgear
from switchgear.version import BUILD
from tests.support.servers import running_switchgear

EXPECTED = os.environ.get("EXPECT_BUILD", BUILD)
PACKAGE = Path(switchgear.__file__).parent
ROOT = Path(__file__).parents[2]


def test_it_is_the_build_that_was_asked_for() -> None:
    assert EXPECTED == BUILD


@pytest.mark.parametrize(
    "name",
    [
        "engine.engine",
        "model",
        "net.hub",
        "net.connections.tcp_connection",
        "net.connections.zmtp_listener",
        "protocols.gearman.session",
        "storage.memory",
    ],
)
def test_a_module_on_the_path_of_every_job_is_of_that_build(name: str) -> None:
    file = import_module(f"switchgear.{name}").__file__
    assert file is not None
    assert ("pure" if file.endswith(".py") else "compiled") == EXPECTED


@pytest.mark.parametrize("name", ["cli.main", "net.service", "protocols.gearman.job_options"])
def test_the_others_are_plain_python_in_both(name: str) -> None:
    file = import_module(f"switchgear.{name}").__file__
    assert file is not None
    assert file.endswith(".py")


def test_the_sources_are_there_in_both() -> None:
    for library in PACKAGE.rglob("*.so"):
        assert library.with_name(library.name.partition(".")[0] + ".py").exists()


def test_processes_that_tests_start_run_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "switchgear", "version", "--verbose", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    described = json.loads(done.stdout)
    assert (described["build"], described["files"]) == (EXPECTED, str(PACKAGE))


@pytest.mark.system
def test_a_server_says_at_its_start_what_it_is() -> None:
    with running_switchgear() as server:
        first_line = server.output().splitlines()[0]
    assert first_line.startswith(f"switchgear {switchgear.__version__}, {EXPECTED}")
    assert ("slower than compiled" in first_line) == (EXPECTED == "pure")


def test_an_older_python_is_told_which_one_is_needed() -> None:
    """pip prints the whole traceback of a backend that fails, so this is all that it may print."""
    code = "import sys; sys.version_info = (3, 10, 13, 'final', 0); import build_backend"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith("Switchgear requires Python 3.11 or later, and this is ")
    assert told.stderr.count("\n") == 1
