"""`JobEvents`: what a task waits for or remembers beyond one run: signals, approvals, pauses, steps, spawned jobs.

A task that waits does not hold a slot of its worker, nor need the worker stay. Its job is taken from the worker and
waits at the server; when what it waits for has come, the task is called again *from its beginning*. What it has
waited for before is there then, so the calls that led to it return at once, and the task goes on behind them.

Each thing to wait for, or to remember, is a job of its own, of the function `switchgear.event`, which no worker runs:
its time has not come until somebody completes it, and its result is the value. Its unique key is made of the handle of
the waiting job, the kind of event and a name, so that a signal that comes first and a task that waits first find the
same event. The waiting job has the event as a predecessor (the verb `wait_for`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from switchgear.app.chosen_values import short_key, shortened_label
from switchgear.app.current_job import JobSuspended
from switchgear.app.graph_plan import GraphPlan
from switchgear.app.payloads.codec import PLAIN
from switchgear.app.payloads.envelope import is_envelope
from switchgear.app.references import to_json
from switchgear.app.transport import only, refuse_to_block
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.errors import ArgumentError, JobCancelled, ResultError, ServerRefused
from switchgear.json_bytes import bytes_of, plain
from switchgear.units import duration_seconds
from switchgear.verbs.permitted_values import EVENT_FUNCTION, MOST_HANDLES

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.signatures import GraphStep
    from switchgear.app.task_options import Seconds
    from switchgear.app.transport import AppTransport

__all__ = [
    "EVENT_FUNCTION",
    "REMEMBERED_SECONDS",
    "Approval",
    "JobEvents",
    "make_requests",
    "make_requests_async",
    "signal_job",
]

J = TypeVar("J")
T = TypeVar("T")

Requests = Generator[Future[Any], Any, T]
"""Requests to the server, each of which is given its answer; returns what they are made for."""

# How long the server remembers an event after its beginning: as long as it holds a unique key.
REMEMBERED_SECONDS: Final = 30 * 86_400.0
LONGEST_WAIT_SECONDS: Final = 29 * 86_400.0  # so that it is remembered when it is over
NEVER: Final = 253_402_214_400.0  # the last day of the year 9999
MOST_EVENTS: Final = 10_000  # of one job: each is one of its predecessors

SIGNAL: Final = "signal"
SLEEP: Final = "sleep"
STEP: Final = "step"
SPAWN: Final = "spawn"


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person has decided about a job; true if the job was approved."""

    approved: bool
    by: str = ""
    """Who has decided."""
    comment: str = ""

    def __bool__(self) -> bool:
        return self.approved


@dataclass(frozen=True, slots=True)
class EventState:
    """The state of an event at the server, and its result."""

    handle: str
    state: str
    result: bytes

    @property
    def has_come(self) -> bool:
        """Whether the event has happened: its job was completed."""
        return self.state == "done"


def make_requests(transport: AppTransport, requests: Requests[T]) -> T:
    """Make requests one after the other, in this thread."""
    refuse_to_block()
    try:
        future = next(requests)
        while True:
            try:
                answer = transport.wait(future)
            except Exception as error:
                future = requests.throw(error)
            else:
                future = requests.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value


async def make_requests_async(transport: AppTransport, requests: Requests[T]) -> T:
    """`make_requests` with asyncio."""
    try:
        future = next(requests)
        while True:
            try:
                answer = await transport.wait_async(future)
            except Exception as error:
                future = requests.throw(error)
            else:
                future = requests.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value


