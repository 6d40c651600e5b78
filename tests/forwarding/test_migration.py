"""The change-over from gearmand to Switchgear without a stop: the commands of the manual, with a real gearmand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from switchgear import Client
from tests.docs.pages import DOCS
from tests.support.peers import require_program
from tests.support.servers import free_port, running_gearmand
from tests.support.waiting import eventually

PAGE = DOCS / "howto/replace-gearmand.md"
SECTION = re.compile(r"^## Change over without a stop\n(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
PATIENCE_SECONDS = 60.0


def conversation() -> list[tuple[str, list[str]]]:
    """Each command of the section, and the lines that it prints."""
    section = SECTION.search(PAGE.read_text(encoding="utf-8"))
    assert section is not None
    said: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall(section[1]):
        for line in map(str.strip, block.strip().splitlines()):
            if line.startswith("$ "):
                said.append((line.removeprefix("$ "), []))
            else:
                said[-1][1].append(line)
    return said


class Shell:
    """Runs the commands of the page, those with an ampersand in the background."""

    def __init__(self, place: Path, ports: dict[str, int]) -> None:
        self._place = place
        self._ports = ports
        self._background: list[subprocess.Popen[bytes]] = []
        programs = f"{Path(sys.executable).parent}:/usr/sbin:{os.environ['PATH']}"
        source = os.environ.get("PYTHONPATH", "")
        self._environment = {"PATH": programs, "HOME": str(place), "XDG_STATE_HOME": str(place), "PYTHONPATH": source}

    def run(self, command: str) -> list[str]:
        for documented, port in self._ports.items():
            command = command.replace(documented, str(port))
        command = command.replace("switchgear serve", f"{sys.executable} -m switchgear serve --store memory:")
        if command.endswith("&"):
            self._background.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command.removesuffix('&')}"], cwd=self._place, env=self._environment
                )
            )
            return []
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._place,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        )
        return [" ".join(line.split()) for line in done.stdout.splitlines()]

    def prints(self, command: str, expected: list[str]) -> bool:
        return self.run(command) == expected

    def close(self) -> None:
        for process in self._background:
            process.terminate()
        for process in self._background:
            process.wait(PATIENCE_SECONDS)


@contextmanager
def shell_in(place: Path, ports: dict[str, int]) -> Iterator[Shell]:
    shell = Shell(place, ports)
    try:
        yield shell
    finally:
        shell.close()


@pytest.mark.system
def test_the_commands_of_the_manual_move_everything_to_the_new_server(tmp_path: Path) -> None:
    require_program("gearman")
    require_program("gearadmin")
    with running_gearmand() as old:
        new_port = free_port()
        client = Client(f"gearman://127.0.0.1:{old.port}", timeout_seconds=PATIENCE_SECONDS)
        waiting = [client.submit("shout", b"job %d" % number, background=True) for number in range(100)]
        with client, shell_in(tmp_path, {"4730": old.port, "4731": new_port}) as shell:
            for command, expected in conversation():
                if "--status" in command:  # the page says to wait for this
                    eventually(partial(shell.prints, command, expected), "no jobs are left", PATIENCE_SECONDS)
                    assert not any(client.status(job.handle).known for job in waiting)
                else:
                    assert shell.run(command) == expected, command
                if command.startswith("switchgear serve"):
                    eventually(lambda: _listens(new_port), "the new server listens", PATIENCE_SECONDS)
            old.kill()
            assert shell.run("echo last | gearman -h 127.0.0.1 -p 4731 -f shout") == ["LAST"]


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
