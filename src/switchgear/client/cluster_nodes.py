"""`ClusterNodes`: the nodes of one cluster, written as one URL: `gearman://web1:4730+web2:4730+web3`.

Every node serves every job of the cluster, so to a client they are one server that may move. A comma would not do
between them: it separates servers with jobs of their own, in the environment variables.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Final

from switchgear.client.address import ServerAddress, server_address
from switchgear.client.connection_security import ConnectionSecurity
from switchgear.client.sockets import describe_os_error
from switchgear.errors import ConfigError, ServerUnreachable

__all__ = ["NODE_SEPARATOR", "ClusterNodes", "server_at"]

NODE_SEPARATOR: Final = "+"

# A node that does not accept a connection for so long is passed over. The system accepts them for a process that is
# busy, so what is slow here is the network.
ACCEPT_SECONDS: Final = 1.0


class ClusterNodes:
    """A `Locator`: finds a node that accepts connections, another one each time."""

    def __init__(self, nodes: Sequence[ServerAddress]) -> None:
        self.nodes = tuple(nodes)
        self._next = 0
        self._lock = threading.Lock()

    @classmethod
    def parse(cls, text: str) -> ClusterNodes:
        """Read a URL; raises ConfigError."""
        first, *others = text.strip().split(NODE_SEPARATOR)
        node = server_address(first)
        scheme = first.strip().partition("://")[0] + "://" if "://" in first else ""
        nodes = [node]
        for other in others:
            if "://" in other:
                raise ConfigError(f'"{text}": the nodes of a cluster are written as {node}+HOST:PORT, with one scheme')
            nodes.append(server_address(f"{scheme}{other}"))
        return cls(list(dict.fromkeys(nodes)))

    def secured_by(self, security: ConnectionSecurity) -> ClusterNodes:
        """The same nodes with other settings of the client."""
        return ClusterNodes([node.secured_by(security) for node in self.nodes])

    @property
    def security(self) -> ConnectionSecurity:
        """The settings of the client, the same for all nodes."""
        return self.nodes[0].security

    def address(self) -> ServerAddress:
        """The next node that accepts connections; blocks for at most some seconds. Raises ServerUnreachable.

        The next: a node that accepts connections need not answer, and then its client asks again.
        """
        with self._lock:
            first = self._next
            self._next = (first + 1) % len(self.nodes)
        problems = []
        for place in range(first, first + len(self.nodes)):
            node = self.nodes[place % len(self.nodes)]
            try:
                socket.create_connection((node.host, node.port), ACCEPT_SECONDS).close()
            except (OSError, UnicodeError) as error:
                problems.append(f"{node}: {describe_os_error(error)}")
                continue
            with self._lock:
                self._next = (place + 1) % len(self.nodes)
            return node
        raise ServerUnreachable(f"cannot connect to any node of the cluster ({'; '.join(problems)})")

    def __str__(self) -> str:
        first, *others = map(str, self.nodes)
        return NODE_SEPARATOR.join([first, *(other.partition("://")[2] for other in others)])


def server_at(url: str, token: str | None = None) -> ServerAddress | ClusterNodes:
    """The server of a URL, which may be that of a cluster; raises ConfigError. `token` identifies the client; default:
    that of the environment."""
    server = ClusterNodes.parse(url) if NODE_SEPARATOR in url else server_address(url)
    return server.secured_by(server.security.with_token(token))
