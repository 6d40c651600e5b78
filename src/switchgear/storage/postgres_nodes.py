"""`PostgresNodes`: the table of servers that share one PostgreSQL database, and settings that must be equal on all.

Each node gives signs of life in its own row of `sg_node`, for people to see and for the limits of connections. Which
node owns the jobs is decided by the lease alone (`postgres_lease`).
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from switchgear.errors import ConfigError
from switchgear.storage.postgres_reads import PostgresReads, number
from switchgear.storage.postgres_rows import bigint, integer_array

__all__ = ["NodeRow", "PostgresNodes"]


class NodeRow(NamedTuple):
    """The row of a node in the table of nodes."""

    id: int
    name: str
    address: str
    is_owner: bool
    version: str
    beat: int


class PostgresNodes:
    """Reads and writes the rows of nodes."""

    def __init__(self, reads: PostgresReads) -> None:
        self._reads = reads

    async def check_replication(self) -> None:
        """Raise ConfigError if a fail-over of PostgreSQL could lose commits."""
        result = await self._reads.ask(self._reads.reader, "replication")
        standbys, commit = (bytes(result.get_value(0, place) or b"").decode() for place in range(2))
        if not standbys or commit in ("off", "local"):
            setting = "synchronous_standby_names is empty" if not standbys else f"synchronous_commit is {commit}"
            raise ConfigError(
                f"cluster: {setting} in PostgreSQL: if its primary fails, jobs that were acknowledged are lost, and so"
                " is the record of which node owns them, so that two nodes could believe that they do; set it, or say"
                " that you accept this with cluster.allow_async = true"
            )

    async def shared_prefix(self, prefix: str) -> str:
        """The prefix of handles that all nodes use: the first one that was proposed."""
        return await self._shared_text("handle_prefix", prefix) or prefix

    async def shared_secret(self) -> bytes:
        """A secret of all nodes, by which they recognise each other."""
        return bytes.fromhex(await self._shared_text("node_secret", secrets.token_hex(32)))

    async def _shared_text(self, key: str, proposed: str) -> str:
        await self._reads.ask(self._reads.reader, "propose_text", key.encode(), proposed.encode())
        result = await self._reads.ask(self._reads.reader, "meta_text", key.encode())
        return bytes(result.get_value(0, 0) or b"").decode()

    async def announce(self, node: NodeRow) -> float:
        """Give a sign of life in the row of this node; returns the time by the clock of PostgreSQL."""
        role = bigint(int(node.is_owner))
        texts = [text.encode() for text in (node.name, node.address, node.version)]
        result = await self._reads.ask(self._reads.reader, "announce_node", bigint(node.id), *texts, role)
        return number(result, 0, 0) / 1e6

    async def read(self) -> list[NodeRow]:
        """All nodes that were announced and not forgotten, by name."""
        result = await self._reads.ask(self._reads.reader, "nodes")
        nodes: list[NodeRow] = []
        for row in range(result.ntuples):
            name, address, version = (bytes(result.get_value(row, place) or b"").decode() for place in (1, 2, 3))
            is_owner = bool(number(result, row, 4))
            nodes.append(NodeRow(number(result, row, 0), name, address, is_owner, version, number(result, row, 5)))
        return nodes

    async def forget(self, node_ids: list[int]) -> None:
        """Delete the rows of nodes that have ended."""
        await self._reads.ask(self._reads.reader, "forget_nodes", integer_array(node_ids))

    async def forget_named(self, name: str) -> None:
        """Delete the row of a node that is started again under its name."""
        await self._reads.ask(self._reads.reader, "forget_node_named", name.encode())
