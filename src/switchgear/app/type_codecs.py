"""Types that JSON and msgspec do not know: how values of them are written as JSON and read again.

Paths, models of pydantic, and arrays and numbers of NumPy are known; `register_type` adds a type of your own.
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final, TypeVar, get_origin

__all__ = ["decode_by_type", "encode_by_type", "register_type"]

T = TypeVar("T")

_registered: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}
_ARRAY_FIELDS: Final = {"dtype", "shape", "data"}


def register_type(kind: type[T], encode: Callable[[T], Any], decode: Callable[[Any], T]) -> None:
    """Let arguments and results be of this type, or of one derived from it, in all apps of the process.

    `encode` makes of a value something that can be written as JSON, and `decode` makes a value of that again.  A value
    is decoded where the type hint of a task names its type.  Submitting programs and workers both need this.

    >>> register_type(complex, lambda value: [value.real, value.imag], lambda parts: complex(*parts))
    """
    if not isinstance(kind, type):
        raise TypeError(f"register_type takes a class, not {kind!r}")
    _registered[kind] = encode, decode


def _codec_of(kind: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]] | None:
    if _registered:
        for base in kind.__mro__:
            if base in _registered:
                return _registered[base]
    return None


def encode_by_type(value: Any) -> Any:
    """A value as something that can be written as JSON; raises TypeError."""
    kind = type(value)
    codec = _codec_of(kind)
    if codec is not None:
        return codec[0](value)
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(kind, "model_dump"):  # a model of pydantic
        return value.model_dump(mode="json")
    if kind.__module__ == "numpy":
        return _encode_numpy(value)
    raise TypeError(f"a value of type {kind.__qualname__} cannot be written as JSON")


def decode_by_type(kind: Any, value: Any) -> Any:
    """The value of this type that `encode_by_type` was given; raises TypeError or ValueError."""
    actual = get_origin(kind) or kind
    if isinstance(actual, type):
        codec = _codec_of(actual)
        if codec is not None:
            return codec[1](value)
        if issubclass(actual, PurePath) and isinstance(value, str):
            return actual(value)
        if actual.__module__ == "numpy":
            return _decode_numpy(actual, value)
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise TypeError(f"{getattr(kind, '__qualname__', kind)} cannot be read from JSON")


# --- NumPy ---


def _encode_numpy(value: Any) -> Any:
    """A number as a number, and an array as its type, its shape and its bytes."""
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.generic):
        return value.item()
    if not isinstance(value, numpy.ndarray) or value.dtype.hasobject:
        raise TypeError(f"a NumPy value of type {type(value).__qualname__} with objects cannot be written as JSON")
    data = base64.b64encode(numpy.ascontiguousarray(value).tobytes()).decode()
    described = numpy.lib.format.dtype_to_descr(value.dtype)  # a text, or a list of the fields of a structure
    return {"dtype": described, "shape": list(value.shape), "data": data}


def _decode_numpy(kind: type, value: Any) -> Any:
    import numpy

    if issubclass(kind, numpy.generic):
        return kind(value)
    if not isinstance(value, dict) or value.keys() != _ARRAY_FIELDS:
        raise TypeError("a NumPy array is an object with dtype, shape and data")
    try:
        dtype = numpy.lib.format.descr_to_dtype(_with_tuples(value["dtype"]))
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"the dtype of a NumPy array is unknown: {error}") from None
    shape = [int(length) for length in value["shape"]]
    data = base64.b64decode(value["data"], validate=True)
    if dtype.hasobject or any(length < 0 for length in shape) or len(data) != dtype.itemsize * math.prod(shape):
        raise ValueError("the data of a NumPy array does not fit its dtype and shape")
    return numpy.frombuffer(data, dtype).reshape(shape).copy()  # which can be changed


def _with_tuples(described: Any) -> Any:
    """The description of a NumPy type, of which JSON has made lists of tuples."""
    if not isinstance(described, list):
        return str(described)
    return [(field[0], _with_tuples(field[1]), *map(tuple, field[2:])) for field in described]
