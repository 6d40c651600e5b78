"""`PolledWorker`: a Gearman worker core as a registered worker of the HTTP interface, which asks for jobs and reports.

Credit becomes a request that waits for jobs (`POST /v1/workers/{id}/poll`).  One always waits, also while there is no
room for a job: it keeps the lease, and tells which jobs to stop.  A worker that grabs (GRAB_JOB_UNIQ) has a job fetched
for it while it sleeps.

The worker's life is its lease and not a connection.  While the server cannot be reached, jobs go on, and their reports
are sent again and again until they are answered; each names its attempt, so that none can harm another.  After a
restart of the server the worker registers anew, and goes on with its jobs too: the server takes their results unless
somebody else has begun them.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from switchgear.client.gearman.packets import name_text, split_fields, wire_number
from switchgear.client.http.answer_queue import AnswerQueue, AnswerSlot, error_packet, problem_packet
from switchgear.client.http.answers import HttpAnswer
from switchgear.client.http.exchange import HttpExchange
from switchgear.errors import PeerError
from switchgear.json_bytes import bytes_of, plain
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.messages import Packet

__all__ = ["PolledWorker"]

WAIT_SECONDS: Final = 25.0
POLLS_PER_LEASE: Final = 3
DEFAULT_LEASE_SECONDS: Final = 60.0
MOST_JOBS: Final = 1_000  # of one request
PAUSE_SECONDS: Final = 0.2  # before a request is made again that was refused for now
GONE_REASONS: Final = frozenset({"timed_out", "held_back"})
NO_JOB: Final = response(Packet.NO_JOB)
NOOP: Final = response(Packet.NOOP)


class HeldJob:
    """A job that the worker has, in one attempt."""

    __slots__ = ("attempt", "is_gone", "is_progress_sent", "last", "parts", "progress")

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.parts: list[bytes] = []  # of the result, which were sent ahead of its end
        self.progress: bytes = b""  # that is to be sent next
        self.is_progress_sent = False  # progress is on its way
        self.last: HttpExchange | None = None  # the last report, which waits for that
        self.is_gone = False  # it was taken from the worker


class PolledWorker:
    """The Gearman worker of one core, as a registered HTTP worker that polls for jobs."""

    def __init__(self, server: str, answers: AnswerQueue, exchanges: list[HttpExchange]) -> None:
        self.wants_traces = False
        self._server = server
        self._answers = answers
        self._exchanges = exchanges
        self._name = ""
        self._timeouts: dict[str, float] = {}  # by function
        self._tags: list[str] = []
        self._resources: dict[str, float] = {}
        self._lease_seconds = DEFAULT_LEASE_SECONDS
        self._room = 0  # credit
        self._takes = False  # it has asked for jobs
        self._id = ""  # as the server has registered it
        self._is_registering = False
        self._poll_number = 0  # of the latest request for jobs
        self._polls: dict[int, int] = {}  # those without an answer: for how many jobs each has room
        self._delay_seconds = 0.0  # before the next one
        self._held: dict[str, HeldJob] = {}
        self._reports: set[HttpExchange] = set()  # without an answer
        self._withheld: list[HttpExchange] = []  # reports that are sent when no request has room for a job
        self._confirmations: list[tuple[AnswerSlot, bytes, set[HttpExchange]]] = []
        # A worker that grabs.
        self._grabs = False
        self._sleeps = False
        self._fetched: list[bytes] = []  # packets with jobs that it has not grabbed yet
        self._is_grabbing = False

    @property
    def has_jobs(self) -> bool:
        """Whether a job goes on, or its end was not reported yet."""
        return bool(self._held or self._reports)

    # --- what the core says about itself ---

    def on_packet(self, kind: int, body: bytes) -> bool:
        """Handle a packet of a worker; False if it is none."""
        handler = _HANDLERS.get(kind)
        if handler is None:
            return False
        handler(self, body)
        return True

    def _on_name(self, body: bytes) -> None:
        self._name = body.decode(errors="replace")[:512]

    def _on_can_do(self, body: bytes) -> None:
        self._add_function(body, 0.0)

    def _on_can_do_timeout(self, body: bytes) -> None:
        function, milliseconds = split_fields(body, 2)
        self._add_function(function, wire_number(milliseconds) / 1000)

    def _add_function(self, function: bytes, timeout_seconds: float) -> None:
        try:
            name = function.decode()
        except UnicodeDecodeError:
            raise PeerError("over HTTP, the names of functions are UTF-8") from None
        if self._id and name not in self._timeouts:
            raise PeerError("over HTTP, a worker names its functions before it takes jobs")
        self._timeouts[name] = timeout_seconds

    def _on_tags(self, body: bytes) -> None:
        self._tags = [tag for tag in body.decode(errors="replace").split(",") if tag]

    def _on_resources(self, body: bytes) -> None:
        from switchgear.resources import resource_amounts

        amounts = resource_amounts(body.decode(errors="replace"))
        self._resources = {name.decode(): amount / 1000 for name, amount in amounts.items()}

    # --- asking for jobs ---

    def _on_status(self, body: bytes) -> None:
        """Tell nobody: workers over HTTP cannot be controlled, and only for that the server wants their status."""

    def _on_credit(self, body: bytes) -> None:
        number, lease = split_fields(body, 2)
        self._takes = True
        self._room = max(0, self._room + int(number))
        self._lease_seconds = wire_number(lease) / 1000 or DEFAULT_LEASE_SECONDS

    def _on_grab(self, body: bytes) -> None:
        self._takes = self._grabs = True
        self._sleeps = False
        if self._fetched:
            self._answers.send(self._fetched.pop(0))
        else:
            self._is_grabbing = True  # until a request is answered that was made after this

    def _on_pre_sleep(self, body: bytes) -> None:
        self._sleeps = True
        if self._fetched:
            self._answers.send(NOOP)

    @property
    def _wanted(self) -> int:
        """How many more jobs there is room for."""
        if self._grabs:
            return 1 if not self._fetched and (self._is_grabbing or self._sleeps) else 0
        return min(self._room, MOST_JOBS)

    def flush(self) -> None:
        """Make the requests that are needed: to register, or for jobs."""
        if not self._takes or not self._timeouts or self._is_registering:
            return
        if not self._id:
            self._is_registering = True
            self._exchanges.append(self._registration())
        elif self._poll_number not in self._polls or bool(self._wanted) != bool(self._polls[self._poll_number]):
            self._exchanges.append(self._poll())  # which ends an earlier one at the server

    def _registration(self) -> HttpExchange:
        wanted = {
            "functions": list(self._timeouts),
            "name": self._name,
            "tags": self._tags,
            "resources": self._resources,
            "timeouts": {name: seconds for name, seconds in self._timeouts.items() if seconds},
            "lease": self._lease_seconds,
        }
        # Sent twice it leaves a worker behind that asks for no job, and whose lease expires.
        body = msgspec.json.encode(wanted)
        return HttpExchange("POST", "/v1/workers", body, on_answer=self._on_registered, is_repeatable=True)

    def _on_registered(self, answer: HttpAnswer) -> None:
        self._is_registering = False
        if not answer.is_good:
            raise PeerError((answer.problem() or ("", f"the worker was answered with {answer.words}"))[1])
        self._id = str(answer.json()["id"])
        self.flush()

    def _poll(self) -> HttpExchange:
        self._poll_number += 1
        number = self._poll_number
        room = self._polls[number] = self._wanted
        seconds = round(max(1.0, min(WAIT_SECONDS, self._lease_seconds / POLLS_PER_LEASE)))
        if self._is_grabbing:
            seconds = 0  # the worker may have other servers to ask
        exchange = HttpExchange(
            "POST",
            f"/v1/workers/{self._id}/poll?max={room}&wait={seconds}",
            on_answer=lambda answer: self._on_polled(number, answer),
            is_repeatable=True,
            wait_seconds=seconds,
            delay_seconds=self._delay_seconds,
        )
        self._delay_seconds = 0.0
        if room:
            exchange.on_repeat = lambda: self._name_held_jobs(exchange)
        return exchange

    def _name_held_jobs(self, exchange: HttpExchange) -> None:
        """An answer may have been lost: let the server take back the jobs that were in it."""
        held = [{"handle": handle, "attempt": job.attempt} for handle, job in self._held.items()]
        exchange.body = msgspec.json.encode({"held": held})

    def _on_polled(self, number: int, answer: HttpAnswer) -> None:
        is_latest = number == self._poll_number
        self._polls.pop(number, None)
        if not answer.is_good:
            self._on_poll_problem(is_latest, answer)
            return
        told = answer.json()
        for revoked in told["revoked"]:
            self._on_revoked(revoked)
        for job in told["jobs"]:
            self._on_job(job)
        if is_latest and self._is_grabbing and not self._fetched:
            self._is_grabbing = False
            self._answers.send(NO_JOB)
        self._send_withheld()
        self.flush()

    def _on_poll_problem(self, is_latest: bool, answer: HttpAnswer) -> None:
        code, text = answer.problem() or ("", f"asking for jobs was answered with {answer.words}")
        self._send_withheld()
        if not is_latest:
            return
        if code == "already_polling":
            self._delay_seconds = PAUSE_SECONDS
        elif code == "worker_not_found":  # the server was restarted, or the lease has expired
            self._id = ""
        elif code == "too_many_jobs":  # which are to be reported first
            self._delay_seconds = PAUSE_SECONDS
        else:
            raise PeerError(text)
        self.flush()

    def _on_job(self, job: dict[str, Any]) -> None:
        handle, attempt = str(job["handle"]), int(job["attempt"])
        held = self._held.get(handle)
        if held is not None:  # an earlier attempt still runs here, and was given up by the server
            self._answers.send(response(Packet.REVOKE, handle.encode(), b"held_back"))
        self._held[handle] = HeldJob(attempt)
        fields = [handle.encode(), bytes_of(job["function"], "function"), bytes_of(job["unique"], "unique")]
        payload = bytes_of(job["payload"], "payload")
        if self._grabs:
            packet = response(Packet.JOB_ASSIGN_UNIQ, *fields, payload)
            if self._is_grabbing:
                self._is_grabbing = False
                self._answers.send(packet)
            else:
                self._fetched.append(packet)
                self._answers.send(NOOP)
            return
        self._room = max(0, self._room - 1)
        figures = (job["attempts"], job["losses"], job["attempts_limit"], -(-job["timeout"] * 1000 // 1))
        fields += [b"%d" % figure for figure in figures]
        trace = str(job["trace"]).encode()
        if trace and self.wants_traces:
            self._answers.send(response(Packet.JOB_PUSH_TRACED, *fields, trace, payload))
        else:
            self._answers.send(response(Packet.JOB_PUSH, *fields, payload))

    def _on_revoked(self, revoked: dict[str, Any]) -> None:
        handle, reason = str(revoked["handle"]), str(revoked["reason"])
        held = self._held.get(handle)
        if held is None or held.attempt != revoked["attempt"] or held.last is not None:
            return  # the end of the job was reported meanwhile
        held.is_gone = reason in GONE_REASONS
        if not self._grabs:  # whose protocol has no word for it
            self._answers.send(response(Packet.REVOKE, handle.encode(), reason.encode()))

    # --- reports ---

    def _on_complete(self, body: bytes) -> None:
        name, result = split_fields(body, 2)
        held = self._held.get(name_text(name))
        if held is not None and held.parts:
            result = b"".join((*held.parts, result))
        self._end(name, "PUT", "result", result)

    def _on_fail(self, body: bytes) -> None:
        self._end(body.partition(b"\0")[0], "POST", "fail", b"{}")

    def _on_exception(self, body: bytes) -> None:
        name, error = split_fields(body, 2)
        self._end(name, "POST", "fail", msgspec.json.encode({"error": plain(error)}))

    def _on_retry_later(self, body: bytes) -> None:
        name, delay, limit, error = split_fields(body, 4)
        report: dict[str, Any] = {"error": plain(error), "retry_in": wire_number(delay) / 1000}
        if limit:
            report["attempts_limit"] = wire_number(limit)
        self._end(name, "POST", "fail", msgspec.json.encode(report))

    def _on_hand_back(self, body: bytes) -> None:
        self._end(body.partition(b"\0")[0], "POST", "release", b"")

    def _end(self, name: bytes, method: str, what: str, body: bytes) -> None:
        """Send the last report on a job."""
        handle = name_text(name)
        held = self._held.get(handle)
        if held is None or held.last is not None:
            self._answers.send(error_packet("JOB_NOT_FOUND", "Job given in work result not found"))
            return
        exchange = HttpExchange(
            method,
            f"/v1/jobs/{quote(handle, safe=':')}/{what}",
            body,
            on_answer=lambda answer: self._on_reported(exchange, handle, held, answer),
            content_type="application/octet-stream" if what == "result" else "application/json",
            attempt=held.attempt,
            is_repeatable=True,
        )
        held.last = exchange
        self._reports.add(exchange)
        if not held.is_progress_sent:
            self._send_last(exchange)

    def _send_last(self, exchange: HttpExchange) -> None:
        # A job that goes back while the server still knows of room here would come back to us.
        is_early = exchange.target.endswith("/release") and not self._wanted and any(self._polls.values())
        (self._withheld if is_early else self._exchanges).append(exchange)

    def _send_withheld(self) -> None:
        if self._withheld and not any(self._polls.values()):
            self._exchanges += self._withheld
            self._withheld.clear()

    def _on_reported(self, exchange: HttpExchange, handle: str, held: HeldJob, answer: HttpAnswer) -> None:
        self._reports.discard(exchange)
        if self._held.get(handle) is held:
            del self._held[handle]
        problem = answer.problem() or ("", "")
        is_expected = problem[0] == "cancelled" or held.is_gone or exchange.tries > 1
        if not answer.is_good and not (is_expected and answer.status in (404, 409)):
            self._answers.send(problem_packet(answer, self._server, concerns_job=True))
        self._confirm(exchange)

    def _on_data(self, body: bytes) -> None:
        name, data = split_fields(body, 2)
        held = self._held.get(name_text(name))
        if held is not None:
            held.parts.append(data)

    def _on_warning(self, body: bytes) -> None:
        """HTTP has no place for warnings."""

    def _on_progress(self, body: bytes) -> None:
        name, numerator, denominator, *message = body.split(b"\0", 3)
        handle = name_text(name)
        held = self._held.get(handle)
        if held is None or held.is_gone or held.last is not None:
            return
        report: dict[str, Any] = {"numerator": wire_number(numerator), "denominator": wire_number(denominator)}
        if message:
            report["message"] = message[0].decode(errors="replace")
        held.progress = msgspec.json.encode(report)
        self._send_progress(handle, held)

    def _send_progress(self, handle: str, held: HeldJob) -> None:
        """Send the latest progress, one at a time."""
        if held.is_progress_sent or not held.progress:
            return
        body, held.progress = held.progress, b""
        held.is_progress_sent = True
        self._exchanges.append(
            HttpExchange(
                "POST",
                f"/v1/jobs/{quote(handle, safe=':')}/progress",
                body,
                on_answer=lambda _: self._on_progress_sent(handle, held),
                on_failed=lambda: self._on_progress_sent(handle, held),
                attempt=held.attempt,
                is_repeatable=True,
            )
        )

    def _on_progress_sent(self, handle: str, held: HeldJob) -> None:
        held.is_progress_sent = False
        if held.progress:
            self._send_progress(handle, held)
        elif held.last is not None:
            self._send_last(held.last)

    # --- confirmations, and the end ---

    def confirm(self, slot: AnswerSlot, packet: bytes) -> None:
        """Answer when everything that was reported before has been answered."""
        if self._reports:
            self._confirmations.append((slot, packet, set(self._reports)))
        else:
            self._answers.answer(slot, packet)

    def _confirm(self, exchange: HttpExchange) -> None:
        waiting, self._confirmations = self._confirmations, []
        for slot, packet, reports in waiting:
            reports.discard(exchange)
            if reports:
                self._confirmations.append((slot, packet, reports))
            else:
                self._answers.answer(slot, packet)

    def farewell(self) -> list[HttpExchange]:
        """What is to be sent when the stream ends: the server gives jobs of the worker to others."""
        if not self._id:
            return []
        target, self._id, self._takes = f"/v1/workers/{self._id}", "", False
        self._exchanges += self._withheld
        self._withheld.clear()
        fetched = [name_text(packet[12:].partition(b"\0")[0]) for packet in self._fetched]
        exchanges = [
            HttpExchange(
                "POST",
                f"/v1/jobs/{quote(handle, safe=':')}/release",
                on_answer=_ignore,
                attempt=self._held[handle].attempt,
            )
            for handle in fetched
            if handle in self._held
        ]
        # Jobs of an answer that nobody has read are not lost with the worker: they did not reach it.
        last_poll = HttpExchange("POST", f"{target}/poll?max=0", on_answer=_ignore)
        self._name_held_jobs(last_poll)
        return [*exchanges, last_poll, HttpExchange("DELETE", target, on_answer=_ignore)]


def _ignore(answer: HttpAnswer) -> None:
    pass


_HANDLERS: Final = {
    int(Packet.SET_CLIENT_ID): PolledWorker._on_name,
    int(Packet.CAN_DO): PolledWorker._on_can_do,
    int(Packet.CAN_DO_TIMEOUT): PolledWorker._on_can_do_timeout,
    int(Packet.WORKER_TAGS): PolledWorker._on_tags,
    int(Packet.WORKER_RESOURCES): PolledWorker._on_resources,
    int(Packet.WORKER_STATUS): PolledWorker._on_status,
    int(Packet.CREDIT): PolledWorker._on_credit,
    int(Packet.GRAB_JOB_UNIQ): PolledWorker._on_grab,
    int(Packet.PRE_SLEEP): PolledWorker._on_pre_sleep,
    int(Packet.WORK_COMPLETE): PolledWorker._on_complete,
    int(Packet.WORK_FAIL): PolledWorker._on_fail,
    int(Packet.WORK_EXCEPTION): PolledWorker._on_exception,
    int(Packet.RETRY_LATER): PolledWorker._on_retry_later,
    int(Packet.HAND_BACK): PolledWorker._on_hand_back,
    int(Packet.WORK_DATA): PolledWorker._on_data,
    int(Packet.WORK_WARNING): PolledWorker._on_warning,
    int(Packet.WORK_PROGRESS): PolledWorker._on_progress,
    int(Packet.WORK_STATUS): PolledWorker._on_progress,
}
