"""Database connections of Django around jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import DEADLINE_SECONDS

PROGRAM = """
import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}})
django.setup()

from django.db import connection
from switchgear import App
from switchgear.contrib.django.connections import DjangoConnections
from switchgear.testing import in_memory

app = App("gearman://127.0.0.1:1")
app.add_middleware(DjangoConnections())


@app.task
def query() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 17")
        return cursor.fetchone()[0]


@app.task
async def query_async() -> int:
    from asgiref.sync import sync_to_async

    return await sync_to_async(query)()


with in_memory(app):
    print(query.submit().result(), connection.connection)
    print(query_async.submit().result())
"""


def test_connections_are_closed_after_each_job(tmp_path: Path) -> None:
    pytest.importorskip("django")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=3 * DEADLINE_SECONDS
    )
    assert (done.stdout, done.stderr) == ("17 None\n17\n", "")
