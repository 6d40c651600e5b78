"""`DashboardOnRequest`: opens an HTTP listener for the dashboard when the verb `open_dashboard` requests it.

Only the server of an embedded directory has it: nobody has written a configuration for it, and most programs that run
one never look at a dashboard, so they should neither listen for HTTP nor import what that needs.
"""

from __future__ import annotations

import asyncio
from typing import Final

from switchgear.config import ListenUrl
from switchgear.errors import AddressInUse, Refused, SwitchgearError
from switchgear.net.listeners import Listeners
from switchgear.protocol_registry import load_factory, protocol_named
from switchgear.protocols.pending_read import PendingRead
from switchgear.refusals import REFUSED_CONFLICT

__all__ = ["DashboardOnRequest"]

_SCHEME: Final = "http"
_HOST: Final = "127.0.0.1"


class DashboardOnRequest:
    """The listener that is opened at the first request; those who ask meanwhile wait for the same one."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._opening: asyncio.Task[None] | None = None

    def open(self, port: int) -> PendingRead:
        """Open the listener, at this port; 0 is the port of HTTP listeners, or else one that is free."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open(port))
        read = PendingRead()

        def ended(opening: asyncio.Task[None]) -> None:
            self._opening = None
            error = None if opening.cancelled() else opening.exception()
            if opening.cancelled() or isinstance(error, SwitchgearError | OSError):
                text = "the server is stopping" if error is None else str(error)
                read.finish(None, Refused(REFUSED_CONFLICT, text))
            else:
                read.finish(None, error if isinstance(error, Exception) else None)

        self._opening.add_done_callback(ended)
        return read

    def close(self) -> None:
        """Give up what is not open yet."""
        if self._opening is not None:
            self._opening.cancel()

    async def _open(self, port: int) -> None:
        plugin = protocol_named(_SCHEME)
        # Importing takes tens of milliseconds, in which the event loop serves others.
        await asyncio.to_thread(load_factory, plugin)
        if port:
            await self._listeners.add(ListenUrl(_SCHEME, _HOST, port))
            return
        try:
            await self._listeners.add(ListenUrl(_SCHEME, _HOST, plugin.default_port))
        except AddressInUse:
            await self._listeners.add(ListenUrl(_SCHEME, _HOST, 0))
