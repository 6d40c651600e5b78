"""Targets: what clients and workers read.  A server that answers with nonsense must not do more than fail the requests
on its own connection."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from typing import Any, Final

from tests.support.resp_wire import Error, Simple, split_reply

from fuzz.grammar import DRAFT_PACKETS, FRAMES, GEARMAN_PACKETS, MSGPACK_MAP, NUL_FIELDS, PROTOBUF, RESP_COMMANDS
from fuzz.message_codecs import DWORK_WORDS, WMP_WORDS
from fuzz.stream_codecs import GEARMAN_WORDS, RESP_TOKENS, pieces
from fuzz.target import Defect, Target, must
from switchgear.backoff import ReconnectBackoff
from switchgear.client.address import ServerAddress
from switchgear.client.draft.application import ApplicationConnection, AwaitedJob, DraftRequest
from switchgear.client.draft.worker_flow import DraftWorkerConnection, DraftWorkerObserver
from switchgear.client.dwork.address import DworkAddress
from switchgear.client.dwork.request_flows import RequestFlows, WaitUntil
from switchgear.client.gearman.client_protocol import ClientProtocol
from switchgear.client.gearman.client_requests import check_extensions, status_of
from switchgear.client.gearman.error_codes import error_in_line, error_in_packet
from switchgear.client.gearman.job_subscriber import JobSubscriber
from switchgear.client.gearman.pending_requests import (
    AnyPacketRequest,
    ControlRequest,
    PacketRequest,
    PendingRequest,
    PendingSubmission,
    RoutedRequest,
    SubscribeRequest,
    TextRequest,
)
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.client.gearman.submitted_job import Submission
from switchgear.client.gearman.subscriptions import JOB_EVENTS
from switchgear.client.gearman.worker_protocol import WorkerIntroduction, WorkerProtocol
from switchgear.client.gearmonkey import client_commands
from switchgear.client.gearmonkey.commands import GearMonkeyFunction
from switchgear.client.pingpong.worker_protocol import PingPongWorkerProtocol, StartWork
from switchgear.client.wmp.worker_protocol import WmpResult, WmpSend, WmpStart, WmpTiming, WmpWorkerProtocol
from switchgear.errors import ClientError, PeerError, ServerUnreachable
from switchgear.protocols.gearman.codec import REQUEST, RESPONSE, GearmanDecoder
from switchgear.protocols.gearman.messages import Packet as GearmanPacket
from switchgear.protocols.gearman_draft.messages import JobType, Packet
from switchgear.protocols.wmp.codec import decode

__all__ = ["CLIENTS"]

PACKET_BYTES: Final = 4096
FUNCTIONS: Final = {"f": 0.0, "g": 1.5}


# --- Gearman ---


LARGEST_PROGRESS: Final = 10**20


def run_gearman_client(data: bytes) -> Hashable:
    """A client's connection with and without a greeting, in one piece and in many."""
    kinds = []
    for hear in (hear_as_app, hear_as_plain_client):
        whole = hear([data])
        must(whole == hear(pieces(data)), "in pieces, other answers come out", whole)
        kinds.append(whole)
    for kind, body in GearmanDecoder(RESPONSE, PACKET_BYTES).feed(data):
        if kind in JOB_EVENTS:
            read_update(kind, body.partition(b"\0")[2])
        control = ControlRequest("functions", {})
        must(not control.on_answer(GearmanPacket.CONTROL_RES, body), "more than one packet answers CONTROL")
        must(control.future.done(), "an answer to CONTROL is ignored", body)
        readers: tuple[Callable[[bytes], object], ...] = (
            lambda body: status_of(body, "it"),
            lambda body: check_extensions(GearmanPacket.ERROR, body, "it"),
            error_in_packet,
        )
        for read in readers:
            try:
                read(body)
            except ClientError:
                pass
        error_in_line(body.decode(errors="replace"))
    return tuple(kinds)


def wait_for_ever(deadline: float | None) -> None:
    """Reading on, when the connection is over already."""
    raise Defect("the end of a job is never told")


