"""`switchgear gearmand`: gearmand's options with gearmand's meaning, so that only the program's name changes.

Where the default of an option is visible to peers (how many workers are woken, how often a job is tried, in which order
functions are served), it is gearmand's. Three things differ on purpose: without `--listen` only this machine can
connect, TCP keepalive is always on, and there is no pid file unless one is named.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import click

from switchgear.cli.gearmand_flags import FLAGS, GearmandFlag, parse_file, parse_words, rows
from switchgear.cli.main import ExitCode, report
from switchgear.cli.process import OnListening, ProcessOptions, raise_file_descriptors, run_process
from switchgear.config import SETTINGS, Config, ListenUrl, load_config
from switchgear.errors import ConfigError
from switchgear.numbers import whole_number
from switchgear.version import VERSION

__all__ = ["GearmandSettings", "gearmand", "translate"]

# As Debian's gearmand has them.
DEFAULT_CONFIG_FILE = Path("/etc/gearmand.conf")
DEFAULT_LOG_FILE = "/var/log/gearmand.log"
DEFAULT_PORT = "4730"
DEFAULT_HTTP_PORT = "8080"
GEARMAND_VERSION = "1.1.20"

# The versions whose rules can be chosen, and what they set.
VERSIONS: Mapping[str, Mapping[str, object]] = {
    "1.1": {"engine.function_order": "registration"},
    "2.0": {"engine.function_order": "fair"},
}
MOST_RETRIES_OF_2 = 255
BIND_RETRY_SECONDS = 22  # gearmand's: seven attempts, whose pauses grow

_LEVELS = {
    "FATAL": "critical",
    "ALERT": "critical",
    "CRITICAL": "critical",
    "ERROR": "error",
    "WARNING": "warning",
    "NOTICE": "info",  # there is no level between; rather too much than too little
    "INFO": "info",
    "DEBUG": "debug",
}

# Options, their variables, and the options of the listening URL.
_TLS_FILES = (
    ("ssl-certificate", "GEARMAND_SERVER_PEM", "cert"),
    ("ssl-key", "GEARMAND_SERVER_KEY", "key"),
    ("ssl-ca-file", "GEARMAND_CA_CERTIFICATE", "client_ca"),
)


@dataclass(frozen=True, slots=True)
class GearmandSettings:
    """The settings, process options and warnings that gearmand's options are translated to."""

    flags: Mapping[str, object]  # by setting
    defaults: Mapping[str, object]  # by setting; environment and TOML file go before them
    process: ProcessOptions
    warnings: list[str] = field(default_factory=list)

    def load(self, environ: Mapping[str, str]) -> Config:
        """The configuration, with settings from the environment that gearmand has no option for."""
        return load_config(None, environ, self.flags, defaults=self.defaults)


class _RawCommand(click.Command):
    """A click command that does not parse its arguments, because gearmand's options are parsed as gearmand does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = tuple(args)
        return []


@click.command(cls=_RawCommand, add_help_option=False)
@click.pass_context
def gearmand(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Run the job server with gearmand's own options."""
    try:
        given = parse_words(words)
        if "help" in given:
            click.echo(_help(ctx))
        elif "version" in given:
            version = _version(given)
            place = GEARMAND_VERSION if GEARMAND_VERSION.startswith(version) else version
            click.echo(f"\nswitchgear {VERSION}, in place of gearmand {place}")
        else:
            ctx.exit(_run(given))
    except ConfigError as error:
        report(error, "switchgear gearmand")
        ctx.exit(ExitCode.FAILED)  # not 2: gearmand's only code for failure, and harnesses may compare


def _run(given: Mapping[str, str]) -> int:
    settings = _read_settings(given)
    config = settings.load(os.environ)
    if not settings.flags.get("allow_remote") and all(url.is_loopback for url in config.listen):
        settings.warnings.append("only this machine can connect; --listen=0.0.0.0 would be gearmand's default")
    for warning in settings.warnings:
        _warn(warning)
    if "check-args" in given:
        return ExitCode.SUCCESS
    if not settings.process.file_descriptors:
        raise_file_descriptors(config.limits.connections)
    # Now, and not as another user, who may not be permitted to read where this program is installed.
    from switchgear.net.process.service_manager import ServiceManager
    from switchgear.net.service import run_server

    def serve(on_listening: OnListening) -> int:
        return run_server(
            _with_usable_log(config),
            reload=lambda: _with_usable_log(_read_settings(given).load(os.environ)),
            on_listening=on_listening,
            is_silent=True,  # as gearmand is
            manager=ServiceManager.from_environment(os.environ),
        )

    return run_process(settings.process, serve)


def _read_settings(given: Mapping[str, str]) -> GearmandSettings:
    """Add the options of the configuration file, and translate."""
    warnings: list[str] = []
    file = Path(given.get("config-file", DEFAULT_CONFIG_FILE))
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if "config-file" in given:
            raise ConfigError(f"cannot read the configuration file {file}: {error.strerror}") from None
        text = ""
    in_file = parse_file(text, lambda word: warnings.append(f"{file}: '{word}' is not an option and is left out"))
    settings = translate({**in_file, **given}, os.environ)
    return replace(settings, warnings=warnings + settings.warnings)


