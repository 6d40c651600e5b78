"""`Config`: every setting of the server: its name, its default, what it does and why the default is what it is.

The sections of the settings are in the modules `*_section` and `*_sections`.

A `Config` is checked when it is made and never changes. The rest of the program gets the section it needs and reads
neither files nor the environment.

The texts given to `setting` are the only description of a setting: `switchgear config show` and the table in the manual
are made from them. Units are part of the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from switchgear.config.limits_section import LimitsConfig
from switchgear.config.listen import ListenUrl, is_protected, tls_problem
from switchgear.config.operation_sections import AccessConfig, EngineConfig, LogConfig
from switchgear.config.protocol_sections import GearmanConfig, HttpConfig, ZeromqConfig
from switchgear.config.setting import Checked, Setting, setting
from switchgear.config.setting_types import (
    FilePath,
    ListenUrls,
    Seconds,
    StoreUrl,
    Switch,
)
from switchgear.config.storage_sections import JOB_LOG_NAME, ClusterConfig, JobLogConfig, StorageConfig
from switchgear.errors import ConfigError
from switchgear.protocol_registry import built_in_protocols, protocol_named

__all__ = [
    "SECTIONS",
    "SETTINGS",
    "AccessConfig",
    "ClusterConfig",
    "Config",
    "EngineConfig",
    "GearmanConfig",
    "HttpConfig",
    "JobLogConfig",
    "LimitsConfig",
    "LogConfig",
    "Setting",
    "StorageConfig",
    "ZeromqConfig",
    "changed_but_not_reloadable",
    "reloaded",
]

DATABASE_NAME = "switchgear.db"

# The memory account reserves a quarter for unfinished packets (`MemoryAccount`).
PACKETS_IN_MEMORY = 4


@dataclass(frozen=True)
class Config(Checked):
    """The whole configuration of a server."""

    listen: tuple[ListenUrl, ...] = setting(
        tuple(
            ListenUrl(protocol.scheme, "127.0.0.1", protocol.default_port)
            for protocol in built_in_protocols().values()
            if not protocol.is_outgoing
        ),
        ListenUrls(),
        "The addresses to listen on, each with its protocol: SCHEME://HOST:PORT.",
        "Every protocol at its usual port, and loopback only: encryption and identities need files of their own.",
        flag="--listen",
    )
    store: str = setting(
        "",
        StoreUrl(),
        "Where jobs are stored: sqlite:PATH, postgresql://USER@HOST/DATABASE, or memory: for jobs that may be lost with"
        " the process.",
        "Jobs survive unless you choose otherwise.",
        flag="--store",
        default_note=f"`sqlite:` and `{DATABASE_NAME}` in the state directory",
    )
    state_dir: Path = setting(  # noqa: RUF009 - it makes a field, like the others
        Path(),
        FilePath(),
        "The directory of the default store and its job log.",
        "The usual place for the state of a program, for users and for services.",
        default_note="`/var/lib/switchgear` for root; else `$XDG_STATE_HOME/switchgear` or `~/.local/state/switchgear`",
    )
    allow_remote: bool = setting(
        False,
        Switch(),
        "Permit listening on addresses that other machines can reach, without encryption or without identities.",
        "Every peer that can connect can run jobs and read payloads; this should be an explicit decision.",
        flag="--allow-remote",
    )
    drain_timeout_seconds: float = setting(
        30,
        Seconds(0, 30 * 86_400),
        "How long running jobs may take to finish after SIGTERM; jobs that still run then return to the queue.",
        "Enough for most jobs, and well within the 90 seconds after which systemd kills a service.",
        reloadable=True,
        flag="--drain-timeout",
    )
    listen_retry_seconds: float = setting(
        0,
        Seconds(0, 3_600),
        "How long the server tries again, when it starts, to listen on an address that another process uses.",
        "Usually the other process is another server, and you want to know at once. `switchgear gearmand` tries for 22"
        " seconds, as gearmand does.",
    )
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    gearman: GearmanConfig = field(default_factory=GearmanConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    zeromq: ZeromqConfig = field(default_factory=ZeromqConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    joblog: JobLogConfig = field(default_factory=JobLogConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    log: LogConfig = field(default_factory=LogConfig)
    access: AccessConfig = field(default_factory=AccessConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = self.limits
        if limits.memory_bytes and limits.memory_bytes < PACKETS_IN_MEMORY * limits.packet_bytes:
            raise ConfigError(
                f"limits.memory_bytes: expected at least {PACKETS_IN_MEMORY} times limits.packet_bytes, which is"
                f" {PACKETS_IN_MEMORY * limits.packet_bytes}, got {limits.memory_bytes}; a quarter of the memory is for"
                " packets that are not complete, and one of the largest must fit into it"
            )
        if (self.cluster.link_tls_key or self.cluster.link_tls_ca) and not self.cluster.link_tls_cert:
            raise ConfigError("cluster.link_tls_key and cluster.link_tls_ca need a certificate: cluster.link_tls_cert")
        for url in self.listen:
            protocol = protocol_named(url.scheme)
            problem = tls_problem(url)
            if url.options.get("access", "open") != "open" and not self.access.file:
                problem = f"{url} demands identities, and there is no access file: access.file"
            if problem:
                raise ConfigError(f"listen: {problem}")
            is_closed = (
                protocol.is_outgoing
                or bool(protocol.has_curve and self.zeromq.curve_key_file)
                or is_protected(url, has_identities=bool(self.access.file))
            )
            if not (url.is_loopback or is_closed or self.allow_remote):
                lacks = (
                    "identities" if url.uses_tls else "encryption" if self.access.file else "encryption or identities"
                )
                raise ConfigError(
                    f"listen: other machines can reach {url}, which has no {lacks}; see docs/howto/tls-and-access.md;"
                    " if that is wanted, say so with --allow-remote or allow_remote = true"
                )

    @property
    def store_url(self) -> str:
        """The URL of the store, with the default filled in."""
        return self.store or f"sqlite:{self.state_dir / DATABASE_NAME}"

    @property
    def joblog_url(self) -> str:
        """The URL of the job log, with the default filled in; empty if there is none."""
        if self.joblog.url:
            return "" if self.joblog.url == "off" else self.joblog.url
        scheme, _, place = self.store_url.partition(":")
        if scheme != "sqlite":
            return "" if scheme == "memory" else self.store_url
        store = Path(place)
        name = JOB_LOG_NAME if store == self.state_dir / DATABASE_NAME else f"{store.stem}-log.db"
        return f"sqlite:{store.with_name(name)}"


SECTIONS: Mapping[str, type[Checked]] = {
    "limits": LimitsConfig,
    "engine": EngineConfig,
    "gearman": GearmanConfig,
    "http": HttpConfig,
    "zeromq": ZeromqConfig,
    "storage": StorageConfig,
    "joblog": JobLogConfig,
    "cluster": ClusterConfig,
    "log": LogConfig,
    "access": AccessConfig,
}


def _settings_of(owner: type[Checked], prefix: str) -> dict[str, Setting]:
    return {
        prefix + entry.name: Setting(name=prefix + entry.name, default=entry.default, **entry.metadata)
        for entry in fields(owner)
        if "kind" in entry.metadata
    }


def _all_settings() -> dict[str, Setting]:
    settings = _settings_of(Config, "")
    for name, owner in SECTIONS.items():
        settings.update(_settings_of(owner, f"{name}."))
    return settings


SETTINGS: Mapping[str, Setting] = _all_settings()


def changed_but_not_reloadable(old: Config, new: Config) -> list[str]:
    """Names of the settings that differ and take effect only after a restart."""
    return [
        setting.name
        for setting in SETTINGS.values()
        if not setting.reloadable and setting.value_in(old) != setting.value_in(new)
    ]


def reloaded(old: Config, new: Config) -> Config:
    """The new configuration, with the old values of settings that need a restart."""
    kept: dict[str, Any] = {}
    for name in changed_but_not_reloadable(old, new):
        section, _, key = name.rpartition(".")
        if section:
            kept[section] = replace(kept.get(section, getattr(new, section)), **{key: SETTINGS[name].value_in(old)})
        else:
            kept[key] = SETTINGS[name].value_in(old)
    return replace(new, **kept)
