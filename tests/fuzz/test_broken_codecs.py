"""Each target notices a defect: with a reader that is broken on purpose, some input of its corpus fails, or one that is
soon made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fuzz.client_targets
import fuzz.document_targets
import fuzz.http_client_target
import fuzz.http_targets
import fuzz.long_line_target
import fuzz.message_codecs
import fuzz.pattern_targets
import fuzz.row_targets
import fuzz.server
import fuzz.stream_codecs
import fuzz.text_targets
import fuzz.zmtp_targets
from fuzz import runner
from fuzz.runner import Failure
from fuzz.targets import TARGETS
from switchgear.access.identities import OPEN_ACCESS

Break = Callable[[Any], Any]


class Deaf:
    """A decoder that does not see the second of two bytes that come together."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def feed(self, data: bytes) -> Any:
        return self._decoder.feed(self._heard(data))

    def receive(self, data: bytes) -> Any:
        return self._decoder.receive(self._heard(data))

    def _heard(self, data: bytes) -> bytes:
        return data[:1] if len(data) == 2 else data


class Module:
    """A module in which one name means something else."""

    def __init__(self, module: Any, **changed: Any) -> None:
        self._module = module
        self.__dict__.update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def deaf(make: Any) -> Any:
    return lambda *arguments, **named: Deaf(make(*arguments, **named))


def deaf_decoder(name: str) -> Break:
    """The codec with a decoder that does not hear everything."""
    return lambda module: Module(module, **{name: deaf(getattr(module, name))})


def without_last(function: Any) -> Any:
    """A reader that does not see the last byte."""
    return lambda data, *rest: function(data[:-1], *rest)


def raises(error: Exception) -> Break:
    """A reader that raises what it must not, for inputs of some length."""

    def broken(function: Any) -> Any:
        def read(*arguments: Any) -> Any:
            raise error

        return read

    return broken


def other_answer(function: Any) -> Any:
    """A predicate that is wrong."""
    return lambda *arguments: not function(*arguments)


class OppositePattern:
    """A pattern that fits what it should not."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pattern, name)

    def matches(self, name: bytes) -> bool:
        return not self._pattern.matches(name)


class Forgetful:
    """A session's owner that does not pass on what comes as a piece of one byte."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def data_received(self, data: bytes) -> None:
        if len(data) > 1:
            self._connection.data_received(data)


def forgetful_connection(make: Any) -> Any:
    return lambda door: Forgetful(make(door))


def strict_check(check: Any) -> Any:
    """An engine in which two jobs are one too many."""

    def broken(engine: Any, unstored: Any) -> None:
        check(engine, unstored)
        assert engine.next_job_id < 3, "a second job"

    return broken


def no_guard(make: Any) -> Any:
    """A server that lets everybody do everything in spite of its access file."""
    return lambda: OPEN_ACCESS


MESSAGES = fuzz.message_codecs
STREAMS = fuzz.stream_codecs
TEXTS = fuzz.text_targets
CLIENTS = fuzz.client_targets
DOCUMENTS = fuzz.document_targets

