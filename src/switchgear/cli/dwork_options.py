"""Options of the commands that talk to a dwork server."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from switchgear.cli.output import duration_option
from switchgear.client.dwork.address import DEFAULT_URL, DworkAddress
from switchgear.errors import ConfigError

if TYPE_CHECKING:
    from switchgear.client.dwork.aio import AsyncDworkClient
    from switchgear.client.dwork.blocking import DworkClient
    from switchgear.client.zeromq_sockets import CurveKeys

__all__ = ["DworkServer", "host_name", "link_options", "read_server", "server_option"]

F = TypeVar("F", bound=Callable[..., Any])

SERVER_VARIABLE: Final = "SWITCHGEAR_DWORK_SERVER"
SERVER_KEY_VARIABLE: Final = "SWITCHGEAR_DWORK_SERVER_KEY"
KEY_VARIABLE: Final = "SWITCHGEAR_DWORK_KEY"
DEFAULT_TIMEOUT: Final = "10"


@dataclass(frozen=True, slots=True)
class DworkServer:
    """The server, its keys and the timeout that were given."""

    url: str
    timeout_seconds: float
    keys: CurveKeys | None

    def client(self, location: str = "") -> DworkClient:
        """A blocking client of the server."""
        from switchgear.client.dwork.blocking import DworkClient

        return DworkClient(self.url, **self._arguments(location))

    def async_client(self, location: str = "") -> AsyncDworkClient:
        """An asyncio client of the server."""
        from switchgear.client.dwork.aio import AsyncDworkClient

        return AsyncDworkClient(self.url, **self._arguments(location))

    def _arguments(self, location: str) -> dict[str, Any]:
        return {"location": os.fsencode(location), "timeout_seconds": self.timeout_seconds, "keys": self.keys}


def server_option(command: F) -> F:
    """`-s URL`, for the group and for each command, as people expect it at either place."""
    return click.option(
        "--server",
        "-s",
        metavar="URL",
        help=f"The server, as dwork://HOST:PORT or tcp://HOST:PORT. Default: {SERVER_VARIABLE}, or {DEFAULT_URL}.",
    )(command)


def read_server(text: str | None) -> str | None:
    """Check an address; raises BadParameter."""
    try:
        return None if text is None else str(DworkAddress.parse(text))
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--server") from None


def link_options(command: F) -> F:
    """The options of a command that talks to a server, which gets a `link` instead of them."""

    @server_option
    @duration_option(
        "--timeout", f"How long the server may take to answer. Default: {DEFAULT_TIMEOUT}.", DEFAULT_TIMEOUT
    )
    @click.option(
        "--server-key",
        metavar="FILE",
        envvar=SERVER_KEY_VARIABLE,
        help="The public key of a server that encrypts, a file that ends in .key."
        f" Default: {SERVER_KEY_VARIABLE}, or none.",
    )
    @click.option(
        "--key",
        metavar="FILE",
        envvar=KEY_VARIABLE,
        help="Your key, for a server that requires one: a file that ends in .key_secret."
        f" Default: {KEY_VARIABLE}, or a new one.",
    )
    @click.pass_context
    @functools.wraps(command)
    def with_link(
        ctx: click.Context,
        /,
        *args: Any,
        server: str | None,
        timeout: float,
        server_key: str | None,
        key: str | None,
        **rest: Any,
    ) -> Any:
        named = read_server(server) or ctx.obj or read_server(os.environ.get(SERVER_VARIABLE) or None)
        link = DworkServer(named or DEFAULT_URL, timeout, _keys(server_key, key))
        return command(*args, link=link, **rest)

    return with_link  # type: ignore[return-value]


def _keys(server_key: str | None, key: str | None) -> CurveKeys | None:
    if not server_key and not key:
        return None
    from switchgear.client.zeromq_sockets import CurveKeys

    return CurveKeys.load(server_key or (), key or "")


def host_name() -> str:
    """The host name of this machine."""
    return socket.gethostname()
