"""What a disk may hold after a loss of power, rebuilt from the journal that the shim has written.

A disk has only promised what was synced.  Of everything that was written to a file since its last sync, any part may be
there and any may be missing: whole writes, or single sectors of them, the later ones without the earlier ones.  The
same holds for names, whose promise is the sync of their directory; they are kept in their order.  Pages of a sync that
failed count as written to the system, which never tries them again: a later sync that succeeds says nothing of them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

OPEN, WRITE, SYNC, TRUNCATE, UNLINK, RENAME = 1, 2, 3, 4, 5, 6
SECTOR_BYTES = 512
_MAGIC = 0x544A4C31
_RECORD = struct.Struct("=IiqqQqqiI")


class Record(NamedTuple):
    """A call that has changed something."""

    kind: int
    begun_ns: int
    ended_ns: int
    file: int
    offset: int
    length: int
    error: int
    data: bytes


def read_journal(path: Path) -> Iterator[Record]:
    """All records; the last one may be cut off, and is left out then."""
    data = path.read_bytes()
    position = 0
    while position + _RECORD.size <= len(data):
        magic, kind, begun_ns, ended_ns, file, offset, length, error, size = _RECORD.unpack_from(data, position)
        position += _RECORD.size
        if magic != _MAGIC:
            raise ValueError(f"{path}: no record at {position}")
        if position + size > len(data):
            return
        yield Record(kind, begun_ns, ended_ns, file, offset, length, error, data[position : position + size])
        position += size


@dataclass
class Change:
    """A change of a file that is not promised: a write, or a new length if `data` is None."""

    offset: int
    data: bytes | None
    is_lost: bool = False  # its sync has failed

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            if self.offset < len(content):
                del content[self.offset :]
            else:
                content.extend(bytes(self.offset - len(content)))
            return
        end = self.offset + len(self.data)
        if end > len(content):
            content.extend(bytes(end - len(content)))
        content[self.offset : end] = self.data

    def sectors(self) -> list[Change]:
        """The same, sector by sector."""
        if self.data is None:
            return [self]
        parts = []
        position = self.offset
        end = self.offset + len(self.data)
        while position < end:
            stop = min(end, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
            parts.append(Change(position, self.data[position - self.offset : stop - self.offset]))
            position = stop
        return parts

    def without(self, start: int, end: int) -> list[Change]:
        """What is left of it when a part was written anew."""
        if self.data is None or end <= self.offset or start >= self.offset + len(self.data):
            return [self]
        left = []
        if start > self.offset:
            left.append(Change(self.offset, self.data[: start - self.offset], self.is_lost))
        if end < self.offset + len(self.data):
            left.append(Change(end, self.data[end - self.offset :], self.is_lost))
        return left


@dataclass
class DiskFile:
    """What a file has for certain, and what has happened to it since."""

    promised: bytearray = field(default_factory=bytearray)
    changes: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        left: list[Change] = []
        for change in self.changes:
            if change.is_lost:
                left.append(change)
                continue
            change.apply(self.promised)
            if change.data is not None:
                end = change.offset + len(change.data)
                left = [part for lost in left for part in lost.without(change.offset, end)]
        self.changes = left

    def image(self, chance: random.Random) -> bytes:
        content = bytearray(self.promised)
        for change in surviving(self.changes, chance):
            change.apply(content)
        return bytes(content)


def surviving(changes: list[Change], chance: random.Random) -> list[Change]:
    """Those that have reached the disk."""
    share = chance.random()
    match chance.choice(("none", "all", "first", "some", "torn")):
        case "none":
            return []
        case "all":
            return changes
        case "first":
            return changes[: int(share * (len(changes) + 1))]
        case "some":
            return [change for change in changes if chance.random() < share]
        case _:
            return [part for change in changes for part in change.sectors() if chance.random() < share]


class Disk:
    """A directory, as the calls of a server have changed it."""

    def __init__(self, directory: Path) -> None:
        """With the files that are there now, which are taken for promised."""
        self.directory = directory
        self._files: dict[int, DiskFile] = {}
        self._names: dict[str, DiskFile] = {}  # as the server sees them
        self._promised_names: dict[str, DiskFile] = {}
        self._name_changes: list[tuple[str, DiskFile | None]] = []
        for path in directory.iterdir():
            if path.is_file() and not path.name.endswith(("-shm", ".lock")):
                self._names[path.name] = DiskFile(bytearray(path.read_bytes()))
        self._promised_names.update(self._names)

    def apply(self, record: Record) -> None:
        """A call was made."""
        if record.kind == OPEN:
            self._open(record)
        elif record.kind == WRITE:
            if record.data:
                self._files[record.file].changes.append(Change(record.offset, record.data))
        elif record.kind == TRUNCATE:
            if not record.error:
                self._files[record.file].changes.append(Change(record.length, None))
        elif record.kind == SYNC:
            self._sync(record)
        elif not record.error:
            self._rename(record)

    def _open(self, record: Record) -> None:
        path = Path(record.data.decode())
        if path == self.directory:
            self._files.pop(record.file, None)  # its number now means the directory
            return
        file = self._names.get(path.name)
        if file is None:
            file = DiskFile()
            self._name(path.name, file)
        self._files[record.file] = file

    def _sync(self, record: Record) -> None:
        file = self._files.get(record.file)
        if file is None:
            if not record.error:
                self._promised_names = dict(self._names)
                self._name_changes = []
        elif record.error:
            for change in file.changes:
                change.is_lost = True
        else:
            file.sync()

    def _rename(self, record: Record) -> None:
        names = [Path(name).name for name in record.data.decode().split("\0")]
        file = self._names.get(names[0])
        self._name(names[0], None)
        if record.kind == RENAME:
            self._name(names[1], file)

    def _name(self, name: str, file: DiskFile | None) -> None:
        self._name_changes.append((name, file))
        _set(self._names, name, file)

    def write_image(self, directory: Path, chance: random.Random) -> None:
        """One of the states that the disk may be in when the power goes now."""
        names = dict(self._promised_names)
        for name, file in self._name_changes[: chance.randint(0, len(self._name_changes))]:
            _set(names, name, file)
        for name, file in names.items():
            (directory / name).write_bytes(file.image(chance))


def _set(names: dict[str, DiskFile], name: str, file: DiskFile | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file
