"""Targets: whole conversations of several peers with a server, in each protocol and in all of them at once.

What must hold, whatever peers send: no exception comes out of a session; the engine's tables agree with each other and
with what it counts as held in memory; what is held and what is said stays within bounds; a stream that comes in pieces
is answered like one that comes whole; and every answer is a whole message of its protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

from tests.support.resp_wire import split_replies

from fuzz.access import TOKENS
from fuzz.grammar import (
    DRAFT_PACKETS,
    FRAMES,
    GEARMAN_PACKETS,
    LINES,
    MSGPACK_MAP,
    NUL_FIELDS,
    PROTOBUF,
    RESP_COMMANDS,
    RESP_WORDS,
    STEPS,
    ZMTP_FRAMES,
    Level,
    Part,
)
from fuzz.http_targets import HTTP_WORDS, check_http
from fuzz.message_codecs import DWORK_WORDS, WMP_WORDS
from fuzz.script import PEERS, Heard, Played, Script, play
from fuzz.stream_codecs import GEARMAN_WORDS, RESP_TOKENS
from fuzz.target import Target, must
from fuzz.zmtp_targets import ZMTP_WORDS
from switchgear.protocols.dwork.codec import decode_reply
from switchgear.protocols.gearman.codec import FOREIGN_MAGIC, RESPONSE, GearmanDecoder
from switchgear.protocols.gearman_draft.codec import DraftDecoder
from switchgear.protocols.wmp.codec import decode as decode_wmp
from switchgear.protocols.zmtp.codec import COMMAND, MORE, Frame, FrameDecoder
from switchgear.verbs.access import Role

__all__ = ["SESSIONS"]

LARGEST_ANSWER_BYTES: Final = 2**31
# The answers to these tell how much of unfinished messages is held; or they are HTTP requests that wait, and one behind
# them is handled in a later turn, before or after what others send meanwhile.
DEPENDS_ON_PIECES: Final = (b"server\0", b"/v1/server", b"wait=", b"/events")


class ScriptSteps:
    """The steps of a script; the mode goes with the first of them, as a raw part."""

    def cut(self, data: bytes) -> list[Part]:
        return [Part(b"", data[:1], True), *STEPS.cut(data[1:])]

    def join(self, parts: Any) -> bytes:
        mode = parts[0].body[:1] if parts and parts[0].is_raw else b"\0"
        return (mode or b"\0") + STEPS.join([part for part in parts if not part.is_raw])


SCRIPT: Final = ScriptSteps()


def run_script(places: tuple[str, ...], data: bytes) -> Hashable:
    """Play an input in one piece and, where it makes no difference, in many."""
    script = Script.read(data)
    played = play(script, places, in_pieces=False)
    heard, counts = played.heard, played.counts
    for place, each in zip(places, heard):
        READABLE[place](each)
    if all(place.endswith("/access") for place in places):
        check_access(script, played)
    if script.is_the_same_in_pieces and not played.has_been_due and not any(word in data for word in DEPENDS_ON_PIECES):
        others = play(script, places, in_pieces=True)
        is_alike = comparable(places, heard) == comparable(places, others.heard)
        must(is_alike or is_cut_short(places, played), "in pieces, something else is answered", heard, others.heard)
    return tuple((name, min(count, 3)) for name, count in sorted(counts.items())), sum(map(len, heard))


def check_access(script: Script, played: Played) -> None:
    """Without the token of somebody who may, nobody has submitted a job or declared a schedule."""
    sent = [b"".join(step.data for step in script.steps if step.peer == peer) for peer in range(PEERS)]
    given = {role for role, token in TOKENS.items() if any(token in data for data in sent)}
    if not given & {Role.OPERATE, Role.WORK, Role.ADMIN}:
        must(not played.schedules, "a schedule of somebody who may not", given)
        if Role.SUBMIT not in given:
            must(not played.jobs, "a job of somebody who may not", given, played.functions)
        must(played.functions <= {b"f"}, "a job of a function that its submitter may not use", played.functions)


def is_cut_short(places: tuple[str, ...], played: Played) -> bool:
    """Whether answers may be missing: whoever breaks ZMTP is hung up on at once, and is not told what becomes of the
    messages that came in one piece with the mistake."""
    return played.has_hung_up and "zmtp" in places


def comparable(places: tuple[str, ...], heard: Heard) -> list[Any]:
    """What peers have heard, without the order that does not matter: in ZMTP a PONG may pass messages.  Nor do cookies,
    which are random."""
    return [
        [sorted(zmtp_frames(data) or [], key=lambda frame: frame[0] & COMMAND) for data in each]
        if place == "zmtp"
        else [COOKIE.sub(b"", data) for data in each]
        if place == "http/access"
        else each
        for place, each in zip(places, heard)
    ]


# --- every answer is a whole message ---


def check_gearman(connections: list[bytes]) -> None:
    for data in connections:
        decoder: Any = GearmanDecoder(RESPONSE, LARGEST_ANSWER_BYTES, LARGEST_ANSWER_BYTES)
        if data.startswith(b"\0JOB"):
            decoder = DraftDecoder(LARGEST_ANSWER_BYTES)
        elif data.startswith((b"\x15\x03", b"HTTP/", b"-ERR", b"554 ", b"CLIENT_ERROR")):
            continue  # a refusal in another protocol's words
        messages = decoder.feed(data)
        must(decoder.failure is None and not decoder.buffered_bytes, "half an answer", data[-200:])
        must(all(kind != FOREIGN_MAGIC for kind, _ in messages), "a request as an answer", data[:200])


def check_gearmonkey(connections: list[bytes]) -> None:
    for data in connections:
        if not data.startswith((b"\x15\x03", b"HTTP/", b"554 ", b"\0")):
            split_replies(data)


def check_dwork(messages: list[list[bytes]]) -> None:
    for message in messages:
        must(len(message) >= 2 and message[-2] == b"", "an answer without an envelope", message)
        decode_reply(message[-1])


def check_wmp(messages: list[list[bytes]]) -> None:
    for message in messages:
        decode_wmp(message)


def check_frames(messages: list[list[bytes]]) -> None:
    for message in messages:
        must(b"" in message, "an answer without a delimiter", message)


ZMTP_START: Final = b"\xff\0\0\0\0\0\0\0\1\x7f\3"


def zmtp_frames(data: bytes) -> list[Frame] | None:
    """The frames that follow the server's greeting; None if it has refused another protocol in the words of that."""
    if data.startswith(ZMTP_START):
        frames = data[64:] if data[11:12] == b"\1" else data[12:]  # of 3.x, or of older versions
        is_version_1 = data[11:13] == b"\6\1"
    elif data.startswith(b"\1\0"):
        frames, is_version_1 = data, True
    else:
        return None
    decoder = FrameDecoder(LARGEST_ANSWER_BYTES, is_version_1=is_version_1)
    found = decoder.feed(frames)
    while decoder.has_more:
        found += decoder.feed(b"")
    must(decoder.failure is None and not decoder.buffered_bytes, "half an answer", data[-200:])
    return found


