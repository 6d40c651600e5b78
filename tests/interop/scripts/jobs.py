"""Submitting jobs and hearing of them: priorities, results, status, epochs, reducers, pipelines."""

from __future__ import annotations

from tests.interop.conversation import (
    H1,
    H2,
    H3,
    H4,
    Conversation,
    Step,
    conversation,
    frame,
    hear,
    pour,
    say,
    tell,
)
from tests.support.wire import Kind

SUBMITS = {
    Kind.SUBMIT_JOB: "normal",
    Kind.SUBMIT_JOB_HIGH: "high",
    Kind.SUBMIT_JOB_LOW: "low",
    Kind.SUBMIT_JOB_BG: "normal background",
    Kind.SUBMIT_JOB_HIGH_BG: "high background",
    Kind.SUBMIT_JOB_LOW_BG: "low background",
}

GRABS = (Kind.GRAB_JOB, Kind.GRAB_JOB_UNIQ, Kind.GRAB_JOB_ALL)

FAR_FUTURE = "4102444800"
PAST = "1000000000"


def _every_report(submit: Kind, grab: Kind) -> Conversation:
    """All that a worker can say about a job, and who hears it."""
    return conversation(
        f"a {SUBMITS[submit]} job, taken by {grab.name}, with every report",
        say("worker", Kind.CAN_DO, "reverse"),
        say("client", submit, "reverse", "key", b"pay\0load"),
        tell("admin", "prioritystatus"),
        say("worker", grab),
        tell("admin", "status"),
        say("client", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_STATUS, H1, "3", "10"),
        say("worker", Kind.WORK_DATA, H1, b"some\0data"),
        say("worker", Kind.WORK_WARNING, H1, b"a\0warning"),
        say("worker", Kind.WORK_DATA, H1, ""),
        hear("client"),
        say("client", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_COMPLETE, H1, b"the\0result"),
        hear("client"),
        say("client", Kind.GET_STATUS, H1),
        tell("admin", "status"),
    )


def _submit_three(client: str, submit: Kind) -> list[Step]:
    return [say(client, submit, "f", "", f"{SUBMITS[submit]} {n}") for n in (1, 2, 3)]


EVERY_REPORT = tuple(_every_report(submit, grab) for submit in SUBMITS for grab in GRABS)

ORDER = (
    conversation(
        "priorities decide the order within a function, age within a priority",
        [step for submit in SUBMITS for step in _submit_three("client", submit)],
        tell("admin", "prioritystatus"),
        tell("admin", "status"),
        say("worker", Kind.CAN_DO, "f"),
        [say("worker", Kind.GRAB_JOB) for _ in range(19)],
        tell("admin", "prioritystatus"),
        tell("admin", "status"),
    ),
    conversation(
        "a worker's functions are served newest first",
        say("client", Kind.SUBMIT_JOB_BG, "one", "", "one normal"),
        say("client", Kind.SUBMIT_JOB_LOW_BG, "two", "", "two low"),
        say("client", Kind.SUBMIT_JOB_HIGH_BG, "one", "", "one high"),
        say("client", Kind.SUBMIT_JOB_BG, "two", "", "two normal"),
        say("worker", Kind.CAN_DO, "one"),
        say("worker", Kind.CAN_DO, "two"),
        [say("worker", Kind.GRAB_JOB, note=f"grab {n}") for n in (1, 2, 3, 4)],
        say("worker", Kind.GRAB_JOB),
    ),
    conversation(
        "one worker holds several jobs and ends them in any order",
        say("worker", Kind.CAN_DO, "f"),
        [say("client", Kind.SUBMIT_JOB, "f", "", str(n)) for n in (1, 2, 3)],
        [say("worker", Kind.GRAB_JOB) for _ in range(3)],
        say("worker", Kind.WORK_COMPLETE, H2, "second"),
        say("worker", Kind.WORK_FAIL, H3),
        say("worker", Kind.WORK_COMPLETE, H1, "first"),
        hear("client"),
    ),
)

