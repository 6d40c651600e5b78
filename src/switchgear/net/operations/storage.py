"""The verb `storage`: durations of commits, pending changes, and file sizes of the store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from switchgear.model import SECOND_US
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.flows import share_within
from switchgear.net.operations.verb_steps import Steps
from switchgear.protocols.pending_read import awaited
from switchgear.verbs.live_answers import StorageAnswer

__all__ = ["StorageOperations"]

# What a database of SQLite consists of besides its file.
SUFFIXES: Final = ("", "-wal", "-shm")
P50: Final = 0.5
P99: Final = 0.99


class StorageOperations:
    """The verb `storage`."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context

    def storage(self) -> Steps:
        context, hub = self._context, self._context.hub
        recorder = context.recorder
        urls = [hub.store.url, recorder.url if recorder is not None else ""]
        store_bytes, log_bytes = yield from awaited(context.in_thread(partial(file_sizes, urls)))
        times = context.commit_times
        counts = times.counts()
        commits = sum(counts)
        answer: StorageAnswer = {
            "url": hub.store.url,
            "is_durable": hub.is_durable,
            "error": str(hub.storage_error or ""),
            "waiting_changes": context.waiting_changes(),
            "commits": commits,
            "mean_commit_seconds": round(times.sum_us / commits / SECOND_US, 6) if commits else None,
            "p50_commit_seconds": share_within(counts, P50) if commits else None,
            "p99_commit_seconds": share_within(counts, P99) if commits else None,
            "file_bytes": store_bytes,
            "joblog": None
            if recorder is None
            else {
                "url": recorder.url,
                "written": recorder.written,
                "waiting": recorder.waiting,
                "dropped": recorder.dropped,
                "file_bytes": log_bytes,
            },
        }
        return answer


def file_sizes(urls: Sequence[str]) -> list[int | None]:
    """How large the files of these databases are; `None` if there are none."""
    return [file_bytes(url) for url in urls]


def file_bytes(url: str) -> int | None:
    if not url.startswith("sqlite:"):
        return None
    sizes: list[int] = []
    for suffix in SUFFIXES:
        try:
            sizes.append(Path(url.removeprefix("sqlite:") + suffix).stat().st_size)
        except OSError:
            continue
    return sum(sizes) if sizes else None
