"""Conversations that go differently when the server was started with a flag of gearmand's."""

from __future__ import annotations

from tests.interop.conversation import H1, Conversation, Step, conversation, hear, leave, say, tell
from tests.support.wire import Kind


def _attempt(number: int) -> list[Step]:
    worker = f"worker {number}"
    return [say(worker, Kind.CAN_DO, "f"), say(worker, Kind.GRAB_JOB), leave(worker)]


def _loses_workers(name: str, submit: Kind, attempts: int) -> Conversation:
    return conversation(
        name,
        say("client", submit, "f", "", "x"),
        [step for number in range(1, attempts + 2) for step in _attempt(number)],
        hear("client"),
        tell("admin", "status"),
        tell("admin", "show jobs"),
    )


_ROUND_ROBIN = conversation(
    "functions take turns",
    [say("client", Kind.SUBMIT_JOB_BG, name, "", f"{name} {n}") for name in ("one", "two") for n in (1, 2, 3)],
    say("client", Kind.SUBMIT_JOB_HIGH_BG, "one", "", "one high"),
    say("worker", Kind.CAN_DO, "one"),
    say("worker", Kind.CAN_DO, "two"),
    [say("worker", Kind.GRAB_JOB) for _ in range(8)],
    tell("admin", "workers"),
)

_EXCEPTIONS = conversation(
    "everybody hears exceptions",
    say("client", Kind.SUBMIT_JOB, "f", "", "x"),
    say("worker", Kind.CAN_DO, "f"),
    say("worker", Kind.GRAB_JOB),
    say("worker", Kind.WORK_EXCEPTION, H1, "it broke"),
    hear("client"),
)

_WAKE_TWO = conversation(
    "two of two sleepers are woken",
    [step for name in ("first", "second") for step in (say(name, Kind.CAN_DO, "f"), say(name, Kind.PRE_SLEEP))],
    say("client", Kind.SUBMIT_JOB_BG, "f", "", "x"),
    hear("first"),
    hear("second"),
)

WITH_FLAGS: tuple[tuple[tuple[str, ...], Conversation], ...] = (
    (("--job-retries=1",), _loses_workers("a job with one attempt", Kind.SUBMIT_JOB, 1)),
    (("--job-retries=2",), _loses_workers("a job with two attempts", Kind.SUBMIT_JOB, 2)),
    (("-j", "2"), _loses_workers("a background job with two attempts", Kind.SUBMIT_JOB_BG, 2)),
    (("--round-robin",), _ROUND_ROBIN),
    (("-R",), _ROUND_ROBIN),
    (("--exceptions",), _EXCEPTIONS),
    (("--worker-wakeup=2",), _WAKE_TWO),
    (("-w", "0"), _WAKE_TWO),
)
