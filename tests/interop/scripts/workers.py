"""A worker's life: functions, sleeping and waking, being lost, and words about jobs that are not its own."""

from __future__ import annotations

from tests.interop.conversation import (
    H1,
    H2,
    Argument,
    Conversation,
    Step,
    conversation,
    hear,
    insist,
    leave,
    say,
    tell,
)
from tests.support.wire import Kind, Packet


def _words_about(handle: Argument, who: str) -> list[Step]:
    """Every report on a job that is not the speaker's, each with its own error text."""
    return [
        say(who, Kind.WORK_STATUS, handle, "1", "2"),
        say(who, Kind.WORK_DATA, handle, "x"),
        say(who, Kind.WORK_WARNING, handle, "x"),
        say(who, Kind.WORK_EXCEPTION, handle, "x"),
        say(who, Kind.WORK_FAIL, handle),
        say(who, Kind.WORK_COMPLETE, handle, "x"),
    ]


def _lost(name: str, *before: Step) -> Conversation:
    """A worker is lost in the middle of a job; the next one gets the same job, from its beginning."""
    return conversation(
        f"a worker is lost: {name}",
        say("lost", Kind.CAN_DO, "f"),
        *before,
        say("lost", Kind.GRAB_JOB),
        say("lost", Kind.WORK_STATUS, H1, "1", "2"),
        say("lost", Kind.WORK_DATA, H1, "half of it"),
        say("client", Kind.GET_STATUS, H1),
        leave("lost"),
        say("client", Kind.GET_STATUS, H1),
        tell("admin", "status"),
        tell("admin", "prioritystatus"),
        say("next", Kind.CAN_DO, "f"),
        say("next", Kind.GRAB_JOB_UNIQ),
        say("next", Kind.WORK_COMPLETE, H1, "all of it"),
        hear("client"),
        tell("admin", "status"),
    )


ABILITIES = (
    conversation(
        "functions come and go",
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.CANT_DO, "never could"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.CAN_DO, "g"),
        say("worker", Kind.CAN_DO_TIMEOUT, "h", "0"),
        tell("admin", "status"),
        tell("admin", "workers"),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "x"),
        say("worker", Kind.CANT_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        tell("admin", "status"),
        tell("admin", "workers"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.RESET_ABILITIES),
        say("worker", Kind.GRAB_JOB),
        tell("admin", "status"),
        tell("admin", "workers"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        leave("worker"),
        tell("admin", "status"),
    ),
    conversation(
        "timeouts that are none",
        say("worker", Kind.CAN_DO_TIMEOUT, "f", "0"),
        say("worker", Kind.CAN_DO_TIMEOUT, "g", "never"),
        say("worker", Kind.CAN_DO_TIMEOUT, "h", ""),
        say("worker", Kind.CAN_DO_TIMEOUT, "i", "100000"),
        tell("admin", "status"),
        tell("admin", "workers"),
        say("client", Kind.SUBMIT_JOB, "i", "", "x"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.WORK_COMPLETE, H1, "in time"),
        hear("client"),
    ),
    conversation(
        "a function named twice",
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.CAN_DO, "f"),
        tell("admin", "status", note="how many workers"),
        tell("admin", "workers", note="its functions"),
        say("worker", Kind.CANT_DO, "f"),
        tell("admin", "status", note="after taking it back once"),
    ),
    conversation(
        "a function named empty, with odd bytes, and long",
        say("client", Kind.SUBMIT_JOB_BG, "", "", "x"),
        say("client", Kind.SUBMIT_JOB_BG, "a b", "", "x"),
        say("client", Kind.SUBMIT_JOB_BG, b"\xff\xfe", "", "x"),
        say("client", Kind.SUBMIT_JOB_BG, "n" * 500, "", "x"),
        tell("admin", "status"),
        [
            step
            for n, name in enumerate((b"", b"a b", b"\xff\xfe", b"n" * 500), 1)
            for step in (say(f"worker {n}", Kind.CAN_DO, name), say(f"worker {n}", Kind.GRAB_JOB))
        ],
    ),
    conversation(
        "function names have case",
        say("client", Kind.SUBMIT_JOB_BG, "Resize", "", "x"),
        say("worker", Kind.CAN_DO, "resize"),
        say("worker", Kind.GRAB_JOB),
        tell("admin", "status"),
    ),
    conversation(
        "a client id is shown as it is",
        say("worker", Kind.SET_CLIENT_ID, "worker-7"),
        say("worker", Kind.CAN_DO, "f"),
        say("other", Kind.SET_CLIENT_ID, "with some spaces"),
        say("third", Kind.SET_CLIENT_ID, ""),
        tell("admin", "workers"),
        say("worker", Kind.SET_CLIENT_ID, "renamed"),
        say("other", Kind.SET_CLIENT_ID, "i" * 127),
        tell("admin", "workers"),
        say("worker", Kind.SET_CLIENT_ID, "i" * 128),
        say("other", Kind.SET_CLIENT_ID, "i" * 300),
        tell("admin", "workers"),
    ),
    conversation(
        "a client id with a NUL",
        say("worker", Kind.SET_CLIENT_ID, b"with\0NUL"),
        tell("admin", "workers"),
    ),
    conversation(
        "a function taken back while its job runs",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.CANT_DO, "f"),
        say("client", Kind.GET_STATUS, H1, note="the job"),
        say("worker", Kind.WORK_COMPLETE, H1, "done", note="the result"),
        hear("client", note="the client"),
    ),
    conversation(
        "all functions taken back while a job runs",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.RESET_ABILITIES),
        say("client", Kind.GET_STATUS, H1, note="the job"),
        say("worker", Kind.WORK_COMPLETE, H1, "done", note="the result"),
        hear("client", note="the client"),
    ),
)

