"""Graphs on their way to a server: jobs that are submitted together with their edges, all or none.

First the server is asked for consecutive handles (`BeginGraphRequest`), by which the payloads of later jobs can name
earlier ones. Then the jobs are encoded and sent in parts, and committed (`GraphRequest`).  The records are described in
`switchgear.protocols.gearman.graph_packets`.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from switchgear.client.gearman.error_codes import ARGUMENT_TOO_LARGE, error_of
from switchgear.client.gearman.packets import name_bytes, name_text
from switchgear.client.gearman.pending_requests import Completable, RoutedSingleRequest
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.errors import ClientError, ServerUnreachable
from switchgear.job_options import JOB_OPTION_NAMED
from switchgear.numbers import whole_number
from switchgear.protocols.gearman.codec import HEADER, REQUEST
from switchgear.protocols.gearman.codec import request as packet_of
from switchgear.protocols.gearman.messages import Packet

if TYPE_CHECKING:
    from switchgear.client.gearman.client_protocol import ClientProtocol

__all__ = ["BeginGraphRequest", "GraphEncoder", "GraphIds", "GraphRequest"]

_PART_BYTES: Final = 256 * 1024
_IDS_PER_RECORD: Final = 1_000
_TEMPLATE: Final = Struct(">cI")
_LENGTH: Final = Struct(">I")
_JOB: Final = Struct(">cIIBI")
_PREDECESSORS: Final = Struct(">cIB")
_POLICY_OF_EACH: Final = 255
_POLICIES: Final = {word: number for number, word in enumerate(JOB_OPTION_NAMED["on_failure"].words)}
_LARGEST_ID: Final = 2**62

_LOST: Final = "the connection to {server} was lost before it answered; the graph was taken as a whole or not at all"


class GraphIds:
    """The handles that a server has reserved for a graph."""

    __slots__ = ("count", "first", "prefix", "server_number")

    def __init__(self, first_handle: str, count: int, server_number: int) -> None:
        """Raises ClientError if the server has sent something else."""
        prefix, colon, digits = first_handle.rpartition(":")
        first = whole_number(digits.encode(), _LARGEST_ID)
        if not colon or not first:
            raise ClientError(f"the server has sent {first_handle!r} as the handle of a graph")
        self.prefix = prefix + colon
        self.first = first
        self.count = count
        self.server_number = server_number

    def handle(self, index: int) -> str:
        """The handle of a job by its index in the graph."""
        return f"{self.prefix}{self.first + index}"

    def id_of(self, handle: str) -> int:
        """The id in a handle of the same server; raises ClientError."""
        if handle.startswith(self.prefix):
            job_id = whole_number(handle[len(self.prefix) :].encode(), _LARGEST_ID)
            if job_id:
                return job_id
        raise ClientError(f"{handle} is not a job of the server that the graph is for, {self.prefix}…")


class BeginGraphRequest(RoutedSingleRequest):
    """Reserves handles for the jobs of a graph.  The answer is a `GraphIds`."""

    may_repeat = True

    def __init__(self, count: int, predecessor: str = "", future: Completable | None = None) -> None:
        """`predecessor` is the handle of an existing job that the graph waits for, so that its server is asked."""
        super().__init__(future)
        self._count = count
        self._predecessor = predecessor
        self._protocol: ClientProtocol

    def job_handle(self) -> str:
        return self._predecessor

    def send(self, protocol: ClientProtocol) -> None:
        protocol.require_switchgear("a graph of jobs")
        self._protocol = protocol
        protocol.send_request(packet_of(Packet.GRAPH_BEGIN, b"%d" % self._count), self)

    def on_answer(self, kind: int, body: bytes) -> bool:
        try:
            if kind != Packet.GRAPH_IDS:
                raise ClientError(f"the server answered the begin of a graph with a packet of type {kind}")
            self.succeed(GraphIds(name_text(body), self._count, self._protocol.server_number))
        except ClientError as error:
            self.fail(error)
        return False


class GraphRequest(RoutedSingleRequest):
    """The parts of a graph, and its commit.  The answer is the number of its jobs."""

    def __init__(self, ids: GraphIds, parts: list[bytes], future: Completable | None = None) -> None:
        super().__init__(future)
        self._handle = name_bytes(ids.handle(0))
        self._parts = parts
        self._protocol: ClientProtocol

    def send(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol
        longest = max(map(len, self._parts)) + len(self._handle) + 1
        if longest > protocol.packet_bytes:
            text = f"the arguments of a job take {longest} bytes"
            raise error_of(ARGUMENT_TOO_LARGE, f"{text}, and {protocol.server} takes at most {protocol.packet_bytes}")
        handle = self._handle
        for part in self._parts:
            header = HEADER.pack(REQUEST, Packet.GRAPH_PART, len(handle) + 1 + len(part))
            protocol.outgoing.append(b"%b%b\0%b" % (header, handle, part))
        self._parts = []
        protocol.send_request(packet_of(Packet.GRAPH_COMMIT, handle), self)

    def on_answer(self, kind: int, body: bytes) -> bool:
        count = body.rpartition(b"\0")[2]
        if kind == Packet.GRAPH_CREATED:
            self.succeed(whole_number(count) or 0)
        else:
            self.fail(ClientError(f"the server answered a graph with a packet of type {kind}"))
        return False

    def on_connection_lost(self, error: ServerUnreachable) -> None:
        self.fail(ServerUnreachable(_LOST.format(server=self._protocol.server)))


class GraphEncoder:
    """Encodes the jobs of a graph into parts."""

    def __init__(self, ids: GraphIds) -> None:
        self._ids = ids
        self._templates: dict[tuple[bytes, bytes], int] = {}
        self._last_options: dict[str, Any] | None = None
        self._last_key: tuple[bytes, str, bool | None] | None = None
        self._last_template = 0
        self._records: list[bytes] = []
        self._size = 0
        self._parts: list[bytes] = []

    def add_all(self, requests: Iterable[SubmitRequest]) -> None:
        """Encode these jobs, each of which follows its predecessors."""
        for request in requests:
            self.add(request)

    def add(self, request: SubmitRequest) -> None:
        """Encode the next job."""
        options = request.options
        handles: list[str] = options.get("after") or []
        template = self._template(request)
        if not handles:
            start = _JOB.pack(b"J", template, 0, 0, len(request.payload))
            self._append(start, request.payload)
            return
        words: list[str] = options["on_failure"]
        ids = [self._ids.id_of(handle) for handle in handles]
        policies = [_POLICIES[word] for word in words]
        is_common = policies.count(policies[0]) == len(policies)
        some, most = ids[:_IDS_PER_RECORD], len(ids)
        policy = policies[0] if is_common else _POLICY_OF_EACH
        pieces = [_JOB.pack(b"J", template, len(some), policy, len(request.payload))]
        pieces.append(Struct(f">{len(some)}Q").pack(*some))
        if not is_common:
            pieces.append(bytes(policies[:_IDS_PER_RECORD]))
        self._append(*pieces, request.payload)
        for start_index in range(_IDS_PER_RECORD, most, _IDS_PER_RECORD):
            more = ids[start_index : start_index + _IDS_PER_RECORD]
            for policy in sorted(set(policies[start_index : start_index + len(more)])):
                same = [job_id for job_id, other in zip(more, policies[start_index:]) if other == policy]
                self._append(_PREDECESSORS.pack(b"P", len(same), policy), Struct(f">{len(same)}Q").pack(*same))

    @property
    def functions(self) -> frozenset[bytes]:
        """The functions of the jobs."""
        return frozenset(function for function, _ in self._templates)

    def parts(self) -> list[bytes]:
        """All that was encoded."""
        self._flush()
        return self._parts

    def _template(self, request: SubmitRequest) -> int:
        """The number of the template for a job, which is encoded if it is new."""
        options = request.options
        key = (request.function, request.priority, request.durable)
        if options is self._last_options and key == self._last_key and not request.run_at:
            return self._last_template
        described = {name: value for name, value in options.items() if name not in ("after", "on_failure")}
        described["priority"] = request.priority
        if request.run_at:
            described["run_at"] = request.run_at
        if request.durable is False:
            described["wait"] = True
        text = msgspec.json.encode(described)
        number = self._templates.get((request.function, text), -1)
        if number < 0:
            number = self._templates[request.function, text] = len(self._templates)
            self._append(_TEMPLATE.pack(b"T", len(request.function)), request.function, _LENGTH.pack(len(text)), text)
        if not request.run_at:
            self._last_options, self._last_key, self._last_template = options, key, number
        return number

    def _append(self, *pieces: bytes) -> None:
        size = sum(map(len, pieces))
        if self._size + size > _PART_BYTES and self._records:
            self._flush()
        self._records.extend(pieces)
        self._size += size

    def _flush(self) -> None:
        if self._records:
            self._parts.append(b"".join(self._records))
            self._records = []
            self._size = 0
