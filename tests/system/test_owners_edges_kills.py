"""Nodes are killed and suspended while jobs of one node wait for jobs of another."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from switchgear.errors import ServerRefused, SwitchgearError
from tests.support.postgres import Cluster
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, running, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(300)]

LEASE_SECONDS = 2.0
PAIRS_BETWEEN = 15


@pytest.fixture
def nodes(postgres: Cluster, tmp_path: Path) -> Iterator[list[OwnerNode]]:
    url = postgres.new_url()
    made = [OwnerNode(name, url, tmp_path, lease_seconds=LEASE_SECONDS) for name in NAMES]
    with running(made):
        yield made


class Pairs:
    """Submits pairs of jobs at one node, until it is told to stop: the second job waits for the first."""

    def __init__(self, entry: OwnerNode, before: str, after: str) -> None:
        self.acknowledged: list[int] = []  # pairs of which the second job was accepted
        self._entry = entry
        self._functions = before, after
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._submit, daemon=True)
        self._thread.start()

    def _submit(self) -> None:
        before, after = self._functions
        number = 0
        while not self._is_over.is_set():
            try:
                with self._entry.client() as client:
                    while not self._is_over.is_set():
                        number += 1
                        first = client.submit(before, b"first %d" % number, background=True).handle
                        client.submit(after, b"second %d" % number, background=True, after=[first])
                        self.acknowledged.append(number)
                        time.sleep(0.01)
            except (ServerRefused, SwitchgearError, OSError):
                time.sleep(0.1)

    def has(self, count: int) -> bool:
        return len(self.acknowledged) >= count

    def wait_for_more(self) -> None:
        eventually(partial(self.has, len(self.acknowledged) + PAIRS_BETWEEN), "pairs are acknowledged", 60)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def missing(pairs: Pairs, ran: list[bytes]) -> set[int]:
    seen = set(ran)
    return {number for number in pairs.acknowledged if b"second %d" % number not in seen}


def all_ran(pairs: Pairs, ran: list[bytes]) -> bool:
    return not missing(pairs, ran)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "suspended"])
@pytest.mark.parametrize("victim", [1, 2], ids=["owner-of-predecessors", "owner-of-successors"])
def test_every_successor_runs_after_its_predecessor(nodes: list[OwnerNode], victim: int, how: signal.Signals) -> None:
    """Whichever owner is lost, nothing runs too early, and nothing waits for ever."""
    before, after = function_of(nodes[1], 3), function_of(nodes[2], 3)
    node = nodes[victim]
    with ExitStack() as stack:
        ran: list[bytes] = []
        for function in (before, after):
            stack.enter_context(PlainWorker(nodes[0], function)).payloads = ran
        pairs = Pairs(nodes[0], before, after)
        stack.callback(pairs.end)
        for _ in range(2 if how is signal.SIGKILL else 1):
            pairs.wait_for_more()
            node.signal(how)
            if how is signal.SIGSTOP:
                pairs.wait_for_more()
                node.signal(signal.SIGCONT)
            node.wait()
            pairs.wait_for_more()
            node.start()
            node.wait_until_it_answers()
            settled(nodes)
        pairs.end()
        eventually(partial(all_ran, pairs, ran), "all successors have run", 60)
        for number in pairs.acknowledged:
            assert ran.index(b"first %d" % number) < ran.index(b"second %d" % number)
