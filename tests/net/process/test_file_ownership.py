"""What another user owns, or can write to, is not used for jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchgear.errors import ConfigError
from switchgear.net.process.file_ownership import check_database, check_directory, check_link, is_open_to_others

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of somebody else's")
STRANGER = 12_345


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "jobs"
    path.mkdir(mode=0o700)
    return path


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775])
def test_a_directory_of_our_own(directory: Path, mode: int) -> None:
    directory.chmod(mode)
    check_directory(directory)
    check_database(directory / "jobs.db")
    assert not is_open_to_others(directory / "jobs.db")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_one_that_everybody_can_write_to(directory: Path, mode: int) -> None:
    directory.chmod(mode)
    with pytest.raises(ConfigError, match="chmod o-w"):
        check_directory(directory)
    assert is_open_to_others(directory / "jobs.db") == (mode != 0o1777)


@needs_root
def test_one_of_somebody_else(directory: Path) -> None:
    os.chown(directory, STRANGER, STRANGER)
    with pytest.raises(ConfigError, match="belongs to another user"):
        check_directory(directory)
    with pytest.raises(ConfigError, match="belongs to another user"):
        check_database(directory / "jobs.db")


@needs_root
@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal", ".lock"])
def test_a_file_that_somebody_has_put_there(directory: Path, ending: str) -> None:
    """As anybody can in /tmp: SQLite would take such a journal for its own."""
    directory.chmod(0o1777)
    planted = directory / f"jobs.db{ending}"
    planted.touch()
    check_database(directory / "jobs.db")
    os.chown(planted, STRANGER, STRANGER)
    with pytest.raises(ConfigError, match="belongs to another user"):
        check_database(directory / "jobs.db")


@needs_root
def test_a_link_that_somebody_has_put_there(directory: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(directory)
    check_link(link)
    check_database(link / "jobs.db")
    os.lchown(link, STRANGER, STRANGER)
    with pytest.raises(ConfigError, match="belongs to another user"):
        check_link(link)
    file = tmp_path / "jobs.db"
    file.symlink_to(directory / "other.db")
    check_database(file)
    os.lchown(file, STRANGER, STRANGER)
    with pytest.raises(ConfigError, match="belongs to another user"):
        check_database(file)


def test_a_database_that_everybody_can_write_to(directory: Path) -> None:
    file = directory / "jobs.db"
    file.touch()
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod o-w"):
        check_database(file)


def test_what_is_not_there_yet(tmp_path: Path) -> None:
    check_database(tmp_path / "new" / "jobs.db")
    check_link(tmp_path / "new")
