"""What can be said about the document's commands without a Redis."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from switchgear.client.gearmonkey import OPT_BLOCKING, OPT_ROLLCALL, GearMonkeyJob, JobNotFinished, client_commands
from switchgear.client.gearmonkey.commands import SCRIPT, SCRIPT_SHA1, Command, GearMonkeyFunction

RESIZE = GearMonkeyFunction("resize")


def test_the_script_has_the_digest_that_the_document_gives() -> None:
    assert hashlib.sha1(SCRIPT).hexdigest() == SCRIPT_SHA1 == "5231827cd49b540660ef44969b38cc858f157824"


def test_a_name_may_have_any_letters() -> None:
    assert GearMonkeyFunction("größe:é").roll_call() == ("GET", "count:größe:é".encode())


@pytest.mark.parametrize("name", ["", b"resize", None])
def test_a_name_is_a_text_that_is_not_empty(name: Any) -> None:
    with pytest.raises(ValueError, match="a function has a name"):
        GearMonkeyFunction(name)


class NothingHappens:
    """Plays a Redis in which no worker ever takes a job."""

    def __init__(self, flow: client_commands.Flow[Any], most_commands: int = 100) -> None:
        self.heard: list[Command] = []
        self.raised: BaseException | None = None
        answers = {"INCR": 7, "HGET": b"idle"}
        try:
            command = next(flow)
            while len(self.heard) < most_commands:
                self.heard.append(command)
                command = flow.send(answers.get(str(command[0])))
        except BaseException as error:
            self.raised = error

    def waits(self) -> list[Any]:
        return [command[-1] for command in self.heard if command[0] == "BRPOP"]


@pytest.mark.parametrize(
    ("timeout", "slices"),
    [(3, [3]), (5, [5]), (12, [5, 5, 2]), (0.25, [0.25]), (0.001, [0.01]), (5.0001, [5])],
)
def test_a_long_wait_is_cut_into_slices_and_the_status_is_read_after_each(timeout: float, slices: list[float]) -> None:
    story = NothingHappens(client_commands.run(RESIZE, b"", "normal", OPT_BLOCKING, timeout, slice_seconds=5))
    assert story.waits() == slices
    assert [command[0] for command in story.heard[4:]] == ["BRPOP", "HGET"] * len(slices)
    assert isinstance(story.raised, JobNotFinished)
    assert isinstance(story.raised, TimeoutError)
    assert story.raised.job_id == 7


def test_a_wait_of_0_seconds_has_no_end() -> None:
    story = NothingHappens(client_commands.run(RESIZE, b"", "normal", OPT_BLOCKING, 0, slice_seconds=5))
    assert story.raised is None
    assert story.waits() == [5] * 48


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"prio": "urgent"}, "priority 'urgent' is none of high, normal, low, scheduled"),
        ({"prio": "scheduled"}, "go together"),
        ({"scheduled": 5}, "go together"),
        ({"prio": "scheduled", "scheduled": -1}, "0 or more"),
        ({"prio": "scheduled", "scheduled": float("nan")}, "0 or more"),
        ({"prio": "scheduled", "scheduled": float("inf")}, "0 or more"),
        ({"options": 4}, "options are OPT_BLOCKING and OPT_ROLLCALL"),
        ({"options": OPT_ROLLCALL, "timeout": 1}, "for OPT_BLOCKING only"),
        ({"options": OPT_BLOCKING, "timeout": -1}, "0 for no end"),
        ({"options": OPT_BLOCKING, "timeout": float("inf")}, "0 for no end"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(arguments: dict[str, Any], complaint: str) -> None:
    story = NothingHappens(client_commands.run(RESIZE, b"", **arguments, slice_seconds=5))
    assert story.heard == []
    assert isinstance(story.raised, ValueError)
    assert complaint in str(story.raised)


def test_an_input_is_bytes_or_text() -> None:
    story = NothingHappens(client_commands.run(RESIZE, 5, slice_seconds=5))  # type: ignore[arg-type]
    assert story.heard == []
    assert repr(story.raised) == "TypeError('input is bytes or str, not int')"


def test_a_fraction_of_a_second_is_scheduled_for_the_next_whole_one() -> None:
    story = NothingHappens(client_commands.run(RESIZE, b"", "scheduled", scheduled=10.2, slice_seconds=5))
    assert story.heard[-1] == ("ZADD", b"queue:resize:scheduled", 11, 7)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({b"status": b"idle", b"input": b"x"}, ("idle", b"x", None, None, None, False)),
        (
            {b"status": b"busy", b"input": b"x", b"status:dividend": b"1", b"status:divisor": b"3"},
            ("busy", b"x", None, 1, 3, False),
        ),
        ({b"status": b"success", b"output": b"\xff"}, ("success", b"", b"\xff", None, None, True)),
        ({b"status": b"error", b"output": b""}, ("error", b"", b"", None, None, True)),
        ({b"status": b"asleep", b"status:dividend": b"half"}, ("asleep", b"", None, None, None, False)),
    ],
)
def test_a_hash_becomes_a_record(raw: dict[bytes, bytes], expected: tuple[object, ...]) -> None:
    job = GearMonkeyJob.of("resize", 7, raw)
    assert (job.status, job.input, job.output, job.dividend, job.divisor, job.is_finished) == expected
    assert (job.function, job.job_id, job.raw) == ("resize", 7, raw)
