"""The SQL statement of a search for jobs in PostgreSQL."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from switchgear.model import FAILED, FINAL_STATES, JobState
from switchgear.states import UNSUCCESSFUL_STATES
from switchgear.storage.base import LONGEST_SEARCHED_BYTES, JobQuery
from switchgear.storage.postgres_connection import Statement
from switchgear.storage.postgres_rows import bigint, integer

__all__ = ["LARGEST_ID", "is_filtered_here", "search_statement"]

LARGEST_ID: Final = 2**63 - 1

LONG_ERROR: Final = (
    "(SELECT string_agg(content, '' ORDER BY piece) FROM sg_long WHERE sg_long.id = job.id AND kind = 2)"
)

# A text is in the job. `octet_length` does not read a long payload.
CONTAINS: Final = f"""(position(? IN unique_key) > 0 OR position(? IN name) > 0 OR position(? IN payload) > 0
    OR position(? IN CASE WHEN result IS NULL THEN {LONG_ERROR} ELSE error END) > 0
    OR payload IS NULL AND position(? IN (
        SELECT string_agg(CASE WHEN octet_length(content) <= {LONGEST_SEARCHED_BYTES} THEN content END, '')
        FROM sg_long WHERE sg_long.id = job.id AND kind = 0 HAVING count(*) = 1)) > 0)"""


def is_filtered_here(query: JobQuery) -> bool:
    """Whether conditions need columns that only this program can read."""
    return query.dead or query.key is not None


def search_statement(
    query: JobQuery, states: frozenset[JobState], function_id: int | None
) -> tuple[Statement, list[bytes]]:
    """The statement of a search and its parameters; its rows are ids, and the columns that are filtered here."""
    terms: list[str] = []
    parameters: list[bytes] = []

    def require(term: str, type_name: str, value: bytes) -> None:
        parameters.append(value)
        terms.append(term.replace("?", f"${len(parameters)}::{type_name}"))

    require("id < ?", "bigint", bigint(query.before_id))
    if query.from_id:
        require("id >= ?", "bigint", bigint(query.from_id))
    if query.name is not None:
        require("name = ?", "bytea", query.name)
        if query.name:
            terms.append("name <> ''")  # lets PostgreSQL use the index of named jobs
    if query.dead and not query.states:
        states = frozenset({FAILED})
    if states:
        # The states are part of the text: PostgreSQL uses a partial index only if the statement shows that it may.
        terms.append(f"state IN ({', '.join(str(int(state)) for state in sorted(states))})")
        if states <= UNSUCCESSFUL_STATES:
            terms.append("state > 4")
    if function_id is not None:
        require("function_id = ?", "integer", integer(function_id))
    if query.unique is not None:
        require("unique_key = ?", "bytea", query.unique)
    if query.since_us:
        require("created_us >= ?", "bigint", bigint(query.since_us))
    if query.until_us:
        require("created_us < ?", "bigint", bigint(query.until_us))
    if query.error_contains:
        require(
            f"position(? IN CASE WHEN result IS NULL THEN {LONG_ERROR} ELSE error END) > 0",
            "bytea",
            query.error_contains,
        )
    if query.key:
        require("position(? IN extra) > 0", "bytea", query.key)
    if query.contains:
        require(CONTAINS, "bytea", query.contains)
    parameters.append(bigint(LARGEST_ID if is_filtered_here(query) else max(0, query.limit)))
    order = f"ORDER BY id DESC LIMIT ${len(parameters)}::bigint"
    columns = "id, moves, extra" if is_filtered_here(query) else "id"
    conditions = " AND ".join(terms)
    tables = []
    if not states or states - FINAL_STATES:
        tables.append("sg_job")
    if not states or states & FINAL_STATES:
        tables.append("sg_done")
    parts = [f"(SELECT {columns} FROM {table} AS job WHERE {conditions} {order})" for table in tables]
    text = f"{' UNION ALL '.join(parts)} {order}" if len(parts) > 1 else parts[0]
    # Prepared under a name made of its text: there are only so many combinations.
    name = f"sg_find_{blake2b(text.encode(), digest_size=16).hexdigest()}"
    return Statement(name.encode(), text.encode()), parameters