SLEEPING = (
    conversation(
        "a sleeping worker is woken once, and grabs",
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.PRE_SLEEP),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "1"),
        hear("worker"),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "2"),
        hear("worker"),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.GRAB_JOB),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "3"),
        hear("worker"),
        say("worker", Kind.PRE_SLEEP),
        say("worker", Kind.GRAB_JOB),
    ),
    conversation(
        "going to sleep while there is work",
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "1"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.PRE_SLEEP),
        say("worker", Kind.PRE_SLEEP),
        say("worker", Kind.GRAB_JOB),
        say("worker", Kind.PRE_SLEEP),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "2"),
        hear("worker"),
    ),
    conversation(
        "a job of another function wakes nobody",
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.PRE_SLEEP),
        say("client", Kind.SUBMIT_JOB_BG, "g", "", "1"),
        hear("worker"),
    ),
    conversation(
        "a job that joins another wakes nobody",
        say("client", Kind.SUBMIT_JOB_BG, "f", "key", "1"),
        say("busy", Kind.CAN_DO, "f"),
        say("busy", Kind.GRAB_JOB),
        say("sleeper", Kind.CAN_DO, "f"),
        say("sleeper", Kind.PRE_SLEEP),
        say("client", Kind.SUBMIT_JOB_BG, "f", "key", "1"),
        hear("sleeper"),
    ),
    conversation(
        "a job comes, and three sleep",
        [
            step
            for name in ("first", "second", "third")
            for step in (say(name, Kind.CAN_DO, "f"), say(name, Kind.PRE_SLEEP))
        ],
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "x"),
        [hear(name, note=f"the {name} sleeper") for name in ("first", "second", "third")],
        [say(name, Kind.GRAB_JOB, note=f"the {name} grabs") for name in ("first", "second", "third")],
    ),
    conversation(
        "a lost worker's job wakes a sleeper",
        say("lost", Kind.CAN_DO, "f"),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "x"),
        say("lost", Kind.GRAB_JOB),
        say("sleeper", Kind.CAN_DO, "f"),
        say("sleeper", Kind.PRE_SLEEP),
        leave("lost"),
        hear("sleeper"),
        say("sleeper", Kind.GRAB_JOB),
    ),
    conversation(
        "a sleeper learns a function that has work",
        say("client", Kind.SUBMIT_JOB_BG, "g", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.PRE_SLEEP),
        say("worker", Kind.CAN_DO, "g", note="the new function"),
        say("worker", Kind.GRAB_JOB),
    ),
    conversation(
        "a sleeper that left its function sleeps on",
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.PRE_SLEEP),
        say("worker", Kind.CANT_DO, "f"),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "x"),
        hear("worker"),
    ),
    conversation(
        "a worker that submits to itself",
        say("both", Kind.CAN_DO, "f"),
        say("both", Kind.PRE_SLEEP),
        say("both", Kind.SUBMIT_JOB, "f", "", "x", note="created and woken"),
        say("both", Kind.GRAB_JOB),
        say("both", Kind.WORK_DATA, H1, "data"),
        say("both", Kind.WORK_COMPLETE, H1, "result"),
    ),
)