def translate(given: Mapping[str, str], environ: Mapping[str, str]) -> GearmandSettings:
    """Translate options by name to settings, process options and warnings."""
    for name in given:
        if FLAGS[name].fate == "refused":
            raise ConfigError(f"--{name}: {FLAGS[name].help}")
    warnings = [f"--{name} has no effect: {FLAGS[name].help}" for name in given if FLAGS[name].fate == "ignored"]
    flags: dict[str, object] = {}
    for name, argument in given.items():
        setting = FLAGS[name].setting
        if setting and not (name.startswith("keepalive-") and argument == "-1"):  # -1: leave it to the server
            flags[setting] = _read(name, argument, setting)
    version = _version(given)
    if "job-retries" in given:
        flags["engine.attempts"] = _attempts(given["job-retries"], version)
    if "exceptions" in given:
        flags["gearman.exceptions"] = True
    if "round-robin" in given and version == "1.1":  # 2.0 accepts it, and does nothing else
        flags["engine.function_order"] = "round-robin"
    _check_counts(given)
    _listen(given, environ, flags, warnings)
    _store(given, flags, warnings)
    _log(given, flags, warnings)
    defaults = {
        "engine.attempts": 0,
        "engine.wakeups": 0,
        **VERSIONS[version],
        "gearman.shutdown": "loopback",  # gearmand obeys every peer
        "gearman.sleep_ends_time_limits": True,
        "listen_retry_seconds": BIND_RETRY_SECONDS,
        "listen": (ListenUrl("gearman", "127.0.0.1", int(DEFAULT_PORT)),),
        "store": "memory:",
        "log.level": "error",
        "log.file": DEFAULT_LOG_FILE,
    }
    return GearmandSettings(flags, defaults, _process(given), warnings)


def _version(given: Mapping[str, str]) -> str:
    """The version whose rules are followed: `2.0.0` and `2` are 2.0."""
    text = given.get("gearmand-version", "1.1")
    for version in VERSIONS:
        major = version.partition(".")[0]
        if text in (major, version) or text.startswith(f"{version}."):
            return version
    raise ConfigError(f"--gearmand-version: '{text}' is none of {', '.join(VERSIONS)}")


def _attempts(argument: str, version: str) -> object:
    """How often a job is tried, 0 without a limit.

    gearmand 2 writes "no limit" as -1, which 1.1 takes for 255 attempts; no user wants that.
    """
    if argument == "-1":
        return 0
    attempts = _read("job-retries", argument, "engine.attempts")
    if version == "1.1":
        return attempts
    if isinstance(attempts, int) and attempts > MOST_RETRIES_OF_2:
        raise ConfigError(
            f"the argument ('{argument}') for option '--job-retries' is invalid: expected a whole number from -1 to"
            f" {MOST_RETRIES_OF_2}"
        )
    return attempts or 1


def _check_counts(given: Mapping[str, str]) -> None:
    """Refuse numbers that gearmand refuses, though nothing depends on them here."""
    for name, least in (("hashtable-buckets", 1), ("threads", 0)):
        argument = given.get(name)
        if argument is None:
            continue
        number = whole_number(argument.encode())
        if number is None:
            raise ConfigError(f"the argument ('{argument}') for option '--{name}' is invalid: expected a whole number")
        if number < least:
            raise ConfigError(f"--{name}: expected at least {least}, got {argument}")


