"""The example project of several modules, and other ways to tell a worker where tasks are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.system

PROJECT = Path(__file__).parents[2] / "examples" / "shop_project"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the project."""
    shutil.copytree(PROJECT, tmp_path / "project")
    return tmp_path / "project"


def run(place: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "SWITCHGEAR_URL"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def submit(place: Path, statement: str = "from shop.website import place_order; place_order(17)") -> None:
    # The interpreter leaves before the embedded worker could run everything, and that is left to the worker.
    run(place, "-c", f"from shop.app import app; app.run_here = False; {statement}")


def test_a_worker_finds_the_tasks_of_a_package(place: Path) -> None:
    submit(place)
    log = run(place, "-m", "switchgear", "worker", "shop", "--burst")
    served = next(line for line in log.splitlines() if "serves" in line)
    assert "shop.mail.tasks.send_mail, shop.orders.tasks.confirm, shop.reports.tasks.nightly_report" in served
    assert (place / "outbox").read_text() == "customer@example.com: Order 17 is confirmed\n"


def test_tasks_in_processes_know_the_modules_too(place: Path) -> None:
    submit(place)
    run(place, "-m", "switchgear", "worker", "shop", "--burst", "--processes", "1")
    assert (place / "outbox").exists()


@pytest.mark.parametrize(
    "arguments",
    ['include=["shop.orders.tasks", "shop.reports.tasks"]', 'discover="shop"'],
    ids=["include", "discover"],
)
def test_an_app_says_where_its_tasks_are(place: Path, arguments: str) -> None:
    (place / "shop" / "app.py").write_text(f"from switchgear import App\n\napp = App({arguments})\n")
    submit(place)
    run(place, "-m", "switchgear", "worker", "shop.app:app", "--burst")
    assert (place / "outbox").exists()


def test_several_apps_in_one_worker(place: Path) -> None:
    (place / "blog.py").write_text(
        "from switchgear import App\n\n"
        "app = App('embedded:blog', name='blog')\n\n\n"
        "@app.task\ndef publish(title: str) -> None:\n    print('published', title)\n"
    )
    (place / "shop" / "app.py").write_text("from switchgear import App\n\napp = App(name='shop')\napp.set_default()\n")
    submit(place)
    run(place, "-c", "from blog import app, publish; app.run_here = False; publish.submit('news')")
    out = run(place, "-m", "switchgear", "worker", "shop", "blog:app", "--burst")
    assert "published news" in out
    assert (place / "outbox").exists()
    out = run(place, "-m", "switchgear", "worker", "shop", "blog:app", "--burst", "--functions", "blog.publish")
    assert "shop serves" not in out


def test_a_shared_task_that_does_not_know_its_app_says_so(place: Path) -> None:
    program = "import shop.mail.tasks as tasks; tasks.send_mail.submit('a', 'b')"
    failed = subprocess.run(
        [sys.executable, "-c", program], cwd=place, capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert "a shared task needs an app: make one" in failed.stderr


def test_a_package_without_an_app(place: Path) -> None:
    (place / "shop" / "app.py").write_text("app = None\n")
    failed = subprocess.run(
        [sys.executable, "-m", "switchgear", "worker", "shop"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_SECONDS,
    )
    assert failed.returncode == 2
    assert "there is no switchgear.App in shop nor in shop.app" in failed.stderr
