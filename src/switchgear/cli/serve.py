"""`switchgear serve`: builds the configuration and runs the server."""

from __future__ import annotations

import os
from pathlib import Path

import click

from switchgear.cli.demo_addresses import with_demo_listeners
from switchgear.cli.main import LOG_FORMAT
from switchgear.cli.process import raise_file_descriptors
from switchgear.cli.progress import ProgressBar
from switchgear.config import SETTINGS, Config, load_config
from switchgear.config.setting_types import Choice
from switchgear.protocol_registry import built_in_protocols

__all__ = ["serve"]

_EXAMPLES = """\b
Examples:
  switchgear serve
  switchgear serve --store memory: --log-level debug
  switchgear serve --config /etc/switchgear.toml --listen gearman://0.0.0.0:4730 --allow-remote
  switchgear serve --set limits.packet_bytes=16MiB --set engine.attempts=5
  switchgear serve --listen gearman://127.0.0.1:4731 --listen gearman-worker://127.0.0.1:4730

\b
Signals:
  TERM, INT  drain: running jobs may finish, up to --drain-timeout; a second one stops at once
  HUP        read the configuration again and reopen the log file
  USR1       stop when no job is left
"""


def _listening_urls() -> str:
    """The paragraph of the help about what `--listen` takes."""
    lines = ["\b", "Listening URLs, by protocol, with their options:"]
    for protocol in built_in_protocols().values():
        url = f"{protocol.scheme}://HOST:{protocol.default_port}"
        lines.append(f"  {url:27} {', '.join(page.title for page in protocol.pages)}")
        if protocol.options:
            lines.append(f"{'':30}?{', '.join(protocol.options)}")
    return "\n".join(lines)


_EPILOG = f"{_EXAMPLES}\n{_listening_urls()}\n"


def _words(name: str) -> click.Choice[str]:
    kind = SETTINGS[name].kind
    assert isinstance(kind, Choice)
    return click.Choice(kind.words, case_sensitive=False)


@click.command(epilog=_EPILOG)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read settings from this TOML file. Default: SWITCHGEAR_CONFIG, if that is set.",
)
@click.option(
    "--listen",
    multiple=True,
    metavar="URL",
    help="Listen on this address; may be given several times. Default: every protocol at its usual port on 127.0.0.1.",
)
@click.option(
    "--store",
    metavar="URL",
    help="Where to store jobs: sqlite:PATH, postgresql://USER@HOST/DATABASE, or memory: to store none."
    " Default: switchgear.db in the state directory.",
)
@click.option(
    "--sync",
    type=_words("storage.sync"),
    help="What an acknowledgement guarantees for sqlite:. full: the job survives a power failure; each commit, which"
    " includes all jobs that arrived in the meantime, waits for one fsync. normal: the job survives a crash of the"
    " server, but jobs acknowledged just before a power failure or kernel crash can be lost. Default: full.",
)
@click.option(
    "--joblog",
    metavar="URL",
    help="The database of the job log, for `switchgear log`: sqlite:PATH, postgresql://USER@HOST/DATABASE, or off."
    " Default: a file next to that of the jobs; off for --store memory:.",
)
@click.option(
    "--drain-timeout",
    metavar="TIME",
    help="How long running jobs may take to finish when the server stops, such as 90s or 5m. Default: 30s.",
)
@click.option("--log-level", type=_words("log.level"), help="The lowest level of messages to log. Default: info.")
@click.option("--log-file", metavar="FILE", help="Log to this file. Default: standard error.")
@click.option(
    "--log-format", type=_words("log.format"), help="Lines of text, or one JSON object per line. Default: text."
)
@click.option(
    "--allow-remote",
    is_flag=True,
    default=None,
    help="Allow listening on addresses that other machines can reach, without encryption or without identities: every"
    " peer that can connect has the rights of anonymous peers. Listeners with TLS and an access file, and ZeroMQ"
    " listeners with a key, do not need this option.",
)
@click.option(
    "--access-file",
    metavar="FILE",
    help="The file that lists identities and their roles; `switchgear access` writes it.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set any setting by its name in the configuration file; `switchgear config show` lists all.",
)
@click.option(
    "--demo",
    is_flag=True,
    help="At the start, send a job from each kind of submitter to each kind of worker, and print the results.",
)
@click.pass_context
def serve(
    ctx: click.Context,
    file: Path | None,
    listen: tuple[str, ...],
    store: str | None,
    sync: str | None,
    joblog: str | None,
    drain_timeout: str | None,
    log_level: str | None,
    log_file: str | None,
    log_format: str | None,
    allow_remote: bool | None,
    access_file: str | None,
    settings: tuple[str, ...],
    demo: bool,
) -> None:
    """Run the job server until it receives a signal to stop.

    Settings come from the command line, then from environment variables (SWITCHGEAR_LISTEN,
    SWITCHGEAR_LIMITS_PACKET_BYTES, ...), then from the file, then from the defaults.
    """
    flags: dict[str, object] = {
        "listen": listen or None,
        "store": store,
        "storage.sync": sync,
        "joblog.url": joblog,
        "drain_timeout_seconds": drain_timeout,
        "log.level": log_level,
        "log.file": log_file,
        "log.format": log_format,
        "allow_remote": allow_remote,
        "access.file": access_file,
    }
    _add_settings(flags, settings)
    # Errors in other settings are told in this format too.
    ctx.meta[LOG_FORMAT] = str(flags.get("log.format") or os.environ.get("SWITCHGEAR_LOG_FORMAT") or "text")

    def load() -> Config:
        config = load_config(file, os.environ, flags)
        return with_demo_listeners(config) if demo else config

    config = load()
    ctx.meta[LOG_FORMAT] = config.log.format
    raise_file_descriptors(config.limits.connections)
    # After the checks, so that mistakes are reported at once.
    from switchgear.cli.demo import Demo
    from switchgear.net.process.service_manager import ServiceManager
    from switchgear.net.service import run_server

    manager = ServiceManager.from_environment(os.environ)
    bar = ProgressBar("restored", quiet=config.log.format == "json")
    ctx.exit(
        run_server(
            config,
            reload=load,
            demo=Demo(config) if demo else None,
            manager=manager,
            restore_display=bar if bar.is_shown else None,
        )
    )


def _add_settings(flags: dict[str, object], settings: tuple[str, ...]) -> None:
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE", param_hint="--set")
        if flags.get(name) is not None:
            raise click.BadParameter(f"{name} is given twice", param_hint="--set")
        flags[name] = value
