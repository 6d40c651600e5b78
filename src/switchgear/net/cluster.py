"""`ClusterMember`: one of several servers on one PostgreSQL: standby or owner, takeover, and the list of nodes.

One node owns the jobs, and serves them. The others stand by: they pass connections on to the owner
(`standby_gateway`), and one of them takes over when the owner ends or is silent for a whole lease.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from switchgear.config import Config
from switchgear.errors import ConfigError, StorageError
from switchgear.memory import MemoryAccount
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.forwarded_address import ForwardedConnection
from switchgear.net.standby_gateway import READS_HEADERS, OwnerAddress, StandbyGateway
from switchgear.partitions import PARTITIONS
from switchgear.postgresql import is_postgresql
from switchgear.storage.postgres import PostgresStore
from switchgear.storage.postgres_lease import LeaseRow
from switchgear.storage.postgres_nodes import NodeRow
from switchgear.telemetry import Telemetry
from switchgear.verbs.answers import NodeAnswer
from switchgear.version import VERSION

__all__ = ["ClusterMember", "clustered_store"]

log = logging.getLogger("switchgear")

# A node that gives no sign of life for so many leases counts as gone; later its row is deleted.
GONE_LEASES: Final = 2
SILENT_LEASES: Final = 20
# Schedules and start times follow the clock of the owner. A difference beyond this is reported.
CLOCK_DIFFERENCE_SECONDS: Final = 0.5
EVERY_HOST: Final = ("0.0.0.0", "::", "")


def clustered_store(config: Config) -> PostgresStore:
    """The store of a node, not open; raises ConfigError."""
    if not is_postgresql(config.store_url):
        raise ConfigError("cluster.enabled: nodes share their jobs in PostgreSQL: set store to postgresql://…")
    return PostgresStore(
        config.store_url, config.storage.payload_memory_bytes, lease_seconds=config.cluster.lease_seconds
    )


class ClusterMember:
    """The node of a cluster that runs in this process; it is owner or standby."""

    def __init__(self, config: Config, store: PostgresStore) -> None:
        self._config = config
        self._store = store
        self._lease = store.lease
        self.name = config.cluster.name or socket.gethostname()
        self._lease.name = f"node {self.name}, {self._lease.name}"
        self._secret = b""  # by which nodes recognise each other
        self._listeners: Sequence[TcpListener] = ()
        self._nodes: dict[int, tuple[NodeRow, float]] = {}  # by id, with the moment of the last sign of life
        self._reported: set[str] = set()  # what is wrong, and was written to the log

    async def join(self, prefix: str) -> str:
        """Create the tables if there are none; returns the prefix of handles that all nodes use.

        Raises ConfigError if a fail-over of PostgreSQL could lose commits.
        """
        await self._store.prepare()
        if not self._config.cluster.allow_async:
            await self._store.nodes.check_replication()
        await self._store.nodes.forget_named(self.name)
        self._secret = await self._store.nodes.shared_secret()
        return await self._store.nodes.shared_prefix(prefix)

    async def stand_by(self, listeners: Sequence[TcpListener], memory: MemoryAccount, telemetry: Telemetry) -> None:
        """Return when this node owns the jobs. Until then connections are passed on to the owner, and what is held of
        them is counted in the memory account."""
        self._listeners = listeners
        # Nodes of earlier versions use the addresses by their place, and so do not see the last one.
        self._lease.address = json.dumps([*self._own_addresses(), READS_HEADERS])
        gateway = StandbyGateway(listeners, self._config.limits, memory, telemetry, self._secret)
        is_passing = False
        own = set(self._own_addresses())

        async def look(row: LeaseRow) -> None:
            nonlocal is_passing
            # The owner may be the last life of this node, as far as the lease tells. Connections that are passed on to
            # its address would come back to this node, and be passed on again.
            addresses = _addresses(row.address)
            gateway.owner_is(row.holder, addresses if own.isdisjoint(addresses) else [])
            if not is_passing and row.holder:
                is_passing = True
                await gateway.start()
                log.info("standing by: %s owns the jobs", row.name)

        try:
            await self._lease.wait_until_taken(look)
        finally:
            gateway.close()
        for listener in listeners:
            listener.read_forwarded = partial(ForwardedConnection, self._secret, self._lease.holder)
        log.warning("this node (%s) owns the jobs from now on", self.name)
        await self._store.take_over()

    def _own_addresses(self) -> list[OwnerAddress]:
        """The address at which other nodes connect to each listener."""
        addresses: list[OwnerAddress] = []
        for listener in self._listeners:
            host, port = listener.endpoints[0]
            own_host = self._config.cluster.host or (socket.gethostname() if host in EVERY_HOST else host)
            addresses.append((listener.url.scheme, own_host, port))
        return addresses

    async def keep_in_touch(self) -> None:
        """Give signs of life to the other nodes, and look for theirs, for ever."""
        try:
            while True:
                with suppress(StorageError):  # the store says so itself
                    await self._exchange()
                await asyncio.sleep(self._lease.lease_seconds / 2)
        finally:
            with suppress(StorageError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._store.nodes.forget([self._lease.holder])

    async def _exchange(self) -> None:
        own = self._own_addresses()
        address = "{}:{}".format(*own[0][1:]) if own else ""
        asked_s = time.monotonic()
        database_time = await self._store.nodes.announce(
            NodeRow(self._lease.holder, self.name, address, self._lease.is_held, VERSION, 0)
        )
        now_s = time.monotonic()
        self._check_clock(time.time() - database_time, now_s - asked_s)
        seen: dict[int, tuple[NodeRow, float]] = {}
        for row in await self._store.nodes.read():
            known = self._nodes.get(row.id)
            seen[row.id] = (row, now_s if known is None or known[0].beat != row.beat else known[1])
        self._check_name(seen)
        self._nodes = seen
        for listener in self._listeners:
            listener.exempt_hosts = frozenset(_host(row.address) for row, _ in seen.values())
        silent_s = SILENT_LEASES * self._lease.lease_seconds
        silent = [node_id for node_id, (_, seen_s) in seen.items() if now_s - seen_s > silent_s]
        if silent and self._lease.is_held:
            await self._store.nodes.forget(silent)

    def _check_clock(self, ahead_s: float, asking_s: float) -> None:
        """Report a clock that is wrong; `ahead_s` is too much by at most `asking_s`, which the request took."""
        is_wrong = not -CLOCK_DIFFERENCE_SECONDS < ahead_s < CLOCK_DIFFERENCE_SECONDS + asking_s
        direction = "ahead of" if ahead_s > 0 else "behind"
        self._report(
            "clock",
            f"the clock of this machine is {abs(ahead_s):.1f} s {direction} the clock of PostgreSQL: as the owner, this"
            " node would start jobs of schedules and of later times at the wrong moment",
            is_wrong,
        )

    def _check_name(self, seen: dict[int, tuple[NodeRow, float]]) -> None:
        """Report another node with this name that is alive."""
        others = [
            row.address
            for node_id, (row, seen_s) in seen.items()
            if row.name == self.name and node_id != self._lease.holder and node_id in self._nodes
            if self._nodes[node_id][1] != seen_s
        ]
        if others:
            self._report("name", f"another node is named {self.name} too, at {', '.join(others)}", True)

    def _report(self, what: str, text: str, is_so: bool) -> None:
        """Write a warning to the log when something begins to be wrong."""
        if is_so and what not in self._reported:
            self._reported.add(what)
            log.warning("cluster: %s", text)
        elif not is_so:
            self._reported.discard(what)

    def describe(self) -> list[NodeAnswer]:
        """All nodes of the cluster, as the verb `nodes` shows them."""
        now_s = time.monotonic()
        return [
            {
                "name": row.name,
                "address": row.address,
                "role": self._role(row, now_s - seen_s),
                "version": row.version,
                "silent_seconds": round(max(0.0, now_s - seen_s), 1),
                "partitions": PARTITIONS if self._role(row, now_s - seen_s) == "owner" else 0,
                "placed": [],
            }
            for row, seen_s in self._nodes.values()
        ]

    def _role(self, row: NodeRow, silent_s: float) -> str:
        if row.id == self._lease.holder and self._lease.is_held:
            return "owner"
        return "gone" if silent_s > GONE_LEASES * self._lease.lease_seconds else "standby"


def _addresses(text: str) -> list[OwnerAddress]:
    try:
        return [(str(scheme), str(host), int(port)) for scheme, host, port in json.loads(text or "[]")]
    except (TypeError, ValueError):
        return []


def _host(address: str) -> str:
    """The IP address of a node, as far as it can be told without asking anybody."""
    return address.rpartition(":")[0].strip("[]")
