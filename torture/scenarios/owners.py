"""Three nodes that each own a part of the functions, on one PostgreSQL, all of them under load.

Beside what nodes with one owner are put through (`cluster`), nodes are disconnected from PostgreSQL, also in the middle
of a transaction, and from each other.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import psycopg
from tests.support.postgres import ReplicatedPostgres
from tests.support.proxy import Proxy

from torture.peers.load import HOST
from torture.run import Run
from torture.scenarios.cluster import LEASE_SECONDS, STUCK_SECONDS, Node, Nodes, cluster_settings, lives_of_nodes
from torture.server import PATIENCE, Operator, free_port

# So named that each of them owns a function of the load.
NAMES = ("ada", "bob", "max")
COMPLETE_SECONDS = 20.0 * PATIENCE
# A node with little to do may send nothing long enough to be stalled in the middle.
STALL_SECONDS = 3.0
# A job that another node has borrowed for its workers counts as running; it is told of the cancel by a message.
CANCEL_SECONDS = 2.0

# Nodes are reached through proxies.  A node says in its row where it is reached; this puts the proxy in place of that.
THROUGH_PROXIES = """
CREATE FUNCTION torture_address() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.address := coalesce('{proxies}'::jsonb ->> NEW.address::text, NEW.address);
    RETURN NEW;
