"""What is imported before it is needed: the library and the help of the command have to be there at once.

`import switchgear` is to take less than 60 ms, and `switchgear --help` 100 ms.  Times depend on the machine, so
these tests name modules instead, each of which takes several milliseconds.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# Slow to import, and not needed to say what there is.
HEAVY = (
    *("asyncio", "concurrent.futures", "dataclasses", "http.client", "inspect", "logging", "multiprocessing"),
    *("sqlite3", "ssl", "tomllib", "unittest", "urllib.request", "zoneinfo"),
    *("httptools", "msgspec", "psycopg", "redis", "rich", "uvloop", "zmq"),
    *("switchgear.app.app", "switchgear.client", "switchgear.config", "switchgear.engine.engine", "switchgear.model"),
    *("switchgear.net.service", "switchgear.protocols.session", "switchgear.storage.base"),
)
HELP = "from switchgear.cli.main import main\nmain(['--help'], prog_name='switchgear', standalone_mode=False)"
FOR_HELP = {"inspect"}  # click imports it
WORKER = "import switchgear.cli.worker\nimport switchgear.cli.worker_app"
# Memory and time of every worker, for what few of them do.
NOT_FOR_WORKERS = (
    *("bz2", "ctypes", "difflib", "lzma", "multiprocessing", "resource", "secrets", "shutil", "sqlite3", "tempfile"),
    *("rich", "uvloop", "zmq", "switchgear.config", "switchgear.engine", "switchgear.model", "switchgear.storage"),
)


@pytest.mark.parametrize(
    ("program", "needed"),
    [("import switchgear", set[str]()), ("import switchgear.testing", set[str]()), (HELP, FOR_HELP)],
)
def test_only_what_is_needed_is_imported(program: str, needed: set[str]) -> None:
    script = f"{program}\nimport sys\nprint(*sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()[-1].split()) <= needed


def test_a_worker_imports_only_what_it_needs() -> None:
    script = f"{WORKER}\nimport sys\nprint(*sorted(set({NOT_FOR_WORKERS!r}) & set(sys.modules)))\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_whether_the_package_is_compiled_is_told_without_importing_the_engine() -> None:
    script = "import sys\nimport switchgear\nprint('switchgear.engine' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize(
    ("program", "most"),
    # How many there are today, and a few more: a new one among them should have a reason.
    [("import switchgear", 45), ("from switchgear import App", 260), (HELP, 150)],
)
def test_few_modules_are_imported(program: str, most: int) -> None:
    script = f"import sys\nbefore = set(sys.modules)\n{program}\nprint(len(set(sys.modules) - before))\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) <= most
