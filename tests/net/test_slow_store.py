"""A store that is far away: what has to be read is waited for, and everybody else is served meanwhile."""

from __future__ import annotations

from switchgear.engine.engine import EngineSettings
from switchgear.errors import StorageError
from switchgear.model import READY
from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.session import DworkSession, DworkSetup
from switchgear.protocols.multipart import Message as Frames
from switchgear.protocols.transport import PeerTransport
from switchgear.testing import SlowStore, check_engine
from tests.net.harness import (
    CAN_DO,
    GRAB,
    NO_JOB,
    NOOP,
    Connected,
    HubHarness,
    ScriptedStore,
    created,
    echo,
    echoed,
    idle,
    in_turns,
)
from tests.support.wire import Kind, Message, Packet, request

SLEEP = request(Kind.PRE_SLEEP)
WATCH = 1003  # an extension packet, which tells how a job has ended


def background(payload: bytes, kind: Kind = Kind.SUBMIT_JOB_BG, function: bytes = b"f") -> bytes:
    return request(kind, function, b"", payload)


def assigned(job_id: int, payload: bytes, function: bytes = b"f") -> Message:
    return Packet(Kind.JOB_ASSIGN, b"H:t:%d\0%b\0%b" % (job_id, function, payload))


class SlowHarness:
    """A harness whose store keeps at once, and is read as late as a test wants."""

    def __init__(self, harness: HubHarness, slow: SlowStore) -> None:
        self.harness = harness
        self.hub = harness.hub
        self.engine = harness.engine
        self.slow = slow

    def connect(self) -> Connected:
        return self.harness.connect()

    async def submit(self, *packets: bytes) -> None:
        client = self.connect()
        client.send(*packets)
        await many_turns()
        assert all(isinstance(message, Packet) and message.type == Kind.JOB_CREATED for message in client.heard())

    async def end_a_job(self) -> None:
        """Let there be a job 1 that ended, and that only the store knows."""
        await self.submit(background(b"x"))
        worker = self.connect()
        worker.send(CAN_DO, GRAB)
        await many_turns()
        worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"result"))
        await self.harness.pass_time(1)
        await many_turns()
        assert not self.engine.job_count()


async def open_slow_harness(payload_memory_bytes: int = 1_000_000) -> SlowHarness:
    slow = SlowStore(ScriptedStore())
    harness = HubHarness(slow, payload_memory_bytes, EngineSettings(attempts=0))
    await harness.hub.load()
    slow.hold_reads()
    return SlowHarness(harness, slow)


async def many_turns() -> None:
    for _ in range(5):
        await idle()


# --- finished jobs ---


@in_turns
async def test_others_are_served_while_a_read_is_pending_and_answers_keep_their_order() -> None:
    slow = await open_slow_harness()
    await slow.end_a_job()
    asking, other = slow.connect(), slow.connect()
    asking.send(request(WATCH, b"H:t:1"), echo(b"behind it"))
    await many_turns()
    assert slow.slow.waiting == 1
    other.send(echo(b"meanwhile"), background(b"y"))
    await many_turns()
    assert other.heard() == [echoed(b"meanwhile"), created(2)]
    assert asking.heard() == []
    slow.slow.release_reads()
    await many_turns()
    asking.read()
    await many_turns()
    told, ended, behind = asking.heard()
    assert isinstance(told, Packet)
    assert told.body == b"H:t:1\0done"
    assert ended == Packet(Kind.WORK_COMPLETE, b"H:t:1\0result")
    assert behind == echoed(b"behind it")


@in_turns
async def test_a_peer_that_leaves_meanwhile_leaves_nothing_behind() -> None:
    slow = await open_slow_harness()
    await slow.end_a_job()
    asking = slow.connect()
    asking.send(request(WATCH, b"H:t:1"), echo(b"behind it"))
    await many_turns()
    assert (slow.slow.waiting, len(slow.hub.reads)) == (1, 1)
    asking.leave()
    await many_turns()
    assert (slow.slow.waiting, len(slow.hub.reads), len(slow.hub.long_operations)) == (0, 0, 0)
    assert asking.session.operation is None
    slow.slow.release_reads()
    await many_turns()
    check_engine(slow.engine)