def check_zmtp(connections: list[bytes]) -> None:
    for data in connections:
        frames = zmtp_frames(data) or []
        bodies = [frame for frame in frames if not frame[0] & COMMAND]
        must(not bodies or not bodies[-1][0] & MORE, "half a message", data[-200:])


COOKIE: Final = re.compile(rb"switchgear_session(_[0-9a-f]*)?=[A-Za-z0-9_-]*")

READABLE: Final[dict[str, Callable[[list[Any]], None]]] = {
    "gearman": check_gearman,
    "gearmonkey": check_gearmonkey,
    "dwork": check_dwork,
    "wmp": check_wmp,
    "zmtp": check_zmtp,
    "http": check_http,
    "gearmand-http": check_http,
    "gearman/access": check_gearman,
    "gearmonkey/access": check_gearmonkey,
    "http/access": check_http,
    "pingpong/clients": check_frames,
    "pingpong/workers": check_frames,
}

HANDLES: Final = tuple(b"H:t:%d" % number for number in (1, 2, 3, 99999))
GEARMAN_SESSION_WORDS: Final = (
    *GEARMAN_WORDS, *HANDLES, b"f", b"g", b"switchgear", b"exceptions", b"prioritystatus\n", b"show jobs\n",
    b"show unique jobs\n", b"cancel job H:t:1\n", b"maxqueue f 1\n", b"drop function f\n", b"create function f\n",
    b'{"wait": true}', b'{"watch": true}', b'{"after": ["H:t:1"]}', b'"on_failure": "fail"',
    b'"unique_policy": "replace"',
    b'{"handle": "H:t:1"}', b'{"function": "f"}', b'{"limit": 3}', b"jobs", b"cancel", b"retry", b"pause", b"resume",
    b"limit", b"schedule", b"unschedule", b"run_schedule", b"explain", b"states", b"server",
    b'{"name": "s", "function": "f", "every_seconds": 60}', b'{"name": "s", "function": "f", "cron": "* * * * *"}',
    b'{"function": "f", "concurrency": 1}', b'{"function": "f", "rate": 1, "period_seconds": 1}', b"\0\0\x03\xe8",
    b"\0\0\x03\xfc",
)  # fmt: skip
RESP_SESSION_WORDS: Final = (
    *RESP_TOKENS, b"uid:f", b"count:f", b"job:f:1", b"queue:f:high", b"queue:f:normal", b"queue:f:scheduled",
    b"lock:f:1",
    b"channel:f", b"channel:*", b"INCR", b"HMSET", b"HSET", b"HGETALL", b"LPUSH", b"BRPOP", b"ZADD", b"EVALSHA",
    b"PUBLISH",
    b"SUBSCRIBE", b"PSUBSCRIBE", b"UNSUBSCRIBE", b"MULTI", b"EXEC", b"DISCARD", b"HELLO", b"3", b"EXPIRE", b"DEL",
    b"TTL",
    b"CLIENT", b"RESET", b"QUIT", b"status", b"idle", b"busy", b"success", b"error", b"input", b"output", b"1", b"0",
    b"status:dividend", b"LLEN", b"EXISTS", b"WATCH", b"PING", b"INFO", b"SCRIPT", b"LOAD", b"0.1", b"-1",
)  # fmt: skip
HTTP_SESSION_WORDS: Final = (
    *HTTP_WORDS, b"/v1/jobs", b"/v1/jobs/1", b"/v1/jobs/batch?atomic=1", b"/v1/functions/f/jobs",
    b"/v1/functions/f/take?wait=3&lease=5", b"/result", b"/fail", b"/progress", b"/release", b"/events", b"/graph",
    b"/attempts", b"/explain", b"/payload", b"/retry", b"?wait=2", b"?contents=1", b"/v1/workers", b"/v1/functions",
    b"/v1/bulk", b'{"action": "cancel", "filter": {"function": "f"}}',
    b"/v1/schedules/s", b"/v1/schedules/s/run", b"/livez", b"/v1/session",
    b"Authorization: Bearer t\r\n", b"Cookie: switchgear_session=c\r\n",
    b"/v1/events?topics=overview,functions,stream,job:1", b"Last-Event-ID: 1\r\n", b"/v1/series?step=60",
    b"/v1/stream?cursor=0",
    b"/v1/graph?function=f", b"/v1/errors", b"/v1/at?t=1", b"Switchgear-Attempt: 1\r\n", b"Prefer: wait=2\r\n",
    b"Idempotency-Key: k\r\n", b'{"function": "f"}', b'{"functions": ["f"], "lease": 3}', b'"after": ["H:t:1"]',
    b'"unique": "u"', b'{"function": "f", "every_seconds": 60}', b'{"paused": true}', b'{"error": "x", "retry_in": 1}',
)  # fmt: skip
GEARMAND_HTTP_WORDS: Final = (
    *HTTP_WORDS, b"/f", b"//", b"X-Gearman-Background: true\r\n", b"X-Gearman-Unique: u\r\n",
    b"X-Gearman-Unique: -\r\n", b"X-Gearman-Priority: high\r\n", b"Origin: http://x\r\n", b"TRACE ", *HANDLES,
)  # fmt: skip
TOKEN_WORDS: Final = tuple(TOKENS.values())
HTTP_ACCESS_WORDS: Final = (
    *HTTP_SESSION_WORDS, *(b"Authorization: Bearer %b\r\n" % token for token in TOKEN_WORDS), b"Authorization: ",
    b"Bearer ", b"Basic ", b"Origin: http://localhost\r\n", b"Sec-Fetch-Site: same-origin\r\n", b'{"password": 1}',
)  # fmt: skip
PINGPONG_WORDS: Final = (b"READY", b"PING", b"PONG", b"LEAVE", b"FAILED", b"", b"job", b"result")