def _tls_options(given: Mapping[str, str], environ: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    """The options of the listening URL for TLS; none without `--ssl`."""
    if "ssl" not in given:
        warnings += [f"--{name} has no effect without --ssl" for name, _, _ in _TLS_FILES if name in given]
        return {}
    options = {"tls": "yes"}
    for name, variable, option in _TLS_FILES:
        file = given.get(name) or environ.get(variable, "")
        if file:
            options[option] = file
    if "cert" not in options:
        raise ConfigError("--ssl needs --ssl-certificate=FILE, or the variable GEARMAND_SERVER_PEM")
    return options


def _listen(
    given: Mapping[str, str], environ: Mapping[str, str], flags: dict[str, object], warnings: list[str]
) -> None:
    module = given.get("protocol")
    if module not in (None, "http"):
        raise ConfigError(f"--protocol: there is no protocol module '{module}'; the only one is http")
    if module is None and "http-port" in given:
        warnings.append("--http-port has no effect: nothing listens there without --protocol=http")
    options = _tls_options(given, environ, warnings)
    host = given.get("listen")
    port = given.get("port") or environ.get("GEARMAND_PORT")
    if host is None and port is None and module is None and not options:
        return
    if host is not None:
        flags["allow_remote"] = True  # an address was named explicitly
    bare = (host or "127.0.0.1").removeprefix("[").removesuffix("]")
    written = f"[{bare}]" if ":" in bare else bare
    urls = [f"gearman://{written}:{_port('port', port or DEFAULT_PORT)}"]
    if module is not None:
        http_port = _port("http-port", given.get("http-port", DEFAULT_HTTP_PORT))
        urls.append(f"http://{written}:{http_port}?api=gearmand")
    try:
        first, *others = [ListenUrl.parse(url) for url in urls]
        flags["listen"] = (replace(first, options=options), *others)
    except ValueError as error:
        raise ConfigError(f"--listen: {error}") from None


def _port(option: str, text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return socket.getservbyname(text, "tcp")
    except OSError:
        raise ConfigError(f"--{option}: '{text}' is neither a number nor the name of a service") from None


def _store(given: Mapping[str, str], flags: dict[str, object], warnings: list[str]) -> None:
    queue = given.get("queue-type", "").lower()
    database = given.get("libsqlite3-db")
    if queue == "libsqlite3":
        if database is None:
            raise ConfigError("--queue-type=libsqlite3 needs --libsqlite3-db=FILE")
        flags["store"] = f"sqlite:{database}"
        return
    if queue not in ("", "builtin"):
        # Continuing without it would lose jobs in a crash that users rely on.
        raise ConfigError(
            f"--queue-type={given['queue-type']} does not exist here; to keep jobs in a file, use"
            " --queue-type=libsqlite3 --libsqlite3-db=FILE"
        )
    if queue:
        flags["store"] = "memory:"
    if database is not None:
        warnings.append("--libsqlite3-db has no effect: jobs are kept there only with --queue-type=libsqlite3")


def _log(given: Mapping[str, str], flags: dict[str, object], warnings: list[str]) -> None:
    file = given.get("log-file")
    if file is not None:
        flags["log.file"] = {"stderr": "", "none": os.devnull}.get(file, file)
    if file == "stderr" and "daemon" in given and "syslog" not in given:
        warnings.append("--log-file=stderr with --daemon: there is no log once the server is in the background")
    if "verbose" in given:
        level = _LEVELS.get(given["verbose"].upper())
        if level is None:
            raise ConfigError(f"--verbose: '{given['verbose']}' is none of {', '.join(_LEVELS)}")
        flags["log.level"] = level


def _process(given: Mapping[str, str]) -> ProcessOptions:
    descriptors = given.get("file-descriptors", "0")
    if not (descriptors.isascii() and descriptors.isdigit()):
        raise ConfigError(f"the argument ('{descriptors}') for option '--file-descriptors' is invalid")
    return ProcessOptions(
        pid_file=given.get("pid-file", ""),
        user=given.get("user", ""),
        daemonize="daemon" in given,
        file_descriptors=int(descriptors),
        syslog="syslog" in given,
    )


def _read(name: str, argument: str, setting: str) -> object:
    kind = SETTINGS[setting].kind
    try:
        return kind.read_text(argument)
    except ValueError:
        raise ConfigError(
            f"the argument ('{argument}') for option '--{name}' is invalid: expected {kind.expected}"
        ) from None


def _with_usable_log(config: Config) -> Config:
    """Replace a log file that cannot be opened, as gearmand does, because it is no reason not to serve."""
    if not config.log.file:
        return config
    try:
        with open(config.log.file, "a", encoding="utf-8"):
            return config
    except OSError as error:
        _warn(f"cannot write the log file {config.log.file} ({error.strerror}); logging to standard error")
        return replace(config, log=replace(config.log, file=""))


def _warn(text: str) -> None:
    click.echo(f"switchgear gearmand: warning: {text}", err=True)


def _help(ctx: click.Context) -> str:
    formatter = ctx.make_formatter()
    formatter.write_usage(ctx.command_path, "[OPTIONS]")
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(
            f"Run the job server with the options of gearmand {GEARMAND_VERSION} and with their meaning, so that in"
            " a service file only the program's name changes. An ignored option is accepted with a warning; a"
            " refused one ends the command, because it would be unsafe to go on without it."
        )
    for group, entries in groupby(rows(), lambda row: row[1]):
        with formatter.section(group):
            formatter.write_dl([_help_row(flags, fate, text) for flags, _, fate, text in entries])
    with formatter.section("Examples"):
        formatter.write_text(f"{ctx.command_path} --listen=localhost --port=4730 --log-file=stderr")
        formatter.write_text(f"{ctx.command_path} -d -L 0.0.0.0 -P /run/gearman/gearmand.pid -u gearman")
        formatter.write_text(f"{ctx.command_path} -q libsqlite3 --libsqlite3-db=/var/lib/gearman/jobs.db")
    return formatter.getvalue().rstrip()


def _help_row(flags: list[GearmandFlag], fate: str, text: str) -> tuple[str, str]:
    if len(flags) == 1:
        return flags[0].usage, text if fate == "effect" else f"({fate}) {text}"
    first, *others = (f"--{flag.name}" for flag in flags)
    return f"{first} ...", f"({fate}; also {', '.join(others)}) {text}"
