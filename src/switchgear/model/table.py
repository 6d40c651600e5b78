"""`JobTable`: jobs by id.

Ids are given out in order, so the table is a sequence with holes rather than a dictionary: pages of slots, and the
pages by number. That takes 8 bytes a job, where a dictionary takes 74 with its key, and most accesses are to the same
page as the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from switchgear.model.job import Job

__all__ = ["JobTable"]

PAGE_BITS: Final = 9
PAGE_PLACES: Final = 1 << PAGE_BITS
PLACE_MASK: Final = PAGE_PLACES - 1
LARGEST_ID: Final = 2**62 - 1


class Page:
    """A run of ids, including those without a job."""

    __slots__ = ("count", "jobs")

    def __init__(self) -> None:
        self.jobs: list[Job | None] = [None] * PAGE_PLACES
        self.count: i64 = 0


class JobTable:
    """A mapping from ids to jobs, in the order of the ids."""

    def __init__(self) -> None:
        self._pages: dict[int, Page] = {}
        self._number: i64 = 0  # the number of the open page
        self._open = self._pages[0] = Page()
        self._count: i64 = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, job_id: int) -> bool:
        return self.get(job_id) is not None

    def __iter__(self) -> Iterator[int]:
        for job in self.values():
            yield job.id

    def values(self, from_id: int = 0) -> Iterator[Job]:
        """The jobs from an id on, the oldest first. None may be added or removed meanwhile."""
        first = from_id >> PAGE_BITS
        for page in [self._pages[number] for number in sorted(self._pages) if number >= first]:
            for job in page.jobs:
                if job is not None and job.id >= from_id:
                    yield job

    def newest_first(self, before_id: int = 0) -> Iterator[Job]:
        """The jobs, the newest first, optionally from below an id."""
        last = (before_id - 1) >> PAGE_BITS
        numbers = sorted((number for number in self._pages if not before_id or number <= last), reverse=True)
        for page in [self._pages[number] for number in numbers]:
            for job in reversed(page.jobs):
                if job is not None and (not before_id or job.id < before_id):
                    yield job

    def get(self, job_id: int) -> Job | None:
        """The job with this id, which may be any number that a peer has sent."""
        return self._find(job_id) if 0 <= job_id <= LARGEST_ID else None

    def _find(self, job_id: i64) -> Job | None:
        number = job_id >> PAGE_BITS
        if number != self._number:
            page = self._pages.get(number)
            if page is None:
                return None
            self._open_page(number, page)
        return self._open.jobs[job_id & PLACE_MASK]

    def __getitem__(self, job_id: int) -> Job:
        job = self.get(job_id)
        if job is None:
            raise KeyError(job_id)
        return job

    def add(self, job: Job) -> None:
        """Add a job under its id, which must be new."""
        job_id: i64 = job.id
        number = job_id >> PAGE_BITS
        if number != self._number:
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = Page()
            self._open_page(number, page)
        page = self._open
        place = job_id & PLACE_MASK
        if page.jobs[place] is None:
            page.count += 1
            self._count += 1
        page.jobs[place] = job

    def remove(self, job_id: i64) -> None:
        """Remove a job, which must be there."""
        if self._find(job_id) is None:
            raise KeyError(job_id)
        page = self._open  # the page of the last access
        page.jobs[job_id & PLACE_MASK] = None
        page.count -= 1
        self._count -= 1

    def _open_page(self, number: i64, page: Page) -> None:
        """Open another page; an empty page is dropped only now, since the next job is probably on it."""
        if not self._open.count:
            del self._pages[self._number]
        self._number = number
        self._open = page