END $$;
CREATE TRIGGER torture_address BEFORE INSERT OR UPDATE ON sg_node FOR EACH ROW EXECUTE FUNCTION torture_address()
"""


STALLED = (
    b"SELECT 1 FROM pg_stat_activity WHERE wait_event = 'ClientRead' AND now() - xact_start > interval '0.3 s'"
    b" AND pid <> pg_backend_pid()"
)


class OwnerNodes(Nodes):
    """Nodes that all own something."""

    def __init__(self, run: Run, pair: ReplicatedPostgres) -> None:
        self._stack = ExitStack()
        self._link_proxies: dict[str, Proxy] = {}  # in front of each node, for the other nodes
        self._database_proxies: dict[str, list[Proxy]] = {}  # between each node and both PostgreSQLs
        run.history.record("cancels_take", CANCEL_SECONDS)
        super().__init__(run, pair)
        run.settings |= owner_settings(NAMES[0])  # for the node that drains it all at the end
        self._is_founded = False

    def new_nodes(self) -> list[Node]:
        return [self._new_node(name) for name in NAMES]

    def _new_node(self, name: str) -> Node:
        port = free_port(self.run.chance)
        self._link_proxies[name] = self._proxy(port)
        url = self.run.database
        self._database_proxies[name] = []
        for server in (self.pair.primary, self.pair.standby):
            proxy = self._proxy(server.port)
            self._database_proxies[name].append(proxy)
            url = url.replace(f"{HOST}:{server.port}", f"{HOST}:{proxy.port}")
        return Node(self.run, name, url, {**owner_settings(name), "cluster.link_port": port})

    def _proxy(self, port: int) -> Proxy:
        proxy = Proxy(port)
        self._stack.callback(proxy.close)
        return proxy

    def close(self) -> None:
        super().close()
        self._undo_cuts()

    def end(self) -> None:
        super().end()
        self._stack.close()

    async def one_life(self) -> None:
        if not self._is_founded:
            await self._found()
        await super().one_life()

    async def _found(self) -> None:
        """Let the first node create the tables, and the nodes reach each other only through proxies."""
        self._is_founded = True
        first = self.nodes[0]
        first.start()
        assert first.process is not None
        await first.process.answers()
        first.close()
        proxies = {f"{HOST}:{proxy.target}": f"{HOST}:{proxy.port}" for proxy in self._link_proxies.values()}
        with psycopg.connect(self.run.database, autocommit=True) as connection:
            connection.execute(THROUGH_PROXIES.replace("{proxies}", json.dumps(proxies)).encode())

    def compare(self) -> None:
        """Wait until every partition has an owner, or some jobs would not be listed."""
        operator = Operator(self.run.ports)
        until = time.monotonic() + COMPLETE_SECONDS
        try:
            while not operator.hears_everything():
                if time.monotonic() > until:
                    self._stuck(f"some partitions had no owner for {COMPLETE_SECONDS:g} s")
                    return
                time.sleep(0.05)
        finally:
            operator.close()
        self.run.compare()

    # --- faults ---

    def faults(self) -> list[Callable[[], Awaitable[None]]]:
        return [*super().faults(), self._cut_from_database, self._stall_in_transaction, self._cut_links]

    async def _owner(self, *, hide_process: bool = False) -> Node | None:
        """Some node that is not just starting."""
        node = self.run.chance.choice(self.nodes)
        until = time.monotonic() + STUCK_SECONDS
        while not await asyncio.to_thread(self._has_joined, node):
            if time.monotonic() > until:
                self._stuck(f"{node.name} did not join:\n{node.output()[-2000:]}")
                return None
            await asyncio.sleep(0.05)
        if hide_process:
            await asyncio.to_thread(self._hide_process, node.name)
        return node

    def _has_joined(self, node: Node) -> bool:
        """Whether the present process of the node is one of the cluster."""
        process = node.process
        if process is None or not process.is_running():
            return False
        try:
            with psycopg.connect(self.run.database, autocommit=True, connect_timeout=2) as connection:
                rows = connection.execute(b"SELECT process FROM sg_node WHERE epoch > 0").fetchall()
        except psycopg.Error:
            return False
        return any(row[0].split(" ")[2:3] == [str(process.pid)] for row in rows)

    def _has_place(self, node: Node) -> bool:
        return self._has_joined(node)

    def _hide_process(self, name: str) -> None:
        try:
            with psycopg.connect(self.run.database, autocommit=True, connect_timeout=2) as connection:
                connection.execute(b"UPDATE sg_node SET process = '' WHERE name = %s", [name])
        except psycopg.Error:
            pass  # PostgreSQL is away: then the end of the process is seen

    async def _cut_from_database(self) -> None:
        """For twice its lease: others go on, and it ends when it is back."""
        node = await self._owner()
        if node is None:
            return
        process = node.process
        proxies = self._database_proxies[node.name]
        is_silent = self.run.chance.random() < 0.5
        for proxy in proxies:
            if is_silent:
                proxy.hold_answers()  # what it sends arrives, and it hears nothing
            else:
                proxy.go_away()
        self.run.tally.counts["network_faults"] += 1
        begun = time.monotonic()
        await self._acknowledged_elsewhere()
        await asyncio.sleep(max(0.0, 2 * LEASE_SECONDS - (time.monotonic() - begun)))
        await self._replaced(node)
        self._undo_cuts()
        if process is not None and not await asyncio.to_thread(process.wait, STUCK_SECONDS):
            self._stuck(f"{node.name} was replaced, and did not end:\n{node.output()[-2000:]}")

    async def _stall_in_transaction(self) -> None:
        """The first part of a commit arrives, and no more: the database holds the locks of the node."""
        node = await self._owner()
        if node is None:
            return
        process = node.process
        for proxy in self._database_proxies[node.name]:
            proxy.stall_requests()
        until = time.monotonic() + STALL_SECONDS
        while not await asyncio.to_thread(self._is_stalled):
            if time.monotonic() > until:
                self._undo_cuts()
                return
            await asyncio.sleep(0.01)
        self.run.tally.counts["network_faults"] += 1
        await self._acknowledged_elsewhere()
        await self._replaced(node)
        self._undo_cuts()
        if process is not None and not await asyncio.to_thread(process.wait, STUCK_SECONDS):
            self._stuck(f"{node.name} was replaced, and did not end:\n{node.output()[-2000:]}")

    def _is_stalled(self) -> bool:
        """Whether a transaction waits for the rest of what a node has sent, and not for a lock."""
        try:
            with psycopg.connect(self.run.database, autocommit=True, connect_timeout=2) as connection:
                return bool(connection.execute(STALLED).fetchall())
        except psycopg.Error:
            return False

    async def _cut_links(self) -> None:
        """Some nodes cannot be reached by others; all reach the database."""
        proxies = list(self._link_proxies.values())
        for proxy in self.run.chance.sample(proxies, self.run.chance.randint(1, len(proxies))):
            proxy.go_away()
        self.run.tally.counts["network_faults"] += 1
        await asyncio.sleep(self.run.chance.choice((0.3, 1.0, 2.5)) * LEASE_SECONDS)
        self._undo_cuts()
        await self._acknowledged(STUCK_SECONDS)

    def _undo_cuts(self) -> None:
        for proxy in [
            *self._link_proxies.values(),
            *(each for many in self._database_proxies.values() for each in many),
        ]:
            proxy.come_back()
            proxy.release_answers()
            proxy.release_requests()


def owner_settings(name: str) -> dict[str, object]:
    return {**cluster_settings(name), "cluster.mode": "owners"}


async def owners(run: Run) -> None:
    await lives_of_nodes(run, OwnerNodes)
