"""The entry point of the command, before the command is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Ctrl-C while a module is imported.
INTERRUPTED_AT = """
import sys

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interruption())
from switchgear.cli.entry_point import main
sys.argv = ["switchgear", "worker", "nothing:app"]
main()
"""


@pytest.mark.parametrize("module", ["switchgear.cli.main", "click", "switchgear.cli.worker"])
def test_an_interruption_while_modules_are_imported_prints_no_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT.format(module=module)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_the_module_and_the_installed_program_are_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "switchgear", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: switchgear ")
