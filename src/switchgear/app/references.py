"""`Reference`: a job as an argument of another job; how references are written in JSON, found and replaced.

They are described in `switchgear.app.arguments`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import msgspec

from switchgear.app.type_codecs import encode_by_type

__all__ = [
    "ENCODER",
    "FAILED_TASK",
    "REFERENCE",
    "Reference",
    "encode_unusual",
    "is_failure_reference",
    "is_reference",
    "refuse_false_references",
    "replace_references",
    "to_json",
]

REFERENCE: Final = "$job"
FAILED_TASK: Final = "failed"
_REFERENCE_KEY: Final = b'"$job":'  # as our encoder writes it; a text with this in it has its quotes escaped


class Reference(ABC):
    """An argument that refers to the result of a job, or to the results of several."""

    @abstractmethod
    def as_reference(self) -> Any:
        """The JSON that is sent for it: an object with the key `$job`, or an array of these."""


def encode_unusual(value: Any) -> Any:
    """Convert a value of a type that msgspec does not know to a type that it knows."""
    if isinstance(value, Reference):
        return value.as_reference()
    return encode_by_type(value)


ENCODER: Final = msgspec.json.Encoder(enc_hook=encode_unusual)
_SORTED_ENCODER: Final = msgspec.json.Encoder(enc_hook=encode_unusual, order="deterministic")


def to_json(value: Any, *, is_sorted: bool = False) -> bytes:
    """JSON of anything that may be an argument; raises TypeError or ValueError."""
    return (_SORTED_ENCODER if is_sorted else ENCODER).encode(value)


def is_reference(payload: bytes) -> bool:
    return len(payload) < 1024 and payload.startswith(b'{"$job":')


def refuse_false_references(value: Any, data: bytes, check: Callable[[Reference], None]) -> None:
    """Raise if a dict of the caller has the key `$job`, because it would be taken for a job; real jobs go to
    `check`."""
    count = 0

    def hook(other: Any) -> Any:
        nonlocal count
        if isinstance(other, Reference):
            check(other)
            reference = other.as_reference()
            count += len(reference) if isinstance(reference, list) else 1
            return reference
        return encode_unusual(other)

    msgspec.json.encode(value, enc_hook=hook)
    if data.count(_REFERENCE_KEY) != count:
        raise ValueError(f"{REFERENCE!r} is kept for jobs and cannot be a key")


def is_failure_reference(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and first.keys() == {REFERENCE, FAILED_TASK}


def replace_references(
    value: Any,
    result_of: Callable[[str, bool], Any],
    failed: dict[str, Any] | None = None,
    *,
    is_for_failures: bool = False,
) -> Any:
    """The values with each reference replaced by the result of its job; those to failures are added to `failed`, with
    the names of their tasks if only these are wanted."""
    if isinstance(value, dict):
        handle = value.get(REFERENCE)
        if isinstance(handle, str) and value.keys() == {REFERENCE, FAILED_TASK} and failed is not None:
            failed[handle] = str(value[FAILED_TASK]) if is_for_failures else None
            return None
        if isinstance(handle, str) and value.keys() <= {REFERENCE, "bytes"}:
            return result_of(handle, bool(value.get("bytes")))
        return {
            name: replace_references(item, result_of, failed, is_for_failures=is_for_failures)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [replace_references(item, result_of, failed, is_for_failures=is_for_failures) for item in value]
    return value
