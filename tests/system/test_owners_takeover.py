"""A node that takes over answers what its own clients have sent to the last owner."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from switchgear.client.gearman.blocking import Client
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.system.owner_nodes import LEASE_SECONDS, OwnerNode, function_of, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(120)]

NAMES = ("ada", "bob")
# Far less than the time for which a submission waits for an owner, however busy the machine is.
SOON_SECONDS = LEASE_SECONDS + 15.0


@pytest.fixture
def nodes(postgres: Cluster, tmp_path: Path) -> Iterator[list[OwnerNode]]:
    store = postgres.new_url()
    made = [OwnerNode(name, store, tmp_path) for name in NAMES]
    with ExitStack() as stack:
        for node in made:
            stack.callback(node.end)
            node.start()
        for node in made:
            node.wait_until_it_answers()
        settled(made)
        yield made


def test_a_submission_that_waits_for_an_owner_goes_to_this_node_when_it_takes_over(nodes: list[OwnerNode]) -> None:
    ada, bob = nodes
    function = function_of(ada, names=NAMES)
    with Client(f"gearman://{HOST}:{bob.port}", timeout_seconds=60) as client:
        client.submit(function, b"before", background=True)
        ada.signal(signal.SIGSTOP)
        begun_s = time.monotonic()
        client.submit(function, b"meanwhile", background=True)
        assert time.monotonic() - begun_s < SOON_SECONDS