class JobEvents:
    """The events of one job, for the run of its task. `run` and `run_async` make the requests of the other methods."""

    def __init__(self, app: App, handle: str, check: Callable[[], None]) -> None:
        """`check` raises if this run should stop."""
        self._app = app
        self._handle = handle
        self._check = check
        self._counts: Counter[str] = Counter()

    def run(self, requests: Requests[T]) -> T:
        """Make requests one after the other, in this thread."""
        return make_requests(self._app.transport, requests)

    async def run_async(self, requests: Requests[T]) -> T:
        """`run` with asyncio."""
        return await make_requests_async(self._app.transport, requests)

    # --- waiting ---

    def sleep(self, seconds: Seconds) -> Requests[None]:
        """Wait for a number of seconds, or until a time, without a slot of the worker."""
        wait_seconds = _wait_seconds(seconds, "a sleep")
        name = self._numbered(SLEEP)
        while True:
            event = yield from self._event(SLEEP, name, wait_seconds)
            if event.state in ("expired", "done"):
                return
            yield from self._suspend(event)

    def wait_for(self, name: str, timeout: Seconds | None) -> Requests[bytes]:
        """Wait for a signal; returns its value as JSON. Raises TimeoutError."""
        limit_seconds = None if timeout is None else _wait_seconds(timeout, "a timeout")
        while True:
            event = yield from self._event(SIGNAL, name, limit_seconds)
            if event.has_come:
                return _unwrapped(self._app, event.result)
            if event.state == "expired":
                shown = "the 30 days that the server remembers it" if limit_seconds is None else f"{limit_seconds:g} s"
                raise TimeoutError(f"{self._handle}: no signal {name!r} came within {shown}")
            yield from self._suspend(event)

    def _suspend(self, event: EventState) -> Requests[None]:
        """Let the job wait for an event, and end this run; returns if the event has ended meanwhile."""
        if event.state == "cancelled":
            raise JobCancelled(f"{self._handle}: what it waits for, {event.handle}, was cancelled")
        answer = yield self._app.transport.control("wait_for", {"handle": self._handle, "after": [event.handle]})
        if answer["waits"]:
            raise JobSuspended(f"{self._handle} waits for {event.handle}")

    # --- remembering ---

    def recall(self, kind: str, name: str) -> Requests[tuple[EventState, Any]]:
        """The event of a step, and its value if it has one."""
        event = yield from self._event(kind, name, None)
        value = msgspec.json.decode(_unwrapped(self._app, event.result)) if event.has_come else None
        return event, value

    def remember(self, event: EventState, value: Any) -> Requests[None]:
        """Complete the event of a step; raises ArgumentError for a value that JSON cannot express."""
        yield from _complete(self._app, event.handle, value, f"the result of a step of {self._handle}")

    def spawn(self, step: GraphStep[J]) -> Requests[J]:
        """Submit the jobs of a step, once, and let those that wait for this job wait for them too."""
        event, known = yield from self.recall(SPAWN, self._numbered(SPAWN))
        plan = GraphPlan(self._app, beside=self._handle)
        last = step.plan_jobs(plan, None)
        if known is not None:
            plan.restore(known)
            return step.jobs_of(plan, last)
        steps = plan.steps()
        answer: Any = None
        with suppress(StopIteration):
            while True:
                future = steps.send(answer)
                try:
                    answer = yield future
                except Exception as error:
                    answer = error  # the plan decides what becomes of it
        handles = [job.handle for job in last.jobs]
        for start in range(0, len(handles), MOST_HANDLES):
            some = handles[start : start + MOST_HANDLES]
            yield self._app.transport.control("spawn", {"handle": self._handle, "jobs": some})
        yield from self.remember(event, plan.saved())
        return step.jobs_of(plan, last)

    # --- events ---

    def _numbered(self, kind: str) -> str:
        """A name for the next event of this kind, the same in each run of the task."""
        self._counts[kind] += 1
        return str(self._counts[kind])

    def _event(self, kind: str, name: str, limit_seconds: float | None) -> Requests[EventState]:
        self._counts["all"] += 1
        if self._counts["all"] > MOST_EVENTS:
            raise ArgumentError(f"{self._handle} has waited for, and remembers, {MOST_EVENTS} things: that is the most")
        self._check()
        expires_at = self._app.now() + (REMEMBERED_SECONDS if limit_seconds is None else limit_seconds)
        return (yield from _event(self._app, self._handle, kind, name, expires_at))


def signal_job(app: App, handle: str, name: str, value: Any) -> Requests[bool]:
    """Send a signal to a job; False if one of this name had come before.

    Raises JobUnknown, or ServerRefused if the job has ended.
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"the name of a signal is a text, not {name!r}")
    to_json(value)  # raises before anything is sent
    found = yield app.transport.control("job", {"handle": handle, "contents": False, "workers": False})
    handle = found["handle"]
    if found["state"] not in ("waiting", "scheduled", "ready", "running"):
        raise ServerRefused("CONFLICT", f"{handle} is {found['state']}: it waits for nothing any more")
    event = yield from _event(app, handle, SIGNAL, name, app.now() + REMEMBERED_SECONDS)
    if event.state != "scheduled":
        return False
    try:
        yield from _complete(app, event.handle, value, f"the value of the signal {name!r}")
    except ServerRefused:
        return False  # another one came first
    return True


def _event(app: App, handle: str, kind: str, name: str, expires_at: float) -> Requests[EventState]:
    """The event of this name, made if there is none."""
    about = {"job": handle, "kind": kind, "name": name}
    request = SubmitRequest(
        EVENT_FUNCTION.encode(),
        msgspec.json.encode(about),
        short_key(f"{handle}/{kind}/{name}"),
        durable=True,
        watch=False,
        run_at=NEVER,
        options={
            "expires_at": expires_at,
            "key": short_key(handle).decode(),
            "label": shortened_label(f"{kind} {name} of {handle}"),
            "retention": REMEMBERED_SECONDS,
            "unique_for": REMEMBERED_SECONDS,
        },
        needs=("durable waiting",),
        beside=handle,
    )
    event = only((yield app.transport.submit(request, None)))
    found = yield app.transport.control("job", {"handle": event, "workers": False})
    return EventState(event, found["state"], bytes_of(found["result"], "result"))


def _complete(app: App, event: str, value: Any, what: str) -> Requests[None]:
    try:
        data = to_json(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(f"{what} cannot be kept as JSON: {error}") from error
    if app.payloads is not None:
        data = app.payloads.wrap(data, EVENT_FUNCTION, [])
    yield app.transport.control("complete", {"handle": event, "result": plain(data)})


def _unwrapped(app: App, data: bytes) -> bytes:
    if is_envelope(data):
        try:
            return (app.payloads or PLAIN).unwrap(data, EVENT_FUNCTION)
        except ValueError as error:
            raise ResultError(f"the value of an event: {error}") from error
    return data or b"null"


def _wait_seconds(given: Seconds, what: str) -> float:
    seconds = duration_seconds(given, what)
    if seconds > LONGEST_WAIT_SECONDS:
        raise ValueError(f"{what} is at most 29 days, because the server remembers it for 30 days, not {given!r}")
    return seconds
