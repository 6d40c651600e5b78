"""Functions as the tables of SQL stores have them: `FunctionRow`, and functions by their ids in a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from switchgear.model import Function
from switchgear.storage.sqlite_rows import encode

__all__ = ["FunctionRow", "FunctionsById", "function_row", "row_without_settings"]

FunctionRow: TypeAlias = tuple[int, bytes, int | None, int | None, int | None, int | None, bytes | None]
"""Id, name, whether it is paused, its limits for high, normal and low priority, and its policy. A setting that was
never made is None."""


def function_row(function_id: int, function: Function) -> FunctionRow:
    """The row of a function; without settings if the function was dropped."""
    if function.dropped:
        return row_without_settings(function_id, function.name)
    high, normal, low = function.limits
    policy = encode(function.limiter.policy) if function.limiter is not None else None
    return function_id, function.name, int(function.paused), high, normal, low, policy


def row_without_settings(function_id: int, name: bytes) -> FunctionRow:
    """The row of a function that is only the function of some jobs, which need its id."""
    return function_id, name, None, None, None, None, None


class FunctionsById(dict[int, Function]):
    """Functions by id, each obtained when its first job or setting is read, so that unused functions stay forgotten."""

    def __init__(self, names: dict[int, bytes], function_named: Callable[[bytes], Function]) -> None:
        super().__init__()
        self._names = names
        self._function_named = function_named

    def __missing__(self, function_id: int) -> Function:
        function = self[function_id] = self._function_named(self._names[function_id])
        return function
