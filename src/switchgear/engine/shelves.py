"""Long queues: their middle is put away on shelves, and every unfinished job can be found all the same.

A queue has a head and, when it is very long, a `Rack`: shelves, and behind them a tail to which new jobs are added.
When the head is used up the next shelf is unpacked into it, and after the last shelf the tail takes its place.  So the
head is empty only if the queue is, and whoever looks at the front of a queue finds it there.

What is put away.  The owner calls `put_away` when the store has kept jobs, and names the functions they are of.  From
the front of a long tail some hundred entries at a time become a `Shelf`.  A job is plain if it only waits for its first
start, was submitted with nothing out of the ordinary, nobody watches it, and the store has it as it is; so has it its
payload, which is let go.  Plain jobs leave the tables and become numbers in arrays; all others stay objects, at their
place on the shelf.  A function whose keys are told apart has lines of another kind (`engine.gates`), and no shelves:
the jobs it is about have a key, and are not plain.

Finding.  `Core.jobs` and `Function.uniques` have objects only.  Whoever wants a job by its id asks `job`, by its unique
key `holder`: either makes an object of it, which from then on is the job and stays at its place on the shelf.  The ids
in the arrays of a queue only grow, since a plain job stands where its submission has put it.  Unique keys are found by
their hash: Python's own, which strangers cannot foresee.  Of two with one hash the second stays an object.  Nothing
that happens to a plain job happens on the shelf, so a copy for somebody who only looks (`look_at`, `newest_first`) is
right as long as the engine is not called.  `cancel` knows a copy for what it is; no other command should be given one.
Any plain job may be put away after the next commit; whoever wants to know more of it then has to watch it or ask again.

Nothing of this can be seen from outside: jobs come in the same order, are found, listed, cancelled and counted as ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Final

from switchgear.engine.core import Core, EngineSettings, Observer
from switchgear.engine.uniques import take_key_again
from switchgear.model import BEST_FIRST, READY, RESIDENT, Function, Job, JobState, Rack, Shelf
from switchgear.model.job import NO_DETAILS
from switchgear.model.shelf import FIRST_REVISION

__all__ = ["MOST_KEY_BYTES", "Shelves", "entries_on"]

# Unpacking a shelf takes about half a millisecond, and a shelf itself some hundred bytes.
SHELF_JOBS: Final = 512
# So many stay objects at the front of a queue, and a shorter queue is not worth the trouble.
HEAD_JOBS: Final = 1024
SHELVE_FROM: Final = 8192
# The shelved keys of a function are in so many tables: one large one would stop the server while it grows.
KEY_TABLES: Final = 256
# A longer unique key is no help.
MOST_KEY_BYTES: Final = 1024


class Storeroom:
    """What is put away."""

    __slots__ = ("functions", "jobs")

    def __init__(self) -> None:
        self.jobs = 0  # unfinished ones that are not in `Core.jobs`
        self.functions: dict[Function, None] = {}  # those that have shelves


class Shelves(Core):
    """The part of the engine that puts jobs away and finds them again."""

    shelf_jobs: int = SHELF_JOBS
    head_jobs: int = HEAD_JOBS
    shelve_from: int = SHELVE_FROM
    key_mask: int = -1  # which bits of a hash count

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        super().__init__(settings, observer)
        self.storeroom = Storeroom()

    # --- finding ---

    def job(self, job_id: int) -> Job | None:
        """The unfinished job of this id."""
        job = self.jobs.get(job_id)
        if job is None and self.storeroom.jobs:
            shelf = self._shelf_of(job_id)
            if shelf is not None:
                job = self._take_off(shelf, shelf.place_of_id(job_id))
        return job

    def look_at(self, job_id: int) -> Job | None:
        """The unfinished job of this id, or a copy, for somebody who only looks."""
        job = self.jobs.get(job_id)
        if job is None and self.storeroom.jobs:
            shelf = self._shelf_of(job_id)
            if shelf is not None:
                job = shelf.job_at(shelf.place_of_id(job_id))
        return job

    def has_job(self, job_id: int) -> bool:
        """Whether there is an unfinished job of this id."""
        return job_id in self.jobs or (self.storeroom.jobs > 0 and self._shelf_of(job_id) is not None)

    def state_of(self, job_id: int) -> JobState | None:
        """The state of the unfinished job of this id."""
        job = self.jobs.get(job_id)
        if job is not None:
            return job.state
        return READY if self.storeroom.jobs and self._shelf_of(job_id) is not None else None

    def job_count(self) -> int:
        """How many unfinished jobs there are."""
        return len(self.jobs) + self.storeroom.jobs

    def holder(self, function: Function, unique: bytes) -> Job | None:
        """The job whose unique key this is."""
        job = function.uniques.get(unique)
        if job is None and function.shelved_keys:
            shelf = self._shelf_with_key(function, unique)
            if shelf is not None:
                job = self._take_off(shelf, shelf.place_of_key(unique))
        return job

    def look_at_holder(self, function: Function, unique: bytes) -> Job | None:
        """The job whose unique key this is, or a copy, for somebody who only looks."""
        job = function.uniques.get(unique)
        if job is None and function.shelved_keys:
            shelf = self._shelf_with_key(function, unique)
            if shelf is not None:
                job = shelf.job_at(shelf.place_of_key(unique))
        return job

    def has_holder(self, function: Function, unique: bytes) -> bool:
        """Whether some job has this unique key."""
        if unique in function.uniques:
            return True
        return bool(function.shelved_keys) and self._shelf_with_key(function, unique) is not None

    def unfinished_jobs(self, from_id: int = 0) -> Iterator[Job]:
        """Every unfinished job by id, from one id on; of those on shelves a copy.

        The engine must not be called meanwhile.
        """
        lines = [_copies_in_order(rack, from_id) for rack in self._racks()]
        yield from merge(self.jobs.values(from_id), *lines, key=_id)

    def newest_first(self, before_id: int = 0) -> Iterator[Job]:
        """Unfinished jobs from the newest on, or from the newest below an id; of those on shelves a copy.

        The engine must not be called meanwhile.
        """
        lines = [_copies(rack, before_id) for rack in self._racks()]
        yield from merge(self.jobs.newest_first(before_id), *lines, key=_minus_id)

    def _racks(self) -> Iterator[Rack]:
        for function in self.storeroom.functions:
            for rack in function.racks:
                if rack is not None:
                    yield rack

    def _shelf_of(self, job_id: int) -> Shelf | None:
        """The shelf on which this job is, if it is no object."""
        for rack in self._racks():
            shelf = rack.shelf_for(job_id)
            if shelf is not None and shelf.place_of_id(job_id) >= 0:
                return shelf
        return None

    def _shelf_with_key(self, function: Function, unique: bytes) -> Shelf | None:
        """The shelf on which the job with this key is, if it is no object."""
        digest = hash(unique) & self.key_mask
        shelf = function.shelved_keys[digest % KEY_TABLES].get(digest)
        return shelf if shelf is not None and shelf.place_of_key(unique) >= 0 else None

    def _take_off(self, shelf: Shelf, place: int) -> Job:
        """Somebody wants this job: it is an object from now on, and stays where it is."""
        job = shelf.objects[place] = shelf.job_at(place)
        self._list_again(shelf.function, job)
        return job

    def _list_again(self, function: Function, job: Job) -> None:
        """A job that was on a shelf is an object again."""
        self.storeroom.jobs -= 1
        job.counted = True
        self.jobs.add(job)
        unique = job.unique
        if unique:
            digest = hash(unique) & self.key_mask
            del function.shelved_keys[digest % KEY_TABLES][digest]
            function.uniques[unique] = job

    def _take_key_again(self, job: Job) -> None:
        """A job that was started waits again."""
        if job.unique and job.function.shelved_keys:
            self.holder(job.function, job.unique)  # if there is one it is an object now
        take_key_again(job)

    # --- putting away ---

    def put_away(self, functions: Iterable[Function]) -> int:
        """The store has kept jobs of these functions: put away what need not be at hand.

        Returns how many bytes of payloads were let go that were counted as being in memory.
        """
        freed_bytes = 0
        for function in functions:
            if self._can_shelve(function):
                for priority in BEST_FIRST:
                    if function.entries_of(priority) >= self.shelve_from or function.racks[priority] is not None:
                        freed_bytes += self._shelve(function, priority)
        return freed_bytes

    def _can_shelve(self, function: Function) -> bool:
        if function.gate is not None and function.gate.lanes is not None:
            return False
        return self.functions.get(function.name) is function

    def _shelve(self, function: Function, priority: int) -> int:
        """Put away what can be of a long queue; the newest of it stay at hand."""
        rack = function.racks[priority]
        if rack is None:
            rack = self._begin_rack(function, priority)
        freed_bytes = 0
        size = self.shelf_jobs
        while len(rack.tail) >= 2 * size:
            last = rack.tail[size - 1]
            if last.state is READY and last.delivery and not last.kept:
                break  # the store will have these soon
            freed_bytes += self._pack(function, priority, rack)
        return freed_bytes

    def _begin_rack(self, function: Function, priority: int) -> Rack:
        """A queue is long: all but its head goes into a rack."""
        rack = function.racks[priority] = Rack()
        if not function.has_racks:
            function.has_racks = True
            function.shelved_keys = [{} for _ in range(KEY_TABLES)]
            self.storeroom.functions[function] = None
        queue = function.queues[priority]
        while len(queue) > self.head_jobs:
            rack.tail.appendleft(queue.pop())
        return rack

    def _pack(self, function: Function, priority: int, rack: Rack) -> int:
        """Make a shelf of the first entries of the tail."""
        shelf = Shelf(function, priority)
        ids: list[int] = []
        created_us: list[int] = []
        deliveries: list[int] = []
        uniques: list[bytes] = []
        freed_bytes = 0
        last_id = rack.last_id
        tail = rack.tail
        for place in range(self.shelf_jobs):
            job = tail.popleft()
            unique = job.unique
            if job.id > last_id and self._is_plain(job) and (not unique or self._lets_key_go(job, shelf)):
                last_id = job.id
                self.jobs.remove(last_id)
                payload_bytes = len(job.payload or b"")
                self.memory.job_bytes -= payload_bytes
                if job.kept == RESIDENT:
                    freed_bytes += payload_bytes
            else:
                shelf.objects[place] = job
                unique = b""
            ids.append(last_id)
            created_us.append(job.created_us)
            deliveries.append(job.delivery)
            uniques.append(unique)
        shelf.fill(ids, created_us, deliveries, uniques)
        self._add_shelf(rack, shelf)
        return freed_bytes

    def _add_shelf(self, rack: Rack, shelf: Shelf) -> None:
        """A shelf that is filled goes behind the others."""
        ids = shelf.ids
        before_id = rack.last_id
        shelf.first_id = next((job_id for job_id in ids if job_id > before_id), before_id + 1)
        rack.last_id = max(before_id, ids[-1])
        rack.shelves.append(shelf)
        rack.entries += len(ids)
        self.storeroom.jobs += len(ids) - len(shelf.objects)

    def _is_plain(self, job: Job) -> bool:
        """Whether the arrays of a shelf and the store together have all that there is to this job."""
        return (
            job.details is NO_DETAILS
            and not job.special
            and job.state is READY
            and job.kept > 0
            and job.revision == FIRST_REVISION
            and job.watchers is None
            and job.history is None
            and job.started_us < 0
            and not job.attempts
            and job.delivery > 0
            and self.jobs.get(job.id) is job
            and job not in self.changed
        )

    def _lets_key_go(self, job: Job, shelf: Shelf) -> bool:
        """Let the unique key of a job be found on its shelf, if that can be."""
        unique = job.unique
        function = shelf.function
        if function.uniques.get(unique) is not job or not self._note_key(unique, shelf):
            return False
        del function.uniques[unique]
        return True

    def _note_key(self, unique: bytes, shelf: Shelf) -> bool:
        """Note on which shelf a key is, unless it is too long or has the hash of another."""
        if len(unique) > MOST_KEY_BYTES:
            return False
        digest = hash(unique) & self.key_mask
        table = shelf.function.shelved_keys[digest % KEY_TABLES]
        if digest in table:
            return False
        table[digest] = shelf
        return True

    # --- taking out ---

    def _refill(self, function: Function, priority: int) -> None:
        """The head of this queue is used up: the next shelf, or the tail, takes its place."""
        rack = function.racks[priority]
        while rack is not None and not function.queues[priority]:
            if rack.shelves:
                self._unpack(rack, function.queues[priority])
            else:
                self._end_rack(function, priority, rack)
                rack = None

    def _unpack(self, rack: Rack, queue: deque[Job]) -> None:
        """Put the jobs of the first shelf at the end of a queue."""
        shelf = rack.shelves.popleft()
        function = shelf.function
        objects = shelf.objects
        jobs = self.jobs
        for place in range(len(shelf.ids)):
            job = objects.get(place)
            if job is None:
                if place in objects:
                    continue
                job = shelf.job_at(place)  # and `_list_again`, written out
                job.counted = True
                jobs.add(job)
                unique = job.unique
                if unique:
                    digest = hash(unique) & self.key_mask
                    del function.shelved_keys[digest % KEY_TABLES][digest]
                    function.uniques[unique] = job
                self.storeroom.jobs -= 1
            queue.append(job)
            rack.entries -= 1

    def _unpack_all(self, function: Function) -> None:
        """Have all jobs of the function as objects in its queues."""
        for priority in BEST_FIRST:
            rack = function.racks[priority]
            if rack is not None:
                queue = function.queues[priority]
                while rack.shelves:
                    self._unpack(rack, queue)
                queue.extend(rack.tail)
                rack.tail = queue
                self._end_rack(function, priority, rack)

    def _end_rack(self, function: Function, priority: int, rack: Rack) -> None:
        """There are no shelves left."""
        function.queues[priority] = rack.tail
        function.racks[priority] = None
        function.has_racks = any(other is not None for other in function.racks)
        if not function.has_racks:
            function.shelved_keys = []
            del self.storeroom.functions[function]


def entries_on(rack: Rack | None) -> Iterator[Job]:
    """Every entry in a rack, ghosts among them, in their order; of plain jobs a copy."""
    if rack is None:
        return
    for shelf in rack.shelves:
        objects = shelf.objects
        for place in range(len(shelf.ids)):
            job = objects[place] if place in objects else shelf.job_at(place)
            if job is not None:
                yield job
    yield from rack.tail


def _copies(rack: Rack, before_id: int) -> Iterator[Job]:
    """Copies of the jobs that are no objects, the newest first."""
    for shelf in reversed(rack.shelves):
        objects = shelf.objects
        # Whole shelves of objects are passed over at once: there may be thousands of them.
        if len(objects) < len(shelf.ids) and (not before_id or shelf.first_id < before_id):
            for place in range(len(shelf.ids) - 1, -1, -1):
                if place not in objects and (not before_id or shelf.ids[place] < before_id):
                    yield shelf.job_at(place)


def _copies_in_order(rack: Rack, from_id: int) -> Iterator[Job]:
    """The same, the oldest first, from an id on."""
    for shelf in rack.shelves:
        objects = shelf.objects
        if len(objects) < len(shelf.ids) and shelf.ids[-1] >= from_id:
            for place in range(len(shelf.ids)):
                if place not in objects and shelf.ids[place] >= from_id:
                    yield shelf.job_at(place)


def _minus_id(job: Job) -> int:
    return -job.id


def _id(job: Job) -> int:
    return job.id