def read_update(kind: int, body: bytes) -> None:
    """One event, as both kinds of subscribers read it."""
    submission = Submission("H:t:1", background=False, read_more=wait_for_ever)
    submission.on_event(kind, body)
    submission.on_connection_lost(ServerUnreachable("over"))
    try:
        for update in submission.updates():
            check_progress(update.numerator, update.denominator)
    except ServerUnreachable:
        pass
    follower = JobSubscriber()
    follower.on_event(kind, body)
    if follower.progress is not None:
        check_progress(follower.progress.done, follower.progress.total)
        must(0 <= follower.progress.fraction <= 1, "more than all of it is done", follower.progress)
    if follower.future.done():
        end = follower.future.result()
        must((end.failure("H:t:1") is None) == (end.state == "done"), "neither done nor failed", end)


def check_progress(done: int, total: int) -> None:
    must(0 <= done < LARGEST_PROGRESS and 0 <= total < LARGEST_PROGRESS, "progress out of range", done, total)


def hear_as_app(data: Iterable[bytes]) -> tuple[Hashable, ...]:
    """A connection that begins with a greeting, and sends its requests after it."""
    followers = [JobSubscriber(), JobSubscriber(), JobSubscriber()]
    request = SubmitRequest(b"f", b"payload")
    submission = PendingSubmission([request, request], [followers[0], followers[1]])
    requests: list[Any] = [submission, ControlRequest("functions", {}), SubscribeRequest("H:t:3", followers[2])]

    def send_all() -> None:
        """As soon as it is known what kind of server it is."""
        for each in requests:
            send(each, protocol)

    protocol = ClientProtocol("server", send_all)
    protocol.greet()
    lost = hear_to_the_end(protocol, data)
    for each in requests:
        must(not protocol.is_ready or each.future.done(), "a request is never answered", each)
    if protocol.is_ready and submission.future.exception() is None:
        for outcome_of_one, follower in zip(submission.future.result(), followers):
            must(not isinstance(outcome_of_one, str) or follower.future.done(), "a subscriber is never told the end")
    described = tuple(describe(each.future) for each in (*requests, *followers) if each.future.done())
    return described, protocol.is_switchgear, lost


def hear_as_plain_client(data: Iterable[bytes]) -> tuple[Hashable, ...]:
    """A connection without a greeting, with a request of every kind on its way."""
    job = Submission(background=False, read_more=wait_for_ever)
    requests: list[Any] = [
        PendingSubmission([SubmitRequest(b"f", b"payload", durable=False)], [job]),
        PacketRequest(GearmanPacket.STATUS_RES),
        AnyPacketRequest(),
        TextRequest(has_many_lines=True),
        TextRequest(has_many_lines=False),
        ControlRequest("functions", {}),
    ]
    protocol = ClientProtocol("server")
    for each in requests:
        send(each, protocol)
    lost = hear_to_the_end(protocol, data)
    must(all(each.future.done() for each in requests), "a request is never answered", requests)
    try:
        result = repr(job.wait())[:40] if isinstance(requests[0].future.result()[0], str) else ""
    except ClientError as error:
        result = type(error).__name__
    return tuple(describe(each.future) for each in requests), result, lost


def send(request: PendingRequest, protocol: ClientProtocol) -> None:
    try:
        if isinstance(request, RoutedRequest):
            request.send(protocol)
        else:
            protocol.send_request(b"", request)
    except ClientError as error:
        request.fail(error)


def hear_to_the_end(protocol: ClientProtocol, data: Iterable[bytes]) -> str:
    """Receive all of it, and then lose the connection; returns why it was given up before, if it was."""
    lost = ""
    for piece in data:
        try:
            protocol.receive(piece)
        except ServerUnreachable as error:
            lost = str(error)
            break
    must(protocol.unanswered <= 8, "requests that nobody has made")
    protocol.connection_lost(ServerUnreachable("over"))
    must(protocol.unanswered == 0 and not protocol.take_subscribers(), "somebody is still waiting")
    return lost


