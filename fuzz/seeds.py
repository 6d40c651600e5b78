"""Inputs to begin with, made from the transcripts of the tests and by the real encoders: `python -m fuzz.corpus` adds
those to the corpus that reach something new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.protocols.dwork import story, test_bytes
from tests.protocols.gearman import transcript as gearman
from tests.protocols.gearman.conversations import CONTROLS, LINES, OPTIONS
from tests.protocols.gearman_draft import transcript as draft
from tests.protocols.gearmonkey import transcript as gearmonkey
from tests.protocols.wmp import transcript as wmp

from fuzz.access import TOKENS
from fuzz.document_targets import access_seeds, cluster_seeds, envelope_seeds, link_seeds
from fuzz.grammar import FRAMES, Part
from fuzz.http_client_target import CLIENT_ANSWERS
from fuzz.http_seeds import gearmand_http_scripts, http_access_scripts, http_scripts, http_streams
from fuzz.long_line_target import long_line_seeds
from fuzz.row_targets import row_written
from fuzz.script import HURRIED, KEEPS, LITTLE_MEMORY, Action, step, written_script
from fuzz.target import Target
from fuzz.zmtp_seeds import curve_scripts, frame_streams, peer_streams, zmtp_scripts
from switchgear.model import NORMAL, Delivery, Function, Job, Schedule
from switchgear.protocols.dwork.codec import encode as encode_dwork
from switchgear.protocols.gearman.codec import request, response
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearmonkey.resp import array, bulk
from switchgear.protocols.wmp.codec import CANCEL, NO, TAKE, WAKE
from switchgear.protocols.wmp.codec import encode as encode_wmp
from switchgear.storage.sqlite_rows import job_row
from switchgear.storage.sqlite_schedules import schedule_row
from switchgear.timetable import Cron, Every
from switchgear.verbs.access import Role

__all__ = ["seeds_of"]

SECONDS: Final = (0.001, 0.06, 0.5, 1.0, 3.0, 6.0, 30.0, 700.0, 90_000.0)

Said = tuple[str, str, Any]
"""Who, what (the name of an `Action`, or `hear`), and data or seconds."""


def framed(*frames: bytes) -> bytes:
    return FRAMES.join([Part(b"", frame) for frame in frames])


def pause(seconds: float) -> bytes:
    """The step after which at least so much time has passed."""
    choice = next((place for place, longest in enumerate(SECONDS) if longest >= seconds), len(SECONDS) - 1)
    return step(Action.PASS_TIME, 0, bytes([choice]))


def scripts(conversation: Sequence[Said], first_peer: int = 0) -> Iterator[bytes]:
    """The conversation, in each mode of the server."""
    peers: dict[str, int] = {}
    plain: list[bytes] = []
    committed: list[bytes] = []
    for who, what, data in conversation:
        if what == "hear":
            continue
        number = first_peer + peers.setdefault(who, len(peers)) % (4 - first_peer)
        taken = pause(data) if what == "pass" else step(Action[what], number, data)
        plain.append(taken)
        committed += [taken, step(Action.FAIL_COMMIT if len(committed) % 14 == 12 else Action.COMMIT, 0)]
    yield written_script(plain)
    yield written_script(committed, KEEPS)
    yield written_script(plain, LITTLE_MEMORY)
    yield written_script(plain, HURRIED)


def transcripts(folder: Path, load: Callable[[str], Sequence[Any]]) -> Iterator[Any]:
    for path in sorted(folder.glob("*.txt")):
        yield from load(path.stem)


# --- Gearman, modern and draft ---


def gearman_conversation(transcript: Any) -> list[Said]:
    said: list[Said] = []
    for each in transcript.steps:
        if each.verb == ">":
            said.append((each.who, "SEND", each.data))
        elif each.verb == "pass":
            said.append(("", "pass", each.seconds))
        elif each.verb == "leaves":
            said.append((each.who, "LEAVE", b""))
        elif each.verb == "stops":
            said.append((each.who, "STOP_SENDING", b""))
        elif each.verb == "<":
            heard = each.data if each.kind < 0 else response(each.kind, each.data)
            said.append((each.who, "hear", heard))
    return said


def streams(conversation: Sequence[Said], what: str) -> Iterator[bytes]:
    """What each of them has sent, or heard, in one piece."""
    for who in dict.fromkeys(who for who, _, _ in conversation):
        data = b"".join(data for other, kind, data in conversation if (other, kind) == (who, what))
        if data:
            yield data


GEARMAN: Final = [gearman_conversation(each) for each in transcripts(gearman.FOLDER, gearman.load)]
DRAFT: Final = [gearman_conversation(each) for each in transcripts(draft.FOLDER, draft.load)]
EXTRA_GEARMAN: Final = [
    [("a", "SEND", request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"k", options, b"x")) for options in OPTIONS],
    [("a", "SEND", request(Packet.CONTROL, verb, arguments)) for verb, arguments in CONTROLS],
    [("a", "SEND", line) for line in LINES],
    [
        ("a", "SEND", request(Packet.CONTROL, verb, msgspec.json.encode(arguments)))
        for verb, arguments in (
            (b"schedule", {"name": "s", "function": "f", "every_seconds": 1}),
            (b"schedule", {"name": "t", "function": "f", "cron": "* * * * *", "timezone": "Europe/Berlin"}),
            (b"schedules", {}),
            (b"run_schedule", {"name": "s"}),
            (b"pause_schedule", {"name": "s"}),
            (b"resume_schedule", {"name": "s"}),
            (b"limit", {"function": "f", "concurrency": 1}),
            (b"explain", {"handle": "H:t:1"}),
            (b"states", {"handles": ["H:t:1", "H:t:2"]}),
            (b"unschedule", {"name": "s"}),
            (b"server", {}),
        )
    ],
    [  # a job that is resumed by its worker, by a stranger, with wrong numbers, and after its end
        ("a", "SEND", request(Packet.SUBMIT_JOB_BG, b"f", b"", b"x")),
        ("b", "SEND", request(Packet.CAN_DO, b"f") + request(Packet.GRAB_JOB)),
        ("b", "LEAVE", b""),
        *(
            (who, "SEND", request(Packet.RESUME_JOB, handle, attempt))
            for who in ("c", "d")
            for handle, attempt in ((b"H:t:1", b"1"), (b"H:t:1", b"2"), (b"H:t:9", b"1"), (b"H:t:1", b"-1"), (b"", b""))
        ),
        ("c", "SEND", request(Packet.WORK_COMPLETE, b"H:t:1", b"y") + request(Packet.RESUME_JOB, b"H:t:1", b"1")),
    ],
    [("a", "SEND", request(Packet.ECHO_REQ, b"e" * 2900) * 4), ("a", "TOGGLE_READING", b"")] * 8,
]

# --- GearMonkey ---


def monkey_conversation(transcript: Any) -> list[Said]:
    names = gearmonkey.Names()
    said: list[Said] = []
    for each in transcript.steps:
        rest = names.fill_in(each.rest)
        if each.verb == ">":
            words = gearmonkey.words_in(rest)
            said.append((each.who, "SEND", array([bulk(word) for word in words])))
        elif each.verb in ("<", "<here"):
            said.append((each.who, "hear", gearmonkey.reply_bytes(rest, 2)))
        elif each.who == "later":
            said.append(("", "pass", float(each.verb)))
        elif each.verb == "leave":
            said.append((each.who, "LEAVE", b""))
    return said


MONKEY: Final = [monkey_conversation(each) for each in transcripts(gearmonkey.FOLDER, gearmonkey.load)]

# --- messages ---


def dwork_conversations() -> Iterator[list[Said]]:
    for exchanges in test_bytes.CONVERSATIONS.values():
        now_us = 1_700_000_000_000_000
        said: list[Said] = []
        for exchange in exchanges:
            said.append(("w", "SEND", test_bytes.as_bytes(exchange.request, now_us)))
            said.append(("w", "hear", test_bytes.as_bytes(exchange.answer.removesuffix("..."), now_us)))
        yield said
    for told in transcripts(story.FOLDER, story.load):
        said = []
        for text, _ in told.steps:
            verb, _, rest = text.partition(" ")
            if verb == "seconds":
                said.append(("", "pass", float(rest)))
            elif verb != "restart" and rest != "hears":
                who = rest.split()[0] if verb in ("steal", "complete", "transfer") and rest else "c"
                said.append((who, "SEND", encode_dwork(story.query_of(verb, rest))))
        yield said


DWORK: Final = list(dwork_conversations())


def in_envelopes(conversation: Sequence[Said]) -> list[Said]:
    return [(who, what, framed(b"", data) if what == "SEND" else data) for who, what, data in conversation]


def wmp_conversations() -> Iterator[list[Said]]:
    """What is said in the transcripts when they are played; jobs are submitted over Gearman."""
    for transcript in transcripts(wmp.FOLDER, wmp.load):
        player = wmp.Player(transcript.settings)
        said: list[Said] = []
        send = player.harness.router.send
        submit = player.harness.submit

        def record_send(*message: bytes, said: list[Said] = said, send: Any = send) -> None:
            said.append((message[0].decode("latin-1"), "SEND", framed(*message[1:])))
            send(*message)

        def record_submit(
            function: str, payload: bytes = b"", *rest: Any, said: list[Said] = said, submit: Any = submit
        ) -> Any:
            said.append(("submitter", "SEND", request(Packet.SUBMIT_JOB_BG, function.encode(), b"", payload)))
            return submit(function, payload, *rest)

        vars(player.harness.router)["send"] = record_send
        vars(player.harness)["submit"] = record_submit
        for line in transcript.lines:
            player.perform(line)
            if line.startswith("pass "):
                said.append(("", "pass", float(line.split()[1])))
        yield said


WMP: Final = list(wmp_conversations())


def wmp_scripts(conversation: Sequence[Said]) -> Iterator[bytes]:
    """Workers are the first three peers, the submitter is the fourth."""
    peers = {"submitter": 3}
    plain = []
    for who, what, data in conversation:
        if what == "pass":
            plain.append(pause(data))
        else:
            plain.append(step(Action.SEND, peers.setdefault(who, (len(peers) - 1) % 3), data))
    yield written_script(plain)
    yield written_script(list(chain.from_iterable((each, step(Action.COMMIT, 0)) for each in plain)), KEEPS)


PINGPONG: Final = [
    written_script(
        [
            step(Action.SEND, 1, framed(b"", b"READY")),
            step(Action.SEND, 0, framed(b"", b"job")),
            step(Action.SEND, 1, framed(b"", b"PING")),
            step(Action.SEND, 1, framed(b"", b"result")),
            step(Action.SEND, 2, framed(b"", b"PING")),
            step(Action.SEND, 0, framed(b"hop", b"", b"other job")),
            step(Action.SEND, 3, request(Packet.SUBMIT_JOB, b"pingpong", b"", b"from elsewhere")),
            pause(4),
            step(Action.SEND, 1, framed(b"", b"READY")),
            step(Action.SEND, 2, framed(b"", b"late")),
            step(Action.SEND, 2, framed(b"", b"", b"LEAVE")),
            step(Action.LEAVE, 1),
            step(Action.SEND, 0, framed(b"", b"PONG")),
            step(Action.SEND, 0, framed(b"no delimiter")),
            step(Action.SEND, 0, framed(b"", b"a", b"b")),
        ],
        mode,
    )
    for mode in (0, KEEPS, LITTLE_MEMORY)
]

# --- what clients read ---

WORKER_HEARS: Final = [
    b"".join(
        [
            response(Packet.OPTION_RES, b"switchgear"),
            response(Packet.OPTION_RES, b"packet_bytes", b"1000"),
            response(Packet.CONTROL_RES, b"{}"),
            response(Packet.JOB_PUSH, b"H:t:1", b"f", b"u", b"1", b"0", b"3", b"0", b"payload"),
            response(Packet.CONTROL_RES, b'[{"name": "f", "ready": 2, "paused": false}]'),
            response(Packet.REVOKE, b"H:t:1", b"cancelled"),
            response(Packet.WATCH_RES, b"H:t:9", b"done"),
            response(Packet.WORK_COMPLETE, b"H:t:9", b"result"),
            response(Packet.ECHO_RES, b"done"),
        ]
    ),
    b"".join(
        [
            response(Packet.ECHO_RES, b"x"),
            response(Packet.NO_JOB),
            response(Packet.NOOP),
            response(Packet.JOB_ASSIGN_UNIQ, b"H:t:1", b"g", b"u", b"payload"),
            response(Packet.ERROR, b"QUEUE_ERROR", b"words"),
        ]
    ),
    b"".join(
        [
            response(Packet.OPTION_RES, b"switchgear"),
            response(Packet.ERROR, b"INVALID_ARGUMENT", b"words"),
            response(Packet.JOB_PUSH, b"H:t:1", b"f", b"u", b"1", b"0", b"3", b"0", b"payload"),
            response(Packet.ERROR, b"QUEUE_ERROR", b"words"),
            response(Packet.WATCH_RES, b"H:t:9", b"unknown"),
            response(Packet.JOB_ENDED, b"H:t:9", b"failed", b"exhausted", b"words"),
        ]
    ),
]
APP_HEARS: Final = [
    b"".join(
        [
            response(Packet.OPTION_RES, b"switchgear"),
            response(Packet.OPTION_RES, b"exceptions"),
            response(Packet.OPTION_RES, b"packet_bytes", b"5000"),
            response(Packet.ECHO_RES, b"switchgear"),
            response(Packet.JOB_CREATED, b"H:t:1"),
            response(Packet.JOB_CREATED, b"H:t:2"),
            response(Packet.CONTROL_RES, b'[{"name": "f", "ready": 2}]'),
            response(Packet.WATCH_RES, b"H:t:3", b"running"),
            response(Packet.WORK_PROGRESS, b"H:t:1", b"1", b"2", b"words"),
            response(Packet.WORK_STATUS, b"H:t:2", b"1", b"2"),
            response(Packet.WORK_DATA, b"H:t:1", b"part"),
            response(Packet.WORK_COMPLETE, b"H:t:1", b"result"),
            response(Packet.WORK_EXCEPTION, b"H:t:2", b"ValueError: words\n\ntraceback"),
            response(Packet.JOB_ENDED, b"H:t:3", b"failed", b"exhausted", b"timed out"),
        ]
    ),
    response(Packet.ECHO_RES, b"switchgear") + response(Packet.ERROR, b"INVALID_COMMAND", b"words") * 3,
    response(Packet.STATUS_RES, b"H:t:1", b"1", b"1", b"3", b"4") + response(Packet.WORK_FAIL, b"H:t:1"),
    b"".join(
        [
            response(Packet.JOB_CREATED, b"H:t:1"),
            response(Packet.STATUS_RES, b"H:t:1", b"1", b"1", b"3", b"4"),
            response(Packet.ERROR, b"INVALID_COMMAND", b"words"),
            b"f\t1\t0\t2\n.\nERR NOT_FOUND some+words\n",
            response(Packet.WORK_DATA, b"H:t:1", b"part"),
            response(Packet.WORK_COMPLETE, b"H:t:1", b"result"),
        ]
    ),
]


def manager_hears() -> list[bytes]:
    """What managers say to a worker."""
    way: dict[str, Any] = {"path": [b"m"]}
    take = encode_wmp(TAKE, {**way, "job": b"1", "role": "f", "manager": b"m", "lease": 8.0}, b"payload")
    brief = encode_wmp(TAKE, {**way, "job": b"2", "role": "g", "lease": 0.001}, b"")
    stranger = encode_wmp(TAKE, {**way, "job": b"3", "role": "unknown"}, b"")
    messages = [
        encode_wmp(WAKE, {**way, "role": "f"}),
        encode_wmp(WAKE, {"path": [b"n"]}),
        take,
        encode_wmp(NO, {"path": [b"n"]}),
        encode_wmp(CANCEL, {**way, "job": b"1"}),
        stranger,
        brief,
        take,
    ]
    return [framed(*(framed(*message) for message in messages)), framed(framed(*take), framed(*take), framed(*brief))]


DWORK_HEARS: Final = [
    framed(*(framed(b"@", b"", data) for _, what, data in conversation if what == "hear")) for conversation in DWORK
]
PINGPONG_HEARS: Final = [
    framed(
        framed(b"", b"PONG"), framed(b"", b"job"), framed(b"time"), framed(b"", b"jobs"), framed(b"time"),
        framed(b"leave"),
        framed(b"", b"job"), framed(b"", b"", b"LEAVE"),
    ),
]  # fmt: skip

# --- texts ---

TEXTS: Final[dict[str, list[bytes]]] = {
    "resp-line": [b'SET "a b" c', b"get 'it\\'s' x", b'"\\x41\\n\\r\\t\\b\\a\\\\"', b'a"b', b"  PING  "],
    "resp-reply": [b"OK\0a\0b", b"line\r\n\0\xff\xfe", b""],
    "gearmonkey-patterns": [
        b"channel:*\0channel:f\0channel:", b"a?c\0abc\0ac", b"[a-c]x[^0-9]*\0bxy\0dxy\0bx1", b"\\*a\\\\\0*a\\\0a",
        b"*a*b*c\0xaybzc\0abc\0cba", b"[\\]-a]*[^^]\0]x", b"[abc\0a\0d", b"**?**\0\0a", b"[z-a]\0m", b"a\\\0a\\",
        b"[^\0a",
        b"*[ab]?*c\0xxaycc\0aac",
    ],
    "gearmonkey-keys": [
        b"uid:f", b"count:a:b", b"job:f:1", b"queue:f:high", b"queue:f:scheduled", b"lock:f:18", b"job:f:01",
    ],
    "timetable": [
        b"* * * * *\0UTC", b"*/15 2 * * *\0Europe/Berlin", b"30 2 * * *\0Europe/Berlin", b"0 0 L * *\0Asia/Kathmandu",
        b"0 0 LW * *", b"0 9 * * FRI#2\0America/Sao_Paulo", b"0 9 * * 5L", b"@daily\0UTC", b"@yearly", b"every 60 s",
        b"every 0.1 s", b"0 0 29 2 *", b"0 0 1-7,15 JAN-MAR MON-FRI", b"0 0 31 2 *", b"every x s", b"@reboot",
        b"5 4 * *", b"* * * * *\0Nowhere/Land", b"59 23 31 12 *\0Pacific/Apia",
    ],
    "listen-url": [
        b"gearman://127.0.0.1:4730", b"gearman://[::1]", b"wmp://0.0.0.0:5714?identity=m&timeout=5", b"localhost:4730",
        b"pingpong://h:1?workers=2&expire=3&resend=0.5&function=f", b"dwork://h?lease=1e3", b"[fe80::1%25eth0]:1",
        b"redis://h:6379/0?functions=a,b&lease=1&claim=5&password_file=x", b"gearman://u:p@h", b"gearman://h:99999",
        b"gearman://*", b"http://h", b"gearman://h:1?x=1", b"redis://h?password=p", b"gearmonkey://::ffff:127.0.0.1",
        b"gearmonkey://[::ffff:127.0.0.1]:0",
    ],
    "settings": [
        b"64KiB", b"1.5MiB", b"10", b"90s", b"5m", b"1.5h", b"yes", b"off", b"sqlite:/x", b"memory:", b"1_000",
        b"postgresql://u@h/d", b"gearman://h:1,wmp://h:2", b"+3", b"-1", b"250ms", b"0.1KiB",
    ],
    "durations": [
        b"90", b"1.5s", b"250ms", b"1h30m", b"2w", b"+5m", b"2030-01-31T18:00", b"2030-01-31 18:00+01:00", b"1e3",
    ],
    "numbers": [
        b"0", b"007", b"-5", b"1.5e3", b".5", b"9223372036854775807", b"9223372036854775808", b"0" * 30 + b"1",
        b"12abc",
        b"progress: 3/10", b"progress: 30.5%", b"name\x1b[31m\n", "größe\u202e".encode(), b"\xe4\xf6",
        b"redis://u:p@h?token=x",
    ],
    "task-file": [
        b"a\nb,a\n# c\nc,a,b\n", b'"x,y",a\n"say ""hi""","x,y"\n', b"a,b\nb,a", b",a", b"a\0", b"\xff,\xfe\n a , b ",
    ],
    "first-bytes": [
        b"\0REQ\0\0\0\x10\0\0\0\0", b"\0JOB\x01", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST /x HTTP/1.0\r\n",
        b"\x16\x03\x01\x02\0",
        b"\x80\x2e\x01\x00\x02", b"SSH-2.0-x\r\n", b"EHLO x\r\n", b"*1\r\n$4\r\nPING\r\n", b"INFO\r\n", b"get a\r\n",
        b"set a 0 0 1\r\n", b"stats\r\n", b"\xff\0\0\0\0\0\0\0\x01\x7f", b"AMQP\0\0\x09\x01", b"status\r\n", b"mn\r\n",
        b"\0\0\0\x08\x04\xd2\x16\x2f", b"\0\0\0\x29\0\3\0\0user", b"OPTIONS * RTSP/1.0\r\n",
        b"CONNECT h:1 HTTP/1.1\r\n",
    ],
    "job-options": [
        *OPTIONS, *(arguments for _, arguments in CONTROLS),
        b'{"after": ["H:t:1", "H:t:2"], "on_failure": ["fail", "run"], "key": "k", "retention": 5}',
        b'{"name": "\\u0000", "run_at": 1e300}', b'{"reducer": "r", "unique_seconds": 3, "unique_scope": "queued"}',
        b'{"base64": "QQ=="}', b'{"a": [[[[[1]]]]], "b": null}', b'{"timeout": -1}',
    ],
    "pingpong-codec": [framed(b"", b"READY"), framed(b"hop", b"\xff", b"", b"job"), framed()],
}  # fmt: skip