@in_turns
async def test_a_read_that_fails_is_an_error_for_the_one_who_asked() -> None:
    slow = await open_slow_harness()
    await slow.end_a_job()
    asking = slow.connect()
    asking.send(request(WATCH, b"H:t:1"))
    await many_turns()
    slow.slow.fail_reads(StorageError("the network is down"))
    await many_turns()
    assert asking.heard() == [Packet(Kind.ERROR, b"QUEUE_ERROR\0the network is down")]


@in_turns
async def test_a_server_that_stops_does_not_wait_for_reads() -> None:
    slow = await open_slow_harness()
    await slow.end_a_job()
    asking = slow.connect()
    asking.send(request(WATCH, b"H:t:1"))
    await many_turns()
    await slow.hub.close()
    assert (slow.slow.waiting, len(slow.hub.reads)) == (0, 0)


# --- payloads ---


@in_turns
async def test_a_worker_that_asks_gets_the_job_when_its_payload_is_there() -> None:
    slow = await open_slow_harness(payload_memory_bytes=0)
    await slow.submit(background(b"far away"))
    worker = slow.connect()
    worker.send(CAN_DO, GRAB, echo(b"behind it"))
    await many_turns()
    assert worker.heard() == []
    (job,) = slow.engine.jobs.values()
    assert (job.state, job.attempts) == (READY, 0)
    slow.slow.release_reads()
    await many_turns()
    worker.read()
    await many_turns()
    assert worker.heard() == [assigned(1, b"far away"), echoed(b"behind it")]
    check_engine(slow.engine)


@in_turns
async def test_a_worker_that_sleeps_is_woken_when_the_payload_is_there() -> None:
    slow = await open_slow_harness(payload_memory_bytes=0)
    worker, asking = slow.connect(), slow.connect()
    worker.send(CAN_DO, SLEEP)
    await many_turns()
    await slow.submit(background(b"far away"))
    assert worker.heard() == [NOOP]  # as long as the payload is in memory
    worker.send(SLEEP)
    asking.send(CAN_DO, GRAB)
    await many_turns()
    asking.leave()
    slow.slow.release_reads()
    await many_turns()
    assert NOOP in worker.heard()
    worker.send(GRAB)
    await many_turns()
    assert worker.heard() == [assigned(1, b"far away")]
    check_engine(slow.engine)


@in_turns
async def test_a_worker_hears_of_no_job_if_the_payload_cannot_be_read() -> None:
    slow = await open_slow_harness(payload_memory_bytes=0)
    await slow.submit(background(b"far away"))
    worker = slow.connect()
    worker.send(CAN_DO, GRAB)
    await many_turns()
    slow.slow.fail_reads(StorageError("the network is down"))
    await many_turns()
    assert worker.heard() == [NO_JOB]
    check_engine(slow.engine)


@in_turns
async def test_those_behind_it_wait_and_those_before_it_do_not() -> None:
    slow = await open_slow_harness(payload_memory_bytes=8)
    await slow.submit(background(b"far away and long"), background(b"near"))
    worker = slow.connect()
    worker.send(CAN_DO, GRAB)
    await many_turns()
    assert worker.heard() == []
    await slow.submit(background(b"now", Kind.SUBMIT_JOB_HIGH_BG))
    await many_turns()
    assert worker.heard() == [assigned(3, b"now")]
    worker.read()
    worker.send(GRAB, GRAB)
    await many_turns()
    assert worker.heard() == []
    slow.slow.release_reads()
    await many_turns()
    worker.read()
    await many_turns()
    assert worker.heard() == [assigned(1, b"far away and long"), assigned(2, b"near")]


@in_turns
async def test_other_functions_of_a_worker_do_not_wait() -> None:
    slow = await open_slow_harness(payload_memory_bytes=4)
    await slow.submit(background(b"far away"), background(b"near", function=b"g"))
    worker = slow.connect()
    worker.send(CAN_DO, request(Kind.CAN_DO, b"g"), GRAB, GRAB)
    await many_turns()
    assert worker.heard() == [assigned(2, b"near", b"g")]


