"""`switchgear device`: forwards WMP messages between workers and managers."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from switchgear.cli.output import reading
from switchgear.cli.process import raise_file_descriptors
from switchgear.client.wmp.address import ManagerAddress
from switchgear.config import SETTINGS, Config, LimitsConfig, ListenUrl, LogConfig, ZeromqConfig
from switchgear.config.setting_types import Choice
from switchgear.errors import ConfigError

if TYPE_CHECKING:
    from switchgear.client.zeromq_sockets import CurveKeys

__all__ = ["device"]

DEFAULT_PORT: Final = 5715  # next to that of managers, which may be on the same machine
DEFAULT_LISTEN: Final = f"wmp://127.0.0.1:{DEFAULT_PORT}"

_EPILOG = """\b
Examples:
  switchgear device --manager wmp://jobs1.example --manager wmp://jobs2.example
  switchgear device --listen wmp://10.0.0.1:5715 --allow-remote --manager wmp://127.0.0.1:5714
  switchgear device --listen wmp://127.0.0.1:5716 --manager wmp://127.0.0.1:5715 --identity rack7

\b
Signals:
  TERM, INT  stop; running jobs continue, and reports of workers wait until the device is started again
  USR1       log how many messages were forwarded, and how many could not be
"""


def _listen_url(text: str) -> ListenUrl:
    url = ListenUrl.parse(text)
    if url.scheme != "wmp":
        raise ValueError(f'"{text}": a device listens on wmp://, not {url.scheme}://')
    if url.options:
        raise ValueError(f'"{text}": {", ".join(url.options)} is for managers, not for devices')
    return url if urlsplit(text.strip()).port is not None else replace(url, port=DEFAULT_PORT)


def _manager_url(text: str) -> str:
    return str(ManagerAddress.parse(text))


def _levels() -> click.Choice[str]:
    kind = SETTINGS["log.level"].kind
    assert isinstance(kind, Choice)
    return click.Choice(kind.words, case_sensitive=False)


@click.command(epilog=_EPILOG)
@click.option(
    "--listen",
    default=DEFAULT_LISTEN,
    show_default=True,
    callback=reading(_listen_url),
    metavar="URL",
    help="The address at which workers, and devices below this one, connect.",
)
@click.option(
    "--manager",
    "managers",
    multiple=True,
    required=True,
    callback=reading(_manager_url),
    metavar="URL",
    help="A manager, or a device above this one; may be given several times. Workers register with all of them.",
)
@click.option(
    "--identity",
    default="",
    metavar="NAME",
    help="The name by which managers identify the device. It must be unique among devices, and the same after a restart"
    " of the device. Default: device:HOST:PORT.",
)
@click.option(
    "--server-key",
    "server_keys",
    multiple=True,
    metavar="FILE",
    help="The public key of managers that encrypt, a file that ends in .key: one for all of them, or one for each in"
    " the order of --manager.",
)
@click.option(
    "--key",
    default="",
    metavar="FILE",
    help="The key pair of the device, a file that ends in .key_secret. With it, workers must encrypt, and managers with"
    " a --server-key identify the device by it.",
)
@click.option(
    "--curve-clients-dir",
    default="",
    metavar="DIR",
    help="The public keys (files that end in .key) of the workers that may connect. Default: all that know the"
    " device's public key.",
)
@click.option("--message-bytes", default="64MiB", show_default=True, metavar="SIZE", help="The largest payload.")
@click.option(
    "--messages-per-peer",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="The maximum number of messages that wait for one worker or manager. A worker with more counts as lost.",
)
@click.option("--allow-remote", is_flag=True, help="Permit listening on addresses that other machines can reach.")
@click.option(
    "--log-level", type=_levels(), default="info", show_default=True, help="The lowest level of messages to log."
)
def device(
    listen: ListenUrl,
    managers: tuple[str, ...],
    identity: str,
    server_keys: tuple[str, ...],
    key: str,
    curve_clients_dir: str,
    message_bytes: str,
    messages_per_peer: int,
    allow_remote: bool,
    log_level: str,
) -> None:
    """Forward WMP messages between workers and managers.

    Workers connect to one device instead of every manager, and can be in a network that managers cannot reach. Devices
    can be chained. A device stores no jobs: if messages are lost with it, the managers recover, provided that their
    workers send heartbeats.
    """
    if not (listen.is_loopback or allow_remote or key):
        raise ConfigError(
            f"--listen: other machines can reach {listen}, which has no encryption; if that is wanted, say so with"
            " --allow-remote, or encrypt with --key"
        )
    config = Config(
        listen=(listen,),
        allow_remote=allow_remote,
        limits=LimitsConfig(packet_bytes=_size(message_bytes)),
        zeromq=ZeromqConfig(
            curve_key_file=key, curve_clients_dir=curve_clients_dir, messages_per_peer=messages_per_peer
        ),
        log=LogConfig(level=log_level),
    )
    keys = _keys(server_keys, key)
    raise_file_descriptors(config.limits.connections)
    # After the checks, so that mistakes are reported at once.
    from switchgear.client.wmp.device_process import WmpDevice
    from switchgear.net.process.log_setup import configure_log

    running = WmpDevice(
        listen,
        managers,
        allow_remote=allow_remote,
        identity=identity,
        keys=keys,
        zeromq=config.zeromq,
        limits=config.limits,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.stop())
    signal.signal(signal.SIGUSR1, lambda *_: running.log_counts())
    configure_log(config)
    click.echo(f"listening on {running.url}")
    running.run()


def _keys(server_keys: tuple[str, ...], key: str) -> CurveKeys | None:
    """The keys for managers; None if managers do not encrypt."""
    from switchgear.client.zeromq_sockets import CurveKeys, load_key_pair

    if server_keys:
        return CurveKeys.load(server_keys, key)
    if key:
        load_key_pair(key)  # so that the error names the option
    return None


def _size(text: str) -> int:
    kind = SETTINGS["limits.packet_bytes"].kind
    try:
        size = kind.read_text(text)
    except ValueError as error:
        raise ConfigError(f"--message-bytes: {str(error) or f'expected {kind.expected}, got {text!r}'}") from None
    assert isinstance(size, int)
    return size