def describe(future: Any) -> str:
    error = future.exception()
    return repr(future.result())[:40] if error is None else f"{type(error).__name__} {str(error)[:20]}"


def run_gearman_worker(data: bytes) -> Hashable:
    """A worker's connection: its jobs refer to others or not, and it asks for the extensions or not."""
    kinds = []
    for references, uses_extensions in ((False, True), (True, True), (False, False)):
        found = hear_as_worker([data], references, uses_extensions)
        again = hear_as_worker(pieces(data), references, uses_extensions)
        must(found == again, "in pieces, other events come out", found)
        kinds.append(found)
    return tuple(kinds)


def hear_as_worker(data: Iterable[bytes], references: bool, uses_extensions: bool) -> tuple[Hashable, ...]:
    wanted: Callable[[str, bytes], list[str]] = lambda function, payload: ["H:t:9"] if references else []  # noqa: E731
    declarations = [("limit", {"function": "f"})]
    introduction = WorkerIntroduction("w", FUNCTIONS, declarations, references=wanted, uses_extensions=uses_extensions)
    protocol = WorkerProtocol(introduction)
    protocol.set_room(3)
    events = [type(event).__name__ for event in protocol.take_events()]
    code = ""
    for piece in data:
        try:
            events += [type(event).__name__ for event in protocol.receive(piece)]
        except PeerError as error:
            code = error.code
            break
    protocol.heartbeat()
    protocol.release_waiting()
    must(protocol.waiting_jobs == 0, "a job still waits for its arguments", protocol.waiting_jobs)
    out = GearmanDecoder(REQUEST, PACKET_BYTES * 4)
    out.feed(protocol.take_output())
    must(out.failure is None and not out.buffered_bytes, "the worker sends something that is no packet")
    must(protocol.granted >= 0, "less than no credit")
    return (*([] if code else events), code)


# --- the draft ---

ADDRESS: Final = ServerAddress("127.0.0.1", 4730)


def run_draft_client(data: bytes) -> Hashable:
    found = hear_as_application([data])
    must(found == hear_as_application(pieces(data)), "in pieces, other answers come out", found)
    return found


def hear_as_application(data: Iterable[bytes]) -> Hashable:
    line = ApplicationConnection(ADDRESS)
    worker = DraftWorkerConnection(ADDRESS, [b"f"], DraftWorkerObserver(), ReconnectBackoff())
    for each in (line, worker):
        each.opening()
        each.opened()
    waits = [AwaitedJob(), AwaitedJob()]
    requests = [
        DraftRequest(Packet.JOB_CREATE_REQ, waits[0]),
        DraftRequest(Packet.JOB_STATUS_REQ),
        DraftRequest(Packet.JOB_COMPLETE_REQ),
        DraftRequest(Packet.JOB_CREATE_REQ, waits[1]),
    ]
    line.requests.extend(requests)
    worker.task_request()
    for piece in data:
        line.receive(piece) if line.is_open else None
        worker.receive(piece) if worker.is_open else None
    assignment = worker.take_assignment()
    line.lost("over")
    must(all(request.is_answered() for request in requests), "a request is never answered")
    must(not line.waits and not line.requests, "somebody is still waiting")
    kinds = []
    for request in requests:
        try:
            kinds.append(repr(request.result())[:30])
        except ClientError as error:
            kinds.append(str(error)[-30:])
    return tuple(kinds), assignment is not None, len(JobType)


# --- dwork ---


class Answers:
    """A server whose answers are the messages of an input, one after the other."""

    def __init__(self, data: bytes, flows: RequestFlows) -> None:
        self.flows = flows
        self.messages = [[part.body for part in FRAMES.cut(part.body)] for part in FRAMES.cut(data)]
        self.now = 1000.0

    def take(self, step: WaitUntil) -> bool:
        pending = self.flows.pending_requests
        while pending.next_message() is not None:
            pending.sent()
        while self.messages and not step.condition():
            frames = self.messages.pop(0)
            if frames[:1] == [b"@"] and pending.in_flight:  # the tag of what is asked
                frames[0] = next(iter(pending.in_flight))
            pending.receive(frames)
        self.now = max(self.now, step.deadline)
        return step.condition()


