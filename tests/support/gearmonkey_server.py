"""A real server with a GearMonkey listener, on free ports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.support.servers import HOST, Server, running_switchgear
from tests.support.waiting import eventually


class MonkeyServer(NamedTuple):
    """A server, and where GearMonkey's clients and workers connect."""

    server: Server
    port: int

    @property
    def address(self) -> tuple[str, int]:
        return (HOST, self.port)

    @property
    def url(self) -> str:
        """As libraries for Redis want it."""
        return f"redis://{HOST}:{self.port}/0"


@contextmanager
def running_monkey_server(*args: str, store: str = "memory:") -> Iterator[MonkeyServer]:
    """``switchgear serve`` with a Gearman listener and one for GearMonkey."""
    with running_switchgear("--listen", f"gearmonkey://{HOST}:0", *args, store=store) as server:
        port = eventually(lambda: _port_in(server.output()), "it says where it listens")
        yield MonkeyServer(server, port)


def _port_in(output: str) -> int:
    """Where the first such listener is; 0: it has not said so yet."""
    found = re.search(r"listening on gearmonkey://\S+?:(\d+)\n", output)
    return int(found[1]) if found is not None else 0
