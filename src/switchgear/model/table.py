"""Jobs by their id.

Ids are given out in order, so a table of jobs is a sequence with holes rather than a dictionary: pages of places, and
the pages by number.  That takes 8 bytes a job, where a dictionary takes 74 with the number that is its key, and most
steps stay on the page where the last one was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.model.job import Job

__all__ = ["JobTable"]

PAGE_BITS: Final = 9
PAGE_PLACES: Final = 1 << PAGE_BITS
PLACE_MASK: Final = PAGE_PLACES - 1


class Page:
    """A run of ids, those without a job too."""

    __slots__ = ("count", "jobs")

    def __init__(self) -> None:
        self.jobs: list[Job | None] = [None] * PAGE_PLACES
        self.count = 0


class JobTable:
    """What a dictionary from ids to jobs would be, in the order of the ids."""

    def __init__(self) -> None:
        self._pages: dict[int, Page] = {}
        self._number = 0  # of the page that is open
        self._open = self._pages[0] = Page()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, job_id: int) -> bool:
        return self.get(job_id) is not None

    def __iter__(self) -> Iterator[int]:
        for job in self.values():
            yield job.id

    def values(self, from_id: int = 0) -> Iterator[Job]:
        """The jobs, the oldest first, from an id on.  None may be added or removed meanwhile."""
        first = from_id >> PAGE_BITS
        for page in [self._pages[number] for number in sorted(self._pages) if number >= first]:
            for job in page.jobs:
                if job is not None and job.id >= from_id:
                    yield job

    def newest_first(self, before_id: int = 0) -> Iterator[Job]:
        """The same the other way round, perhaps from below an id on."""
        last = (before_id - 1) >> PAGE_BITS
        numbers = sorted((number for number in self._pages if not before_id or number <= last), reverse=True)
        for page in [self._pages[number] for number in numbers]:
            for job in reversed(page.jobs):
                if job is not None and (not before_id or job.id < before_id):
                    yield job

    def get(self, job_id: int) -> Job | None:
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
        """Enter a job under its id, which no other has."""
        job_id = job.id
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

    def remove(self, job_id: int) -> None:
        """Take out a job that is there."""
        if self.get(job_id) is None:
            raise KeyError(job_id)
        page = self._open  # where it was found
        page.jobs[job_id & PLACE_MASK] = None
        page.count -= 1
        self._count -= 1

    def _open_page(self, number: int, page: Page) -> None:
        """Turn to another page; an empty one is thrown away only now, since the next job is probably on it."""
        if not self._open.count:
            del self._pages[self._number]
        self._number = number
        self._open = page
