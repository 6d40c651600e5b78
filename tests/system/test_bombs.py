"""Memory holds: every way of filling it that is known, alone and all at once, against a server that may not have much.

The server runs under a hard limit of the system (RLIMIT_DATA), so that a bound that does not hold ends in its death.
"""

from __future__ import annotations

import multiprocessing
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from switchgear.version import BUILD
from tests.support.servers import HOST, answers_version, free_port
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire
from tests.system.bombs import ATTACKS, MIB, Attack, Ports

pytestmark = pytest.mark.system

ACCOUNT = 256 * MIB
HARD_LIMIT = 1000 * MIB  # the interpreter with its modules, copies in passing, and what an allocator does not give back
ATTACK_SECONDS = 8.0
ALONE_SECONDS = 2.0
# Fifty on a machine that does nothing else (`python -m bench.stalls` has figures).  Here the attackers and other tests
# share two processors with the server.  Uncompiled it has to live, and that is all.
LONGEST_P99_MS = 500.0


def ask_for_echoes(port: int, over: Any, answers: Any) -> None:
    """Ask for an echo again and again until `over` is set, and send how long each took."""
    seconds: list[float] = []
    with Wire((HOST, port)) as wire:
        while not over.wait(0.002):
            begun = time.monotonic()
            wire.send(Kind.ECHO_REQ, b"x")
            wire.receive_packet(within_seconds=60)
            seconds.append(time.monotonic() - begun)
    answers.send(seconds)


class InnocentClient:
    """A client in a process of its own, so that it does not wait for the interpreter of the attackers."""

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._over = context.Event()
        self._answers, answers = context.Pipe(duplex=False)
        self._process = context.Process(target=ask_for_echoes, args=(port, self._over, answers), daemon=True)
        self._process.start()

    def stop(self) -> list[float]:
        """How long each echo took, in seconds, the longest last."""
        self._over.set()
        assert self._answers.poll(90), "the innocent client got no answer"
        seconds = sorted(self._answers.recv())
        self._process.join(10)
        return seconds


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
        answer = client.receive_packet()
        if answer.type == Kind.ERROR and b"no memory for" in answer.body:
            return True  # others have filled the memory with jobs, and nobody runs these: that is what there is to say
        if answer.type != Kind.JOB_CREATED:
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
        attack_with(ATTACKS, ports, ATTACK_SECONDS)
        seconds = innocent.stop()
        p99_ms = seconds[int(len(seconds) * 0.99)] * 1000
        print(f"{len(seconds)} echoes, p50 {seconds[len(seconds) // 2] * 1000:.1f} ms, p99 {p99_ms:.1f} ms")
        assert_unharmed(ports, server, tmp_path)
        assert seconds
        if BUILD == "compiled":
            assert p99_ms < LONGEST_P99_MS
