"""Targets: texts: timetables, addresses, durations, sizes, JSON, numbers, and the first bytes of a connection."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from fuzz.grammar import LINES, NUL_FIELDS, WORDS
from fuzz.target import Target, must
from switchgear import units
from switchgear.client.address import ServerAddress
from switchgear.client.dwork.taskfile import in_order, line_of, parse_task_lines
from switchgear.client.gearman.shell_handler import parse_progress
from switchgear.config.listen import ListenUrl
from switchgear.config.setting_types import (
    JobLogUrl,
    ListenUrls,
    Seconds,
    SettingType,
    Size,
    StoreUrl,
    Switch,
    WholeNumber,
)
from switchgear.errors import ConfigError, CycleRefused, OptionError, PeerError
from switchgear.job_options import OptionKind
from switchgear.net.connections.foreign_protocols import (
    DRAFT,
    GEARMAN,
    foreign_protocol,
    foreign_refusal,
    looks_like_http,
)
from switchgear.numbers import LARGEST, leading_number, real_number, signed_number, whole_number
from switchgear.protocols.gearman.job_options import JobOptions, given_options
from switchgear.protocols.gearman.submit_and_control import parsed
from switchgear.protocols.gearman_draft.codec import MAGIC
from switchgear.protocols.option_reading import OPTION_OF_FIELD
from switchgear.protocols.session_factory import ProtocolByPrefix, ProtocolDetector
from switchgear.text import escaped_name, harmless, printable, without_secrets
from switchgear.timetable import timetable_from_spec

__all__ = ["TEXTS"]

NOW_US: Final = 1_700_000_000_000_000
YEAR_US: Final = 366 * 86_400 * 1_000_000
DAY_US: Final = 86_400 * 1_000_000


def text_of(data: bytes) -> str:
    """What is given on a command line, or in the environment: bytes that are no text come as surrogates."""
    return data.decode("utf-8", "surrogateescape")


# --- timetables ---


def run_timetable(data: bytes) -> Hashable:
    """A timetable that is accepted has moments in order, and the same after a restart."""
    spec, _, zone = text_of(data).partition("\0")
    try:
        timetable = timetable_from_spec(spec, zone)
    except ConfigError as error:
        return str(error)[-40:]
    again = timetable_from_spec(timetable.spec, timetable.timezone)
    moments: list[int] = []
    at_us = NOW_US
    for _ in range(4):
        next_us = timetable.next_after_us(at_us)
        must(next_us == again.next_after_us(at_us), "another moment after a restart", spec, next_us)
        if next_us is None:
            break
        must(next_us > at_us, "a moment that is over", spec, next_us)
        moments.append(next_us)
        at_us = next_us
    if moments and moments[-1] - NOW_US < DAY_US:
        found = timetable.last_between_us(NOW_US, moments[-1], 10)
        must(found == moments, "other moments between these", spec, found, moments)
    return len(moments), timetable.timezone == "UTC"


# --- addresses, durations, sizes ---

KINDS: Final[tuple[SettingType, ...]] = (
    Size(0),
    Seconds(0),
    Seconds(0, 86_400, whole=True),
    WholeNumber(0),
    Switch(),
    StoreUrl(),
    JobLogUrl(),
    ListenUrls(),
)


def run_listen(data: bytes) -> Hashable:
    """An address that is accepted is written and read again as the same."""
    text = text_of(data)
    kinds: list[str] = []
    try:
        url = ListenUrl.parse(text)
        must(0 <= url.port <= 65_535, "a port that does not exist", url)
        must(isinstance(url.is_loopback, bool), "neither here nor there")
        for name in url.options:
            url.option(name)
        kinds.append(url.scheme)
    except ValueError as error:
        must(not isinstance(error, UnicodeError), "an error of the codec gets out", error)
        kinds.append(str(error)[-20:])
    try:
        address = ServerAddress.parse(text)
        must(ServerAddress.parse(str(address)) == address, "an address does not survive", address)
        kinds.append("six" if address.is_six else "four")
    except ConfigError as error:
        kinds.append(str(error)[-20:])
    return tuple(kinds)


def run_settings(data: bytes) -> Hashable:
    """Values of settings: read, or refused with ValueError; what is read is written and read again as the same."""
    text = text_of(data)
    kinds = []
    for kind in KINDS:
        try:
            value = kind.read_text(text)
        except ValueError as error:
            must(not isinstance(error, UnicodeError), "an error of the codec gets out", error)
            kinds.append("")
            continue
        must(isinstance(kind.toml(value), str), "it cannot be shown")
        kinds.append(type(value).__name__)
    return tuple(kinds)


def run_durations(data: bytes) -> Hashable:
    text = text_of(data)
    kinds: list[Hashable] = []
    for read in (units.parse_duration, lambda text: units.parse_when(text, 1_700_000_000.0)):
        try:
            seconds = read(text)
            must(0 <= seconds < 1e12, "a time out of range", seconds)
            kinds.append(seconds > 1)
        except ValueError as error:
            kinds.append(str(error)[-12:])
    return tuple(kinds)


# --- numbers and names ---


def run_numbers(data: bytes) -> Hashable:
    """Readers of decimal numbers agree with each other, and never take long."""
    number = whole_number(data)
    must(number is None or (0 <= number <= LARGEST and int(data) == number), "another number", number)
    signed = signed_number(data)
    must(signed is None or abs(signed) <= LARGEST, "a number out of range", signed)
    must(number is None or signed == number, "a sign that is not there", signed)
    real = real_number(data)
    must(real is None or abs(real) < float("inf"), "a number without end")
    must(0 <= leading_number(data) < 10**18, "too many digits")
    progress = parse_progress(data)
    must(progress is None or min(progress) >= 0, "progress below nothing")
    name = escaped_name(data)
    must(b"\n" not in name and b"\r" not in name and b"\0" not in name and b"\x1b" not in name, "a line ends", name)
    text = data.decode("utf-8", "replace")
    must(harmless(text).isprintable() and len(harmless(text)) <= 503, "a text that does harm")
    must(printable(text_of(data)).isprintable(), "a text that cannot be printed")
    without_secrets(text)
    return number is None, signed is None, real is None, progress is None, name == data


# --- JSON of the extension packets ---


def run_job_options(data: bytes) -> Hashable:
    """Options of SUBMIT_JOB_OPTIONS, and arguments of CONTROL: read, or refused with PeerError."""
    kinds: list[Hashable] = []
    try:
        given = given_options(parsed(data, JobOptions, "options"))
        for name, value in given.items():
            read = OPTION_OF_FIELD[name].read(value, name_bytes=64, called=name)
            must(OPTION_OF_FIELD[name].kind is not OptionKind.COUNT or -1 <= read <= 1_000_000, "too many attempts")
        kinds.append(tuple(given))
    except OptionError as error:
        kinds.append(error.name)
    except PeerError as error:
        kinds.append(error.code + str(error)[:12])
    try:
        arguments = parsed(data, dict[str, Any], "arguments")
        kinds.append(tuple(type(value).__name__ for value in arguments.values()))
    except PeerError as error:
        kinds.append(str(error)[:24])
    return tuple(kinds)


def run_task_file(data: bytes) -> Hashable:
    """A file of dwork tasks: read, or refused with words; what is read is written and read again as the same."""
    try:
        file = parse_task_lines(data.split(b"\n"), "tasks")
    except ConfigError as error:
        return str(error)[:16]
    lines = [line_of(task, predecessors) for task, predecessors in file.tasks.items()]
    again = parse_task_lines([line.encode(errors="surrogateescape") for line in lines], "again")
    must(again.tasks == file.tasks, "tasks do not survive", file.tasks, again.tasks)
    try:
        ordered = in_order(file.tasks)
    except CycleRefused:
        return "circle"
    must(sorted(ordered) == sorted(file.tasks), "a task is lost")
    return len(ordered), file.comments, len(list(file.unknown_predecessors()))


# --- the first bytes of a connection ---


def usual(context: Any, wire: Any) -> Any:
    raise AssertionError("not called")


def other(context: Any, wire: Any) -> Any:
    raise AssertionError("not called")


DETECTOR: Final = ProtocolDetector(usual, (ProtocolByPrefix(MAGIC, other),), "Gearman", frozenset({GEARMAN, DRAFT}))


def run_first_bytes(data: bytes) -> Hashable:
    """What a connection speaks: decided once, and whatever comes later does not change that."""
    decided: Callable[..., Any] | None = None
    for size in range(1, len(data) + 1):
        found = DETECTOR.find(data[:size])
        must(decided is None or found is decided, "another protocol after all", data[:size])
        decided = found
    must(not data or len(data) < len(MAGIC) or decided is not None, "four bytes are not enough")
    protocol = foreign_protocol(data)
    must(
        foreign_protocol(data, frozenset({protocol or ""})) != protocol or protocol is None, "own, and foreign as well"
    )
    must(not looks_like_http(data) or protocol == "HTTP", "HTTP, and something else as well", protocol)
    if protocol is not None:
        refusal = foreign_refusal(protocol, "Gearman")
        must(len(refusal) < 600, "a long refusal")
        tail = data.partition(b"\n")[1] and b"more\n"
        must(foreign_protocol(data + tail) == protocol, "another protocol after its first line")
    return protocol, decided is usual


CRON_WORDS: Final = (
    b"* * * * *", b"*/5", b"0", b"59", b"L", b"LW", b"FRI#2", b"5L", b"MON-FRI", b"JAN", b"1-5", b"@daily", b"every ",
    b" s", b"\0", b"\0Europe/Berlin", b"\0America/Sao_Paulo", b"\0Asia/Kathmandu", b"29 2", b"1,2", b"1e3", b"0.1",
    b"#",
)  # fmt: skip
URL_WORDS: Final = (
    b"gearman://", b"redis://", b"wmp://", b"dwork://", b"pingpong://", b"gearmonkey://", b"127.0.0.1", b"[::1]",
    b":4730",
    b"?", b"&", b"=", b"lease=", b"function=", b"timeout=", b"1e309", b"nan", b"-1", b"%00", b"%", b"localhost",
    b"/0", b"@",
    b"password=", b"\xff",
)  # fmt: skip
QUANTITY_WORDS: Final = (
    b"KiB", b"MiB", b"GiB", b"ms", b"s", b"m", b"h", b"d", b"w", b"+", b"-", b".", b"_", b"1e9", b"9" * 30,
    b"0.0000001",
    b"2030-01-31T18:00", b"+01:00", b"Z", b"\xd9\xa1", b"sqlite:", b"memory:", b"postgresql://", b"off",
    b"gearman://h:1",
)  # fmt: skip
JSON_WORDS: Final = (
    *(f'"{name}": '.encode() for name in OPTION_OF_FIELD),
    b'"\\ud800"', b'"\\u0000"', b"1e400", b"-1", b"NaN", b"null", b"true", b"[]", b"{}", b'["H:t:1"]', b"[" * 40, b", ",
    b'"wait"', b'"high"', b'"fail"', b'"queued"', b'"replace"', b'{"a": 1, "a": 2}', b"9" * 40,
)  # fmt: skip
OPENING_WORDS: Final = (
    b"\0REQ", b"\0RES", b"\0JOB", b"GET / HTTP/1.1\r\n", b"POST ", b"\x16\x03\x01", b"SSH-2", b"EHLO x\r\n", b"*1\r\n",
    b"AMQP", b"\xff\0\0\0\0\0\0\0\x01\x7f", b"get a\r\n", b"stats\r\n", b"PING\r\n", b" HTTP/1",
    b"\0\0\0\x08\x04\xd2\x16\x2f",
)  # fmt: skip

TEXTS: Final = (
    Target("timetable", run_timetable, ("timetable",), (NUL_FIELDS, WORDS), CRON_WORDS, 240),
    Target("listen-url", run_listen, ("config.listen", "client.address"), (), URL_WORDS, 300),
    Target("settings", run_settings, ("config.setting_types", "units"), (), QUANTITY_WORDS, 200),
    Target("durations", run_durations, ("units",), (), QUANTITY_WORDS, 100),
    Target("numbers", run_numbers, ("numbers", "text"), (), (b"-", b"+", b".", b"e9", b"0" * 20, b"\xc2\xb2"), 600),
    Target(
        "job-options",
        run_job_options,
        ("protocols.gearman.submit_and_control", "protocols.gearman.job_options"),
        (),
        JSON_WORDS,
    ),
    Target(
        "task-file",
        run_task_file,
        ("client.dwork.taskfile",),
        (LINES, WORDS),
        (b",", b'"', b'""', b"#", b"a", b"b", b"\0", b"\t"),
    ),
    Target(
        "first-bytes",
        run_first_bytes,
        ("net.connections.protocol_detection", "net.connections.foreign_protocols"),
        (LINES,),
        OPENING_WORDS,
        400,
    ),
)