# By target: a name in the module of the target, and what to put in its place.
BREAKS: dict[str, tuple[Any, str, Break]] = {
    "gearman-codec": (STREAMS, "gearman", deaf_decoder("GearmanDecoder")),
    "draft-codec": (STREAMS, "draft", deaf_decoder("DraftDecoder")),
    "resp-codec": (STREAMS, "resp", deaf_decoder("RespDecoder")),
    "resp-line": (STREAMS, "resp", lambda module: Module(module, split_line=without_last(module.split_line))),
    "resp-reply": (STREAMS, "resp", lambda module: Module(module, bulk=without_last(module.bulk))),
    "http-codec": (fuzz.http_targets, "RequestDecoder", deaf),
    "dwork-codec": (MESSAGES, "understood", without_last),
    "wmp-codec": (MESSAGES, "wmp", lambda module: Module(module, decode=raises(KeyError("to"))(module.decode))),
    "wmp-device": (MESSAGES, "Device", lambda make: lambda identity, managers: make(identity, managers + 1)),
    "pingpong-codec": (MESSAGES, "printable", lambda function: lambda name: name + b"\n"),
    "zmtp-codec": (fuzz.zmtp_targets, "codec", lambda module: Module(module, FrameDecoder=deaf(module.FrameDecoder))),
    "zmtp-peer": (fuzz.zmtp_targets, "ZmtpProtocol", deaf),
    "zmtp-curve": (fuzz.zmtp_targets, "ZmtpProtocol", deaf),
    "gearmonkey-patterns": (
        fuzz.pattern_targets,
        "patterns",
        lambda module: Module(module, Pattern=lambda text: OppositePattern(module.Pattern(text))),
    ),
    "gearmonkey-keys": (fuzz.pattern_targets, "parse_key", raises(IndexError("out of range"))),
    "timetable": (TEXTS, "timetable_from_spec", raises(OverflowError("too large"))),
    "listen-url": (TEXTS, "ServerAddress", lambda kind: Module(kind, parse=raises(KeyError("port"))(kind.parse))),
    "settings": (TEXTS, "KINDS", lambda kinds: [Module(kinds[0], read_text=raises(OverflowError("size"))(None))]),
    "durations": (
        TEXTS,
        "units",
        lambda module: Module(module, parse_duration=lambda text: -module.parse_duration(text) - 1),
    ),
    "numbers": (TEXTS, "whole_number", lambda function: lambda text: (function(text) or 0) + 1),
    "job-options": (TEXTS, "parsed", raises(UnicodeDecodeError("utf-8", b"", 0, 1, "bad"))),
    "task-file": (TEXTS, "line_of", lambda function: lambda task, others: function(task + "x", others)),
    "first-bytes": (TEXTS, "looks_like_http", other_answer),
    "job-rows": (fuzz.row_targets, "job_from_row", raises(AttributeError("None"))),
    "schedule-rows": (fuzz.row_targets, "schedule_from_row", raises(AttributeError("None"))),
    "payload-envelope": (DOCUMENTS, "COMPRESSING", lambda codec: Module(codec, unwrap=raises(KeyError("k"))(None))),
    "access-file": (DOCUMENTS, "read_access_file", raises(AttributeError("roles"))),
    "owners-link": (DOCUMENTS, "messages_in", raises(KeyError("tag"))),
    "cluster-commands": (DOCUMENTS, "answer_of_cluster", raises(KeyError("node"))),
    "gearman-client": (CLIENTS, "status_of", raises(KeyError(1))),
    "gearman-worker": (
        CLIENTS,
        "WorkerProtocol",
        lambda make: lambda given: Module(make(given), receive=raises(KeyError("name"))(None)),
    ),
    "draft-client": (
        CLIENTS,
        "DraftRequest",
        lambda make: lambda *given: Module(make(*given), answer=raises(ValueError("x"))(None)),
    ),
    "dwork-client": (CLIENTS, "outcome", raises(IndexError("list"))),
    "wmp-client": (CLIENTS, "WmpResult", lambda make: raises(ValueError("too large"))(make)),
    "pingpong-client": (
        CLIENTS,
        "PingPongWorkerProtocol",
        lambda make: lambda: Module(make(), finished=raises(KeyError(1))(None)),
    ),
    "gearmonkey-client": (CLIENTS, "client_commands", lambda module: Module(module, get=raises(KeyError(b""))(None))),
    "http-long-line": (fuzz.long_line_target, "in_steps", lambda read: lambda line: read(line)[:1000]),
    "http-client": (fuzz.http_client_target, "heard", lambda hear: lambda data: hear(list(data)[:3])),
    "gearman-session": (fuzz.server, "Connection", forgetful_connection),
    "draft-session": (fuzz.server, "Connection", forgetful_connection),
    "gearmonkey-session": (fuzz.server, "Connection", forgetful_connection),
    "http-session": (fuzz.server, "Connection", forgetful_connection),
    "gearmand-http-session": (fuzz.server, "Connection", forgetful_connection),
    "gearman-access": (fuzz.server, "guarded_access", no_guard),
    "gearmonkey-access": (fuzz.server, "guarded_access", no_guard),
    "http-access": (fuzz.server, "guarded_access", no_guard),
    "dwork-session": (fuzz.server, "check_engine", strict_check),
    "wmp-session": (fuzz.server, "check_engine", strict_check),
    "pingpong-session": (fuzz.server, "check_engine", strict_check),
    "zmtp-session": (fuzz.server, "Connection", forgetful_connection),
    "mixed-session": (fuzz.server, "Connection", forgetful_connection),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_broken_reader_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module, attribute, change = BREAKS[name]
    monkeypatch.setattr(runner, "FAILURES", tmp_path)
    monkeypatch.setattr(runner, "SHORTENING_SECONDS", 0.0)
    monkeypatch.setattr(module, attribute, change(getattr(module, attribute)))
    with pytest.raises(Failure):
        runner.fuzz(TARGETS[name], 5.0, 0, seed=1)
