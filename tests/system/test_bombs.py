"""Memory holds: every way of filling it that is known, alone and all at once, against a server that may not have much.

The server runs under a hard limit of the system (RLIMIT_DATA), so that a bound that does not hold ends in its death.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.servers import HOST, answers_version, free_port
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire
from tests.system.bombs import ATTACKS, MIB, Attack, Ports

pytestmark = pytest.mark.system

ACCOUNT = 256 * MIB
HARD_LIMIT = 1000 * MIB  # the interpreter with its modules, copies in passing, and what an allocator does not give back
ATTACK_SECONDS = 8.0
ALONE_SECONDS = 2.0


class InnocentClient(threading.Thread):
    """Asks for an echo again and again, and notes how long each took."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.wire = Wire((HOST, port))
        self.seconds: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.002):
            begun = time.monotonic()
            self.wire.send(Kind.ECHO_REQ, b"x")
            self.wire.receive_packet()
            self.seconds.append(time.monotonic() - begun)

    def percentile(self, part: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[int(len(ordered) * part)]


@contextmanager
def limited_server(place: Path) -> Iterator[tuple[Ports, subprocess.Popen[bytes]]]:
    ports = Ports(*(free_port() for _ in range(6)))
    listeners = (
        f"gearman://{HOST}:{ports.gearman}",
        f"wmp://{HOST}:{ports.wmp}",
        f"pingpong://{HOST}:{ports.pingpong}?workers={ports.pingpong_workers}",
        f"dwork://{HOST}:{ports.dwork}",
        f"gearmonkey://{HOST}:{ports.gearmonkey}",
    )
    flags = [word for url in listeners for word in ("--listen", url)]
    flags += ["--store", f"sqlite:{place}/jobs.db", "--set", f"limits.memory_bytes={ACCOUNT}"]
    flags += ["--set", f"storage.payload_memory_bytes={20 * MIB}"]

    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (HARD_LIMIT, HARD_LIMIT))

    with (place / "output").open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "switchgear", "serve", *flags],
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=limit_memory,
        )
    try:
        eventually(lambda: answers_version(ports.gearman), "the server is there", within_seconds=30)
        yield ports, server
    finally:
        server.kill()
        server.wait()


def attack_with(attacks: tuple[Callable[[Attack], None], ...], ports: Ports, seconds: float) -> None:
    over = threading.Event()

    def run(attack: Callable[[Attack], None]) -> None:
        attacker = Attack(ports, over)
        with closing(attacker), suppress(OSError):
            attack(attacker)

    threads = [threading.Thread(target=run, args=(attack,), daemon=True) for attack in attacks]
    for thread in threads:
        thread.start()
    over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join(10)


def assert_unharmed(ports: Ports, server: subprocess.Popen[bytes], place: Path) -> None:
    log = (place / "output").read_text(errors="replace")
    assert server.poll() is None, log[-3000:]
    assert "Traceback" not in log, log[-3000:]
    assert "defect" not in log, log[-3000:]
    eventually(lambda: does_a_job(ports), "a job is taken and handed out", within_seconds=20)


def does_a_job(ports: Ports) -> bool:
    with Wire((HOST, ports.gearman)) as client, Wire((HOST, ports.gearman)) as worker:
        worker.send(Kind.CAN_DO, b"innocent")
        client.send(Kind.SUBMIT_JOB, b"innocent", b"", b"payload")
        if client.receive_packet().type != Kind.JOB_CREATED:
            return False
        worker.send(Kind.GRAB_JOB)
        return worker.receive_packet().type == Kind.JOB_ASSIGN


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_one_attacker_does_not_end_the_server(attack: Callable[[Attack], None], tmp_path: Path) -> None:
    with limited_server(tmp_path) as (ports, server):
        attack_with((attack,), ports, ALONE_SECONDS)
        eventually(lambda: answers_version(ports.gearman), "the server answers")
        assert_unharmed(ports, server, tmp_path)


def test_all_attackers_at_once_do_not_end_the_server_nor_keep_others_waiting(tmp_path: Path) -> None:
    with limited_server(tmp_path) as (ports, server):
        innocent = InnocentClient(ports.gearman)
        innocent.start()
        attack_with(ATTACKS, ports, ATTACK_SECONDS)
        innocent.over.set()
        innocent.join(10)
        innocent.wire.close()
        print(
            f"echoes {len(innocent.seconds)}, p50 {innocent.percentile(0.5):.4f}, p99 {innocent.percentile(0.99):.4f}"
        )
        assert_unharmed(ports, server, tmp_path)
        assert len(innocent.seconds) > 100
        assert innocent.percentile(0.99) < 0.05