def job_rows() -> list[bytes]:
    plain = Job(1, Function(b"f"), b"u", b"payload", NORMAL, Delivery.HANDLE, 1_700_000_000_000_000)
    rich = Job(2, Function(b"f"), b"", b"", NORMAL, Delivery.WAIT, 1_700_000_000_000_000)
    rich.has_details = True
    rich.name, rich.key, rich.predecessors, rich.edges = b"n", b"k", (1,), b"\1"
    rich.origin, rich.attempts, rich.timeout_us, rich.expires_us = "gearman", 2, 5, 6
    rich.result, rich.error, rich.warnings, rich.progress_text = b"r", b"e", b"w", b"p"
    rich.moves = [1, 2, 3]
    return [row_written(job_row(job, 1)) for job in (plain, rich)]


def schedule_rows() -> list[bytes]:
    schedules = [
        Schedule(b"s", Every(60_000_000), b"f", b"payload"),
        Schedule(b"t", Cron("0 2 * * *", "Europe/Berlin"), b"f", b"", key=b"k", attempts_limit=3, timeout_us=5),
    ]
    return [row_written(schedule_row(schedule)) for schedule in schedules]


def seeds_of(target: Target) -> list[bytes]:
    """The inputs to begin with."""
    made = _MAKERS.get(target.name)
    inputs = list(made()) if made is not None else TEXTS.get(target.name, [])
    return [data[: 2 * target.longest_bytes] for data in dict.fromkeys(inputs)]


