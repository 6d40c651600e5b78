"""`switchgear trace`: a proxy that prints the packets between clients and a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import click

from switchgear.cli.output import server_option
from switchgear.client.address import ServerAddress
from switchgear.client.gearman.error_codes import error_in_packet
from switchgear.client.gearman.packets import response_decoder
from switchgear.client.sockets import CONNECT_SECONDS, describe_os_error
from switchgear.errors import ClientError, ConfigError, ServerUnreachable
from switchgear.protocols.gearman.codec import REQUEST, RESPONSE, TEXT, GearmanDecoder, request
from switchgear.protocols.gearman.messages import ARGUMENTS, Packet
from switchgear.text import printable, without_secrets

__all__ = ["trace"]

_READ_BYTES: Final = 65_536
_PACKET_BYTES: Final = 64 * 1024 * 1024
_MOST_FIELDS: Final = 8  # of packets that only servers send
_SENT: Final = ">"
_RECEIVED: Final = "<"

Show = Callable[[str], None]


class PacketTrace:
    """One direction of one connection: turns its bytes into lines of text.

    What is not a Gearman packet or a line of text is shown as bytes. Tokens are not shown.
    """

    def __init__(self, magic: int, shown_bytes: int, start: str, show: Show) -> None:
        self._decoder: GearmanDecoder | None = GearmanDecoder(magic, _PACKET_BYTES)
        self._shown_bytes = shown_bytes
        self._start = start
        self._show = show

    def feed(self, data: bytes) -> None:
        """Print the packets that these bytes complete."""
        if self._decoder is None:
            self._show(f"{self._start} {self._shortened(data)}")
            return
        for kind, body in self._decoder.feed(data):
            self._show(f"{self._start} {self._described(kind, body)}")
        if self._decoder.failure is not None:
            self._show(f"{self._start} no Gearman packets from here on: {self._decoder.failure}")
            self._decoder = None

    def _described(self, kind: int, body: bytes) -> str:
        if kind == TEXT:
            return self._shortened(body)
        try:
            packet = Packet(kind)
        except ValueError:
            return f"packet {kind} {self._shortened(body)}"
        if packet is Packet.AUTHENTICATE:
            return f"{packet.name} (a token, not shown)"
        fields = body.split(b"\0", max(0, ARGUMENTS.get(packet, _MOST_FIELDS) - 1)) if body else []
        return " ".join([packet.name, *map(self._shortened, fields)])

    def _shortened(self, data: bytes) -> str:
        text = printable(without_secrets(data[: self._shown_bytes].decode("utf-8", "backslashreplace")))
        rest = len(data) - self._shown_bytes
        return f'"{text}"' + (f" and {rest} more bytes" if rest > 0 else "")


class TracingProxy:
    """Passes connections on to a server, and shows their packets."""

    def __init__(self, address: ServerAddress, shown_bytes: int, show: Show) -> None:
        self._address = address
        self._shown_bytes = shown_bytes
        self._show = show
        self._began = time.monotonic()
        self._count = 0
        self.ended = asyncio.Event()  # set when a connection has ended

    def _line(self, text: str) -> None:
        self._show(f"{time.monotonic() - self._began:9.3f} {text}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on until both sides have closed it."""
        self._count += 1
        number = f"#{self._count}"
        host, port = writer.get_extra_info("peername")[:2]
        self._line(f"{number} opened by {host}:{port}")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                there = await self._connect()
        except (ClientError, ConfigError) as error:
            self._line(f"{number} {self._address}: {error}")
        except OSError as error:
            self._line(f"{number} {self._address}: {describe_os_error(error)}")
        else:
            requests = PacketTrace(REQUEST, self._shown_bytes, f"{number} {_SENT}", self._line)
            responses = PacketTrace(RESPONSE, self._shown_bytes, f"{number} {_RECEIVED}", self._line)
            await asyncio.gather(pass_on(reader, there[1], requests), pass_on(there[0], writer, responses))
            there[1].close()
        writer.close()
        self._line(f"{number} closed")
        self.ended.set()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server, with TLS and the token if there are some; raises OSError, ClientError or
        ConfigError."""
        address = self._address
        token = address.token
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=address.tls_context())
        if token:
            try:
                await authenticate(reader, writer, token)
            except BaseException:
                writer.close()
                raise
        return reader, writer


async def authenticate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    """Send the token, and read the answer; raises OSError or ClientError."""
    writer.write(request(Packet.AUTHENTICATE, token.encode()))
    decoder = response_decoder()
    while True:
        data = await reader.read(_READ_BYTES)
        if not data:
            raise ServerUnreachable("the server closed the connection")
        for kind, body in decoder.feed(data):
            if kind == Packet.ERROR:
                raise error_in_packet(body)
            return
        if decoder.failure is not None:
            raise ServerUnreachable(f"it does not speak Gearman: {decoder.failure}")


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, packets: PacketTrace) -> None:
    """Pass the bytes of one direction on as they are, then show them."""
    try:
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            packets.feed(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()  # TLS cannot end one direction alone
    except OSError:
        writer.close()  # one side was cut off, so the other is too


@click.command(
    epilog="""\b
Examples:
  switchgear trace
  switchgear submit reverse hello --server gearman://127.0.0.1:4799
  switchgear trace --port 5000 --once --bytes 2000 --server gearman://jobs.example:4730
"""
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=4799,
    show_default=True,
    help="The port to listen on; 0 for any free port.",
)
@click.option(
    "--bytes",
    "shown_bytes",
    type=click.IntRange(0),
    default=80,
    show_default=True,
    help="How many bytes of each field to print.",
)
@click.option("--once", is_flag=True, help="Exit when the first connection closes.")
@server_option
def trace(port: int, shown_bytes: int, once: bool, server: str) -> None:
    """Show the packets between a client or worker and the server.

    The command listens on 127.0.0.1 and forwards connections to the server. Connect the client or worker to its port. A
    line has the seconds since the start, the number of the connection, > for packets to the server or < for packets
    from it, and the packet with its fields. Other protocols are forwarded too, and printed as bytes.

    With gearmans://, connections to the server are encrypted, and those to this command are not. With a token or a
    client certificate, everybody on this machine who connects to the port has its identity. With a token, only Gearman
    can be forwarded. Tokens made by `switchgear access` are not printed.
    """
    address = ServerAddress.parse(server)
    try:
        asyncio.run(_trace(address, port, shown_bytes, once))
    except OSError as error:
        raise ServerUnreachable(f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}") from None


async def _trace(address: ServerAddress, port: int, shown_bytes: int, once: bool) -> None:
    # Problems with the token or the files for TLS are told before somebody connects.
    assert address.token is not None
    address.tls_context()
    proxy = TracingProxy(address, shown_bytes, lambda line: click.echo(line))
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", port) as listener:
        own = listener.sockets[0].getsockname()[1]
        click.echo(f"listening on gearman://127.0.0.1:{own}, passing on to {address}")
        if once:
            await proxy.ended.wait()
        else:
            await listener.serve_forever()
