"""`open_stream`: connects a Gearman core to a server, over Gearman or HTTP, with TLS or without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from switchgear.client.address import HttpServerAddress, ServerAddress

__all__ = ["open_stream"]


async def open_stream(factory: Callable[[], asyncio.Protocol], address: ServerAddress) -> None:
    """Connect; raises OSError, UnicodeError, ConfigError, or ServerUnreachable if something else answers."""
    if isinstance(address, HttpServerAddress):
        from switchgear.client.http.stream import HttpStream  # few need it

        await HttpStream.open(factory, address)
        return
    loop = asyncio.get_running_loop()
    await loop.create_connection(factory, address.host, address.port, ssl=address.tls_context())
