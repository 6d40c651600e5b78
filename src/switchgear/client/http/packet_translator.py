"""`PacketTranslator`: translates packets of a Gearman core to HTTP requests, and answers to packets, without I/O.

To a core it looks like a connection to a server of ours.  Each packet that asks for something becomes a request to the
HTTP interface, and its answer becomes the packet that the core waits for.  So every client and worker of the library
can speak HTTP without code for it.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from switchgear.client.gearman.packets import (
    LARGEST_PACKET_BYTES,
    SWITCHGEAR_OPTION,
    TRACES_OPTION,
    split_fields,
)
from switchgear.client.gearman.pending_requests import READ_ONLY_VERBS
from switchgear.client.gearman.worker_protocol import HEARTBEAT
from switchgear.client.http.answer_queue import AnswerQueue, AnswerSlot, error_packet, problem_packet
from switchgear.client.http.answers import HttpAnswer
from switchgear.client.http.exchange import HttpExchange
from switchgear.client.http.followed_jobs import FollowedJobs
from switchgear.client.http.graph_submissions import HttpGraphs
from switchgear.client.http.polled_worker import PolledWorker
from switchgear.client.http.submissions import SUBMISSIONS, HttpSubmissions
from switchgear.errors import PeerError
from switchgear.protocols.gearman.codec import REQUEST, TEXT, GearmanDecoder, response
from switchgear.protocols.gearman.messages import Packet
from switchgear.verbs.completeness import incomplete_of_headers

__all__ = ["PacketTranslator"]

OPTIONS: Final = frozenset({SWITCHGEAR_OPTION, TRACES_OPTION, b"exceptions"})
NEEDS_GEARMAN: Final = "this needs a gearman:// address: the HTTP interface has nothing like it"


class PacketTranslator:
    """The packets of one Gearman core as HTTP requests, and the answers as packets."""

    def __init__(self, server: str) -> None:
        """`server` is its name in messages."""
        self.server = server
        self.exchanges: list[HttpExchange] = []  # to be made by the owner
        self.worker: PolledWorker
        self._answers = AnswerQueue()
        self._decoder = GearmanDecoder(REQUEST, LARGEST_PACKET_BYTES)
        self._followed = FollowedJobs(server, self._answers, self.exchanges)
        self._submissions = HttpSubmissions(server, self._answers, self.exchanges, self._followed.follow)
        self._graphs = HttpGraphs(server, self._answers, self.exchanges)
        self.worker = PolledWorker(server, self._answers, self.exchanges)

    # --- the core's side ---

    def receive(self, data: bytes) -> None:
        """Handle bytes of the core; raises PeerError."""
        for kind, body in self._decoder.feed(data):
            self._on_packet(kind, body)
        if self._decoder.failure is not None:
            raise self._decoder.failure
        self._flush()

    def take_output(self) -> bytes:
        """The packets for the core."""
        packets = self._answers.packets
        if not packets:
            return b""
        data = b"".join(packets)
        packets.clear()
        return data

    def take_exchanges(self) -> list[HttpExchange]:
        """The requests that are to be made now."""
        taken = self.exchanges[:]
        self.exchanges.clear()
        return taken

    def _flush(self) -> None:
        self._submissions.flush()
        self._followed.flush()
        self.worker.flush()

    def _on_packet(self, kind: int, body: bytes) -> None:
        if kind in SUBMISSIONS:
            self._submissions.add(kind, body)
        elif kind == Packet.CONTROL:
            self._on_control(body)
        elif kind == Packet.WATCH:
            self._followed.watch(body)
        elif kind == Packet.OPTION_REQ:
            self._on_option(body)
        elif kind == Packet.ECHO_REQ:
            self._on_echo(body)
        elif kind == Packet.GET_STATUS:
            self._on_get_status(body)
        elif kind == Packet.AUTHENTICATE:  # each request has the token
            self._answers.answer(self._answers.add(), response(Packet.AUTHENTICATED, b""))
        elif kind == TEXT:
            line = f"ERR UNKNOWN_COMMAND {NEEDS_GEARMAN.replace(' ', '+')}\r\n"
            self._answers.answer(self._answers.add(), line.encode())
        elif kind == Packet.GRAPH_BEGIN:
            self._graphs.begin(body)
        elif kind == Packet.GRAPH_PART:
            self._graphs.add_part(body)
        elif kind == Packet.GRAPH_COMMIT:
            self._graphs.commit(body)
        elif not self.worker.on_packet(kind, body):
            self._answers.answer(self._answers.add(), error_packet("INVALID_COMMAND", NEEDS_GEARMAN))

    def _on_option(self, body: bytes) -> None:
        if body not in OPTIONS:
            return  # as a server may; the cores ask for one at a time, or for an echo behind the last
        if body == SWITCHGEAR_OPTION:
            self._followed.is_extended = True
        elif body == TRACES_OPTION:
            self.worker.wants_traces = True
        self._answers.answer(self._answers.add(), response(Packet.OPTION_RES, body))

    def _on_echo(self, body: bytes) -> None:
        packet = response(Packet.ECHO_RES, body)
        if body == HEARTBEAT:  # requests for jobs keep the lease
            self._answers.send(packet)
        else:
            self.worker.confirm(self._answers.add(), packet)

    # --- requests ---

    def _on_control(self, body: bytes) -> None:
        name, arguments = split_fields(body, 2)
        verb = name.decode(errors="replace")
        slot = self._answers.add()

        def on_answer(answer: HttpAnswer) -> None:
            if answer.is_good:
                incomplete = incomplete_of_headers(answer.headers)
                fields = [answer.body] if incomplete is None else [answer.body, msgspec.json.encode(incomplete)]
                self._answers.answer(slot, response(Packet.CONTROL_RES, *fields))
            else:
                concerns_job = b'"handle"' in arguments
                self._answers.answer(slot, problem_packet(answer, self.server, concerns_job=concerns_job, verb=verb))

        is_repeatable = verb in READ_ONLY_VERBS
        target = f"/v1/verbs/{quote(verb, safe='')}"
        self.exchanges.append(HttpExchange("POST", target, arguments, on_answer=on_answer, is_repeatable=is_repeatable))

    def _on_get_status(self, body: bytes) -> None:
        slot = self._answers.add()
        arguments = msgspec.json.encode({"handle": body.decode(errors="replace"), "contents": False})
        self.exchanges.append(
            HttpExchange(
                "POST",
                "/v1/verbs/job",
                arguments,
                on_answer=lambda answer: self._on_status(slot, body, answer),
                is_repeatable=True,
            )
        )

    def _on_status(self, slot: AnswerSlot, handle: bytes, answer: HttpAnswer) -> None:
        job: dict[str, Any] = answer.json() if answer.is_good else {}
        if not answer.is_good and answer.status != 404:
            self._answers.answer(slot, problem_packet(answer, self.server))
            return
        state = job.get("state", "")
        is_known = state in ("waiting", "scheduled", "ready", "running")
        figures = [int(is_known), int(state == "running")]
        figures += [int(job.get(name, 0)) if is_known else 0 for name in ("numerator", "denominator")]
        self._answers.answer(slot, response(Packet.STATUS_RES, handle, *(b"%d" % figure for figure in figures)))

    # --- the server's side ---

    def on_answer(self, exchange: HttpExchange, answer: HttpAnswer) -> None:
        """Handle the answer to a request; raises PeerError if it makes no sense."""
        try:
            exchange.on_answer(answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PeerError(f"an answer that cannot be read: {error}") from error
        self._flush()

    def on_failed(self, exchange: HttpExchange) -> bool:
        """A request was not answered; returns whether the core can go on without the answer."""
        if exchange.on_failed is None:
            return False
        exchange.on_failed()
        self._flush()
        return True
