"""`SubmitRequest`: a submission before it is encoded, and its encodings for plain servers and for ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypedDict, cast

import msgspec

from switchgear.client.gearman.packets import validated_name
from switchgear.job_options import canonical_names
from switchgear.protocols.gearman.codec import request as packet_of
from switchgear.protocols.gearman.messages import Packet
from switchgear.states import PRIORITY_NAMES

__all__ = ["ExtendedOptions", "OptionsEncoder", "SubmitRequest", "encode_plain", "requested"]

# By priority, and whether the job is for the background.
_SUBMIT_PACKETS: Final = {
    ("high", False): Packet.SUBMIT_JOB_HIGH,
    ("normal", False): Packet.SUBMIT_JOB,
    ("low", False): Packet.SUBMIT_JOB_LOW,
    ("high", True): Packet.SUBMIT_JOB_HIGH_BG,
    ("normal", True): Packet.SUBMIT_JOB_BG,
    ("low", True): Packet.SUBMIT_JOB_LOW_BG,
}


class ExtendedOptions(TypedDict, total=False):
    """Options of a job that need a Switchgear server, which has defaults for those that are not given."""

    key: str  # the key that limits and fair hand-out count by
    label: str  # what people see beside the function, in listings and in the log
    crash_limit: int  # the job is dead when its worker was lost so often; 0: never
    on_failure: str | list[str]  # if a job of `after` does not succeed: wait, skip, fail or run; for all, or for each
    unique_scope: str  # until when the job holds its unique key: unfinished or queued
    unique_policy: str  # if another job holds the unique key: join, reject or replace
    unique_for: float  # how long the job holds the unique key, even beyond its end
    requires: str | list[str]  # tags and amounts that a worker needs to be given the job
    trace: str  # the traceparent of the submitter's span, which workers continue
    retention: float  # for how many seconds the job can be asked for after its end


@dataclass(slots=True)
class SubmitRequest:
    """A job to be submitted."""

    function: bytes
    payload: bytes
    unique: bytes = b""
    priority: str = "normal"
    durable: bool | None = None  # None: if the server can give back results of durable jobs
    watch: bool = True  # events of the job are wanted
    run_at: float = 0.0  # seconds since the epoch; 0: at once
    options: dict[str, Any] = field(default_factory=dict)  # of SUBMIT_JOB_OPTIONS; left out for a plain server
    needs: tuple[str, ...] = ()  # which of these a plain server does not have, in the words of the user
    # Called with the handle, or with the exception, by those who wait for the answer.
    on_outcome: Callable[[str | Exception], None] | None = None
    beside: str = ""  # the handle of a job: of several servers, the one that has it is asked

    @property
    def is_background(self) -> bool:
        """Whether a plain server gets a background job: it sends results only to submitters of foreground jobs, and
        keeps only background jobs when the submitter leaves."""
        return bool(self.durable) or not self.watch or bool(self.run_at)

    @property
    def fits_plain_packets(self) -> bool:
        """Whether packets that every Gearman server knows can carry the whole request."""
        if self.options:
            return False
        return not self.run_at or (bool(self.durable) and self.priority == "normal")


def requested(
    function: str | bytes,
    payload: bytes,
    *,
    unique: str | bytes,
    priority: str,
    background: bool,
    at: float | datetime | None,
    expires: float | datetime | None,
    timeout: float,
    attempts_limit: int | None,
    after: Iterable[str],
    name: str,
    extended: ExtendedOptions,
) -> SubmitRequest:
    """The request for the arguments of `Client.submit`; raises TypeError and ValueError."""
    extended = cast(ExtendedOptions, canonical_names(extended))
    unknown = sorted(extended.keys() - ExtendedOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"submit() got an unexpected keyword argument {unknown[0]!r}")
    if priority not in PRIORITY_NAMES:
        raise ValueError(f"priority is one of {', '.join(PRIORITY_NAMES)}, not {priority!r}")
    given = {
        "expires_at": _epoch_seconds(expires),
        "timeout": timeout,
        "after": list(after),
        "name": name,
    }
    options: dict[str, Any] = {key: value for key, value in given.items() if value}
    if attempts_limit is not None:  # 0 means any number
        options["attempts_limit"] = attempts_limit
    return SubmitRequest(
        validated_name(function, "function"),
        payload,
        validated_name(unique, "unique"),
        priority,
        durable=background,
        watch=not background,
        run_at=_epoch_seconds(at),
        options=options | extended,
    )


def encode_plain(request: SubmitRequest) -> bytes:
    """The packet for a server that knows only plain Gearman; `SubmitRequest.options` are left out."""
    if not request.run_at:
        kind = _SUBMIT_PACKETS[request.priority, request.is_background]
        return packet_of(kind, request.function, request.unique, request.payload)
    # Whole seconds are all this packet can say; a little late is better than early.
    moment = b"%d" % math.ceil(request.run_at)
    return packet_of(Packet.SUBMIT_JOB_EPOCH, request.function, request.unique, moment, request.payload)


class OptionsEncoder:
    """Encodes requests for a server of ours.

    Requests of many jobs share one `options` object, and its JSON is encoded once.
    """

    def __init__(self) -> None:
        self._last: tuple[dict[str, Any], str, bool | None, bool] | None = None
        self._last_json = b""

    def encode(self, request: SubmitRequest) -> bytes:
        """The SUBMIT_JOB_OPTIONS packet."""
        text = self._last_json
        last = self._last
        if (
            last is None
            or request.options is not last[0]
            or request.run_at
            or request.priority != last[1]
            or request.durable is not last[2]
            or request.watch is not last[3]
        ):
            text = self._options_json(request)
        return packet_of(Packet.SUBMIT_JOB_OPTIONS, request.function, request.unique, text, request.payload)

    def _options_json(self, request: SubmitRequest) -> bytes:
        options = {**request.options, "priority": request.priority}
        if request.run_at:
            options["run_at"] = request.run_at
        if request.durable is False:
            options["wait"] = True
        elif request.watch:
            options["watch"] = True
        text = msgspec.json.encode(options)
        if not request.run_at:
            self._last = request.options, request.priority, request.durable, request.watch
            self._last_json = text
        return text


def _epoch_seconds(moment: float | datetime | None) -> float:
    if isinstance(moment, datetime):
        return moment.timestamp()
    return moment or 0.0
