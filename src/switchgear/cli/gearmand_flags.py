"""The table of gearmand's options, and a parser that follows gearmand's rules.

The table is that of gearmand 1.1.20 with all its queue plug-ins, and `--gearmand-version`, which chooses between the
rules of two versions.  Each option has one of three fates here: it has its
effect; it is ignored, with a warning, because nothing here depends on it; or it is refused, because a server that went
on without it would do harm.

gearmand's manners are: `--port=4730`, `--port 4730`, `-p 4730` and `-p4730` are the same, switches may be joined
(`-dR`), no option may be given twice, and the command line wins over the configuration file.  Long options are
spelled out on the command line; in the file, the beginning is enough if it is unambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NoReturn

from switchgear.errors import ConfigError

__all__ = ["FLAGS", "GearmandFlag", "flags_table", "parse_file", "parse_words", "rows"]

Fate = Literal["effect", "ignored", "refused"]


@dataclass(frozen=True, slots=True)
class GearmandFlag:
    """One option of gearmand."""

    group: str
    name: str
    short: str
    argument: str  # what to call it in the help; empty: a switch
    fate: Fate
    help: str  # what it does here; for the other fates, why it does nothing or cannot be had
    setting: str = ""  # the setting that takes the argument as it is

    @property
    def usage(self) -> str:
        """The option as it is written in a help text."""
        short = f"-{self.short}, " if self.short else ""
        return f"{short}--{self.name}" + (f" {self.argument}" if self.argument else "")


_NO_QUEUE = "this queue plug-in does not exist here; see --queue-type."


def _plugin(group: str, *names: str) -> list[GearmandFlag]:
    return [GearmandFlag(group, name, "", "ARG", "ignored", _NO_QUEUE) for name in names]


_TABLE: list[GearmandFlag] = [
    GearmandFlag("General", "backlog", "b", "N", "effect", "Connections the system keeps waiting.", "limits.backlog"),
    GearmandFlag("General", "check-args", "", "", "effect", "Check the options and exit: 0 if they are good, else 1."),
    GearmandFlag("General", "config-file", "", "FILE", "effect", "More options, as on the command line. Also: @FILE."),
    GearmandFlag(
        "General", "coredump", "", "", "ignored", "the server runs in Python; `ulimit -c` decides about core dumps."
    ),
    GearmandFlag("General", "daemon", "d", "", "effect", "Go into the background once the server listens."),
    GearmandFlag("General", "exceptions", "", "", "effect", "Send WORK_EXCEPTION to every client."),
    GearmandFlag(
        "General", "file-descriptors", "f", "N", "effect", "Limit of open files. Default: what connections need."
    ),
    GearmandFlag(
        "General",
        "gearmand-version",
        "",
        "VERSION",
        "effect",
        "Follow the rules of 1.1 (default) or 2.0: in 2.0, priority counts over all functions of a worker, which take"
        " turns, and --job-retries=0 means one attempt. Not an option of gearmand.",
    ),
    GearmandFlag("General", "hashtable-buckets", "", "N", "ignored", "the tables of jobs here grow by themselves."),
    GearmandFlag("General", "help", "h", "", "effect", "Show this text and exit."),
    GearmandFlag(
        "General",
        "job-handle-prefix",
        "",
        "TEXT",
        "effect",
        "What job handles begin with. Default: H: and the host's name.",
        "gearman.handle_prefix",
    ),
    GearmandFlag(
        "General",
        "job-retries",
        "j",
        "N",
        "effect",
        "Attempts before a job is given up; -1 (default): no limit; 0: no limit, or with --gearmand-version=2.0 one.",
    ),
    GearmandFlag("General", "keepalive", "", "", "effect", "TCP keepalive. Here it is always on."),
    GearmandFlag(
        "General",
        "keepalive-count",
        "",
        "N",
        "effect",
        "Unanswered probes before a peer is lost; -1: 4.",
        "limits.keepalive_count",
    ),
    GearmandFlag(
        "General",
        "keepalive-idle",
        "",
        "SECONDS",
        "effect",
        "Silence before the first probe; -1: 60.",
        "limits.keepalive_idle_seconds",
    ),
    GearmandFlag(
        "General",
        "keepalive-interval",
        "",
        "SECONDS",
        "effect",
        "Pause between probes; -1: 15.",
        "limits.keepalive_interval_seconds",
    ),
    GearmandFlag(
        "General", "listen", "L", "ADDRESS", "effect", "Where to listen. Default: this machine only (127.0.0.1)."
    ),
    GearmandFlag(
        "General",
        "log-file",
        "l",
        "FILE",
        "effect",
        "Log there; stderr and none are special. Default: /var/log/gearmand.log, or stderr if that cannot be written.",
    ),
    GearmandFlag("General", "pid-file", "P", "FILE", "effect", "Write the process id there while the server listens."),
    GearmandFlag("General", "protocol", "r", "NAME", "effect", "A protocol module to serve as well: http."),
    GearmandFlag(
        "General",
        "queue-type",
        "q",
        "NAME",
        "effect",
        "Keep jobs in memory (builtin, the default) or in a file (libsqlite3).",
    ),
    GearmandFlag(
        "General", "round-robin", "R", "", "effect", "Functions of a worker take turns. Default in 1.1: newest first."
    ),
    GearmandFlag("General", "syslog", "", "", "effect", "Log to the system's log as well."),
    GearmandFlag("General", "threads", "t", "N", "ignored", "the server needs no I/O threads."),
    GearmandFlag("General", "user", "u", "NAME", "effect", "Become this user before anything is opened."),
    GearmandFlag("General", "verbose", "", "LEVEL", "effect", "FATAL, ALERT, CRITICAL, ERROR (default) ... DEBUG."),
    GearmandFlag("General", "version", "V", "", "effect", "Show the version and exit."),
    GearmandFlag(
        "General",
        "worker-wakeup",
        "w",
        "N",
        "effect",
        "Sleeping workers woken for a new job; 0 (default): all.",
        "engine.wakeups",
    ),
    GearmandFlag("HTTP", "http-port", "", "PORT", "effect", "Port of --protocol=http. Default: 8080."),
    GearmandFlag("Gear", "port", "p", "PORT", "effect", "Port to listen on. Default: GEARMAND_PORT, else 4730."),
    GearmandFlag("Gear", "ssl", "", "", "effect", "Encrypt connections by TLS; needs a certificate."),
    GearmandFlag(
        "Gear",
        "ssl-ca-file",
        "",
        "FILE",
        "effect",
        "Only clients with a certificate of these authorities can connect. Default: GEARMAND_CA_CERTIFICATE, else all.",
    ),
    GearmandFlag(
        "Gear", "ssl-certificate", "", "FILE", "effect", "The server's certificate. Default: GEARMAND_SERVER_PEM."
    ),
    GearmandFlag("Gear", "ssl-key", "", "FILE", "effect", "Its private key. Default: GEARMAND_SERVER_KEY."),
    GearmandFlag("libsqlite3", "libsqlite3-db", "", "FILE", "effect", "The file of --queue-type=libsqlite3."),
    GearmandFlag("libsqlite3", "libsqlite3-table", "", "NAME", "ignored", "the store names its tables itself."),
    GearmandFlag(
        "libsqlite3",
        "store-queue-on-shutdown",
        "",
        "",
        "ignored",
        "with libsqlite3 every job is kept as it arrives, not only at the end.",
    ),
    *_plugin("libmemcached", "libmemcached-servers", "libmemcached-prefix"),
    *_plugin("Postgres", "libpq-conninfo", "libpq-table"),
    *_plugin("redis", "redis-server", "redis-port", "redis-password", "redis-prefix"),
    *_plugin("MySQL", "mysql-host", "mysql-port", "mysql-user", "mysql-password", "mysql-db", "mysql-table"),
    *_plugin("tokyocabinet", "libtokyocabinet-file"),
    GearmandFlag("tokyocabinet", "libtokyocabinet-optimize", "", "", "ignored", _NO_QUEUE),
    *_plugin("drizzle", "libdrizzle-host", "libdrizzle-port", "libdrizzle-uds", "libdrizzle-user"),
    *_plugin("drizzle", "libdrizzle-password", "libdrizzle-db", "libdrizzle-table", "libdrizzle-mysql"),
]

FLAGS: Mapping[str, GearmandFlag] = {flag.name: flag for flag in _TABLE}
_SHORTS: Mapping[str, GearmandFlag] = {flag.short: flag for flag in _TABLE if flag.short}


def rows() -> Iterator[tuple[list[GearmandFlag], str, Fate, str]]:
    """The rows of the table for readers: options, their group, treatment and help.  Neighbours with the same treatment
    for the same reason share a row."""
    for (group, fate, help), flags in groupby(_TABLE, lambda flag: (flag.group, flag.fate, flag.help)):
        yield list(flags), group, fate, help


def flags_table() -> str:
    """Every option, in a Markdown table."""
    lines = ["| option | here | |", "|---|---|---|"]
    for flags, _, fate, help in rows():
        names = ", ".join(f"`{flag.usage}`" for flag in flags)
        lines.append(f"| {names} | {fate} | {help[0].upper()}{help[1:]} |")
    return "\n".join(lines)


def parse_words(words: Iterable[str]) -> dict[str, str]:
    """The options of a command line by name; the argument of a switch is empty."""
    return _FlagParser(words, list(FLAGS.values()), _refuse_word, guessing=False).parse()


def parse_file(text: str, stray: Callable[[str], None]) -> dict[str, str]:
    """The options of a configuration file.  `stray` is called with words that belong to no option, which gearmand
    drops.

    A `#` begins a comment.  gearmand has none; it drops the words, but obeys an option among them.
    """
    words: list[str] = []
    for line in text.splitlines():
        for word in line.split():
            if word.startswith("#"):
                break
            words.append(word)
    hidden = {"check-args"}
    return _FlagParser(words, [flag for flag in _TABLE if flag.name not in hidden], stray, guessing=True).parse()


def _refuse_word(word: str) -> NoReturn:
    raise ConfigError(f"unrecognised option '{word}'")


class _FlagParser:
    def __init__(
        self, words: Iterable[str], flags: list[GearmandFlag], stray: Callable[[str], None], *, guessing: bool
    ) -> None:
        self.words = list(words)[::-1]  # the next one last, to be popped
        self.by_name = {flag.name: flag for flag in flags}
        self.stray = stray
        self.guessing = guessing
        self.given: dict[str, str] = {}

    def parse(self) -> dict[str, str]:
        while self.words:
            word = self.words.pop()
            if word.startswith("--") and len(word) > 2:
                self._long(word)
            elif word.startswith("-") and len(word) > 1 and word != "--":
                self._short(word)
            elif word.startswith("@") and len(word) > 1:
                self._store(FLAGS["config-file"], word[1:])
            else:
                self.stray(word)
        return self.given

    def _long(self, word: str) -> None:
        name, equals, argument = word[2:].partition("=")
        flag = self._named(name, word)
        if not equals:
            self._store(flag, self._next_argument(flag) if flag.argument else "")
        elif not flag.argument:
            raise ConfigError(f"option '--{flag.name}' does not take any arguments")
        elif not argument:
            raise ConfigError(f"the argument for option '--{name}' should follow immediately after the equal sign")
        else:
            self._store(flag, argument)

    def _short(self, word: str) -> None:
        letters = word[1:]
        while letters:
            flag = _SHORTS.get(letters[0])
            if flag is None:
                hint = "; it was replaced by --verbose" if letters[0] == "v" else ""
                raise ConfigError(f"unrecognised option '{word}'{hint}")
            letters = letters[1:]
            if flag.argument:
                self._store(flag, letters or self._next_argument(flag))
                return
            self._store(flag, "")

    def _named(self, name: str, word: str) -> GearmandFlag:
        flag = self.by_name.get(name)
        if flag is not None:
            return flag
        longer = [flag for flag in self.by_name.values() if self.guessing and flag.name.startswith(name)]
        if len(longer) > 1:
            choices = ", ".join(f"--{flag.name}" for flag in longer)
            raise ConfigError(f"option '{word}' is ambiguous; it could be {choices}")
        return longer[0] if longer else _refuse_word(word)

    def _next_argument(self, flag: GearmandFlag) -> str:
        if not self.words or self._is_option(self.words[-1]):
            raise ConfigError(f"the required argument for option '--{flag.name}' is missing")
        return self.words.pop()

    def _is_option(self, word: str) -> bool:
        # `-1` is an argument, `-d` is not.
        if word.startswith("--"):
            return word[2:].partition("=")[0] in self.by_name
        return word.startswith("-") and word[1:2] in _SHORTS

    def _store(self, flag: GearmandFlag, argument: str) -> None:
        if flag.name in self.given:
            raise ConfigError(f"option '--{flag.name}' cannot be specified more than once")
        self.given[flag.name] = argument
