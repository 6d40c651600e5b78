"""The dashboard of an embedded directory: `App.dashboard`, `switchgear dashboard --embedded`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from switchgear import App
from switchgear.client import Client
from switchgear.errors import ServerRefused
from tests.app.neighbour import neighbours
from tests.cli.commands import call, running
from tests.support.servers import HOST, free_port, running_switchgear
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def app(directory: Path) -> Iterator[App]:
    with App(f"embedded:{directory}") as app:
        yield app


def fetch(url: str, path: str = "") -> Any:
    with urllib.request.urlopen(url + path, timeout=10) as answer:
        return answer.read()


def overview(url: str) -> Any:
    return json.loads(fetch(url, "v1/overview"))


def has_gone(url: str) -> bool:
    try:
        fetch(url)
    except OSError:
        return True
    return False


# --- in a program ---


def test_a_program_opens_it_when_it_asks(app: App) -> None:
    @app.task
    def add(one: int, other: int) -> int:
        return one + other

    assert add.submit(1, 2).result() == 3
    assert [listener["url"].partition(":")[0] for listener in app.control("server")["listeners"]] == ["gearman"]
    url = app.dashboard()
    assert b"<title>" in fetch(url)
    assert overview(url)["counts"]["done"] == 1
    assert app.dashboard() == url  # there is one
    app.close()
    assert has_gone(url)


def test_nothing_of_it_is_imported_before(tmp_path: Path) -> None:
    program = """
import sys
from switchgear import App
app = App()
@app.task
def add(one, other):
    return one + other
assert add.submit(1, 2).result() == 3
unwanted = [name for name in sys.modules if name.startswith(("httptools", "switchgear.protocols.http.", "switchgear.dashboard.assets"))]
assert not set(unwanted) - {"switchgear.protocols.http.plugin"}, unwanted
"""  # noqa: E501
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, env={**os.environ, "SWITCHGEAR_URL": ""})


def test_the_usual_port_or_a_free_one(app: App) -> None:
    with ExitStack() as stack:
        with suppress(OSError):  # some other program has it, which is as good
            stack.enter_context(socket.create_server((HOST, 4740)))
        url = app.dashboard()
    assert not url.endswith(":4740/")
    assert b"<title>" in fetch(url)


def test_a_port_that_is_given(app: App) -> None:
    port = free_port()
    refusal = f"cannot listen on http://127.0.0.1:{port}: Address already in use"
    with socket.create_server((HOST, port)), pytest.raises(ServerRefused, match=refusal):
        app.dashboard(port)
    assert app.dashboard(port) == f"http://{HOST}:{port}/"


def test_many_ask_at_once(app: App) -> None:
    urls: list[str] = []
    threads = [threading.Thread(target=lambda: urls.append(app.dashboard())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(urls) == 8
    assert len(set(urls)) == 1


def test_it_is_opened_by_the_process_that_has_the_jobs(directory: Path) -> None:
    with neighbours(directory, 1) as [neighbour], App(f"embedded:{directory}", run_here=False) as app:
        neighbour.ask("submit", "resize")
        assert neighbour.is_owner
        url = app.dashboard()
        assert overview(url)["jobs"]["ready"] == 1
        neighbour.kill()
        eventually(lambda: has_gone(url), "the dashboard ends with its process")
        assert overview(app.dashboard())["jobs"]["ready"] == 1


def test_a_forked_child_does_not_keep_it_open(directory: Path) -> None:
    program = """
import os, sys
from switchgear import App
app = App(sys.argv[1], run_here=False)
print(app.dashboard(), flush=True)
if os.fork() == 0:
    sys.stdin.read()  # longer than its parent
    os._exit(0)
os._exit(0)
"""
    command = [sys.executable, "-W", "ignore", "-c", program, f"embedded:{directory}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        process.wait()
        eventually(lambda: has_gone(url), "nobody listens")
        process.stdin.close()


def test_other_servers_open_none() -> None:
    with (
        running_switchgear() as server,
        Client(f"gearman://{HOST}:{server.port}") as client,
        pytest.raises(ServerRefused, match="the server has no dashboard"),
    ):
        client.control("open_dashboard")


# --- the command ---


def test_the_command_serves_a_directory_that_nobody_uses(directory: Path) -> None:
    with App(f"embedded:{directory}", run_here=False) as app:

        @app.task(name="resize")
        def resize() -> None:
            pass

        resize.submit()
    with running("gearman://127.0.0.1:1", "dashboard", "--embedded", str(directory), "--no-browser") as command:
        url = command.until("http://").strip()
        assert overview(url)["jobs"]["ready"] == 1  # nobody here runs it
        command.send(signal.SIGTERM)
        assert command.exit_code() == 0
    assert has_gone(url)


def test_the_command_takes_over_at_the_same_address(directory: Path) -> None:
    port = free_port()
    with neighbours(directory, 1) as [neighbour]:
        neighbour.ask("submit", "resize")
        options = ("dashboard", "--no-browser", "--port", str(port))
        with running(f"embedded:{directory}", *options) as command:
            url = command.until("http://").strip()
            assert url == f"http://{HOST}:{port}/"
            first = json.loads(fetch(url, "v1/server"))["pid"]
            assert first == neighbour.process.pid
            neighbour.kill()
            eventually(lambda: not has_gone(url), "the dashboard is there again")
            assert json.loads(fetch(url, "v1/server"))["pid"] not in (first, os.getpid())
            command.send(signal.SIGTERM)
            assert command.exit_code() == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--embedded", "nowhere"], "there is no"),
        (["--server", "gearman://127.0.0.1:1", "--port", "80"], "--port goes with --embedded"),
        (["--server", "gearman://127.0.0.1:1", "--embedded", "."], "give one of them"),
    ],
)
def test_what_cannot_be(arguments: list[str], text: str) -> None:
    done = call("gearman://127.0.0.1:1", "dashboard", *arguments)
    assert done.exit_code == 2
    assert text in done.output


def test_a_file_in_place_of_the_directory_is_called_one(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.touch()
    outcome = call("gearman://127.0.0.1:1", "dashboard", "--embedded", str(file))
    assert outcome.exit_code == 2
    assert f"{file} is not a directory" in outcome.stderr
