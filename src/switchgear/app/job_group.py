"""`JobGroup`: submits many jobs and controls them together; it stores handles and no job objects."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

from switchgear.app.awaited_jobs import AwaitedJobs
from switchgear.app.job import Job
from switchgear.app.references import Reference
from switchgear.app.transport import refuse_to_block
from switchgear.client.gearman.job_subscriber import JobEnd, JobSubscriber
from switchgear.client.gearman.pending_requests import UNKNOWN
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.errors import JobFailed, JobUnknown, ServerUnreachable
from switchgear.numbers import whole_number
from switchgear.text import counted

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["Handles", "JobGroup"]

R = TypeVar("R")

_LARGEST: Final = 2**64 - 1
# How many questions are on their way at a time.
_WINDOW: Final = 1000
_MOST_STATES: Final = 10_000  # in one request
_FINAL: Final = ("done", "failed", "cancelled", "expired")


class Handles(Sequence[str]):
    """Handles in order, eight bytes each: servers write them as a prefix of their own and a number.

    >>> handles = Handles()
    >>> handles.extend(["H:a:1", "H:a:2", "H:b:1", "odd"])
    >>> list(handles), handles[2], len(handles)
    (['H:a:1', 'H:a:2', 'H:b:1', 'odd'], 'H:b:1', 4)
    """

    def __init__(self) -> None:
        self._numbers = array("Q")
        self._starts: list[int] = []  # from here on a prefix counts
        self._prefixes: list[str] = []
        self._odd: dict[int, str] = {}  # handles that are no such pair, by index

    @classmethod
    def of_numbers(cls, prefix: str, numbers: Iterable[int]) -> Handles:
        """The handles of one server with these numbers.

        >>> list(Handles.of_numbers("H:a", range(2, 4)))
        ['H:a:2', 'H:a:3']
        """
        handles = cls()
        handles._numbers.extend(numbers)
        handles._starts.append(0)
        handles._prefixes.append(prefix)
        return handles

    def extend(self, handles: Iterable[str]) -> None:
        """Append handles."""
        numbers, prefix = self._numbers, f"{self._prefixes[-1]}:" if self._prefixes else ""
        for handle in handles:
            digits = handle[len(prefix) :]
            # Most are like the one before them, apart from the number.
            if prefix and handle.startswith(prefix) and len(digits) < 19 and _is_plain_number(digits):
                numbers.append(int(digits))
            else:
                self.append(handle)
                prefix = f"{self._prefixes[-1]}:" if self._prefixes else ""

    def append(self, handle: str) -> None:
        """Append a handle."""
        prefix, colon, digits = handle.rpartition(":")
        number = whole_number(digits.encode(errors="replace"), _LARGEST)
        if not colon or number is None or str(number) != digits:
            self._odd[len(self._numbers)] = handle
            self._numbers.append(0)
            return
        if not self._prefixes or self._prefixes[-1] != prefix:
            self._starts.append(len(self._numbers))
            self._prefixes.append(prefix)
        self._numbers.append(number)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError("there are not so many jobs")
        if index in self._odd:
            return self._odd[index]
        return f"{self._prefixes[bisect_right(self._starts, index) - 1]}:{self._numbers[index]}"

    def __repr__(self) -> str:
        return f"<{len(self)} handles>"


def _is_plain_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and (digits[0] != "0" or digits == "0")


class JobGroup(Reference, Generic[R]):
    """Jobs that were submitted together, in the order of their submission.

    Iterating gives a Job for each; `results` gives what they returned.
    """

    def __init__(
        self, app: App, task: Task[Any, R] | Sequence[Task[Any, R]] | None, handles: Iterable[str] = ()
    ) -> None:
        """`task` is the task of all jobs, or a list with the task of each."""
        self.app = app
        self.handles = Handles()
        self.handles.extend(handles)
        self._tasks = task
        self._has_one_task = not isinstance(task, Sequence)  # once, because it is slow to find out
        self._ended: dict[int, str] = {}  # states of jobs that are known to have ended

    @classmethod
    def submit(
        cls, app: App, task: Task[Any, R] | Sequence[Task[Any, R]] | None, requests: Iterable[SubmitRequest]
    ) -> JobGroup[R]:
        """Submit these jobs, many at a time.

        Raises the first refusal when all have been answered, or the requests themselves raise; what was taken by then
        is the attribute `submitted` of the exception.
        """
        refuse_to_block()
        group = cls(app, task)
        with _Submitting(group) as submitting:
            for outcomes in app.transport.submit_many(requests):
                submitting.note(outcomes)
        return group

    @classmethod
    async def submit_async(
        cls, app: App, task: Task[Any, R] | Sequence[Task[Any, R]] | None, requests: Iterable[SubmitRequest]
    ) -> JobGroup[R]:
        """`submit` with asyncio."""
        group = cls(app, task)
        with _Submitting(group) as submitting:
            async for outcomes in app.transport.submit_many_async(requests):
                submitting.note(outcomes)
        return group

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[Job[R]]:
        return (self[number] for number in range(len(self)))

    @overload
    def __getitem__(self, number: int) -> Job[R]: ...

    @overload
    def __getitem__(self, number: slice) -> JobGroup[R]: ...

    def __getitem__(self, number: int | slice) -> Job[R] | JobGroup[R]:
        """One job by its index, which may be negative, or a slice as a group; raises IndexError."""
        if isinstance(number, slice):
            tasks = self._tasks if self._has_one_task else cast("Sequence[Task[Any, R]]", self._tasks)[number]
            return JobGroup(self.app, tasks, self.handles[number])
        handle = self.handles[number]
        return Job(self.app, self._task(number), handle)

    def __repr__(self) -> str:
        return f"<JobGroup of {counted(len(self), 'job')}>"

    def _task(self, number: int) -> Task[Any, R] | None:
        if self._has_one_task:
            return cast("Task[Any, R] | None", self._tasks)
        return cast("Sequence[Task[Any, R]]", self._tasks)[number]

    # --- results ---

    def results(
        self, *, in_order: bool = True, return_exceptions: bool = False, timeout: float | None = None
    ) -> Iterator[R]:
        """What the jobs returned, in order, or as they end.  Only some hundred are asked for ahead.

        An unsuccessful job raises the exception of its `result`; with `return_exceptions` the exception takes the place
        of the result, and the others continue. `timeout` is for all of them, from when the first is asked for; raises
        TimeoutError when it is over.
        """
        countdown = _Countdown(timeout)
        window: AwaitedJobs[R] = AwaitedJobs(self.app.transport, in_order)
        following = self._subscribed()
        while window.fill(_WINDOW, following):
            with countdown:
                _, job = window.next(countdown.left_seconds)
            yield _result_of(job, return_exceptions)

    async def results_async(
        self,
        *,
        in_order: bool = True,
        return_exceptions: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - like `results`
    ) -> AsyncIterator[R]:
        """`results` with asyncio."""
        countdown = _Countdown(timeout)
        window: AwaitedJobs[R] = AwaitedJobs(self.app.transport, in_order)
        following = self._subscribed()
        while window.fill(_WINDOW, following):
            with countdown:
                _, job = await window.next_async(countdown.left_seconds)
            yield _result_of(job, return_exceptions)

    def wait(self, timeout: float | None = None) -> dict[str, int]:
        """Wait until all jobs have ended in any state; returns how many ended in which state.

        Raises TimeoutError if that takes longer than `timeout`.
        """
        countdown = _Countdown(timeout)
        counts: Counter[str] = Counter()
        window: AwaitedJobs[R] = AwaitedJobs(self.app.transport, True)
        following = self._subscribed()
        while window.fill(_WINDOW, following):
            with countdown:
                end, _ = window.next(countdown.left_seconds)
            counts[end.state] += 1
        return dict(counts)

    def _subscribed(self) -> Iterator[tuple[Job[R], JobSubscriber]]:
        """Each job with a subscriber for it."""
        transport = self.app.transport
        for number in range(len(self)):
            subscriber = JobSubscriber()
            job = Job(self.app, self._task(number), self.handles[number], subscriber)
            self.app.before_waiting(job.task)
            transport.watch(job.handle, subscriber).add_done_callback(_ending(subscriber))
            yield job, subscriber

    # --- looking and acting ---

    def counts(self) -> dict[str, int]:
        """How many jobs are in which state.  The server is asked about those that were not seen to have ended."""
        counts = Counter(self._ended.values())
        away: set[int] = set()  # servers that could not be reached, so that each is waited for only once
        numbers = (number for number in range(len(self)) if number not in self._ended)
        while page := list(islice(numbers, _MOST_STATES)):
            states = self._states([self.handles[number] for number in page], away)
            counts.update(states)
            self._ended.update((number, state) for number, state in zip(page, states, strict=True) if state in _FINAL)
        return dict(counts)

    def _states(self, handles: list[str], away: set[int]) -> list[str]:
        """The states of these jobs.  Of several servers, each is asked about those that the others do not know."""
        states = dict.fromkeys(handles, UNKNOWN)
        for server_number in range(len(self.app.locations)):
            left = [handle for handle, state in states.items() if state == UNKNOWN]
            if not left or server_number in away:
                continue
            try:
                answer = self.app.transport.wait(self.app.transport.control("states", {"handles": left}, server_number))
            except ServerUnreachable:
                away.add(server_number)
                if len(away) == len(self.app.locations):
                    raise
            else:
                states.update(zip(left, answer["states"], strict=True))
        return [states[handle] for handle in handles]

    def cancel(self) -> int:
        """Cancel the jobs that have not ended; returns how many were cancelled."""
        return sum(not isinstance(answer, JobUnknown) for _, answer in self._ask_each("cancel"))

    def retry(self) -> int:
        """Run the jobs again that ended without success; returns how many these are."""
        states = self.counts()
        if not states.get("failed", 0) + states.get("cancelled", 0) + states.get("expired", 0):
            return 0
        unsuccessful = [number for number, state in self._ended.items() if state not in ("done",)]
        for number in unsuccessful:
            del self._ended[number]
            self[number].retry()
        return len(unsuccessful)

    def _ask_each(self, verb: str) -> Iterator[tuple[int, Any]]:
        """The answers about each job that is not known to have ended; JobUnknown is an answer."""
        transport = self.app.transport
        on_their_way: list[tuple[int, Future[Any]]] = []
        numbers = (number for number in range(len(self)) if number not in self._ended)
        while True:
            for number in numbers:
                on_their_way.append((number, transport.control(verb, {"handle": self.handles[number]})))
                if len(on_their_way) >= _WINDOW:
                    break
            if not on_their_way:
                return
            for number, future in on_their_way:
                try:
                    yield number, transport.wait(future)
                except JobUnknown as unknown:
                    yield number, unknown
            on_their_way.clear()

    # --- as an argument ---

    @property
    def as_argument(self) -> list[R]:
        """The group itself, typed as the list of its results, for tasks with such an argument."""
        return cast(list[R], self)

    def as_reference(self) -> list[Any]:
        return [job.as_reference() for job in self]


class _Submitting:
    """Collects handles of submitted jobs, and raises the first refusal at the end, with the handles as attribute."""

    def __init__(self, group: JobGroup[Any]) -> None:
        self._group = group
        self._refusal: Exception | None = None

    def __enter__(self) -> _Submitting:
        return self

    def note(self, outcomes: list[str | Exception]) -> None:
        taken = [outcome for outcome in outcomes if isinstance(outcome, str)]
        self._group.handles.extend(taken)
        if len(taken) < len(outcomes) and self._refusal is None:
            self._refusal = next(outcome for outcome in outcomes if isinstance(outcome, Exception))

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        problem = error or self._refusal
        if problem is None:
            return
        problem.submitted = self._group  # type: ignore[attr-defined]
        problem.add_note(f"submitted before: {counted(len(self._group), 'job')}, in the attribute `submitted`")
        if error is None:
            raise problem


class _Countdown:
    """A timeout from now on; None: without an end.  As a context it puts the timeout into the text of a
    TimeoutError."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + (seconds or 0.0)

    @property
    def left_seconds(self) -> float | None:
        return None if self._seconds is None else max(0.0, self._deadline - time.monotonic())

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, TimeoutError) and self._seconds is not None:
            raise TimeoutError(f"the jobs have not all ended within {self._seconds:g} s") from None


def _result_of(job: Job[R], return_exceptions: bool) -> R:
    try:
        return job.result(0)
    except JobFailed as error:
        if not return_exceptions:
            raise
        return cast(R, error)


def _ending(subscriber: JobSubscriber) -> Any:
    """A callback that ends the wait for a job which the server does not know, or could not be asked about."""

    def look(answer: Future[str]) -> None:
        error = answer.exception()
        if error is not None:
            subscriber.give_up(cast(Exception, error))
        elif answer.result() == UNKNOWN:
            subscriber.end(JobEnd(UNKNOWN))

    return look
