"""No statement that every commit or every takeover needs reads a whole table, however small that was at first."""

from __future__ import annotations

import asyncio
import re

import psycopg
import pytest

from switchgear.storage.postgres import PostgresStore
from switchgear.storage.postgres_connection import SESSION
from switchgear.storage.postgres_schema import STATEMENTS
from tests.support.postgres import Cluster

pytestmark = pytest.mark.xdist_group("postgresql")

BY_ID = ("started", "changed", "done", "ended", "retried", "changed_finished", "revisions", "states", "payloads")
IN_PORTIONS = ("unfinished", "unfinished_special", "unfinished_plain", "owned_special", "owned_plain")


@pytest.fixture(scope="module")
def url(postgres: Cluster) -> str:
    """A database with empty tables, of which PostgreSQL knows nothing."""
    found = postgres.new_url()
    store = PostgresStore(found)

    async def create() -> None:
        await store.prepare()
        await store.close()

    asyncio.run(create())
    return found


@pytest.mark.parametrize("name", [*BY_ID, *IN_PORTIONS])
def test_a_plan_that_is_made_for_empty_tables_is_good_for_long_ones(url: str, name: str) -> None:
    text = STATEMENTS[name].text
    count = max(map(int, re.findall(rb"\$(\d+)", text)))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SESSION.text)
        connection.execute(b"PREPARE this AS " + text)
        nulls = b",".join([b"NULL"] * count)
        plan = "\n".join(row[0] for row in connection.execute(b"EXPLAIN EXECUTE this(" + nulls + b")"))
    assert "Seq Scan" not in plan, plan
    assert "Sort" not in plan or name in BY_ID, plan
