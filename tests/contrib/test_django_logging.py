"""What a worker of a Django project logs about failures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.system

SETTINGS = """
SECRET_KEY = "x"
INSTALLED_APPS = ["django_tasks", "switchgear.contrib.django"]
TASKS = {
    "default": {
        "BACKEND": "switchgear.contrib.django.SwitchgearBackend",
        "OPTIONS": {"url": "embedded:queue", "retries": 2, "backoff": "none"},
    }
}
"""

TASKS = """
from django_tasks import task

@task
def charge(order: int) -> None:
    raise LookupError(f"order {order} has no card")
"""

ENQUEUE = """
import django
django.setup()
from shop_tasks import charge
charge.enqueue(8)
"""


def runner(tmp_path: Path) -> Callable[..., str]:
    """A function that runs Python in a project with one task, and returns what it writes."""
    pytest.importorskip("django_tasks")
    (tmp_path / "project_settings.py").write_text(SETTINGS)
    (tmp_path / "shop_tasks.py").write_text(TASKS)
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "project_settings", "PYTHONPATH": paths}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def log(tmp_path: Path) -> str:
    """What a worker writes that runs a task which fails, with two retries."""
    run = runner(tmp_path)
    run("-c", ENQUEUE)
    return run("-m", "switchgear", "worker", "switchgear.contrib.django.worker:app", "--burst")


def test_only_the_last_attempt_is_logged_as_failed_and_each_traceback_once(log: str) -> None:
    assert log.count("state=FAILED") == 1
    assert log.count("next attempt in") == 2
    assert log.count("Traceback (most recent call last)") == 3, "one for each attempt"


def test_listings_name_the_task_beside_the_queue(tmp_path: Path) -> None:
    run = runner(tmp_path)
    run("-c", ENQUEUE)
    heads, row = run("-m", "switchgear", "jobs", "--server", "embedded:queue").splitlines()
    assert heads.split()[:3] == ["HANDLE", "NAME", "FUNCTION"]
    assert row.split()[1:3] == ["shop_tasks.charge", "django.default"]


def test_shared_tasks_of_installed_apps_are_known_to_the_worker(tmp_path: Path) -> None:
    run = runner(tmp_path)
    (tmp_path / "project_settings.py").write_text(SETTINGS.replace('["django_tasks"', '["django_tasks", "stock"'))
    (tmp_path / "stock").mkdir()
    (tmp_path / "stock" / "__init__.py").write_text("")
    (tmp_path / "stock" / "tasks.py").write_text(
        "from switchgear import shared_task\n\n@shared_task\ndef count() -> int:\n    return 17\n"
    )
    log = run("-m", "switchgear", "worker", "switchgear.contrib.django.worker:app", "--burst")
    assert "stock.tasks.count" in log