def each_stream(conversations: Sequence[Sequence[Said]], *what: str) -> Iterator[bytes]:
    for conversation in conversations:
        for kind in what:
            yield from streams(conversation, kind)


def each_script(conversations: Sequence[Sequence[Said]]) -> Iterator[bytes]:
    return chain.from_iterable(map(scripts, conversations))


def each_message(conversations: Sequence[Sequence[Said]], *what: str) -> Iterator[bytes]:
    return (data for conversation in conversations for _, kind, data in conversation if kind in what)


_MAKERS: Final[dict[str, Callable[[], Iterator[bytes] | list[bytes]]]] = {
    "gearman-codec": lambda: each_stream([*GEARMAN, *EXTRA_GEARMAN], "SEND", "hear"),
    "gearman-session": lambda: each_script([*GEARMAN, *EXTRA_GEARMAN]),
    "gearman-client": lambda: [*APP_HEARS, *each_stream(GEARMAN, "hear")],
    "gearman-worker": lambda: [*WORKER_HEARS, *each_stream(GEARMAN, "hear")],
    "draft-codec": lambda: each_stream(DRAFT, "SEND", "hear"),
    "draft-session": lambda: each_script(DRAFT),
    "draft-client": lambda: each_stream(DRAFT, "hear"),
    "resp-codec": lambda: each_stream(MONKEY, "SEND"),
    "gearmonkey-session": lambda: each_script(MONKEY),
    "gearmonkey-client": lambda: each_stream(MONKEY, "hear"),
    "dwork-codec": lambda: each_message(DWORK, "SEND", "hear"),
    "dwork-session": lambda: chain.from_iterable(scripts(in_envelopes(each)) for each in DWORK),
    "dwork-client": lambda: DWORK_HEARS,
    "wmp-codec": lambda: each_message(WMP, "SEND"),
    "wmp-device": lambda: [
        *(framed(data) for data in each_message(WMP, "SEND")),
        *manager_hears(),
        *(framed(*(part.body for part in FRAMES.cut(data))) for data in manager_hears()),
    ],
    "wmp-session": lambda: chain.from_iterable(map(wmp_scripts, WMP)),
    "wmp-client": manager_hears,
    "pingpong-session": lambda: PINGPONG,
    "pingpong-client": lambda: PINGPONG_HEARS,
    "http-codec": http_streams,
    "http-long-line": long_line_seeds,
    "http-client": lambda: list(CLIENT_ANSWERS),
    "http-session": lambda: chain.from_iterable(map(scripts, http_scripts())),
    "gearman-access": lambda: guarded([*GEARMAN, *EXTRA_GEARMAN], gearman_greeting),
    "gearmonkey-access": lambda: guarded(MONKEY, resp_greeting),
    "http-access": lambda: chain.from_iterable(map(scripts, http_access_scripts())),
    "gearmand-http-session": lambda: chain.from_iterable(map(scripts, gearmand_http_scripts())),
    "zmtp-codec": frame_streams,
    "zmtp-peer": peer_streams,
    "zmtp-curve": curve_scripts,
    "zmtp-session": lambda: zmtp_scripts(DWORK),
    "mixed-session": lambda: chain.from_iterable(map(mixed, zip(GEARMAN, MONKEY, DWORK, WMP))),
    "job-rows": job_rows,
    "schedule-rows": schedule_rows,
    "payload-envelope": envelope_seeds,
    "access-file": access_seeds,
    "owners-link": link_seeds,
    "cluster-commands": cluster_seeds,
}


