"""A small project for Celery, with its imports changed: a server, `switchgear worker`, and a program that submits."""

from __future__ import annotations

from pathlib import Path

from tests.app.harness import url_of
from tests.compat.programs import output_of, running
from tests.support.servers import running_switchgear

TASKS = """
import time

from switchgear.compat.celery import Celery, shared_task
from switchgear.compat.celery.utils.log import get_task_logger

app = Celery("shop", broker="redis://localhost:6379/0", backend="rpc://")
app.conf.update(timezone="UTC", result_expires=3600)
app.autodiscover_tasks(["warehouse"])
logger = get_task_logger(__name__)


@app.task
def add(x, y):
    logger.info("adding")
    return x + y


@app.task(bind=True, max_retries=2)
def flaky(self, path):
    with open(path, "a") as file:
        file.write("x")
    if self.request.retries < 2:
        raise self.retry(countdown=0.01)
    return self.request.retries


@app.task(time_limit=0.3)
def endless():
    time.sleep(60)


@shared_task
def total(numbers):
    return sum(numbers)
"""

WAREHOUSE_TASKS = """
from switchgear.compat.celery import shared_task


@shared_task(name="warehouse.pack")
def pack(item):
    return f"packed {item}"
"""

SUBMIT = """
import sys

from switchgear.compat.celery import chord, group
from switchgear.compat.celery.exceptions import TimeLimitExceeded
from tasks import add, app, endless, flaky, total

print(add.delay(4, 4).get(timeout=30))
print(chord((add.s(i, i) for i in range(5)), total.s())().get(timeout=30))
print(flaky.delay(sys.argv[1]).get(timeout=30))
print(app.send_task("warehouse.pack", ["lamp"]).get(timeout=30))
try:
    endless.delay().get(timeout=30)
except TimeLimitExceeded:
    print("too long")
"""


def test_a_celery_project_runs_with_its_imports_changed(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse/__init__.py").write_text("")
    (tmp_path / "warehouse/tasks.py").write_text(WAREHOUSE_TASKS)
    (tmp_path / "submit.py").write_text(SUBMIT)
    with running_switchgear() as server:
        url = url_of(server)
        with running(tmp_path, "-m", "switchgear", "worker", "tasks:app", "--processes", "1", url=url):
            printed = output_of(tmp_path, "submit.py", str(tmp_path / "attempts"), url=url)
    assert printed.splitlines() == ["8", "20", "2", "packed lamp", "too long"]
    assert (tmp_path / "attempts").read_text() == "xxx"