def session(
    name: str, places: tuple[str, ...], covers: tuple[str, ...], levels: tuple[Level, ...], words: Any
) -> Target:
    return Target(name, partial(run_script, places), covers, (SCRIPT, *levels), words)


def modules(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"protocols.{folder}.{name}" for name in names.split())


GEARMAN_MODULES: Final = modules(
    "gearman",
    "session packet_dispatch client_packets worker_packets watch_and_credit submit_and_control admin job_packets codec"
    " packet_access messages graph_packets",
)
DRAFT_MODULES: Final = modules("gearman_draft", "session open_requests codec messages")
MONKEY_MODULES: Final = modules(
    "gearmonkey",
    "session command_lookup command_table general_commands hashes key_commands pubsub queues subscriptions"
    " blocked_connection lock_lists drafts listener_state messages keys monitoring patterns resp",
)
DWORK_MODULES: Final = modules(
    "dwork",
    "session session_base create_requests worker_requests listing long_requests known_workers request_rules",
)
HTTP_MODULES: Final = modules(
    "http",
    "session identity routing routes.jobs routes.workers routes.operators routes.submission browser_guard"
    " bulk submitting batch_requests job_requests work_requests workers http_wait"
    " operator_requests server_requests wait_requests statistics_requests job_events dashboard_pages schemas"
    " held_answers long_answers verb_answers problems codec messages",
)
WMP_MODULES: Final = modules("wmp", "manager worker_paths codec")

