"""Reading the configuration: command line over environment over TOML file over default.

`load_config` is the only reader of these sources. It collects all problems before it fails, because a person who
repairs a file needs the whole list.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from switchgear.config.setting_types import FilePath, StoreUrl
from switchgear.config.settings import SECTIONS, SETTINGS, Config, Setting
from switchgear.errors import ConfigError
from switchgear.text import without_secrets
from switchgear.toml_file import NotToml, read_toml_file

__all__ = ["LoadedConfig", "config_of", "default_state_dir", "load_config", "read_config"]

_PREFIX = "SWITCHGEAR_"
CONFIG_VARIABLE = "SWITCHGEAR_CONFIG"
# Variables of this prefix that are not settings of the server: other parts of the program read them, or, as the last
# three, a worker gives them to the commands it runs.
_OTHER_VARIABLES = frozenset(
    {
        CONFIG_VARIABLE,
        "SWITCHGEAR_DEBUG",
        "SWITCHGEAR_PURE",  # variables of the package build, which may be exported while a server is started
        "SWITCHGEAR_SERVER",
        "SWITCHGEAR_URL",
        "SWITCHGEAR_TOKEN",
        "SWITCHGEAR_TOKEN_FILE",
        "SWITCHGEAR_TLS_CA",
        "SWITCHGEAR_TLS_CERT",
        "SWITCHGEAR_TLS_KEY",
        "SWITCHGEAR_FUNCTION",
        "SWITCHGEAR_HANDLE",
        "SWITCHGEAR_UNIQUE",
    }
)
# Kubernetes describes a service named "switchgear" to every pod beside it in variables of this form.
_OF_KUBERNETES = re.compile(r"SWITCHGEAR_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)")
_SYSTEM_STATE_DIR = Path("/var/lib/switchgear")
_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and for each setting by name where its value came from."""

    config: Config
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as it was given, and its source."""

    value: object
    source: str
    typed: bool  # whether a text must not be parsed as a number


@dataclass(slots=True)
class _Reading:
    environ: Mapping[str, str]
    values: dict[str, object] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def take(self, layer: Mapping[str, _Given]) -> None:
        """Use the values that no earlier source has given; all are checked, so that every mistake is reported."""
        for name, given in layer.items():
            setting = SETTINGS[name]
            try:
                value = self._read(setting, given)
            except ValueError as error:
                what = str(error) or f"expected {setting.kind.expected}, got {_shown(given.value)}"
                self.problems.append(f"{name}: {what} (from {given.source})")
                continue
            if name not in self.values:
                self.values[name] = value
                self.sources[name] = given.source

    def _read(self, setting: Setting, given: _Given) -> object:
        value = given.value
        if isinstance(value, str):
            if isinstance(setting.kind, FilePath | StoreUrl):
                value = _with_home(value, self.environ)
            return setting.kind.read(value) if given.typed else setting.kind.read_text(value)
        return setting.kind.read(value)


def load_config(
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    defaults: Mapping[str, object] = _NOTHING,
) -> Config:
    """The effective configuration; raises ConfigError with one line for each problem.

    `file` is the TOML file named on the command line, if any. The keys of `flags` and `defaults` are names of settings
    (`limits.packet_bytes`); a flag of None was not given, and `defaults` are those of a command, below all other
    sources.
    """
    return read_config(file, environ, flags, defaults=defaults).config


def read_config(
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    defaults: Mapping[str, object] = _NOTHING,
) -> LoadedConfig:
    """Like `load_config`, with the source of each value."""
    reading = _Reading(environ)
    reading.take(_from_flags(flags, reading.problems))
    reading.take(_from_environment(environ, reading.problems))
    if file is None and environ.get(CONFIG_VARIABLE):
        file = Path(environ[CONFIG_VARIABLE])
    if file is not None:
        reading.take(_from_file(file, reading.problems))
    reading.take({name: _Given(value, "the command's default", True) for name, value in defaults.items()})
    if reading.problems:
        raise ConfigError("\n".join(reading.problems))
    reading.values.setdefault("state_dir", default_state_dir(environ))
    sources = {name: reading.sources.get(name, "default") for name in SETTINGS}
    try:
        return LoadedConfig(_config_of(reading.values), sources)
    except ConfigError as error:  # each value is fine by itself, so they contradict each other: about `listen`
        raise ConfigError(f"{error} (from {sources['listen']})") from None


def config_of(settings: Mapping[str, object]) -> Config:
    """The configuration that a program gives by the names of settings, and nothing else; raises ConfigError."""
    reading = _Reading({})
    known = {name: _Given(value, "settings", True) for name, value in settings.items() if name in SETTINGS}
    reading.problems += [
        f"unknown setting {name}{_perhaps(name, SETTINGS)}" for name in settings if name not in SETTINGS
    ]
    reading.take(known)
    if reading.problems:
        raise ConfigError("\n".join(reading.problems))
    return _config_of(reading.values)


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """The directory for state files of this user."""
    if os.geteuid() == 0:
        return _SYSTEM_STATE_DIR
    configured = environ.get("XDG_STATE_HOME", "")
    if configured.startswith("/"):  # the XDG specification says to ignore a relative path
        return Path(configured, "switchgear")
    home = _home(environ)
    return Path(home, ".local/state/switchgear") if home else _SYSTEM_STATE_DIR


def _config_of(values: Mapping[str, object]) -> Config:
    top: dict[str, Any] = {}
    sections: dict[str, dict[str, object]] = {name: {} for name in SECTIONS}
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        (sections[section] if section else top)[key] = value
    top.update((name, SECTIONS[name](**given)) for name, given in sections.items())
    return Config(**top)


def _from_flags(flags: Mapping[str, object], problems: list[str]) -> dict[str, _Given]:
    layer: dict[str, _Given] = {}
    for name, value in flags.items():
        if value is None:
            continue
        if name not in SETTINGS:
            problems.append(f"unknown setting {name}{_perhaps(name, SETTINGS)} (from --set)")
            continue
        layer[name] = _Given(value, SETTINGS[name].flag or f"--set {name}", False)
    return layer


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, _Given]:
    names = {setting.environment: name for name, setting in SETTINGS.items()}
    layer: dict[str, _Given] = {}
    for variable, text in environ.items():
        if not variable.startswith(_PREFIX) or not text or _is_no_setting(variable, text):
            continue  # an empty variable counts as not set, since many launchers cannot leave one out
        if variable not in names:
            known = [*names, *_OTHER_VARIABLES]
            problems.append(f"unknown environment variable {variable}{_perhaps(variable, known)}")
            continue
        layer[names[variable]] = _Given(text, f"the environment variable {variable}", False)
    return layer


def _is_no_setting(variable: str, text: str) -> bool:
    if variable in _OTHER_VARIABLES:
        return True
    if variable == "SWITCHGEAR_PORT":
        return "://" in text  # Kubernetes sets a URL; a bare number is a mistake to be reported
    return _OF_KUBERNETES.fullmatch(variable) is not None


def _from_file(file: Path, problems: list[str]) -> dict[str, _Given]:
    try:
        document = read_toml_file(file, is_pipe_allowed=True)
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror}")
        return {}
    except NotToml as error:
        problems.append(f"{file}: {error}")
        return {}
    layer: dict[str, _Given] = {}
    for name, value in _flattened(document, str(file), problems):
        if name in SETTINGS:
            layer[name] = _Given(value, str(file), True)
        else:
            problems.append(f"{file}: unknown key {name}{_perhaps(name, SETTINGS)}")
    return layer


def _flattened(document: Mapping[str, object], file: str, problems: list[str]) -> Iterable[tuple[str, object]]:
    for key, value in document.items():
        if key in SECTIONS:
            if isinstance(value, dict):
                yield from ((f"{key}.{inner}", deep) for inner, deep in value.items())
            else:
                problems.append(f"{file}: {key}: expected a table, got {_shown(value)}")
        elif isinstance(value, dict) and key not in SETTINGS:
            problems.append(f"{file}: unknown section [{key}]{_perhaps(key, SECTIONS, '[{}]')}")
        else:
            yield key, value


def _perhaps(name: str, known: Iterable[str], form: str = "{}") -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {form.format(close[0])}?" if close else ""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = f'"{without_secrets(value)}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _with_home(text: str, environ: Mapping[str, str]) -> str:
    """A path with `~/` expanded, which a shell does not do in a file or variable."""
    scheme = "sqlite:" if text.startswith("sqlite:") else ""
    path = text.removeprefix(scheme)
    if path != "~" and not path.startswith("~/"):
        return text
    return f"{scheme}{_home(environ)}{path[1:]}"


def _home(environ: Mapping[str, str]) -> str:
    try:
        return environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a container may run under a user id without a name
        return ""
