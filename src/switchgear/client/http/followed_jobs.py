"""`FollowedJobs`: the jobs whose events a Gearman core waits for, and the requests that wait for them.

The server pushes nothing.  So requests wait (`POST /v1/jobs/wait`) until one of their jobs ends or makes progress, each
for up to a thousand jobs.  A job that is followed from now on gets a request of its own, unless there are many.  When a
request is answered, the next one waits for its jobs and all that have come meanwhile.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from switchgear.client.gearman.packets import name_text
from switchgear.client.http.answer_queue import AnswerQueue, AnswerSlot, problem_packet
from switchgear.client.http.answers import HttpAnswer
from switchgear.client.http.exchange import HttpExchange
from switchgear.errors import PeerError
from switchgear.json_bytes import bytes_of
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.messages import Packet

__all__ = ["FollowedJobs"]

MOST_JOBS: Final = 1_000  # of one request
MOST_REQUESTS: Final = 8
WAIT_SECONDS: Final = 25  # less than the minute after which proxies end a request without an answer
BUSY_WAIT_SECONDS: Final = 1  # if there are more jobs than all requests can wait for
# While many jobs end, a request for many others waits a moment, so that its answer has more than one of them.
PAUSE_SECONDS_PER_JOB: Final = 0.000_03
FEW_JOBS: Final = 20
FINAL_STATES: Final = frozenset({"done", "failed", "cancelled", "expired"})
UNKNOWN: Final = "unknown"
NOTHING_SEEN: Final = (0, 0, "")


class FollowedHandle:
    """The state of one followed job: how often each event is sent, and the latest progress that was sent."""

    __slots__ = ("copies", "seen")

    def __init__(self) -> None:
        self.copies = 1  # how often each event is sent; see `client.gearman.subscriptions`
        self.seen: tuple[int, int, str] = NOTHING_SEEN


class FollowedJobs:
    """Waits for jobs of one core."""

    def __init__(self, server: str, answers: AnswerQueue, exchanges: list[HttpExchange]) -> None:
        self.is_extended = False  # the core knows our packets
        self._server = server
        self._answers = answers
        self._exchanges = exchanges
        self._jobs: dict[str, FollowedHandle] = {}
        self._idle: dict[str, None] = {}  # those that no request waits for
        self._requests = 0
        self._asked: list[tuple[str, AnswerSlot]] = []  # WATCH packets that are to be sent

    # --- from the core ---

    def follow(self, handle: str, adds_copy: bool) -> None:
        """Send the events of this job."""
        job = self._jobs.get(handle)
        if job is None:
            self._jobs[handle] = FollowedHandle()
            self._idle[handle] = None
        elif adds_copy:
            job.copies += 1

    def watch(self, body: bytes) -> None:
        """Answer with the state of a job, and then send its events."""
        self._asked.append((name_text(body.partition(b"\0")[0]), self._answers.add()))

    def flush(self) -> None:
        """Make the requests that are needed."""
        while self._asked:
            asked, self._asked = self._asked[:MOST_JOBS], self._asked[MOST_JOBS:]
            self._exchanges.append(self._state_request(asked))
        while self._idle and self._requests < MOST_REQUESTS:
            handles = list(self._idle)[:MOST_JOBS]
            for handle in handles:
                del self._idle[handle]
            self._requests += 1
            self._exchanges.append(self._wait_request(handles))

    def _wait_request(self, handles: list[str]) -> HttpExchange:
        seconds = BUSY_WAIT_SECONDS if self._idle else WAIT_SECONDS
        body = {"jobs": [{"handle": handle, "seen": self._jobs[handle].seen} for handle in handles]}
        return HttpExchange(
            "POST",
            f"/v1/jobs/wait?wait={seconds}",
            msgspec.json.encode(body),
            on_answer=lambda answer: self._on_waited(handles, answer),
            is_repeatable=True,
            wait_seconds=seconds,
            delay_seconds=len(handles) * PAUSE_SECONDS_PER_JOB if len(handles) > FEW_JOBS else 0.0,
        )

    def _state_request(self, asked: list[tuple[str, AnswerSlot]]) -> HttpExchange:
        body = {"jobs": [{"handle": handle} for handle in dict.fromkeys(handle for handle, _ in asked)]}
        return HttpExchange(
            "POST",
            "/v1/jobs/wait",
            msgspec.json.encode(body),
            on_answer=lambda answer: self._on_states(asked, answer),
            is_repeatable=True,
        )

    # --- from the server ---

    def _on_states(self, asked: list[tuple[str, AnswerSlot]], answer: HttpAnswer) -> None:
        if not answer.is_good:
            packet = problem_packet(answer, self._server)
            for _, slot in asked:
                self._answers.answer(slot, packet)
            return
        found = _told_jobs(answer)
        for handle, slot in asked:
            told = found.get(handle)
            if told is None:  # there was no room for it in the answer
                self._asked.append((handle, slot))
                continue
            state = str(told["state"])
            packets = response(Packet.WATCH_RES, handle.encode(), state.encode())
            if state in FINAL_STATES:
                packets += self._end_packet(handle, told)
            elif state != UNKNOWN:
                slot.on_sent = lambda handle=handle: self.follow(handle, False)
            self._answers.answer(slot, packets)
        self.flush()

    def _on_waited(self, handles: list[str], answer: HttpAnswer) -> None:
        self._requests -= 1
        if not answer.is_good:
            raise PeerError(f"waiting for jobs was answered with {answer.words}: {(answer.problem() or ('', ''))[1]}")
        for handle, told in _told_jobs(answer).items():
            job = self._jobs.get(handle)
            if job is None:
                continue
            state = str(told["state"])
            if state in FINAL_STATES or state == UNKNOWN:
                del self._jobs[handle]
                self._answers.send(self._end_packet(handle, told) * job.copies)
            else:
                self._on_progress(handle, job, told)
        self._idle.update((handle, None) for handle in handles if handle in self._jobs)
        self.flush()

    def _on_progress(self, handle: str, job: FollowedHandle, told: dict[str, Any]) -> None:
        message = told["message"]
        data = bytes_of(message, "message")
        job.seen = int(told["numerator"]), int(told["denominator"]), data.decode(errors="replace")
        if job.seen == NOTHING_SEEN:
            return  # another attempt has begun
        figures = b"%d\0%d" % job.seen[:2]
        if self.is_extended and data:
            packet = response(Packet.WORK_PROGRESS, handle.encode(), figures, data)
        else:
            packet = response(Packet.WORK_STATUS, handle.encode(), figures)
        self._answers.send(packet * job.copies)

    def _end_packet(self, handle: str, told: dict[str, Any]) -> bytes:
        name, state = handle.encode(), str(told["state"])
        if state == "done":
            return response(Packet.WORK_COMPLETE, name, bytes_of(told["result"], "result"))
        error = b"" if told["error"] is None else bytes_of(told["error"], "error")
        if self.is_extended:
            return response(Packet.JOB_ENDED, name, state.encode(), str(told["cause"]).encode(), error)
        if error and state != "cancelled":
            return response(Packet.WORK_EXCEPTION, name, error)
        return response(Packet.WORK_FAIL, name)


def _told_jobs(answer: HttpAnswer) -> dict[str, dict[str, Any]]:
    """What an answer tells of jobs, by handle; raises PeerError."""
    try:
        return {str(job["handle"]): job for job in answer.json()["jobs"]}
    except (KeyError, TypeError) as error:
        raise PeerError(f"an answer about jobs that cannot be read: {error}") from None
