"""Images of a disk after a loss of power: what was synced is there, the rest may be, and nothing else is."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import mkdtemp

import pytest

from torture.disk_image import OPEN, RENAME, SECTOR_BYTES, SYNC, TRUNCATE, UNLINK, WRITE, Disk, Record

DIRECTORY, DATABASE, LOG = 1, 2, 3  # inodes


class Journal:
    """Calls, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "store"
        self.directory.mkdir()
        self.disk = Disk(self.directory)

    def call(
        self, kind: int, file: int = 0, data: bytes = b"", offset: int = 0, length: int = 0, error: int = 0
    ) -> None:
        self.disk.apply(Record(kind, 0, 0, file, offset, length, error, data))

    def open(self, file: int, name: str) -> None:
        self.call(OPEN, file, str(self.directory / name).encode())

    def write(self, file: int, data: bytes, offset: int = 0) -> None:
        self.call(WRITE, file, data, offset, len(data))

    def sync(self, file: int, error: int = 0) -> None:
        self.call(SYNC, file, error=error)

    def sync_directory(self) -> None:
        self.call(OPEN, DIRECTORY, str(self.directory).encode())
        self.sync(DIRECTORY)

    def images(self, count: int = 200) -> list[dict[str, bytes]]:
        """What may be found, by name."""
        found = []
        for seed in range(count):
            place = Path(mkdtemp(dir=self.directory.parent))
            self.disk.write_image(place, random.Random(seed))
            found.append({path.name: path.read_bytes() for path in place.iterdir()})
        return found


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path)
    made.open(DATABASE, "jobs.db")
    made.sync_directory()
    return made


def contents(journal: Journal) -> set[bytes]:
    return {image["jobs.db"] for image in journal.images()}


def test_what_was_synced_is_there(journal: Journal) -> None:
    journal.write(DATABASE, b"kept")
    journal.sync(DATABASE)
    assert contents(journal) == {b"kept"}


def test_what_was_not_synced_is_there_or_not(journal: Journal) -> None:
    journal.write(DATABASE, b"old")
    journal.sync(DATABASE)
    journal.write(DATABASE, b"new")
    assert contents(journal) == {b"old", b"new"}


def test_a_later_write_may_be_there_without_an_earlier_one(journal: Journal) -> None:
    journal.write(DATABASE, b"a")
    journal.write(DATABASE, b"b", 1)
    assert contents(journal) == {b"", b"a", b"ab", b"\0b"}


def test_a_write_may_be_torn_between_sectors_and_nowhere_else(journal: Journal) -> None:
    journal.write(DATABASE, b"0" * 2 * SECTOR_BYTES)
    journal.sync(DATABASE)
    journal.write(DATABASE, b"1" * 2 * SECTOR_BYTES)
    found = {
        tuple(content[start : start + SECTOR_BYTES] for start in range(0, len(content), SECTOR_BYTES))
        for content in contents(journal)
    }
    assert len(found) == 4
    assert {sector for sectors in found for sector in sectors} == {b"0" * SECTOR_BYTES, b"1" * SECTOR_BYTES}


def test_a_file_may_be_cut_off_or_not(journal: Journal) -> None:
    journal.write(DATABASE, b"long")
    journal.sync(DATABASE)
    journal.call(TRUNCATE, DATABASE, length=2)
    assert contents(journal) == {b"long", b"lo"}


def test_a_name_is_there_for_certain_when_its_directory_was_synced(journal: Journal) -> None:
    journal.open(LOG, "jobs.db-wal")
    journal.write(LOG, b"log")
    journal.sync(LOG)
    assert {"jobs.db-wal" in image for image in journal.images()} == {True, False}
    journal.sync_directory()
    assert {image["jobs.db-wal"] for image in journal.images(20)} == {b"log"}


def test_a_deleted_file_may_be_back(journal: Journal) -> None:
    journal.call(UNLINK, data=str(journal.directory / "jobs.db").encode())
    assert {"jobs.db" in image for image in journal.images()} == {True, False}


def test_a_renamed_file_has_one_of_its_names(journal: Journal) -> None:
    names = [str(journal.directory / name).encode() for name in ("jobs.db", "other.db")]
    journal.call(RENAME, data=b"\0".join(names))
    journal.sync_directory()
    assert [sorted(image) for image in journal.images(5)] == [["other.db"]] * 5


def test_pages_of_a_sync_that_failed_are_not_promised_by_the_next_one(journal: Journal) -> None:
    journal.write(DATABASE, b"old")
    journal.sync(DATABASE)
    journal.write(DATABASE, b"new")
    journal.sync(DATABASE, error=5)
    journal.sync(DATABASE)
    assert contents(journal) == {b"old", b"new"}


def test_pages_that_are_written_again_are(journal: Journal) -> None:
    journal.write(DATABASE, b"old")
    journal.sync(DATABASE, error=5)
    journal.write(DATABASE, b"new")
    journal.sync(DATABASE)
    assert contents(journal) == {b"new"}
