"""Requests that are worked off in steps: they do what short ones do, and others are served in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchgear.engine.engine import EngineSettings, SubmitOptions
from switchgear.model import NORMAL, Delivery
from switchgear.protocols.dwork import codec, long_requests, session
from switchgear.protocols.dwork.codec import RequestReader, decode_with_fields, encode
from switchgear.protocols.dwork.messages import Query, QueryType
from switchgear.protocols.pending_read import Step
from tests.protocols.dwork.harness import EXIT, OK, DworkHarness, complete, create, fail, names, steal, task, transfer


@pytest.fixture(autouse=True)
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LONG_REQUEST_BYTES", 100)
    monkeypatch.setattr(session, "LONG_STEAL_TASKS", 2)
    monkeypatch.setattr(long_requests, "TASKS_PER_STEP", 1)


class Stepped(DworkHarness):
    """A harness that works off one step of each operation when it is told so."""

    def __init__(self, *, keeps: bool = False, settings: EngineSettings | None = None) -> None:
        super().__init__(keeps=keeps, settings=settings)
        self.operations: list[Iterator[Step]] = []
        self.harness.work_off = self.start  # type: ignore[method-assign]

    def start(self, operation: Iterator[Step]) -> None:
        if next(operation, None) is not None:
            self.operations.append(operation)

    def step(self) -> bool:
        """One step of each; whether there are more."""
        self.operations = [operation for operation in self.operations if next(operation, None) is not None]
        self.harness.turn()
        return bool(self.operations)

    def finish(self) -> int:
        steps = 0
        while self.step():
            steps += 1
        return steps


def chain(length: int) -> Query:
    """A Create of tasks that wait for each other."""
    return create("t0", *(f"t{number} after t{number - 1}" for number in range(1, length)))


def test_a_long_create_is_answered_at_the_end() -> None:
    harness = Stepped()
    harness.send(chain(20))
    assert harness.heard() == []
    assert harness.finish() > 20
    assert harness.heard() == [OK]
    assert harness.status() == (20, 1)


def test_others_are_served_while_it_is_worked_off() -> None:
    harness = Stepped()
    harness.send(chain(20), b"one")
    harness.step()
    assert harness.ask(create("other"), b"two") == OK
    assert names(harness.ask(steal("w"), b"three")) == ["other"]
    assert harness.ask(complete("w", "other"), b"three") == OK
    harness.finish()
    assert harness.heard(b"one") == [OK]


def test_what_the_same_peer_asks_next_is_answered_next() -> None:
    harness = Stepped()
    harness.send(chain(20))
    harness.send(Query(QueryType.OK))
    harness.send(complete("w", "nothing"))
    harness.finish()
    ok, status, unknown = harness.heard()
    assert (ok, status.n, unknown.type) == (OK, 1, QueryType.NOT_FOUND)


def test_only_so_many_requests_wait_behind_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_PIPELINED", 2)
    harness = Stepped()
    harness.send(chain(20))
    for _ in range(3):
        harness.send(Query(QueryType.OK))
    [refused] = harness.heard()
    assert refused.type == QueryType.ERROR
    harness.finish()
    assert len(harness.heard()) == 3
    assert harness.engine.memory.input_bytes == 0


def left_nothing(harness: Stepped, before: tuple[int, int]) -> bool:
    [answer] = harness.heard()
    return answer.type == QueryType.ERROR and harness.status() == before and not harness.engine.is_graph_under_way


def test_a_circle_leaves_nothing() -> None:
    harness = Stepped()
    harness.ask(create("old", "x0 after old"))
    harness.send(create(*(f"x{number} after x{number - 1}" for number in range(1, 20)), "old after x19"))
    harness.finish()
    assert left_nothing(harness, (2, 1))
    assert harness.ask(create("x7")) == OK  # its name is nobody's


def test_a_name_that_is_taken_elsewhere_leaves_nothing() -> None:
    harness = Stepped()
    harness.engine.submit(b"elsewhere", b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(name=b"other"))
    harness.send(create(*(f"x{number}" for number in range(20)), "other"))
    harness.finish()
    assert left_nothing(harness, (0, 0))


def test_one_that_is_malformed_at_its_end_leaves_nothing() -> None:
    harness = Stepped()
    harness.ask(create("a", "b"))
    names(harness.ask(steal("w", 2)))
    payload = encode(complete("w", "a", "b", *(f"x{number}" for number in range(20))))
    harness.listener.send(b"peer", b"", payload + b"\x12\x03\n\x01z")  # a task without origin
    harness.finish()
    [answer] = harness.heard()
    assert (answer.type, answer.reason) == (QueryType.ERROR, b"a task has no origin")
    assert harness.status() == (2, 0)


def test_names_of_tasks_that_are_about_to_be_made_are_not_given_away() -> None:
    harness = Stepped()
    harness.send(chain(20), b"one")
    while not harness.engine.must_wait_for_graph(b"t19", []):
        harness.step()
    harness.send(create("t19"), b"two")  # waits for the other, and finds the task
    harness.send(create("after after t19"), b"three")
    assert harness.heard(b"two") == harness.heard(b"three") == []
    harness.finish()
    assert (harness.heard(b"one"), harness.heard(b"two"), harness.heard(b"three")) == ([OK], [OK], [OK])
    assert harness.status() == (21, 1)


def test_two_long_ones_are_worked_off_one_after_the_other() -> None:
    harness = Stepped()
    harness.send(chain(20), b"one")
    harness.send(chain(20), b"two")
    harness.finish()
    assert (harness.heard(b"one"), harness.heard(b"two"), harness.status()) == ([OK], [OK], (20, 1))


def test_a_task_that_is_stolen_meanwhile_is_taken_back_if_it_must_wait_for_more() -> None:
    harness = Stepped()
    harness.ask(create("old"))
    harness.send(create(*(f"x{number}" for number in range(20)), "old after x19"), b"one")
    while b"x0" not in harness.engine.names:
        harness.step()
    assert names(harness.ask(steal("w"), b"two")) == ["old"]
    harness.finish()
    assert harness.heard(b"one") == [OK]
    assert harness.ask(complete("w", "old"), b"two").type == QueryType.NOT_FOUND
    assert harness.status() == (21, 20)


def test_a_limit_that_is_reached_meanwhile_refuses_all() -> None:
    harness = Stepped(settings=EngineSettings(jobs=25))
    harness.send(chain(20), b"one")
    harness.step()
    for number in range(10):
        harness.ask(create(f"y{number}"), b"two")
    harness.finish()
    [answer] = harness.heard(b"one")
    assert (answer.type, harness.status()) == (QueryType.ERROR, (10, 10))


def test_a_long_complete() -> None:
    harness = Stepped()
    harness.ask(create("a", "b", "c after a"))
    harness.ask(steal("w", 2))
    harness.send(complete("w", "a", "b", "c", *(f"unknown{number}" for number in range(20))))
    harness.finish()
    [answer] = harness.heard()
    assert (answer.type, len(answer.tasks)) == (QueryType.NOT_FOUND, 20)
    assert harness.status() == (0, 0)


def test_a_long_steal_and_a_long_transfer() -> None:
    harness = Stepped()
    harness.send(create(*(f"t{number}" for number in range(20))))
    harness.finish()
    harness.heard()
    harness.send(steal("w", 15))
    harness.finish()
    [answer] = harness.heard()
    taken = names(answer)
    assert taken == [f"t{number}" for number in range(15)]
    harness.send(transfer("w", *taken[:-1], f"{taken[-1]} after t19"))
    harness.finish()
    assert (harness.heard(), harness.status()) == ([OK], (20, 19))


def test_failed_tasks_are_tried_again() -> None:
    harness = Stepped()
    harness.ask(create("bad"))
    harness.ask(steal("w"))
    harness.ask(fail("w", "bad", "no"))
    harness.send(create("bad", *(f"t{number} after bad" for number in range(20))))
    harness.finish()
    assert (harness.heard(), harness.status()) == ([OK], (21, 1))


def test_the_answer_waits_for_the_store() -> None:
    harness = Stepped(keeps=True)
    harness.send(chain(20))
    harness.finish()
    assert harness.heard() == []
    harness.keep()
    assert harness.heard() == [OK]


def test_a_server_that_stops_takes_no_more() -> None:
    harness = Stepped()
    harness.send(chain(20))
    harness.engine.drain()
    harness.finish()
    [answer] = harness.heard()
    assert (answer.type, harness.status()) == (EXIT.type, (0, 0))


def test_a_task_cannot_wait_for_any_number_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MOST_PREDECESSORS", 3)
    harness = Stepped()
    answer = harness.ask(create("a after b c d e"))
    assert answer.reason == b"a task that waits for more than 3 others"


@pytest.mark.parametrize(
    "tail", [b"", b"\x12\x02\n\x05", b"\x12\xff", b"\x12", b"2", b"\x90\x00", b"\xff" * 11, b"\x08"]
)
def test_reading_in_parts_finds_what_reading_at_once_finds(tail: bytes) -> None:
    data = encode(Query(QueryType.COMPLETE, [task("a"), task("b after c")], location=b"w")) + tail

    def in_parts() -> tuple[Query, int]:
        reader = RequestReader(data)
        while reader.scan(1):
            pass
        reader.rewind()
        tasks = []
        while some := reader.tasks(1, 1):
            tasks += some
        reader.query.tasks = tasks
        return reader.query, reader.fields | 1 << 1

    def result(read: object) -> object:
        try:
            query, fields = read()  # type: ignore[operator]
            return query, fields | 1 << 1
        except Exception as error:
            return str(error)

    assert result(in_parts) == result(lambda: decode_with_fields(data))