ENDINGS = (
    conversation(
        "a foreground job fails",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.WORK_FAIL, H1),
        hear("client"),
        say("client", Kind.GET_STATUS, H1),
    ),
    conversation(
        "empty payload and empty result",
        say("client", Kind.SUBMIT_JOB, "f", "", ""),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB_UNIQ),
        say("worker", Kind.WORK_COMPLETE, H1, ""),
        hear("client"),
    ),
    conversation(
        "an exception goes to clients that asked for it and is a failure for the others",
        say("asked", Kind.OPTION_REQ, "exceptions"),
        say("asked", Kind.SUBMIT_JOB, "f", "key", "x"),
        say("did not ask", Kind.SUBMIT_JOB, "f", "key", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.WORK_EXCEPTION, H1, b"it\0broke"),
        hear("asked"),
        hear("did not ask", note="who did not ask hears a failure"),
        say("asked", Kind.GET_STATUS, H1),
    ),
    conversation(
        "a failure after an exception",
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.WORK_EXCEPTION, H1, "it broke"),
        say("worker", Kind.WORK_FAIL, H1, note="the worker's own failure after its exception"),
    ),
    conversation(
        "an ended job is over for its worker too",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.WORK_COMPLETE, H1, "done"),
        say("worker", Kind.WORK_COMPLETE, H1, "done again"),
        say("worker", Kind.WORK_FAIL, H1),
        say("worker", Kind.WORK_DATA, H1, "more"),
        say("worker", Kind.WORK_STATUS, H1, "1", "2"),
        hear("client"),
    ),
    conversation(
        "progress is stored as numbers and forwarded as it is",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.WORK_STATUS, H1, "007", "4294967295"),
        say("client", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_STATUS, H1, "half", "none"),
        say("client", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_STATUS, H1, "", ""),
        say("client", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_STATUS, H1, "3.7", " 9"),
        say("client", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_STATUS, H1, "-1", "+2"),
        say("client", Kind.GET_STATUS, H1, note="with signs"),
        say("worker", Kind.WORK_STATUS, H1, "5", b"6\0007"),
        say("client", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_COMPLETE, H1, ""),
    ),
    conversation(
        "progress beyond 32 bits",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.WORK_STATUS, H1, "4294967296", "4294967297"),
        say("client", Kind.GET_STATUS, H1, note="just beyond"),
        say("worker", Kind.WORK_STATUS, H1, "12345678901", "12345678901"),
        say("client", Kind.GET_STATUS, H1, note="eleven digits"),
        say("worker", Kind.WORK_STATUS, H1, "1", "123456789012", note="twelve digits"),
        say("client", Kind.GET_STATUS, H1, note="after twelve digits"),
    ),
)

STATUS = (
    conversation(
        "status of jobs by handle",
        say("client", Kind.GET_STATUS, "nobody-knows-this"),
        say("client", Kind.GET_STATUS, ""),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "x"),
        say("client", Kind.GET_STATUS, H1),
        say("stranger", Kind.GET_STATUS, H1),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("stranger", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_STATUS, H1, "1", "4"),
        say("stranger", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_COMPLETE, H1, ""),
        say("stranger", Kind.GET_STATUS, H1),
    ),
    conversation(
        "status of jobs by unique",
        say("client", Kind.GET_STATUS_UNIQUE, "key"),
        say("client", Kind.SUBMIT_JOB_BG, "f", "key", "x"),
        say("client", Kind.GET_STATUS_UNIQUE, "key"),
        say("one", Kind.SUBMIT_JOB, "f", "key", "x"),
        say("two", Kind.SUBMIT_JOB, "f", "key", "x"),
        say("two", Kind.SUBMIT_JOB, "f", "key", "x"),
        say("client", Kind.GET_STATUS_UNIQUE, "key"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.WORK_STATUS, H1, "2", "5"),
        say("client", Kind.GET_STATUS_UNIQUE, "key"),
        say("worker", Kind.WORK_COMPLETE, H1, ""),
        say("client", Kind.GET_STATUS_UNIQUE, "key"),
        hear("one"),
        hear("two"),
        say("client", Kind.GET_STATUS_UNIQUE, ""),
    ),
)

