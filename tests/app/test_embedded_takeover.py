"""Programs that share a directory, some of which are killed: what was taken is done, whoever runs the server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from switchgear import App
from switchgear.app.embedded_address_file import EmbeddedAddress
from switchgear.errors import SwitchgearError
from tests.app import shop_program
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

SWITCHGEAR = [sys.executable, "-m", "switchgear"]
KILLS = 10
BETWEEN_KILLS = 30  # jobs taken


class SharingProcesses:
    """Processes that share a directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.queue = place / "queue"
        self.processes: dict[int, tuple[subprocess.Popen[bytes], list[str]]] = {}
        shutil.copy(shop_program.__file__, place / "shop_program.py")
        self.log = (place / "log").open("wb")

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, cwd=self.place, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT
        )
        self.processes[process.pid] = (process, list(command))
        return process

    def submitter(self) -> subprocess.Popen[bytes]:
        return self.start(sys.executable, "shop_program.py", "submit")

    def waiter(self) -> subprocess.Popen[bytes]:
        return self.start(sys.executable, "shop_program.py", "wait")

    def worker(self) -> subprocess.Popen[bytes]:
        return self.start(*SWITCHGEAR, "worker", "shop_program:app", "--quiet")

    def replace(self, process_id: int) -> None:
        """Kill one, and start another that does the same."""
        process, command = self.processes.pop(process_id)
        process.kill()
        process.wait()
        self.start(*command)

    def owner(self) -> int:
        """The process that runs the server, once there is one; 0 if not."""
        with suppress(SwitchgearError, OSError):
            status = EmbeddedAddress.read(self.queue)
            if status is not None and status.confirmed_address():
                return status.pid
        return 0

    def lines(self, name: str) -> list[str]:
        path = self.place / name
        return path.read_text().split() if path.exists() else []

    def has_lines(self, name: str, count: int) -> bool:
        return len(self.lines(name)) >= count

    def stop(self, word: str) -> None:
        """Kill all whose command ends in this word."""
        for pid, (process, command) in list(self.processes.items()):
            if command[-1] == word:
                process.kill()
                process.wait()
                del self.processes[pid]

    def end(self) -> None:
        for process, _ in self.processes.values():
            process.kill()
        for process, _ in self.processes.values():
            process.wait()
        self.log.close()


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[SharingProcesses]:
    sharing = SharingProcesses(tmp_path)
    try:
        yield sharing
    except BaseException:
        print((tmp_path / "log").read_text(errors="replace")[-5000:])
        raise
    finally:
        sharing.end()


def ends_of(sharing: SharingProcesses, handles: list[str]) -> list[str]:
    """How these jobs end, in a word each."""
    with App(f"embedded:{sharing.queue}", run_here=False) as app:
        return [app.job(handle).wait(timeout=30) for handle in handles]


def test_ten_owners_are_killed_and_every_job_that_was_taken_is_done(sharing: SharingProcesses) -> None:
    sharing.waiter()
    eventually(lambda: sharing.lines("waiting"), "the waiter has submitted its jobs")
    for start in (sharing.submitter, sharing.submitter, sharing.worker, sharing.worker, sharing.worker):
        start()
    for _ in range(KILLS):
        owner = eventually(sharing.owner, "there is an owner")
        enough = len(sharing.lines("taken")) + BETWEEN_KILLS
        sharing.replace(owner)
        eventually(partial(sharing.has_lines, "taken", enough), "jobs are taken again")
    sharing.stop("submit")
    taken = sharing.lines("taken")
    assert len(set(taken)) == len(taken) >= BETWEEN_KILLS * KILLS
    assert set(ends_of(sharing, taken)) == {"done"}
    eventually((sharing.place / "results").exists, "the waiter has heard of everything", 30.0)
    assert json.loads((sharing.place / "results").read_text()) == [2 * (1000 + number) for number in range(10)]
