"""Values of Python types that JSON does not have, as JSON objects that name the type; the form is that of kombu."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from switchgear.app.references import Reference

__all__ = ["from_json_types", "to_json_types"]

TYPE: Final = "__type__"
VALUE: Final = "__value__"
_MARKS: Final = {TYPE, VALUE}

# In this order, since a datetime is also a date.
_ENCODERS: Final[tuple[tuple[type, str, Callable[[Any], Any]], ...]] = (
    (datetime, "datetime", datetime.isoformat),
    (date, "date", date.isoformat),
    (time, "time", time.isoformat),
    (Decimal, "decimal", str),
    (UUID, "uuid", lambda value: {"hex": value.hex}),
    (bytes, "base64", lambda value: base64.b64encode(value).decode()),
)
_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "datetime": datetime.fromisoformat,
    "date": lambda text: datetime.fromisoformat(text).date(),
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": lambda parts: UUID(**parts),
    "base64": base64.b64decode,
    "bytes": lambda text: text.encode(),
}


def to_json_types(value: Any) -> Any:
    """The value as JSON has it.

    >>> to_json_types({"on": date(2026, 1, 2), "n": (1, 2)})
    {'on': {'__type__': 'date', '__value__': '2026-01-02'}, 'n': [1, 2]}
    """
    if value is None or isinstance(value, str | int | float | Reference):
        return value
    if isinstance(value, dict):
        return {name: to_json_types(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_types(item) for item in value]
    for kind, name, encode in _ENCODERS:
        if isinstance(value, kind):
            return {TYPE: name, VALUE: encode(value)}
    return value


def from_json_types(value: Any) -> Any:
    """The value that `to_json_types` was given; tuples and sets have become lists.

    >>> from_json_types({"__type__": "date", "__value__": "2026-01-02"})
    datetime.date(2026, 1, 2)
    """
    if isinstance(value, dict):
        if value.keys() == _MARKS and value[TYPE] in _DECODERS:
            return _DECODERS[value[TYPE]](value[VALUE])
        return {name: from_json_types(item) for name, item in value.items()}
    if isinstance(value, list):
        return [from_json_types(item) for item in value]
    return value
