"""`HttpSubmissions`: jobs of submission packets on their way to a server: one at a time, or many in one request.

While one request is on its way, further jobs gather for the next.  So jobs are submitted in their order, and many at
once cost few requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from switchgear.client.gearman.packets import split_fields
from switchgear.client.http.answer_queue import AnswerQueue, AnswerSlot, error_packet, problem_packet
from switchgear.client.http.answers import HttpAnswer, error_code_of
from switchgear.client.http.exchange import HttpExchange
from switchgear.errors import PeerError
from switchgear.json_bytes import plain
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.messages import ARGUMENTS, Packet

__all__ = ["SUBMISSIONS", "HttpSubmissions"]

# By packet: the priority, and whether the submitter is told of the end of its job.
_PLAIN: Final = {
    Packet.SUBMIT_JOB: ("normal", True),
    Packet.SUBMIT_JOB_BG: ("normal", False),
    Packet.SUBMIT_JOB_HIGH: ("high", True),
    Packet.SUBMIT_JOB_HIGH_BG: ("high", False),
    Packet.SUBMIT_JOB_LOW: ("low", True),
    Packet.SUBMIT_JOB_LOW_BG: ("low", False),
    Packet.SUBMIT_JOB_EPOCH: ("normal", False),
}
SUBMISSIONS: Final = frozenset({*map(int, _PLAIN), int(Packet.SUBMIT_JOB_OPTIONS)})

MOST_LINES: Final = 5_000
MOST_BATCH_BYTES: Final = 4 * 1024 * 1024
# A longer payload is sent as it is, and not within JSON, if its options fit into the target.
LONG_PAYLOAD_BYTES: Final = 64 * 1024
MOST_QUERY_CHARACTERS: Final = 4_000


@dataclass(slots=True)
class QueuedSubmission:
    """A job that is to be submitted."""

    slot: AnswerSlot
    fields: dict[str, Any]  # of `POST /v1/jobs`, without the payload
    payload: bytes

    @property
    def size(self) -> int:
        return len(self.payload) + 200


class HttpSubmissions:
    """Submits the jobs of one core."""

    def __init__(
        self, server: str, answers: AnswerQueue, exchanges: list[HttpExchange], follow: Callable[[str, bool], None]
    ) -> None:
        """`follow` is called with the handle of a job whose end is waited for, and whether the packet would have
        brought one more copy of all events; see `client.gearman.subscriptions`."""
        self._server = server
        self._answers = answers
        self._exchanges = exchanges
        self._follow = follow
        self._queued: deque[QueuedSubmission] = deque()
        self._sent: list[QueuedSubmission] = []  # that are on their way
        self._handles: dict[AnswerSlot, str] = {}  # of jobs that are to be followed when their answers have left

    def add(self, kind: int, body: bytes) -> None:
        """Queue the job of a packet."""
        packet = Packet(kind)
        fields = split_fields(body, ARGUMENTS[packet])
        payload = fields[-1]
        job: dict[str, Any] = {}
        is_followed = adds_copy = False
        if packet is Packet.SUBMIT_JOB_OPTIONS:
            job = msgspec.json.decode(fields[2], type=dict[str, Any])
            adds_copy = bool(job.pop("wait", False))
            is_followed = bool(job.pop("watch", False)) or adds_copy
        else:
            priority, is_followed = _PLAIN[packet]
            adds_copy = is_followed
            if priority != "normal":
                job["priority"] = priority
            if packet is Packet.SUBMIT_JOB_EPOCH:
                job["run_at"] = int(fields[2])
        slot = self._answers.add()
        if is_followed:
            slot.on_sent = lambda: self._follow(self._handles.pop(slot), adds_copy)
        try:
            job["function"] = fields[0].decode()
            if fields[1]:
                job["unique"] = fields[1].decode()
        except UnicodeDecodeError:
            text = "over HTTP, the names of functions and unique keys are UTF-8"
            self._answers.answer(slot, error_packet("INVALID_ARGUMENT", text))
            return
        self._queued.append(QueuedSubmission(slot, job, payload))

    def flush(self) -> None:
        """Send what is queued, unless something is on its way."""
        if self._sent or not self._queued:
            return
        size = 0
        while self._queued and len(self._sent) < MOST_LINES:
            size += self._queued[0].size
            if self._sent and (size > MOST_BATCH_BYTES or self._queued[0].size > LONG_PAYLOAD_BYTES):
                break
            self._sent.append(self._queued.popleft())
            if size > LONG_PAYLOAD_BYTES and len(self._sent) == 1:
                break
        if len(self._sent) == 1:
            self._exchanges.append(self._single(self._sent[0]))
        else:
            lines = b"\n".join([_json_of(each) for each in self._sent])
            self._exchanges.append(
                HttpExchange(
                    "POST", "/v1/jobs/batch", lines, on_answer=self._on_batch, content_type="application/x-ndjson"
                )
            )

    def _single(self, job: QueuedSubmission) -> HttpExchange:
        query = _query_of(job) if len(job.payload) > LONG_PAYLOAD_BYTES else None
        if query is None:
            return HttpExchange("POST", "/v1/jobs", _json_of(job), on_answer=self._on_single)
        target = f"/v1/functions/{quote(job.fields['function'], safe='')}/jobs{query}"
        return HttpExchange(
            "POST", target, job.payload, on_answer=self._on_single, content_type="application/octet-stream"
        )

    # --- answers ---

    def _on_single(self, answer: HttpAnswer) -> None:
        (job,), self._sent = self._sent, []
        if answer.is_good:
            self._on_created(job, answer.json())
        else:
            self._answers.answer(job.slot, problem_packet(answer, self._server))
        self.flush()

    def _on_batch(self, answer: HttpAnswer) -> None:
        jobs, self._sent = self._sent, []
        if not answer.is_good:
            packet = problem_packet(answer, self._server)
            for job in jobs:
                self._answers.answer(job.slot, packet)
        else:
            lines = answer.body.splitlines()
            if len(lines) != len(jobs):
                raise PeerError(f"{len(lines)} answers to {len(jobs)} submissions")
            for job, line in zip(jobs, lines, strict=True):
                self._on_line(job, line)
        self.flush()

    def _on_line(self, job: QueuedSubmission, line: bytes) -> None:
        try:
            told = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise PeerError(f"an answer to a submission that is not JSON: {error}") from None
        problem = told.get("problem")
        if isinstance(problem, dict):
            code, text = str(problem.get("code", "")), str(problem.get("detail", ""))
            self._answers.answer(job.slot, error_packet(error_code_of((code, text)), text))
        else:
            self._on_created(job, told)

    def _on_created(self, job: QueuedSubmission, told: Any) -> None:
        handle = told.get("handle") if isinstance(told, dict) else None
        if not isinstance(handle, str):
            raise PeerError("an answer to a submission without a handle")
        if job.slot.on_sent is not None:
            self._handles[job.slot] = handle
        self._answers.answer(job.slot, response(Packet.JOB_CREATED, handle.encode()))


def _json_of(job: QueuedSubmission) -> bytes:
    return msgspec.json.encode({**job.fields, "payload": plain(job.payload)})


def _query_of(job: QueuedSubmission) -> str | None:
    """The options as a query; `None` if they do not fit there."""
    given: dict[str, str] = {}
    for name, value in job.fields.items():
        if name == "function":
            continue
        if isinstance(value, bool):
            given[name] = "yes" if value else "no"
        elif isinstance(value, str | int | float):
            given[name] = str(value)
        else:
            return None
    query = f"?{urlencode(given)}" if given else ""
    return query if len(query) <= MOST_QUERY_CHARACTERS else None
