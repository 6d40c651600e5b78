"""What the client asks, and what it makes of the answers: without a wire, and with a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchgear.client.dwork.address import DworkAddress
from switchgear.client.dwork.records import NewTask, ServerStatus, Stolen, StolenTask, TaskRecord
from switchgear.client.dwork.request_flows import Flow, RequestFlows, WaitUntil
from switchgear.errors import ConfigError, ServerRefused, ServerUnreachable
from switchgear.model import JobState
from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.messages import LogEntry, LogState, Query, QueryType, Task

OK = encode(Query(QueryType.OK))
NOT_FOUND = encode(Query(QueryType.NOT_FOUND))
EXIT = encode(Query(QueryType.EXIT))
ERROR = bytes.fromhex("0808")


class Harness:
    """A client whose wire is this test."""

    def __init__(self, location: str = "w1") -> None:
        self.now = 100.0
        self.requests = RequestFlows(DworkAddress.parse("dwork://here"), location, 10.0, lambda: self.now)
        self.pending_requests = self.requests.pending_requests
        self.pending_requests.connected()

    def sent(self) -> list[tuple[bytes, bytes]]:
        """Take what is to be sent: tags and payloads."""
        taken = []
        while (message := self.pending_requests.next_message()) is not None:
            tag, empty, payload = message
            assert empty == b""
            self.pending_requests.sent()
            taken.append((tag, payload))
        return taken

    def answer(self, tag: bytes, payload: bytes) -> None:
        self.pending_requests.receive([tag, b"", payload])


class Call:
    """A flow in the hands of a test."""

    def __init__(self, flow: Flow[Any]) -> None:
        self._flow = flow
        self.result: Any = None
        self.ended = False
        self.step: WaitUntil | None = None
        self._go(lambda: next(flow))

    def _go(self, move: Callable[[], WaitUntil]) -> None:
        try:
            self.step = move()
        except StopIteration as stop:
            self.result = stop.value
            self.ended = True

    def look(self) -> None:
        """Something has happened."""
        while not self.ended and self.step is not None and self.step.condition():
            self._go(lambda: self._flow.send(True))

    def time_out(self) -> None:
        self._go(lambda: self._flow.send(False))

    def cancel(self) -> None:
        self._flow.close()


def play(harness: Harness, flow: Flow[Any], *answers: bytes) -> tuple[list[bytes], Any]:
    """Go through with a flow, answering as given; returns what was asked, and the result."""
    call = Call(flow)
    asked: list[bytes] = []
    script = list(answers)
    while not call.ended:
        sent = harness.sent()
        assert sent, "it waits, and has asked nothing"
        for tag, payload in sent:
            asked.append(payload)
            harness.answer(tag, script.pop(0))
        call.look()
    assert not script
    return asked, call.result


# --- the bytes of the original ---

# As dquery and its server exchange them.
ORIGINAL: list[tuple[str, Callable[[RequestFlows], Flow[Any]], str, str, Any]] = [
    ("cli", lambda ask: ask.status(), "08 06",
     "08 06 1a 1e 64 68 75 62 3a 20 36 20 61 63 74 69 76 65 20 74 61 73 6b 73 2c 20 35 20 72 65 61 64 79 2e 20 05",
     ServerStatus(6, 5, "dhub: 6 active tasks, 5 ready.")),
    ("cli", lambda ask: ask.create("a", ()), "08 00 12 08 0a 01 61 12 03 63 6c 69", "08 06", 1),
    ("cli", lambda ask: ask.create(["b", "c", "d"], ()),
     "08 00 12 08 0a 01 62 12 03 63 6c 69 12 08 0a 01 63 12 03 63 6c 69 12 08 0a 01 64 12 03 63 6c 69", "08 06", 3),
    ("cli", lambda ask: ask.create("e", ["a", "b"]),
     "08 00 12 12 0a 01 65 12 03 63 6c 69 22 03 0a 01 61 22 03 0a 01 62", "08 06", 1),
    ("w1", lambda ask: ask.steal(1, 0, 0), "08 01 32 02 77 31",
     "08 03 12 14 0a 01 61 12 02 76 6d 32 0b 08 01 10 93 b5 fd c9 c3 8a 98 03",
     Stolen((StolenTask("a", "vm", 1794764714236563),))),
    ("w1", lambda ask: ask.steal(3, 0, 0), "08 01 20 03 32 02 77 31", "08 05", Stolen()),
    ("w1", lambda ask: ask.steal(1, 0, 0), "08 01 32 02 77 31", "08 07", Stolen(all_done=True)),
    ("w1", lambda ask: ask.complete("a", None), "08 02 12 07 0a 01 61 12 02 77 31 32 02 77 31", "08 06", ()),
    ("w1", lambda ask: ask.transfer("a", ()), "08 03 12 07 0a 01 61 12 02 77 31 32 02 77 31", "08 06", ()),
    ("w1", lambda ask: ask.transfer("a", ["n1", "b"]),
     "08 03 12 12 0a 01 61 12 02 77 31 22 04 0a 02 6e 31 22 03 0a 01 62 32 02 77 31", "08 06", ()),
    ("w1", lambda ask: ask.exit(None), "08 07 32 02 77 31", "08 06", True),
    ("w1", lambda ask: ask.exit("w2"), "08 07 32 02 77 32", "08 05", False),
]  # fmt: skip


@pytest.mark.parametrize(("location", "ask", "request_hex", "answer_hex", "result"), ORIGINAL)
def test_to_the_original_server(
    location: str, ask: Callable[[RequestFlows], Flow[Any]], request_hex: str, answer_hex: str, result: Any
) -> None:
    harness = Harness(location)
    asked, answered = play(harness, ask(harness.requests), bytes.fromhex(answer_hex))
    assert [payload.hex(" ") for payload in asked] == [request_hex]
    assert answered == result


def test_an_error_without_a_reason_is_an_error() -> None:
    harness = Harness()
    with pytest.raises(ServerRefused, match="did not say why"):
        play(harness, harness.requests.lookup("a"), ERROR)


def test_fields_that_a_later_server_may_send_are_no_trouble() -> None:
    harness = Harness()
    assert play(harness, harness.requests.create("a", ()), bytes.fromhex("08067a026869"))[1] == 1


# --- our own fields ---


@pytest.mark.parametrize(
    ("ask", "query"),
    [
        (lambda ask: ask.steal(2, 1.5, 60), Query(QueryType.STEAL, n=2, location=b"w1", wait_ms=1500, lease_ms=60_000)),
        (lambda ask: ask.heartbeat(0), Query(QueryType.STEAL, n=0, location=b"w1")),
        (lambda ask: ask.heartbeat(30), Query(QueryType.STEAL, n=0, location=b"w1", lease_ms=30_000)),
        (
            lambda ask: ask.complete("a", "disk full"),
            Query(QueryType.COMPLETE, [Task(b"a", b"w1", error=b"disk full")], location=b"w1"),
        ),
        (
            lambda ask: ask.create([("a", ["x"]), NewTask(b"\xff", ("y",))], ["z"]),
            Query(QueryType.CREATE, [Task(b"a", b"w1", (b"x", b"z")), Task(b"\xff", b"w1", (b"y", b"z"))]),
        ),
    ],
)
def test_what_only_our_server_knows(ask: Callable[[RequestFlows], Flow[Any]], query: Query) -> None:
    harness = Harness()
    asked, _ = play(harness, ask(harness.requests), OK)
    assert asked == [encode(query)]


def test_a_reason_is_told() -> None:
    harness = Harness()
    answer = encode(Query(QueryType.ERROR, reason=b"jobs would wait for each other: a -> a"))
    with pytest.raises(ServerRefused, match="a -> a"):
        play(harness, harness.requests.create("a", "a"), answer)


def test_a_task_that_was_looked_up() -> None:
    log = [LogEntry(LogState.READY, 1), LogEntry(LogState.STARTED, 2), LogEntry(LogState.RECORDED, 5)]
    task = Task(b"a", b"", log=log, error=b"no", id=7, state=JobState.FAILED, after=[3, 4])
    harness = Harness()
    _, record = play(harness, harness.requests.lookup("a"), encode(Query(QueryType.OK, [task], b"a", location=b"vm")))
    assert record == TaskRecord("a", 7, "failed", "vm", "no", (3, 4), started_us=2, ended_us=5)
    assert record.seconds(100) == pytest.approx(3e-6)
    assert play(harness, harness.requests.lookup("a"), NOT_FOUND)[1] is None


def test_pages_of_a_list() -> None:
    harness = Harness()
    page = encode(Query(QueryType.OK, [Task(b"a", id=1, state=JobState.RUNNING)], cursor=500))
    asked, (records, cursor) = play(harness, harness.requests.page(0), page)
    assert asked == [encode(Query(QueryType.LIST))]
    assert ([record.name for record in records], cursor) == (["a"], 500)
    asked, (records, cursor) = play(harness, harness.requests.page(500), OK)
    assert asked == [encode(Query(QueryType.LIST, cursor=500))]
    assert (records, cursor) == ([], 0)


def test_names_come_back_as_they_went() -> None:
    harness = Harness()
    for name in (b"\xff\xfe", "naïve".encode(), b"a b"):
        answer = encode(Query(QueryType.TRANSFER, [Task(name, b"vm")]))
        _, stolen = play(harness, harness.requests.steal(1, 0, 0), answer)
        asked, _ = play(harness, harness.requests.complete(stolen.tasks[0].name, None), OK)
        assert decode_reply(asked[0]).tasks[0].name == name


# --- many tasks ---


def test_many_tasks_go_in_batches_several_of_them_in_flight() -> None:
    harness = Harness()
    call = Call(harness.requests.create((f"t{number}" for number in range(9500)), ()))
    sent = harness.sent()
    assert [len(decode_reply(payload).tasks) for _, payload in sent] == [1000] * 8
    for tag, _ in reversed(sent):  # in any order
        harness.answer(tag, OK)
    call.look()
    sent = harness.sent()
    assert [len(decode_reply(payload).tasks) for _, payload in sent] == [1000, 500]
    for tag, _ in sent:
        harness.answer(tag, OK)
    call.look()
    assert call.result == 9500


def test_long_names_make_more_messages() -> None:
    harness = Harness()
    asked, created = play(harness, harness.requests.create([b"x" * 1_500_000] * 7, ()), OK, OK, OK)
    assert [len(decode_reply(payload).tasks) for payload in asked] == [3, 3, 1]
    assert created == 7


@pytest.mark.parametrize(("answer", "most_in_flight"), [(ERROR, 1), (NOT_FOUND, 3)])
def test_a_server_that_may_change_the_order_gets_one_batch_after_the_other(answer: bytes, most_in_flight: int) -> None:
    harness = Harness()
    call = Call(harness.requests.create(((f"t{number}", [f"t{number - 1}"]) for number in range(1, 3001)), ()))
    (first, _), (question, lookup) = harness.sent()
    assert decode_reply(lookup).type == QueryType.LOOKUP
    harness.answer(question, answer)
    call.look()
    in_flight = {first, *(tag for tag, _ in harness.sent())}
    most = 0
    while not call.ended:
        most = max(most, len(in_flight))
        for tag in in_flight:
            harness.answer(tag, OK)
        call.look()
        in_flight = {tag for tag, _ in harness.sent()}
    assert call.result == 3000
    assert most == most_in_flight


def test_tasks_that_are_not_found() -> None:
    harness = Harness()
    missing = encode(Query(QueryType.NOT_FOUND, [Task(b"b")], reason=b"no"))
    assert play(harness, harness.requests.complete(["a", "b"], None), missing)[1] == ("b",)
    assert play(harness, harness.requests.complete(["a", "b"], None), NOT_FOUND)[1] == ("a", "b")


def test_a_transfer_of_which_some_are_not_ours_is_made_for_the_others() -> None:
    harness = Harness()
    missing = encode(Query(QueryType.NOT_FOUND, [Task(b"b")]))
    asked, unknown = play(harness, harness.requests.transfer(["a", "b", "c", "a"], ()), missing, OK)
    assert [[task.name for task in decode_reply(each).tasks] for each in asked] == [[b"a", b"b", b"c"], [b"a", b"c"]]
    assert unknown == ("b",)


# --- lost answers ---


def test_a_create_whose_answer_was_lost_says_how_old_it_is() -> None:
    harness = Harness()
    call = Call(harness.requests.create("a", ()))
    ((tag, first),) = harness.sent()
    harness.pending_requests.disconnected("the connection was lost")
    harness.now += 2.5
    harness.pending_requests.connected()
    ((same_tag, again),) = harness.sent()
    assert (same_tag, decode_reply(first).retry_us) == (tag, None)
    assert decode_reply(again).retry_us == 2_500_001
    harness.now += 1
    harness.pending_requests.disconnected("once more")
    ((_, again),) = harness.sent()
    assert decode_reply(again).retry_us == 3_500_001
    harness.answer(tag, OK)
    call.look()
    assert call.result == 1


def test_what_was_never_sent_is_sent_as_new() -> None:
    harness = Harness()
    call = Call(harness.requests.create("a", ()))
    harness.pending_requests.next_message()  # and there was no room for it
    harness.pending_requests.disconnected("nobody there")
    harness.now += 5
    ((_, payload),) = harness.sent()
    assert decode_reply(payload).retry_us is None
    assert not call.ended


def test_what_was_in_flight_is_asked_again_in_its_order() -> None:
    harness = Harness()
    call = Call(harness.requests.create((f"t{number}" for number in range(4000)), ()))
    sent = harness.sent()
    harness.answer(sent[1][0], OK)
    harness.pending_requests.disconnected("lost")
    call.look()
    assert [tag for tag, _ in harness.sent()] == [tag for tag, _ in (sent[0], *sent[2:])]


def test_an_answer_that_came_right_before_the_loss_counts() -> None:
    harness = Harness()
    call = Call(harness.requests.create("a", ()))
    ((tag, _),) = harness.sent()
    harness.pending_requests.disconnected("lost")
    harness.answer(tag, OK)
    call.look()
    assert call.result == 1
    assert harness.sent() == []


def test_a_complete_whose_answer_was_lost_is_no_unknown_task() -> None:
    harness = Harness()
    call = Call(harness.requests.complete(["a", "b"], None))
    harness.sent()
    harness.pending_requests.disconnected("lost")
    ((tag, _),) = harness.sent()
    harness.answer(tag, encode(Query(QueryType.NOT_FOUND, [Task(b"a"), Task(b"b")])))
    call.look()
    for name, state in ((b"a", JobState.DONE), (b"b", JobState.WAITING)):
        ((tag, lookup),) = harness.sent()
        assert decode_reply(lookup).name == name
        harness.answer(tag, encode(Query(QueryType.OK, [Task(name, state=state)])))
        call.look()
    assert call.result == ("b",)


def test_a_server_that_is_about_to_stop_is_asked_again_when_it_is_back() -> None:
    harness = Harness()
    call = Call(harness.requests.create("a", ()))
    ((tag, _),) = harness.sent()
    harness.answer(tag, encode(Query(QueryType.EXIT, reason=b"server is shutting down")))
    call.look()
    assert not call.ended
    harness.pending_requests.disconnected("the connection was lost")
    ((tag, _),) = harness.sent()
    harness.answer(tag, OK)
    call.look()
    assert call.result == 1


# --- no answer ---


def test_nobody_answers() -> None:
    harness = Harness()
    call = Call(harness.requests.status())
    assert call.step is not None
    assert call.step.deadline == 110
    with pytest.raises(ServerUnreachable, match="no answer from dwork://here:6125 within 10 s"):
        call.time_out()


def test_nobody_is_there() -> None:
    harness = Harness()
    harness.pending_requests.disconnected("our key was refused")
    call = Call(harness.requests.status())
    with pytest.raises(ServerUnreachable, match=r"cannot connect to .* \(our key was refused\)"):
        call.time_out()
    assert harness.sent() == []  # it is not asked later


def test_a_steal_that_waits_is_waited_for() -> None:
    harness = Harness()
    call = Call(harness.requests.steal(1, 30, 0))
    assert call.step is not None
    assert call.step.deadline == 140


def test_tasks_that_come_too_late_are_there_for_the_next() -> None:
    harness = Harness()
    call = Call(harness.requests.steal(2, 0, 0))
    ((tag, _),) = harness.sent()
    call.cancel()
    harness.answer(tag, encode(Query(QueryType.TRANSFER, [Task(b"a", b"vm"), Task(b"b", b"vm"), Task(b"c", b"vm")])))
    assert [task.name for task in play(harness, harness.requests.steal(2, 0, 0))[1]] == ["a", "b"]
    harness.requests.give_back_surplus()
    ((_, payload),) = harness.sent()
    assert payload == encode(Query(QueryType.TRANSFER, [Task(b"c", b"w1")], location=b"w1"))


def test_a_late_answer_is_not_taken_for_another() -> None:
    harness = Harness()
    late = Call(harness.requests.exit("x"))
    ((tag, _),) = harness.sent()
    late.cancel()
    call = Call(harness.requests.status())
    harness.answer(tag, NOT_FOUND)
    call.look()
    assert not call.ended


@pytest.mark.parametrize("frames", [[], [b"1"], [b"1", b"x", OK], [b"1", b"", OK, OK]])
def test_what_is_no_answer_is_dropped(frames: list[bytes]) -> None:
    harness = Harness()
    call = Call(harness.requests.status())
    harness.sent()
    harness.pending_requests.receive(frames)
    call.look()
    assert not call.ended


def test_an_answer_that_makes_no_sense_is_an_error() -> None:
    harness = Harness()
    with pytest.raises(ServerRefused, match="makes no sense"):
        play(harness, harness.requests.status(), b"\xff\xff")


# --- addresses and keys ---


@pytest.mark.parametrize(
    ("text", "shown", "endpoint"),
    [
        ("dwork://head:7000", "dwork://head:7000", "tcp://head:7000"),
        ("tcp://localhost:6125", "dwork://localhost:6125", "tcp://localhost:6125"),
        ("head", "dwork://head:6125", "tcp://head:6125"),
        ("10.0.0.1:99", "dwork://10.0.0.1:99", "tcp://10.0.0.1:99"),
        ("dwork://[::1]:7", "dwork://[::1]:7", "tcp://[::1]:7"),
    ],
)
def test_addresses(text: str, shown: str, endpoint: str) -> None:
    address = DworkAddress.parse(text)
    assert (str(address), address.endpoint) == (shown, endpoint)


@pytest.mark.parametrize("text", ["", "gearman://x", "dwork://x:0", "dwork://x:70000", "dwork://x:y", "a b"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ConfigError):
        DworkAddress.parse(text)


@pytest.mark.parametrize("digits", [18, 19, 5000])
def test_a_status_with_numbers_that_nobody_could_count_to_is_only_text(digits: int) -> None:
    text = b"dhub: %b active tasks, 1 ready." % (b"9" * digits)
    status = ServerStatus.of(Query(QueryType.OK, name=text))
    assert status.text == text.decode()
    assert status.active == (int("9" * digits) if digits == 18 else 0)
