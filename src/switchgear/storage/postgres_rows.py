"""Converts rows of jobs to PostgreSQL's binary arrays, and sorts the rows of a commit by the statement that each needs.

Many rows are one statement with one array for each column, which `unnest` turns back into rows. This runs in the event
loop's thread for every change of every job, so the common cases have statements with fewer columns: a new job that has
nothing special, a start, and a plain success.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from switchgear.storage.sqlite_rows import (
    ATTEMPTS,
    CREATED_US,
    DELIVERY,
    ERROR,
    EXTRA,
    FINISHED_US,
    FUNCTION_ID,
    ID,
    KEEP_UNTIL_US,
    MOVES,
    NAME,
    PAYLOAD,
    PRIORITY,
    RESULT,
    RESULT_CODE,
    REVISION,
    RUN_AT_US,
    STATE,
    UNIQUE,
    UNIQUE_UNTIL_US,
    JobRow,
)

__all__ = [
    "ARRAY_TYPES",
    "ROWS_PER_STATEMENT",
    "SortedRows",
    "arrays",
    "bigint",
    "bytea_array",
    "clamped",
    "done_arrays",
    "integer",
    "integer_array",
    "integers",
    "new_plain_arrays",
    "portions",
    "smallint",
    "sort_rows",
    "started_arrays",
]

# The OIDs of PostgreSQL's types.
BYTEA: Final = 17
BIGINT: Final = 20
SMALLINT: Final = 21
INTEGER: Final = 23

# The types of the columns, in the order of `sqlite_rows.job_row`.
ARRAY_TYPES: Final = (
    *("bigint", "integer", "smallint", "smallint", "smallint", "bigint", "bigint", "bigint"),
    *(
        "integer",
        "integer",
        "integer",
        "bytea",
        "bytea",
        "bytea",
        "bytea",
        "bytea",
        "bytea",
        "bigint",
        "bigint",
        "bytea",
    ),
)
LARGEST_NUMBERS: Final = {"bigint": 2**63 - 1, "integer": 2**31 - 1, "smallint": 2**15 - 1}

# Arrays for more rows take more than a millisecond to make. Half of that is the bytes.
ROWS_PER_STATEMENT: Final = 256
BYTES_PER_STATEMENT: Final = 1_048_576

READY_STATE: Final = 2
RUNNING_STATE: Final = 3
DONE_STATE: Final = 4

NULL: Final = b"\xff\xff\xff\xff"

_array_header = struct.Struct(">iiiii").pack  # dimensions, whether there are NULLs, type, length, lower bound
_length = struct.Struct(">i").pack
bigint: Final = struct.Struct(">q").pack
integer: Final = struct.Struct(">i").pack
smallint: Final = struct.Struct(">h").pack
# Number of dimensions, flags, type, and the size and lower bound of the one dimension.
ARRAY_HEADER_BYTES: Final = 20


def integers(value: bytes) -> list[int]:
    """The numbers of a bigint array in its binary form."""
    if len(value) < ARRAY_HEADER_BYTES:
        return []  # an empty array has no dimensions
    count = int.from_bytes(value[12:16], "big")
    return list(struct.unpack_from(">" + "4xq" * count, value, ARRAY_HEADER_BYTES))


def integer_array(values: list[int], type_name: str = "bigint") -> bytes:
    """The binary form of an array of numbers; raises struct.error for a number beyond its type."""
    count = len(values)
    if type_name == "bigint":
        size, oid, code = 8, BIGINT, "iq"
    elif type_name == "integer":
        size, oid, code = 4, INTEGER, "ii"
    else:
        size, oid, code = 2, SMALLINT, "ih"
    if not count:
        return struct.pack(">iii", 0, 0, oid)
    flat = [size] * (2 * count)
    flat[1::2] = values
    return _array_header(1, 0, oid, count, 1) + struct.pack(">" + code * count, *flat)


def bytea_array(values: list[Any]) -> bytes:
    """The binary form of an array of byte strings; `None` and 0 become NULL."""
    if not values:
        return struct.pack(">iii", 0, 0, BYTEA)
    parts: list[Any] = [_array_header(1, 1, BYTEA, len(values), 1)]
    for value in values:
        if value is None or value == 0:
            parts.append(NULL)
        else:
            parts.append(_length(len(value)))
            parts.append(value)
    return b"".join(parts)


def _column(rows: list[JobRow], place: int) -> list[Any]:
    return [row[place] for row in rows]


def arrays(rows: list[JobRow]) -> list[bytes]:
    """One array for each column of these rows, the payload included, and their number."""
    made: list[bytes] = []
    for place, type_name in enumerate(ARRAY_TYPES):
        values = [row[place] for row in rows]
        made.append(bytea_array(values) if type_name == "bytea" else integer_array(values, type_name))
    made.append(bigint(len(rows)))
    return made


def new_plain_arrays(rows: list[JobRow]) -> list[bytes]:
    """The parameters of `new_plain`."""
    return [
        integer_array(_column(rows, ID)),
        integer_array(_column(rows, FUNCTION_ID), "integer"),
        integer_array(_column(rows, PRIORITY), "smallint"),
        integer_array(_column(rows, DELIVERY), "smallint"),
        integer_array(_column(rows, CREATED_US)),
        bytea_array(_column(rows, UNIQUE)),
        bytea_array(_column(rows, PAYLOAD)),
        bigint(len(rows)),
    ]


def started_arrays(rows: list[JobRow]) -> list[bytes]:
    """The parameters of `started`."""
    return [
        integer_array(_column(rows, ID)),
        integer_array(_column(rows, ATTEMPTS), "integer"),
        integer_array(_column(rows, REVISION), "integer"),
        bytea_array(_column(rows, MOVES)),
        integer_array(_column(rows, PRIORITY), "smallint"),
        integer_array(_column(rows, DELIVERY), "smallint"),
        bytea_array(_column(rows, UNIQUE)),
        bigint(len(rows)),
    ]


def done_arrays(rows: list[JobRow]) -> list[bytes]:
    """The parameters of `done`."""
    return [
        integer_array(_column(rows, ID)),
        integer_array(_column(rows, FINISHED_US)),
        integer_array(_column(rows, ATTEMPTS), "integer"),
        integer_array(_column(rows, REVISION), "integer"),
        bytea_array(_column(rows, MOVES)),
        bytea_array(_column(rows, RESULT)),
        integer_array(_column(rows, PRIORITY), "smallint"),
        integer_array(_column(rows, DELIVERY), "smallint"),
        bytea_array(_column(rows, UNIQUE)),
        bigint(len(rows)),
    ]


def _is_plain_new(row: JobRow) -> bool:
    """Whether a row has nothing but what every new job has."""
    return (
        row[STATE] == READY_STATE
        and row[REVISION] == 1
        and not row[EXTRA]
        and not row[NAME]
        and not row[MOVES]
        and not row[RUN_AT_US]
        and not row[ATTEMPTS]
        and row[RESULT] is not None
        and not row[RESULT]
        and not row[RESULT_CODE]
        and row[ERROR] == 0
        and not row[UNIQUE_UNTIL_US]
    )


def _is_plain_start(row: JobRow) -> bool:
    """Whether a changed row is a start, and has nothing special."""
    return (
        row[STATE] == RUNNING_STATE
        and not row[EXTRA]
        and not row[RUN_AT_US]
        and row[RESULT] is not None
        and not row[RESULT]
        and not row[RESULT_CODE]
        and row[ERROR] == 0
        and not row[UNIQUE_UNTIL_US]
    )


def _is_plain_end(row: JobRow) -> bool:
    """Whether a changed row is a success, and has nothing special."""
    return (
        row[STATE] == DONE_STATE
        and not row[EXTRA]
        and not row[RUN_AT_US]
        and row[RESULT] is not None
        and not row[RESULT_CODE]
        and row[ERROR] == 0
        and not row[KEEP_UNTIL_US]
        and not row[UNIQUE_UNTIL_US]
    )


class SortedRows:
    """The rows of a commit by the statement that they need."""

    def __init__(self) -> None:
        self.new_plain: list[JobRow] = []
        self.new_unfinished: list[JobRow] = []
        self.new_finished: list[JobRow] = []
        self.started: list[JobRow] = []
        self.changed: list[JobRow] = []
        self.done: list[JobRow] = []
        self.ended: list[JobRow] = []


def sort_rows(new: list[JobRow], changed: list[JobRow]) -> SortedRows:
    """Sort rows that are not stored yet, and rows of unfinished jobs that are."""
    rows = SortedRows()
    for row in new:
        if _is_plain_new(row):
            rows.new_plain.append(row)
        elif row[STATE] < DONE_STATE:
            rows.new_unfinished.append(row)
        else:
            rows.new_finished.append(row)
    for row in changed:
        if _is_plain_start(row):
            rows.started.append(row)
        elif _is_plain_end(row):
            rows.done.append(row)
        elif row[STATE] < DONE_STATE:
            rows.changed.append(row)
        else:
            rows.ended.append(row)
    return rows


def _row_bytes(row: JobRow) -> int:
    """About how many bytes the row has."""
    size = 200
    for place in (PAYLOAD, RESULT, ERROR, EXTRA, MOVES, UNIQUE):
        value = row[place]
        if value:
            size += len(value)
    return size


def portions(rows: list[JobRow]) -> list[list[JobRow]]:
    """The rows in portions, each for one statement."""
    made: list[list[JobRow]] = []
    portion: list[JobRow] = []
    size = 0
    for row in rows:
        portion.append(row)
        size += _row_bytes(row)
        if len(portion) >= ROWS_PER_STATEMENT or size > BYTES_PER_STATEMENT:
            made.append(portion)
            portion = []
            size = 0
    if portion:
        made.append(portion)
    return made


def clamped(row: JobRow) -> JobRow:
    """The row with every number within the range of its column."""
    values: list[Any] = []
    for value, type_name in zip(row, ARRAY_TYPES):
        if type_name != "bytea":
            largest = LARGEST_NUMBERS[type_name]
            value = max(-largest, min(largest, value))
        values.append(value)
    return tuple(values)
