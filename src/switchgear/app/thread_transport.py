"""A line that is carried by a thread of its own.

One daemon thread per app and process has an event loop and the connections; callers from any thread, with or without
event loops of their own, leave their questions in a box and wait for futures.  What several leave there before the
thread looks is written to the socket at once.

There is a channel for each place.  Questions go to the first channel that is connected; if none is, the places are
tried in their order, again and again with growing pauses, until one is reached or the question has waited for
`connect_seconds`.  A cut does not end what the server keeps: whoever follows a durable job follows it again on a new
connection to the same place.  What was asked and not answered fails, unless asking again can do no harm.

With several places, each server tells on connecting what its handles begin with.  Two that are alike are refused,
because the job of one would be taken for that of the other.  Before a job is asked for, or waited for by another, of
which only the handle is known, all places are tried: so this is noticed, and the server is asked whose handle it is.

A fork leaves the thread behind in the parent.  The child notices by its process id and starts its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

from switchgear.app.client_protocol import AppRequest, ControlRequest, PendingSubmission, SubscribeRequest
from switchgear.app.job_updates import UNKNOWN, JobSubscriber
from switchgear.app.server_connection import ServerConnection
from switchgear.app.server_locations import ServerLocation
from switchgear.app.submit_request import SubmitRequest
from switchgear.app.transport import AppTransport
from switchgear.errors import ConfigError, JobUnknown, ServerUnreachable

__all__ = ["ThreadTransport"]

_CLOSE_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.02
_MOST_PAUSE_SECONDS: Final = 1.0


class ThreadTransport(AppTransport):
    """The usual line."""

    def __init__(self, places: Sequence[ServerLocation], connect_seconds: float) -> None:
        self._places = places
        self._connect_seconds = connect_seconds
        self._lock = threading.Lock()
        self._carrier: IoThread | None = None
        self._is_closed = False
        _lines.add(self)

    def submit_batch(
        self, requests: list[SubmitRequest], followers: list[JobSubscriber | None]
    ) -> Future[list[str | Exception]]:
        question = PendingSubmission(requests, followers)
        self._leave(question, None)
        return question.future

    def watch(self, handle: str, follower: JobSubscriber, place: int | None = None) -> Future[str]:
        question = SubscribeRequest(handle, follower)
        self._leave(question, place)
        return question.future

    def control(self, verb: str, arguments: dict[str, Any], place: int | None = None) -> Future[Any]:
        question = ControlRequest(verb, arguments)
        self._leave(question, place)
        return question.future

    def __del__(self) -> None:
        """An app that nobody closed takes its thread with it."""
        carrier = self._carrier
        if carrier is not None and carrier.process_id == os.getpid():
            carrier.stop(0.0)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            carrier, self._carrier = self._carrier, None
        if carrier is not None and carrier.process_id == os.getpid():
            carrier.stop()

    def _leave(self, question: AppRequest, place: int | None) -> None:
        carrier = self._carrier
        if carrier is None or carrier.process_id != os.getpid():
            carrier = self._start()
        carrier.leave(question, place)

    def _start(self) -> IoThread:
        with self._lock:
            if self._is_closed:
                raise ServerUnreachable("the app was closed")
            if self._carrier is None or self._carrier.process_id != os.getpid():
                self._carrier = IoThread(self._places, self._connect_seconds)
            return self._carrier

    def begin_anew_in_child(self) -> None:
        """After a fork: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        if self._carrier is not None:
            _left_behind.append(self._carrier)
        self._carrier = None