def run_dwork_client(data: bytes) -> Hashable:
    kinds: list[Hashable] = []
    flows = RequestFlows(DworkAddress("127.0.0.1", 6125), b"w", 5.0, lambda: 1000.0)
    answers = Answers(data, flows)
    flows.pending_requests.connected()
    for flow in (
        flows.create(["a", ("b", ["a"])], ()),
        flows.steal(3, 1.0, 5.0),
        flows.status(),
        flows.steal_with_reason(2, 0.0, 0.0),
        flows.page(0),
        flows.lookup("a"),
        flows.complete(["a", "b"], None),
        flows.transfer(["a", "b"], ["c"]),
    ):
        kinds.append(outcome(flow, answers.take))
    return tuple(kinds)


def outcome(flow: Any, take: Callable[[Any], Any], most_steps: int = 50) -> str:
    """What a flow comes to; only errors of ours may come out of it."""
    try:
        step = next(flow)
        for _ in range(most_steps):
            step = flow.send(take(step))
    except StopIteration as end:
        return type(end.value).__name__
    except ClientError as error:
        return type(error).__name__
    flow.close()
    return "goes on"


# --- WMP ---


def run_wmp_client(data: bytes) -> Hashable:
    """A worker with two managers; after each message it holds as many slots as its jobs need."""
    protocol = WmpWorkerProtocol({b"f": 1, b"g": 2}, 3, 2, WmpTiming())
    now = 1000.0
    protocol.start(now)
    running: list[Any] = []
    kinds: list[str] = []
    for number, part in enumerate(FRAMES.cut(data)):
        frames = [frame.body for frame in FRAMES.cut(part.body)]
        try:
            protocol.receive(number % 2, frames, now)
        except PeerError as error:
            kinds.append(error.code)
        for action in protocol.out:
            if isinstance(action, WmpStart):
                running.append(action.job)
            elif isinstance(action, WmpSend):
                kinds.append(decode(action.message)[0].decode())
        protocol.out.clear()
        must(0 <= protocol.free <= 3, "slots that are not there", protocol.free)
        for _ in range(3):
            deadline = protocol.next_deadline()
            if deadline is None:
                break
            must(deadline > now, "a deadline that is over is kept", deadline - now)
            now = deadline
            protocol.advance(now)
        if running and number % 3 == 2:
            protocol.finished(running.pop(0), WmpResult("failed", error=b"e" * 20), now)
    protocol.stop()
    for job in running:
        protocol.finished(job, WmpResult(), now)
    protocol.advance(now + 100)
    must(protocol.free == 3 and protocol.is_settled, "slots are lost", protocol.free)
    return tuple(kinds[:12])


# --- PING/PONG ---


def run_pingpong_client(data: bytes) -> Hashable:
    protocol = PingPongWorkerProtocol()
    now = 1000.0
    actions = protocol.start(now)
    kinds: list[str] = []
    for part in FRAMES.cut(data):
        frames = [frame.body for frame in FRAMES.cut(part.body)]
        if protocol.is_over:
            break
        actions = protocol.receive(frames, now)
        for action in actions:
            if isinstance(action, StartWork):
                actions += protocol.finished(action.job, now) if len(action.job) % 2 else protocol.failed(now)
        kinds += [type(action).__name__ for action in actions]
        deadline = protocol.next_deadline
        must(protocol.is_over or (deadline is not None and deadline >= now), "nothing will happen any more", deadline)
        if frames[:1] == [b"time"] and deadline is not None:
            now = deadline
            protocol.advance(now)
        elif frames[:1] == [b"leave"]:
            protocol.leave(now)
    protocol.leave(now)
    protocol.advance(now + 100)
    must(protocol.is_over, "it never leaves")
    return tuple(kinds[:12])


# --- GearMonkey ---


