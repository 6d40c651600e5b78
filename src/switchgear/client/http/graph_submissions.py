"""`HttpGraphs`: graphs of a Gearman core on their way to an HTTP server, each in one request, all of its jobs or none.

Handles are reserved first, because payloads name other jobs of the graph.  The records of the parts (see
`switchgear.protocols.gearman.graph_packets`) become the lines of an atomic batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

import msgspec

from switchgear.client.gearman.error_codes import GRAPH_NOT_FOUND
from switchgear.client.gearman.packets import split_fields
from switchgear.client.http.answer_queue import AnswerQueue, error_packet, problem_packet
from switchgear.client.http.answers import HttpAnswer, error_code_of
from switchgear.client.http.exchange import HttpExchange
from switchgear.errors import PeerError
from switchgear.job_options import JOB_OPTION_NAMED
from switchgear.json_bytes import plain
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.messages import Packet

__all__ = ["HttpGraphs"]

_LENGTH: Final = Struct(">I")
_JOB_START: Final = Struct(">IIBI")
_PREDECESSORS_START: Final = Struct(">IB")
_POLICY_OF_EACH: Final = 255
_POLICY_WORDS: Final = JOB_OPTION_NAMED["on_failure"].words
_NOT_UTF8: Final = "over HTTP, the names of functions are UTF-8"


class HttpGraphs:
    """The graphs of one core."""

    def __init__(self, server: str, answers: AnswerQueue, exchanges: list[HttpExchange]) -> None:
        self._server = server
        self._answers = answers
        self._exchanges = exchanges
        self._parts: dict[bytes, list[bytes]] = {}  # by the handle of the first job

    def begin(self, body: bytes) -> None:
        """GRAPH_BEGIN: reserve handles."""
        slot = self._answers.add()

        def on_answer(answer: HttpAnswer) -> None:
            if not answer.is_good:
                self._answers.answer(slot, problem_packet(answer, self._server))
                return
            handle = str(answer.json()["first"]).encode()
            self._parts[handle] = []
            self._answers.answer(slot, response(Packet.GRAPH_IDS, handle))

        count = msgspec.json.encode({"count": int(body)})
        self._exchanges.append(HttpExchange("POST", "/v1/jobs/handles", count, on_answer=on_answer, is_repeatable=True))

    def add_part(self, body: bytes) -> None:
        """GRAPH_PART: keep a part until the commit."""
        handle, records = split_fields(body, 2)
        if handle in self._parts:
            self._parts[handle].append(records)

    def commit(self, handle: bytes) -> None:
        """GRAPH_COMMIT: submit the graph."""
        slot = self._answers.add()
        parts = self._parts.pop(handle, None)
        if parts is None:  # it was begun on another connection
            self._answers.answer(slot, error_packet(GRAPH_NOT_FOUND, "this connection has begun no such graph"))
            return
        first = handle.decode()
        try:
            lines = [msgspec.json.encode(job) for job in jobs_of(b"".join(parts), first.rpartition(":")[0] + ":")]
        except UnicodeDecodeError:
            self._answers.answer(slot, error_packet("INVALID_ARGUMENT", _NOT_UTF8))
            return

        def on_answer(answer: HttpAnswer) -> None:
            if answer.is_good:
                packet = response(Packet.GRAPH_CREATED, handle, b"%d" % len(lines))
            else:
                packet = self._refusal(answer)
            self._answers.answer(slot, packet)

        self._exchanges.append(
            HttpExchange(
                "POST",
                f"/v1/jobs/batch?atomic=1&first={first}",
                b"\n".join(lines),
                on_answer=on_answer,
                content_type="application/x-ndjson",
            )
        )

    def _refusal(self, answer: HttpAnswer) -> bytes:
        """Why no job of a graph was submitted: the problem of the request, or of the first line that has one."""
        if answer.problem() is not None or answer.status != 422:
            return problem_packet(answer, self._server)
        try:
            problem: dict[str, Any] = msgspec.json.decode(answer.body.partition(b"\n")[0])["problem"]
            code, text = str(problem["code"]), str(problem["detail"])
        except (msgspec.DecodeError, KeyError, TypeError):
            raise PeerError("an answer to a graph that cannot be read") from None
        return error_packet(error_code_of((code, text)), text)


def jobs_of(records: bytes, prefix: str) -> Iterator[dict[str, Any]]:
    """The jobs that records describe, as `POST /v1/jobs` takes them; raises UnicodeDecodeError."""
    templates: list[dict[str, Any]] = []
    job: dict[str, Any] | None = None
    place = 0
    while place < len(records):
        kind = records[place : place + 1]
        place += 1
        if kind == b"T":
            function, place = _sized(records, place)
            text, place = _sized(records, place)
            options = msgspec.json.decode(text, type=dict[str, Any])
            options.pop("wait", None)  # over HTTP all jobs are durable
            templates.append({"function": function.decode(), **options})
            continue
        if kind == b"P":
            assert job is not None
            count, policy = _PREDECESSORS_START.unpack_from(records, place)
            place = _add_predecessors(job, records, place + _PREDECESSORS_START.size, count, policy, prefix)
            continue
        if job is not None:
            yield job
        template, count, policy, size = _JOB_START.unpack_from(records, place)
        job = dict(templates[template])
        place = _add_predecessors(job, records, place + _JOB_START.size, count, policy, prefix)
        job["payload"] = plain(records[place : place + size])
        place += size
    if job is not None:
        yield job


def _sized(records: bytes, place: int) -> tuple[bytes, int]:
    """The bytes behind their length, and where they end."""
    (size,) = _LENGTH.unpack_from(records, place)
    end = place + _LENGTH.size + size
    return records[place + _LENGTH.size : end], end


def _add_predecessors(job: dict[str, Any], records: bytes, place: int, count: int, policy: int, prefix: str) -> int:
    """Add so many predecessors from this place on; returns where they end."""
    if not count:
        return place
    ids = Struct(f">{count}Q")
    handles = [f"{prefix}{job_id}" for job_id in ids.unpack_from(records, place)]
    place += ids.size
    if policy == _POLICY_OF_EACH:
        words = [_POLICY_WORDS[each] for each in records[place : place + count]]
        place += count
    else:
        words = [_POLICY_WORDS[policy]] * count
    job["after"] = [*job.get("after", ()), *handles]
    job["on_failure"] = [*job.get("on_failure", ()), *words]
    return place
