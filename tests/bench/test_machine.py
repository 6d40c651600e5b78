"""What is said of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchgear.bench import machine
from switchgear.version import VERSION


def test_a_description_names_versions_and_how_the_program_was_built(tmp_path: Path) -> None:
    about = machine.describe(tmp_path)
    assert about["switchgear"] == f"{VERSION} ({machine.build()})"
    assert machine.build() in ("compiled", "pure")
    assert "SQLite" in about["libraries"]
    assert all(about.values())


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no file system in memory")
def test_a_file_system_in_memory_is_known_as_one() -> None:
    assert machine.file_system_of(Path("/dev/shm")) == "tmpfs"