class IoThread:
    """The thread and its channels."""

    def __init__(self, places: Sequence[ServerLocation], connect_seconds: float) -> None:
        self.process_id = os.getpid()
        self._connect_seconds = connect_seconds
        self._box: deque[tuple[AppRequest, int | None]] = deque()
        self._is_called = False  # the thread will look into the box
        self._is_stopping = False
        # Not uvloop: it looks up names in threads of its own, and a process that was forked dies of them at its end.
        self._loop = asyncio.SelectorEventLoop()
        check_prefix = self._check_prefix if len(places) > 1 else None
        self._channels = [
            ServerConnection(number, place, self._serve_waiting, check_prefix) for number, place in enumerate(places)
        ]
        self._unplaced: deque[PendingCall] = deque()  # it is not known whom to ask
        self._surveying: asyncio.Task[None] | None = None
        self._was_surveyed = False  # all places have been tried, and were not refused
        self._waiting: deque[PendingCall] = deque()
        self._connecting: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="switchgear-line", daemon=True)
        self._thread.start()

    # --- in any thread ---

    def leave(self, question: AppRequest, place: int | None) -> None:
        """Have it asked."""
        self._box.append((question, place))
        if not self._is_called:
            self._is_called = True
            try:
                self._loop.call_soon_threadsafe(self._look)
            except RuntimeError:  # the loop is closed
                self._fail_box()

    def stop(self, patience_seconds: float = _CLOSE_SECONDS) -> None:
        """Hang up, and end the thread, which is waited for."""
        try:
            self._loop.call_soon_threadsafe(self._begin_to_stop)
        except RuntimeError:
            return
        if threading.current_thread() is not self._thread:
            self._thread.join(patience_seconds)

    def _fail_box(self) -> None:
        while self._box:
            self._box.popleft()[0].fail(ServerUnreachable("the app was closed"))

    # --- in the thread ---

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._finish())
        finally:
            self._loop.close()
            self._is_called = False  # first, so that whoever comes now sees that the loop is closed
            self._fail_box()

    def _begin_to_stop(self) -> None:
        self._is_stopping = True
        self._loop.stop()

    async def _finish(self) -> None:
        self._look()
        if self._connecting is not None:
            self._connecting.cancel()
        error = ServerUnreachable("the app was closed")
        for waiting in (*self._waiting, *self._unplaced):
            waiting.question.fail(error)
        self._waiting.clear()
        self._unplaced.clear()
        for channel in self._channels:
            channel.close(error)
        await asyncio.sleep(0)  # transports close in the next turn
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self) -> None:
        self._is_called = False  # first, so that nothing is left behind unseen
        touched: set[ServerConnection] = set()
        while self._box:
            question, place = self._box.popleft()
            if self._is_stopping:
                question.fail(ServerUnreachable("the app was closed"))
                continue
            self._ask(PendingCall(question, place, self._loop.time() + self._connect_seconds), touched)
        for channel in touched:
            channel.flush()

    def _ask(self, waiting: PendingCall, touched: set[ServerConnection]) -> None:
        if not self._find_place(waiting):
            self._unplaced.append(waiting)
            if self._surveying is None or self._surveying.done():
                self._surveying = self._loop.create_task(self._survey())
            return
        channel = self._channel_for(waiting.place)
        if channel is None:
            self._wait(waiting)
        else:
            self._put(channel, waiting)
            touched.add(channel)

    def _channel_for(self, place: int | None) -> ServerConnection | None:
        """Where to ask now, or None if nobody is there."""
        if place is not None and place < len(self._channels):
            return self._channels[place] if self._channels[place].is_ready else None
        for channel in self._channels:
            if channel.is_ready:
                return channel
        return None

    def _put(self, channel: ServerConnection, waiting: PendingCall) -> None:
        question = waiting.question
        if question.may_repeat:
            question.on_lost = lambda: self._ask_again(waiting)
        try:
            channel.put(question)
        except Exception as error:  # whatever it is, somebody waits for the answer
            question.fail(error)

    def _ask_again(self, waiting: PendingCall) -> bool:
        """The connection was cut before the answer; whether the question is asked again."""
        if waiting.was_repeated or self._is_stopping:
            return False
        waiting.was_repeated = True
        waiting.deadline = self._loop.time() + self._connect_seconds
        self._wait(waiting)
        return True

    # --- whose job it is ---

    def _check_prefix(self, channel: ServerConnection, prefix: str) -> None:
        for other in self._channels:
            if prefix and other is not channel and other.prefix == prefix:
                raise ConfigError(
                    f"the handles of both {other.place.url} and {channel.place.url} begin with {prefix}, so that a job"
                    " of one would be taken for one of the other; give each server a gearman.handle_prefix of its own"
                )

    def _find_place(self, waiting: PendingCall) -> bool:
        """Whether it is known whom to ask."""
        if len(self._channels) == 1:
            return True
        question, has_place = waiting.question, waiting.place is not None
        if isinstance(question, ControlRequest) and question.verb == "states":  # each server is asked for all handles
            return self._was_surveyed
        handle = question.names_job()
        if has_place or not handle:
            return True
        if not self._was_surveyed:
            return False
        prefix = handle[: handle.rfind(":") + 1]
        prefixes = [channel.prefix for channel in self._channels]
        if prefix and prefix in prefixes:
            waiting.place = prefixes.index(prefix)
        elif not any(prefixes) and None not in prefixes:
            waiting.place = 0  # they are all plain servers, and one of them will say what it cannot do
        return waiting.place is not None

    async def _survey(self) -> None:
        """Try all places that are not known yet, until it is known of each question whom to ask."""
        pause = _FIRST_PAUSE_SECONDS
        while self._unplaced:
            unknown = [channel for channel in self._channels if channel.prefix is None]
            found = await asyncio.gather(*map(self._learn, unknown), return_exceptions=True)
            problems = [problem for problem in found if isinstance(problem, Exception)]
            clash = next((problem for problem in problems if not isinstance(problem, ServerUnreachable)), None)
            self._was_surveyed = clash is None
            unplaced, self._unplaced = self._unplaced, deque()
            touched: set[ServerConnection] = set()
            for waiting in unplaced:
                if clash is not None:
                    waiting.question.fail(clash)
                elif self._find_place(waiting):
                    self._ask(waiting, touched)
                elif not problems or waiting.deadline <= self._loop.time():
                    _tell_unknown(waiting.question, problems)
                else:
                    self._unplaced.append(waiting)
            for channel in touched:
                channel.flush()
            if self._unplaced:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _MOST_PAUSE_SECONDS)

    async def _learn(self, channel: ServerConnection) -> None:
        try:
            async with asyncio.timeout(max(self._connect_seconds, channel.place.start_seconds)):
                await channel.connect()
        except TimeoutError:
            raise ServerUnreachable(f"{channel.place.url} did not answer in time") from None

    def _refuse_unplaced(self, clash: ConfigError) -> None:
        """A server was refused; whoever would have asked any, or this one, is told."""
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if entry.place is None or self._channels[entry.place].prefix is None:
                entry.question.fail(clash)
            else:
                self._waiting.append(entry)

    # --- while nobody is there ---

    def _wait(self, waiting: PendingCall) -> None:
        self._waiting.append(waiting)
        if self._connecting is None or self._connecting.done():
            self._connecting = self._loop.create_task(self._connect())

    def _serve_waiting(self) -> None:
        """A channel is connected: put what has waited for it."""
        waiting, self._waiting = self._waiting, deque()
        touched: set[ServerConnection] = set()
        for entry in waiting:
            channel = self._channel_for(entry.place)
            if channel is None:
                self._waiting.append(entry)
            else:
                self._put(channel, entry)
                touched.add(channel)
        for channel in touched:
            channel.flush()

    async def _connect(self) -> None:
        """Try the places until nobody waits any more."""
        pause = _FIRST_PAUSE_SECONDS
        while self._waiting:
            try:
                error = await self._try_places()
            except ConfigError as clash:
                self._refuse_unplaced(clash)
                continue
            if error is None:
                self._serve_waiting()
                continue
            self._give_up_on_some(error)
            if self._waiting:
                soonest = min(entry.deadline for entry in self._waiting) - self._loop.time()
                await asyncio.sleep(max(0.0, min(pause, soonest)))
                pause = min(pause * 2, _MOST_PAUSE_SECONDS)

    async def _try_places(self) -> ServerUnreachable | None:
        error = ServerUnreachable("no server")
        wanted = {entry.place for entry in self._waiting}
        channels = [channel for channel in self._channels if None in wanted or channel.number in wanted]
        for done, channel in enumerate(channels):
            try:
                # One that does not answer must not use up the time of the others; but a server that is being started
                # in this process, or loads its queue in another, is on its way and worth waiting for.
                share_seconds = self._seconds_left() / (len(channels) - done)
                async with asyncio.timeout(max(share_seconds, channel.place.start_seconds)):
                    await channel.connect()
                return None
            except ServerUnreachable as problem:
                error = problem
            except TimeoutError:
                error = ServerUnreachable(f"{channel.place.url} did not answer in time")
        return error

    def _seconds_left(self) -> float:
        latest = max((entry.deadline for entry in self._waiting), default=0.0)
        return max(0.1, latest - self._loop.time())

    def _give_up_on_some(self, error: ServerUnreachable) -> None:
        now = self._loop.time()
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if entry.deadline > now:
                self._waiting.append(entry)
            else:
                entry.question.fail(error)