LOST = (
    _lost("a background job", say("client", Kind.SUBMIT_JOB_BG, "f", "key", "payload")),
    _lost("a foreground job", say("client", Kind.SUBMIT_JOB, "f", "key", "payload")),
    _lost("a low job", say("client", Kind.SUBMIT_JOB_LOW, "f", "key", "payload")),
    conversation(
        "a lost job goes to the end of its queue",
        say("lost", Kind.CAN_DO, "f"),
        [say("client", Kind.SUBMIT_JOB_BG, "f", "", str(n)) for n in (1, 2, 3)],
        say("lost", Kind.GRAB_JOB),
        leave("lost"),
        say("next", Kind.CAN_DO, "f"),
        [say("next", Kind.GRAB_JOB) for _ in range(4)],
    ),
    conversation(
        "a worker with several jobs is lost",
        say("lost", Kind.CAN_DO, "f"),
        [say("client", Kind.SUBMIT_JOB, "f", "", str(n)) for n in (1, 2, 3)],
        [say("lost", Kind.GRAB_JOB) for _ in range(3)],
        say("lost", Kind.WORK_COMPLETE, H2, "done"),
        leave("lost"),
        tell("admin", "status"),
        hear("client"),
    ),
    conversation(
        "a worker is cut off in the middle of a job",
        say("lost", Kind.CAN_DO, "f"),
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("lost", Kind.GRAB_JOB),
        leave("lost", abruptly=True),
        tell("admin", "status"),
        say("next", Kind.CAN_DO, "f"),
        say("next", Kind.GRAB_JOB),
        say("next", Kind.WORK_COMPLETE, H1, "done"),
        hear("client"),
    ),
    conversation(
        "a reducer and a key survive the loss of a worker",
        say("lost", Kind.CAN_DO, "f"),
        say("client", Kind.SUBMIT_REDUCE_JOB, "f", "key", "sum", "", "x"),
        say("lost", Kind.GRAB_JOB_ALL),
        leave("lost"),
        say("client", Kind.SUBMIT_REDUCE_JOB, "f", "key", "sum", "", "joins"),
        say("next", Kind.CAN_DO, "f"),
        say("next", Kind.GRAB_JOB_ALL),
        say("next", Kind.WORK_FAIL, H1),
        hear("client"),
    ),
    conversation(
        "a job that loses every worker",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        [
            step
            for n in range(1, 6)
            for step in (
                say(f"worker {n}", Kind.CAN_DO, "f"),
                say(f"worker {n}", Kind.GRAB_JOB, note=f"attempt {n}"),
                leave(f"worker {n}"),
            )
        ],
        tell("admin", "show jobs", note="what is left"),
        hear("client", note="the client"),
    ),
)

TIMEOUTS = (
    conversation(
        "a job takes longer than its worker said",
        say("slow", Kind.CAN_DO_TIMEOUT, "f", "1000"),
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("slow", Kind.GRAB_JOB),
        say("slow", Kind.WORK_STATUS, H1, "1", "2"),
        hear("client"),
        insist("client", Kind.GET_STATUS, H1, answer=Packet(Kind.STATUS_RES, b"H1\x001\x000\x000\x000")),
        tell("admin", "status"),
        tell("admin", "show jobs"),
        hear("slow"),
        say("slow", Kind.WORK_COMPLETE, H1, "too late"),
        hear("client"),
        say("quick", Kind.CAN_DO, "f"),
        say("quick", Kind.GRAB_JOB),
        say("quick", Kind.WORK_COMPLETE, H1, "in time"),
        hear("client"),
    ),
    conversation(
        "a timeout below a second is a second",
        say("slow", Kind.CAN_DO_TIMEOUT, "f", "1"),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "x"),
        say("slow", Kind.GRAB_JOB),
        say("client", Kind.GET_STATUS, H1),
        say("slow", Kind.WORK_COMPLETE, H1, "in time"),
    ),
)

STRANGERS = (
    conversation("reports on a job that never was", _words_about("nobody-knows-this", "worker")),
    conversation("reports with an empty handle", _words_about("", "worker")),
    conversation(
        "reports on another worker's job",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        say("stranger", Kind.CAN_DO, "f"),
        _words_about(H1, "stranger"),
        say("client", Kind.GET_STATUS, H1),
        say("worker", Kind.WORK_COMPLETE, H1, "done"),
        hear("client"),
    ),
    conversation(
        "reports on a job that is still queued",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        _words_about(H1, "worker"),
        hear("client"),
        say("worker", Kind.GRAB_JOB),
    ),
    conversation(
        "a client reports on its own job",
        say("client", Kind.SUBMIT_JOB, "f", "", "x"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB),
        _words_about(H1, "client"),
        say("worker", Kind.WORK_COMPLETE, H1, "done"),
        hear("client"),
    ),
)

CONVERSATIONS = (*ABILITIES, *SLEEPING, *LOST, *TIMEOUTS, *STRANGERS)