def replies(data: bytes) -> Iterator[Any]:
    """The replies of a server, as a client library hands them on."""
    for part in RESP_COMMANDS.cut(data):
        try:
            found = split_reply(part.body)
        except (ValueError, AssertionError, RecursionError, IndexError, TypeError, KeyError):
            found = None
        if found is not None and not isinstance(found[0], Error):
            reply = found[0]
            if isinstance(reply, list) and len(reply) % 2 == 0 and all(isinstance(each, bytes) for each in reply):
                reply = dict(zip(reply[::2], reply[1::2]))  # as HGETALL is read
            yield reply.text if isinstance(reply, Simple) else reply


def run_gearmonkey_client(data: bytes) -> Hashable:
    """The flows of a client with a server that answers with the type of reply that each command has."""
    function = GearMonkeyFunction("f")
    kinds = []
    flows: list[Generator[Any, Any, Any]] = [
        client_commands.run(function, b"x", options=3, timeout=2, slice_seconds=1.0),
        client_commands.wait(function, 1, 2, slice_seconds=1.0),
        client_commands.get(function, 1),
    ]
    answers = list(replies(data))

    def take(command: tuple[Any, ...]) -> Any:
        """The next answer of a type that this command may have."""
        wanted = (dict,) if command[0] == "HGETALL" else (bytes, type(None)) if command[0] == "HGET" else (object,)
        while answers:
            answer = answers.pop(0)
            if isinstance(answer, wanted):
                return answer
        return {} if command[0] == "HGETALL" else None

    for flow in flows:
        kinds.append(outcome(flow, take))
    return tuple(kinds)


WORKER_WORDS: Final = (*GEARMAN_WORDS, b"H:t:1", b"H:t:9", b"f", b"switchgear", b"packet_bytes", b"unknown", b"done")


def gearman_modules(names: str) -> tuple[str, ...]:
    return tuple(f"client.gearman.{name}" for name in names.split())


CLIENTS: Final = (
    Target(
        "gearman-client",
        run_gearman_client,
        gearman_modules(
            "client_protocol client_requests pending_requests subscriptions job_subscriber submitted_job packets"
            " error_codes"
        ),
        (GEARMAN_PACKETS, NUL_FIELDS),
        (*WORKER_WORDS, b"H:t:2", b"H:t:3", b'[{"name": "f", "ready": 1}]'),
    ),
    Target(
        "gearman-worker",
        run_gearman_worker,
        gearman_modules("worker_protocol argument_results packets error_codes"),
        (GEARMAN_PACKETS, NUL_FIELDS),
        (*WORKER_WORDS, b'[{"name": "f", "ready": 1}]', b"1e400", b"QUEUE_ERROR", b"timed_out"),
    ),
    Target(
        "draft-client",
        run_draft_client,
        ("client.draft.flow_steps", "client.draft.application", "client.draft.worker_flow"),
        (DRAFT_PACKETS, NUL_FIELDS),
        (b"\0JOB", b"H:t:1"),
    ),
    Target(
        "dwork-client",
        run_dwork_client,
        ("client.dwork.pending_requests", "client.dwork.request_flows", "client.dwork.records"),
        (FRAMES, FRAMES, PROTOBUF, PROTOBUF),
        (*DWORK_WORDS, b"@", b"1", b"dhub: 1 active tasks, 1 ready."),
    ),
    Target(
        "wmp-client",
        run_wmp_client,
        ("client.wmp.worker_protocol",),
        (FRAMES, FRAMES, MSGPACK_MAP),
        WMP_WORDS,
    ),
    Target(
        "pingpong-client",
        run_pingpong_client,
        ("client.pingpong.worker_protocol",),
        (FRAMES, FRAMES),
        (b"PONG", b"job", b"LEAVE", b"time", b"leave", b"READY"),
    ),
    Target(
        "gearmonkey-client",
        run_gearmonkey_client,
        ("client.gearmonkey.client_commands", "client.gearmonkey.records"),
        (RESP_COMMANDS,),
        (*RESP_TOKENS, b":1\r\n", b"+OK\r\n", b"$7\r\nsuccess\r\n", b"_\r\n", b"%1\r\n", b":99999999999999999999\r\n"),
    ),
)