EPOCHS = (
    conversation(
        "a time in the past, or none, is at once",
        say("client", Kind.SUBMIT_JOB_EPOCH, "f", "", PAST, "past"),
        say("client", Kind.SUBMIT_JOB_EPOCH, "f", "", "0", "zero"),
        say("client", Kind.SUBMIT_JOB_EPOCH, "f", "", "soon", "not a number"),
        say("client", Kind.SUBMIT_JOB_EPOCH, "f", "", "", "empty"),
        tell("admin", "prioritystatus"),
        say("worker", Kind.CAN_DO, "f"),
        [say("worker", Kind.GRAB_JOB) for _ in range(4)],
        say("worker", Kind.WORK_COMPLETE, H1, "result"),
        hear("client"),
    ),
    conversation(
        "a time in the future is waited for, and does not hold up others",
        say("worker", Kind.CAN_DO, "f"),
        say("client", Kind.SUBMIT_JOB_EPOCH, "f", "key", FAR_FUTURE, "much later"),
        say("worker", Kind.PRE_SLEEP),
        say("worker", Kind.GRAB_JOB),
        say("client", Kind.GET_STATUS, H1),
        say("client", Kind.SUBMIT_JOB_BG, "f", "key", "joins"),
        tell("admin", "status"),
        tell("admin", "prioritystatus", note="the job that waits for its time"),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "now"),
        say("client", Kind.SUBMIT_JOB_HIGH_BG, "f", "", "before now"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.GRAB_JOB),
    ),
    conversation(
        "a time in the future and a job of lower priority",
        say("client", Kind.SUBMIT_JOB_EPOCH, "f", "", FAR_FUTURE, "much later"),
        say("client", Kind.SUBMIT_JOB_LOW_BG, "f", "", "now"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB, note="the job of lower priority"),
    ),
    conversation(
        "a time that is no 64-bit number",
        say("client", Kind.SUBMIT_JOB_EPOCH, "f", "", "9" * 30, "x", note="the answer"),
    ),
)

REDUCERS = (
    conversation(
        "a reducer is carried to workers that ask for all",
        [say("client", Kind.SUBMIT_REDUCE_JOB, "f", f"key {n}", "sum", "ignored", b"pay\0load") for n in (1, 2, 3)],
        say("client", Kind.SUBMIT_REDUCE_JOB_BACKGROUND, "f", "key 4", "sum", "", ""),
        say("client", Kind.SUBMIT_REDUCE_JOB, "f", "key 4", "other", "", "joins"),
        tell("admin", "prioritystatus"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB_ALL),
        say("worker", Kind.GRAB_JOB_UNIQ),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.GRAB_JOB_ALL),
        [say("worker", Kind.WORK_COMPLETE, handle, "result") for handle in (H1, H2, H3, H4)],
        hear("client"),
    ),
    conversation(
        "an empty reducer",
        say("client", Kind.SUBMIT_REDUCE_JOB, "f", "key", "", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB_ALL),
    ),
    conversation(
        "reducers of 64 bytes and more",
        say("client", Kind.SUBMIT_REDUCE_JOB, "f", "", "r" * 64, "", "x"),
        say("client", Kind.SUBMIT_REDUCE_JOB, "f", "", "r" * 65, "", "x"),
        say("client", Kind.SUBMIT_REDUCE_JOB_BACKGROUND, "f", "", "r" * 65, "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB_ALL),
    ),
    conversation(
        "a reducer and a dash as key",
        say("client", Kind.SUBMIT_REDUCE_JOB, "f", "-", "sum", "", "same"),
        say("client", Kind.SUBMIT_REDUCE_JOB, "f", "-", "sum", "", "same"),
        tell("admin", "status"),
    ),
)

PIPELINES = (
    conversation(
        "many requests in one write are answered in their order",
        pour("client", *(frame(Kind.ECHO_REQ, f"number {n}") for n in range(500))),
        pour(
            "client",
            frame(Kind.SUBMIT_JOB_BG, "f", "", "1"),
            frame(Kind.ECHO_REQ, "between"),
            frame(Kind.SUBMIT_JOB, "f", "", "2"),
            frame(Kind.OPTION_REQ, "nonsense"),
            frame(Kind.GET_STATUS, "unknown"),
            frame(Kind.SUBMIT_JOB_HIGH_BG, "f", "", "3"),
        ),
        pour(
            "worker",
            frame(Kind.CAN_DO, "f"),
            *(frame(Kind.GRAB_JOB) for _ in range(4)),
            frame(Kind.PRE_SLEEP),
            frame(Kind.ECHO_REQ, "awake"),
        ),
        pour(
            "worker",
            frame(Kind.WORK_STATUS, H2, "1", "2"),
            frame(Kind.WORK_DATA, H2, "x" * 100_000),
            frame(Kind.WORK_COMPLETE, H1, ""),
            frame(Kind.WORK_COMPLETE, H2, "y" * 100_000),
            frame(Kind.WORK_FAIL, H3),
            frame(Kind.WORK_FAIL, H3),
        ),
        hear("client"),
    ),
    conversation(
        "a large payload",
        say("client", Kind.SUBMIT_JOB, "f", "", b"\0\n" * 500_000),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB_ALL),
        say("worker", Kind.WORK_COMPLETE, H1, b"\xff\0" * 500_000),
        hear("client"),
    ),
)

CONVERSATIONS = (
    *EVERY_REPORT,
    *ORDER,
    *ENDINGS,
    *STATUS,
    *EPOCHS,
    *REDUCERS,
    *PIPELINES,
)
