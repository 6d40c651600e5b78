"""Chunks: several calls of a task in one job, for tasks that take less time than handing out a job.

The payload of such a job is `{"$calls": [...]}`, with the payload of each call; its result is the array of their
results.  The job fails with the first call that fails, and a retry makes all its calls again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from switchgear.app.arguments import Arguments
from switchgear.errors import ArgumentError, ResultError

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["calls_in", "chunk_result", "chunk_task"]

R = TypeVar("R")

_START: Final = b'{"$calls":['
_CALLS: Final = msgspec.json.Decoder(dict[str, list[msgspec.Raw]])
_RESULTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def calls_in(payload: bytes) -> list[bytes] | None:
    """The payloads of the calls of a chunk; None if the job is one call.  Raises ArgumentError."""
    if not payload.startswith(_START):
        return None
    try:
        return [bytes(call) for call in _CALLS.decode(payload)["$calls"]]
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ArgumentError(f"the payload is not an array of calls: {error}") from error


def chunk_result(results: list[bytes]) -> bytes:
    """The result of a chunk, of the results of its calls."""
    return b"[%b]" % b",".join(results)


def chunk_task(task: Task[Any, R]) -> Task[Any, list[R]]:
    """The task whose only argument is a list of rows, each of them the arguments of a call."""
    if task.arguments.takes_bytes or task.arguments.gives_bytes:
        raise TypeError(f"{task.name}: calls with bytes instead of JSON cannot be put together")
    return cast("Task[Any, list[R]]", task.with_arguments(cast(Any, ChunkArguments(task.arguments))))


class ChunkArguments:
    """Encodes and decodes the arguments and results of several calls, by those of one; for submitters."""

    takes_bytes = gives_bytes = False

    def __init__(self, of_call: Arguments[Any]) -> None:
        self._of_call = of_call
        self.signature = of_call.signature

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        (rows,) = args
        return {"rows": rows}

    def with_defaults(self, by_name: Mapping[str, Any]) -> dict[str, Any]:
        return dict(by_name)

    def encode_bound(self, by_name: Mapping[str, Any]) -> bytes:
        return b"%b%b]}" % (_START, b",".join(self._payloads(by_name["rows"])))

    def encode_with_references(self, by_name: Mapping[str, Any]) -> tuple[bytes, list[str]]:
        payload = self.encode_bound(by_name)
        return payload, self.references(payload)

    def _payloads(self, rows: list[tuple[Any, ...]]) -> Iterator[bytes]:
        return (self._of_call.encode(row, {}) for row in rows)

    def references(self, payload: bytes) -> list[str]:
        return self._of_call.references(payload)

    def decode_result(self, data: bytes) -> list[Any]:
        try:
            results = _RESULTS.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ResultError(f"the result of {self._of_call.name}: {error}") from error
        return [self._of_call.decode_result(bytes(result)) for result in results]