class PendingCall:
    """A question that has not been answered, and how long it may wait for a server to be there."""

    __slots__ = ("deadline", "place", "question", "was_repeated")

    def __init__(self, question: AppRequest, place: int | None, deadline: float) -> None:
        self.question = question
        self.place = place
        self.deadline = deadline
        self.was_repeated = False


def _tell_unknown(question: AppRequest, problems: list[Exception]) -> None:
    """None of the servers has such a job, or none that can be reached."""
    handle = question.names_job()
    if isinstance(question, SubscribeRequest):
        question.succeed(UNKNOWN)
    elif problems:
        question.fail(JobUnknown("JOB_NOT_FOUND", f"no server that can be reached has {handle} ({problems[0]})"))
    else:
        question.fail(JobUnknown("JOB_NOT_FOUND", f"no server of this app gives handles such as {handle}"))


# Event loops of a parent process, which must not be touched in its children: not even to be thrown away.
_left_behind: list[IoThread] = []
_lines: weakref.WeakSet[ThreadTransport] = weakref.WeakSet()


def _begin_anew_in_child() -> None:
    for line in list(_lines):
        line.begin_anew_in_child()


def _close_all() -> None:
    """A program that ends hangs up, so that jobs only it waited for are not run for nobody."""
    for line in list(_lines):
        line.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_in_child)
atexit.register(_close_all)