@in_turns
async def test_a_job_that_is_cancelled_while_its_payload_is_read_holds_up_nobody() -> None:
    slow = await open_slow_harness(payload_memory_bytes=4)
    await slow.submit(background(b"far away"), background(b"near"))
    worker = slow.connect()
    worker.send(CAN_DO, GRAB)
    await many_turns()
    assert worker.heard() == []
    slow.hub.begin_turn()
    slow.engine.cancel(slow.engine.jobs[1])
    await many_turns()
    assert worker.heard() == [assigned(2, b"near")]
    slow.slow.release_reads()
    await many_turns()
    check_engine(slow.engine)


@in_turns
async def test_a_worker_that_leaves_while_a_payload_is_read_leaves_the_job_to_the_next() -> None:
    slow = await open_slow_harness(payload_memory_bytes=0)
    await slow.submit(background(b"far away"))
    leaving, staying = slow.connect(), slow.connect()
    leaving.send(CAN_DO, GRAB, SLEEP)
    staying.send(CAN_DO, SLEEP)
    await many_turns()
    leaving.leave()
    slow.slow.release_reads()
    await many_turns()
    assert Packet(Kind.NOOP, b"") in staying.heard()
    staying.send(GRAB)
    await many_turns()
    assert staying.heard() == [assigned(1, b"far away")]
    staying.send(request(Kind.WORK_COMPLETE, b"H:t:1", b""))
    await many_turns()
    assert slow.engine.functions[b"f"].done == 1


# --- peers of one session ---


class DworkSocket(PeerTransport):
    """One session for all peers; remembers what they are sent."""

    def __init__(self, slow: SlowHarness) -> None:
        self.hub = slow.hub
        self.sent: list[tuple[bytes, QueryType]] = []
        self.dwork = DworkSession(slow.hub, self, DworkSetup())

    def write(self, out: list[Frames]) -> None:
        self.sent += [(message[0], QueryType(decode_reply(message[-1]).type)) for message in out]

    def close(self) -> None:
        raise AssertionError("a session does not close a socket that others talk to as well")

    async def send(self, peer: bytes, *queries: Query) -> None:
        self.hub.begin_turn()
        for query in queries:
            self.dwork.receive_message([peer, b"", encode(query)])
        await many_turns()


LOOKUP = Query(QueryType.LOOKUP, name=b"ended")
STEAL = Query(QueryType.STEAL, location=b"w1")


@in_turns
async def test_a_dwork_peer_that_leaves_gives_up_its_read_and_what_it_created_behind_it_stays() -> None:
    slow = await open_slow_harness()
    socket = DworkSocket(slow)
    await socket.send(b"gone", LOOKUP, Query(QueryType.CREATE, [Task(b"new")]), LOOKUP)
    await socket.send(b"there", LOOKUP)
    assert (slow.slow.waiting, len(slow.hub.reads)) == (2, 2)
    socket.dwork.peer_gone(b"gone")
    await many_turns()
    assert slow.engine.named(b"new") is not None
    assert (slow.slow.waiting, len(slow.hub.reads), len(slow.hub.long_operations)) == (1, 1, 0)
    slow.slow.release_reads()
    await many_turns()
    assert (b"there", QueryType.NOT_FOUND) in socket.sent
    assert (b"gone", QueryType.NOT_FOUND) not in socket.sent
    assert slow.engine.memory.input_bytes == 0
    check_engine(slow.engine)


@in_turns
async def test_a_dwork_peer_that_leaves_waits_for_no_payload() -> None:
    slow = await open_slow_harness(payload_memory_bytes=0)
    socket = DworkSocket(slow)
    await socket.send(b"there", Query(QueryType.CREATE, [Task(b"a")]))
    await socket.send(b"gone", STEAL, STEAL)
    assert len(slow.hub.payloads.waits) == 2
    socket.dwork.peer_gone(b"gone")
    await many_turns()
    assert not slow.hub.payloads.waits
    slow.slow.release_reads()
    await many_turns()
    assert socket.sent == [(b"there", QueryType.OK)]
    await socket.send(b"there", STEAL)
    assert socket.sent[1:] == [(b"there", QueryType.TRANSFER)]
    check_engine(slow.engine)