def guarded(conversations: Sequence[Sequence[Said]], greet: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Conversations of peers that identify themselves as an administrator; and some as others, or as nobody."""
    for number, conversation in enumerate(conversations):
        yield from identified(conversation, greet(TOKENS[Role.ADMIN]))
        others = [b"", greet(b"wrong"), *(greet(token) for token in TOKENS.values())]
        yield from identified(conversation, others[number % len(others)])


def identified(conversation: Sequence[Said], greeting: bytes) -> Iterator[bytes]:
    """What peers say, each with a greeting at first."""
    greeted: set[str] = set()
    said: list[Said] = []
    for who, what, data in conversation:
        if what == "SEND" and who not in greeted:
            greeted.add(who)
            data = greeting + data
        said.append((who, what, data))
    return scripts(said)


def gearman_greeting(token: bytes) -> bytes:
    return request(Packet.AUTHENTICATE, token)


def resp_greeting(token: bytes) -> bytes:
    """Half of them by AUTH, and half by HELLO."""
    words = [b"AUTH", token] if len(token) % 2 else [b"HELLO", b"2", b"AUTH", b"default", token]
    return array([bulk(word) for word in words])


def mixed(conversations: tuple[Sequence[Said], ...]) -> Iterator[bytes]:
    """One conversation of each protocol at the same time."""
    steps: list[bytes] = []
    longest = max(map(len, conversations))
    for place in range(longest):
        for peer, conversation in enumerate(conversations):
            if place < len(conversation):
                who, what, data = conversation[place]
                if what == "SEND" and who != "submitter":
                    steps.append(step(Action.SEND, peer, framed(b"", data) if peer == 2 else data))
                elif what == "SEND":
                    steps.append(step(Action.SEND, 0, data))
                elif what == "pass":
                    steps.append(pause(data))
    for mode in (0, KEEPS, LITTLE_MEMORY):
        yield written_script(steps, mode)
