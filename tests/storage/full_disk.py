"""Run by test_sqlite_commits.py in a process of its own: a disk that is full for a while.

The disk is played by a limit on the size of files, which the process lowers and lifts again.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from switchgear.errors import StorageError
from switchgear.model import DONE, Function, Job
from switchgear.storage.base import JobQuery
from switchgear.storage.sqlite import SqliteStore
from tests.storage.support import close, commit, find, finish, ids, new_job, run


def limit_files_to(size_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes if size_bytes else hard, hard))


def try_to_commit(store: SqliteStore) -> str:
    try:
        run(store.commit())
    except StorageError as error:
        return str(error)
    raise AssertionError("it should not have been kept")


def main(path: Path) -> None:
    store = SqliteStore(path)
    store.open()
    of = Function(b"resize")
    early = [new_job(number, of) for number in range(1, 101)]
    commit(store, early)

    limit_files_to(os.path.getsize(f"{path}-wal") + 10_000)
    late: list[Job] = [new_job(number, of, payload=b"x" * 500) for number in range(101, 2_101)]
    store.stage([finish(early[0]), *late, new_job(2_101, of, payload=b"y" * 100_000)], [], 5_000)
    for _ in range(3):
        text = try_to_commit(store)
        assert str(path) in text, text
    store.stage([finish(early[1])])  # comes while the others wait
    withdrawn = late.pop()
    store.unstage([withdrawn])
    try_to_commit(store)
    everything = JobQuery(limit=10_000)
    assert ids(find(store, everything)) == list(range(100, 0, -1)), "what was kept before is there, and nothing else"
    assert find(store, JobQuery(states=frozenset({DONE}))) == []

    limit_files_to(0)
    assert list(run(store.commit())) == []
    assert ids(find(store, everything)) == [2_101, *range(2_099, 0, -1)]
    assert ids(find(store, JobQuery(states=frozenset({DONE})))) == [2, 1]
    close(store)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
