"""Packages of the client room import their names when they are first used."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import switchgear.client
import switchgear.client.dwork
import switchgear.client.wmp

PACKAGES = [switchgear.client, switchgear.client.dwork, switchgear.client.wmp]
GEARMONKEY = ("AsyncGearMonkeyClient", "GearMonkeyClient", "GearMonkeyWorker")


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_is_there_and_listed(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)


def test_the_names_of_gearmonkey_are_there_but_not_for_everybody() -> None:
    for name in GEARMONKEY:
        assert getattr(switchgear.client, name).__doc__
        assert name in dir(switchgear.client)
        assert name not in switchgear.client.__all__


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_a_name_that_is_not_there(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Nonsense'"):
        _ = package.Nonsense
    done = run(f"from {package.__name__} import Nonsense")
    assert "ImportError: cannot import name 'Nonsense'" in done.stderr


def test_a_module_is_loaded_when_a_name_of_it_is_used() -> None:
    program = """if True:
        import sys, switchgear.client as client
        print("asyncio" in sys.modules, "zmq" in sys.modules)
        client.Client
        print("zmq" in sys.modules, "Client" in vars(client))
        client.DworkClient
        print("zmq" in sys.modules, "redis" in sys.modules)
    """
    assert run(program).stdout.split() == ["False", "False", "False", "True", "True", "False"]


def test_everything_can_be_imported_without_redis_py() -> None:
    done = run("import sys; sys.modules['redis'] = None; from switchgear.client import *; print(Client, WmpWorker)")
    assert (done.returncode, done.stderr) == (0, "")


def test_gearmonkey_says_what_is_missing() -> None:
    done = run("import sys; sys.modules['redis'] = None; from switchgear.client import GearMonkeyClient")
    assert "ImportError: GearMonkey needs another package: pip install 'switchgear[redis]'" in done.stderr


@pytest.mark.parametrize("command", ["--help", "version", "dwork --help", "dwork steal --help", "device --help"])
def test_help_does_not_wait_for_sockets(command: str) -> None:
    program = f"""if True:
        import sys
        from switchgear.cli.main import main
        try:
            main({command.split()!r})
        finally:
            print([name for name in ("asyncio", "zmq", "google.protobuf") if name in sys.modules], file=sys.stderr)
    """
    assert run(program).stderr == "[]\n"