SESSIONS: Final = (
    session(
        "gearman-session",
        ("gearman",) * 4,
        (
            *GEARMAN_MODULES,
            "protocols.session",
            "protocols.framing",
            "protocols.option_reading",
            "net.connections.tcp_listener",
            "net.connections.tcp_connection",
            "net.connections.protocol_detection",
            "net.hub",
        ),
        (GEARMAN_PACKETS, NUL_FIELDS),
        GEARMAN_SESSION_WORDS,
    ),
    session(
        "draft-session",
        ("gearman",) * 4,
        (*DRAFT_MODULES, "protocols.session", "net.connections.protocol_detection"),
        (DRAFT_PACKETS, NUL_FIELDS),
        (b"\0JOB", *HANDLES, b"f", b"mail", b"\0\0\0", b"\0\0\x01", b"\0\0\x02"),
    ),
    session(
        "gearmonkey-session",
        ("gearmonkey",) * 4,
        MONKEY_MODULES,
        (RESP_COMMANDS, RESP_WORDS),
        RESP_SESSION_WORDS,
    ),
    session(
        "gearman-access",
        ("gearman/access",) * 4,
        ("protocols.gearman.packet_access", "protocols.session"),
        (GEARMAN_PACKETS, NUL_FIELDS),
        (*GEARMAN_SESSION_WORDS, *TOKEN_WORDS, b"admin", b"anonymous"),
    ),
    session(
        "gearmonkey-access",
        ("gearmonkey/access",) * 4,
        ("protocols.gearmonkey.command_access", "protocols.gearmonkey.general_commands"),
        (RESP_COMMANDS, RESP_WORDS),
        (*RESP_SESSION_WORDS, *TOKEN_WORDS, b"AUTH", b"default", b"admin", b"SETNAME"),
    ),
    session(
        "http-access",
        ("http/access",) * 4,
        ("protocols.http.identity", "protocols.http.redaction"),
        (LINES,),
        HTTP_ACCESS_WORDS,
    ),
    session("http-session", ("http", "http", "http", "gearman"), HTTP_MODULES, (LINES,), HTTP_SESSION_WORDS),
    session(
        "gearmand-http-session",
        ("gearmand-http", "gearmand-http", "gearman", "gearman"),
        (*modules("http", "gearmand_session"), "protocols.submitted_unique_key"),
        (LINES,),
        GEARMAND_HTTP_WORDS,
    ),
    session(
        "dwork-session",
        ("dwork", "dwork", "dwork", "gearman"),
        (*DWORK_MODULES, "protocols.message_session"),
        (FRAMES, PROTOBUF, PROTOBUF, PROTOBUF),
        DWORK_WORDS,
    ),
    session(
        "wmp-session",
        ("wmp", "wmp", "wmp", "gearman"),
        WMP_MODULES,
        (FRAMES, MSGPACK_MAP),
        WMP_WORDS,
    ),
    session(
        "pingpong-session",
        ("pingpong/clients", "pingpong/workers", "pingpong/workers", "gearman"),
        modules("pingpong", "broker messages"),
        (FRAMES,),
        PINGPONG_WORDS,
    ),
    session(
        "zmtp-session",
        ("zmtp", "zmtp", "zmtp", "gearman"),
        ("net.connections.zmtp_listener", *modules("zmtp", "server_protocol codec mechanism metadata")),
        (ZMTP_FRAMES, PROTOBUF, PROTOBUF),
        (*ZMTP_WORDS, *DWORK_WORDS),
    ),
    session(
        "mixed-session",
        ("gearman", "gearmonkey", "dwork", "wmp"),
        (),
        (GEARMAN_PACKETS, NUL_FIELDS),
        (*GEARMAN_SESSION_WORDS, *RESP_SESSION_WORDS),
    ),
)
