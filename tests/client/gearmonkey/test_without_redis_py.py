"""redis-py is an extra: everything else works without it, and GearMonkey says what is missing."""

from __future__ import annotations

import subprocess
import sys

import switchgear.client.gearmonkey as gearmonkey


def without_redis_py(statement: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.modules['redis'] = None; {statement}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_everything_else_can_be_imported() -> None:
    done = without_redis_py("import switchgear, switchgear.client, switchgear.cli.main")
    assert (done.returncode, done.stderr) == (0, "")


def test_gearmonkey_names_the_extra() -> None:
    done = without_redis_py("import switchgear.client.gearmonkey")
    assert done.returncode == 1
    assert "ImportError: GearMonkey needs another package: pip install 'switchgear[redis]'" in done.stderr


def test_the_public_names_are_there_and_explained() -> None:
    for name in gearmonkey.__all__:
        assert getattr(gearmonkey, name) is not None
    for name in (
        "AsyncGearMonkeyClient",
        "GearMonkeyClient",
        "GearMonkeyJob",
        "GearMonkeyWorker",
        "WorkerTiming",
        "CreateOptions",
    ):
        assert getattr(gearmonkey, name).__doc__
