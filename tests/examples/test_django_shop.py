"""examples/django_shop: a Django project whose tasks are jobs, on Django 6 and on Django 5 with django-tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.sites import EXAMPLES, PATIENCE_SECONDS, ask, running, wait_for_site
from tests.support.servers import free_port, running_switchgear
from tests.support.waiting import eventually

pytestmark = pytest.mark.interop

NEWEST = Path(__file__).parents[2] / "build" / "django" / "bin" / "python"  # made by `make peers`

# Enqueues one of each, waits until all have ended, and tells what Django says of them.
SCRIPT = """
import asyncio, json, sys, time
import django
django.setup()
from datetime import timedelta
from django.utils import timezone
from shop import tasks

enqueued = {
    "receipt": tasks.send_receipt.enqueue(7),
    "attempts": tasks.count_attempts.enqueue(),
    "rates": asyncio.run(tasks.fetch_rates.aenqueue("EUR")),
    "charge": tasks.charge.enqueue(order=8),
    "later": tasks.send_receipt.using(run_after=timezone.now() + timedelta(days=1)).enqueue(9),
}
told = {}
for name, result in enqueued.items():
    while name != "later" and not result.is_finished:
        time.sleep(0.01)
        result.refresh()
    result.refresh()
    told[name] = {
        "status": result.status,
        "value": result.return_value if result.status == "SUCCESSFUL" else None,
        "attempts": result.attempts,
        "errors": [[error.exception_class.__name__, error.traceback] for error in result.errors],
        "task": result.task.name,
        "priority": result.task.priority,
        "queue": result.task.queue_name,
        "is_late": result.task.run_after is not None,
        "ordered": result.enqueued_at <= (result.started_at or timezone.now()),
    }
try:
    tasks.send_receipt.get_result("H:nowhere:1")
except Exception as error:
    told["unknown"] = type(error).__name__
try:
    tasks.charge.get_result(enqueued["receipt"].id)
except Exception as error:
    told["mismatch"] = type(error).__name__
print(json.dumps(told))
"""


@pytest.fixture(scope="module", params=["django-tasks", "django 6"])
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter with Django."""
    if request.param == "django-tasks":
        return sys.executable
    if not NEWEST.exists():
        if os.environ.get("CI"):
            pytest.fail("build/django is missing: scripts/install-django found no Python 3.12")
        pytest.skip("no Python 3.12 for Django 6; see scripts/install-django")
    return str(NEWEST)


@pytest.fixture(scope="module")
def environment(python: str) -> Iterator[dict[str, str]]:
    """A server, and a worker of the shop at it."""
    with running_switchgear() as server:
        url = f"gearman://127.0.0.1:{server.port}"
        variables = {"SWITCHGEAR_URL": url, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": "."}
        worker = [python, "manage.py", "switchgear_worker", "--", "--quiet"]
        with running(*worker, example="django_shop", environment=variables):
            yield variables


def run_script(python: str, script: str, environment: dict[str, str]) -> Any:
    done = subprocess.run(
        [python, "-c", script],
        cwd=EXAMPLES / "django_shop",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tasks_are_enqueued_run_and_asked_about(python: str, environment: dict[str, str]) -> None:
    told = run_script(python, SCRIPT, environment)
    errors = told["charge"].pop("errors")
    assert told == {
        "receipt": seen("SUCCESSFUL", "receipt 7: thank you", "send_receipt", queue="mail", priority=10),
        "attempts": seen("SUCCESSFUL", 1, "count_attempts"),
        "rates": seen("SUCCESSFUL", {"EUR": 1.25}, "fetch_rates"),
        "charge": {key: value for key, value in seen("FAILED", None, "charge").items() if key != "errors"},
        "later": seen("READY", None, "send_receipt", queue="mail", priority=10, attempts=0, is_late=True),
        "unknown": "TaskResultDoesNotExist",
        "mismatch": "TaskResultMismatch",
    }
    [[name, text]] = errors
    assert name == "LookupError"
    assert "order 8 has no card" in text
    assert "tasks.py" in text


def seen(
    status: str,
    value: object,
    task: str,
    *,
    queue: str = "default",
    priority: int = 0,
    attempts: int = 1,
    is_late: bool = False,
) -> dict[str, Any]:
    """What Django tells of a result."""
    return {
        "status": status,
        "value": value,
        "attempts": attempts,
        "errors": [],
        "task": task,
        "priority": priority,
        "queue": queue,
        "is_late": is_late,
        "ordered": True,
    }


def test_a_page_enqueues_and_another_shows_the_result(python: str, environment: dict[str, str]) -> None:
    port = free_port()
    site = f"http://127.0.0.1:{port}"
    command = [python, "manage.py", "runserver", "--noreload", "--skip-checks", str(port)]
    with running(*command, example="django_shop", environment=environment):
        wait_for_site(f"{site}/nothing/")
        job = ask("POST", f"{site}/orders/7/")["job"]
        answer = eventually(lambda: finished(ask("GET", f"{site}/jobs/{job}/")), "the receipt is written")
    assert answer == {"status": "SUCCESSFUL", "receipt": "receipt 7: thank you"}


def finished(answer: dict[str, Any]) -> dict[str, Any] | None:
    return answer if answer["status"] == "SUCCESSFUL" else None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"retrys": 3}, "retrys"),
        ({"priority": "urgent"}, "priority"),
        ({"url": "ftp://host"}, "ftp://"),
    ],
    ids=["an unknown option", "a bad value", "a bad address"],
)
def test_a_mistake_in_the_settings_is_told(
    python: str, environment: dict[str, str], options: dict[str, Any], complaint: str
) -> None:
    script = f"""
import json, django, settings
settings.TASKS["default"]["OPTIONS"] = {options!r}
django.setup()
try:
    from shop.tasks import send_receipt
except Exception as error:
    print(json.dumps(f"{{type(error).__name__}}: {{error}}"))
"""
    told = run_script(python, script, environment)
    assert told.startswith("ImproperlyConfigured: TASKS['default']")
    assert complaint in told
