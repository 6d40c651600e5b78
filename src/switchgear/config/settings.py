"""Every setting of the server: its name, its default, what it does and why the default is what it is.

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

from switchgear.config.listen import ListenUrl, is_protected, tls_problem
from switchgear.config.setting import Checked, Setting, setting
from switchgear.config.setting_types import (
    Choice,
    FilePath,
    FreeText,
    JobLogUrl,
    ListenUrls,
    PythonName,
    RedactionRules,
    Seconds,
    Size,
    StoreUrl,
    Switch,
    WholeNumber,
)
from switchgear.errors import ConfigError
from switchgear.protocol_registry import built_in_protocols, protocol_named
from switchgear.units import GIB, KIB, MIB

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
JOB_LOG_NAME = "joblog.db"

# The memory account reserves a quarter for unfinished packets (`MemoryAccount`).
PACKETS_IN_MEMORY = 4


@dataclass(frozen=True)
class LimitsConfig(Checked):
    """Limits of what peers may make the server hold."""

    packet_bytes: int = setting(
        64 * MIB,
        Size(64, 4 * GIB - 1),
        "The largest packet that the server accepts. A larger one ends the connection. A change applies to new"
        " connections.",
        "Large enough for any reasonable payload; packets of a hundred peers at once still fit in memory.",
        reloadable=True,
    )
    memory_bytes: int = setting(
        0,
        Size(0),
        "Memory in bytes that all peers together may use: jobs with their payloads and results, schedules, functions"
        " and workers, incomplete packets, unread answers, subscriptions. Beyond it the server refuses submissions, and"
        " closes connections with incomplete packets or unread answers, the largest first. A job counts as its contents"
        " and at least 450 bytes, or 150 in the middle of a long queue. 0: half of the machine's memory, or of the"
        " control group's if that is less.",
        "The system must not kill the server because of what peers send; the other half of the memory is for the server"
        " itself, and for memory that the allocator does not return.",
        reloadable=True,
        default_note="half of the machine's memory",
    )
    connections: int = setting(
        10_000,
        WholeNumber(1, 1_000_000),
        "The maximum number of open connections. The server closes further ones at once.",
        "Far above common use; it limits what a runaway client can use.",
        reloadable=True,
    )
    connections_per_address: int = setting(
        200,
        WholeNumber(0),
        "The maximum number of open connections from one address other than loopback; 0: no separate limit.",
        "One broken machine must not use up the connections of all others.",
        reloadable=True,
    )
    backlog: int = setting(
        1024,
        WholeNumber(1, 65_535),
        "Connections that the system queues until the server accepts them.",
        "After a restart all workers reconnect at the same moment; the system caps the value at its own maximum.",
    )
    slow_reader_bytes: int = setting(
        8 * MIB,
        Size(KIB),
        "Bytes of output that may wait for a peer. If more is waiting and the peer reads nothing for two seconds, the"
        " server closes the connection.",
        "Output for a peer that stopped reading must not grow without limit.",
        reloadable=True,
    )
    slow_reader_seconds: float = setting(
        10,
        Seconds(1, 86_400),
        "The server closes the connection of a peer that reads nothing of its waiting output for this long.",
        "A busy peer on a slow network recovers within seconds; a stuck one does not.",
        reloadable=True,
    )
    tls_handshakes: int = setting(
        500,
        WholeNumber(1, 1_000_000),
        "The maximum number of connections of a listener whose TLS handshake is not complete. The server closes further"
        " ones at once.",
        "A handshake costs the server a millisecond and a stranger nothing; a real peer completes it within a second.",
        reloadable=True,
    )
    tls_handshake_seconds: float = setting(
        10,
        Seconds(1, 3_600),
        "How long a peer may take to complete its TLS handshake.",
        "Long enough for a slow network; a peer that is silent must not keep its place.",
        reloadable=True,
    )
    functions: int = setting(
        10_000,
        WholeNumber(1),
        "The maximum number of functions. For a new one, the server forgets one that has no jobs, no workers and no"
        " settings; if there is none, it refuses the command.",
        "Real installations have tens to hundreds; a client that puts ids into names creates millions.",
        reloadable=True,
    )
    schedules: int = setting(
        1_000,
        WholeNumber(0),
        "The maximum number of schedules; 0: no limit. The server refuses further ones.",
        "Each schedule makes jobs for ever; a client that puts ids into their names creates any number of them.",
        reloadable=True,
    )
    jobs: int = setting(
        0,
        WholeNumber(0),
        "The maximum number of unfinished jobs of all functions together; 0: no limit. The server refuses further"
        " submissions.",
        "Queueing work is the purpose of the server; the size of the store is the natural limit.",
        reloadable=True,
    )
    jobs_per_function: int = setting(
        0,
        WholeNumber(0),
        "The maximum number of unfinished jobs of one function; 0: no limit. The admin command `maxqueue` sets"
        " another limit for one function.",
        "A sensible length of a queue depends on the function.",
        reloadable=True,
    )
    jobs_per_worker: int = setting(
        10_000,
        WholeNumber(1),
        "The maximum number of jobs that one worker connection can hold.",
        "Workers hold one or a few jobs; without a limit, a worker that only takes jobs would empty every queue.",
        reloadable=True,
    )
    name_bytes: int = setting(
        512,
        WholeNumber(1, 8192),
        "The longest function name, and in the 2005 draft the longest duplicate key. Gearman's unique keys have at"
        " most 64 bytes.",
        "Names are in memory for every job; longer data belongs into the payload.",
        reloadable=True,
    )
    text_line_bytes: int = setting(
        8192,
        WholeNumber(64, MIB),
        "The longest line of the text admin protocol. A longer one ends the connection. A change applies to new"
        " connections.",
        "Commands are a few words; gearmand has the same limit.",
        reloadable=True,
    )
    keepalive_idle_seconds: int = setting(
        60,
        Seconds(0, 32_767, whole=True),
        "TCP keepalive: idle time before the first probe; 0: no probes. A change applies to new connections.",
        "A machine that disappears closes no connection, and its jobs wait until the server detects this.",
        reloadable=True,
    )
    keepalive_interval_seconds: int = setting(
        15,
        Seconds(1, 32_767, whole=True),
        "TCP keepalive: pause between two probes.",
        "With the other two keepalive settings, the server detects a lost peer after two minutes.",
        reloadable=True,
    )
    keepalive_count: int = setting(
        4,
        WholeNumber(1, 127),
        "TCP keepalive: unanswered probes after which a peer counts as lost.",
        "A short interruption of the network must not cost a worker its jobs.",
        reloadable=True,
    )


@dataclass(frozen=True)
class EngineConfig(Checked):
    """Settings of the scheduling engine."""

    attempts: int = setting(
        3,
        WholeNumber(0, 2**31 - 1),
        "The maximum number of attempts of a job whose worker is lost or times out; 0: no limit. A job can have its"
        " own limit.",
        "A job that kills its worker would otherwise kill all of them, one after the other.",
        reloadable=True,
    )
    wakeups: int = setting(
        1,
        WholeNumber(0, 2**31 - 1),
        "How many sleeping workers are woken for one new job; 0: all that can run it.",
        "One job needs one worker; the others would find no job.",
        reloadable=True,
    )
    wake_policy: str = setting(
        "",
        PythonName(empty=True),
        "Your own Python function, as MODULE:FUNCTION, that chooses which workers are woken for a job or given it; see"
        " docs/protocols/wmp.md. Empty: the one that has slept longest, and as many as `engine.wakeups` says.",
        "The worker that has been idle longest is a fair choice if workers are alike.",
    )
    function_order: str = setting(
        "fair",
        Choice("fair", "registration", "round-robin"),
        "Which function of a worker is served next. fair: the highest priority over all its functions, and"
        " functions take turns. registration: the function it registered last, as long as it has jobs"
        " (gearmand's order). round-robin: functions take turns, priority counts within each (gearmand -R).",
        "No function starves, and high priority means high priority.",
    )


@dataclass(frozen=True)
class GearmanConfig(Checked):
    """Settings of the Gearman protocol."""

    handle_prefix: str = setting(
        "",
        # A handle is at most 63 bytes for existing clients, of which a colon and the number may need 21.
        FreeText(42),
        "The prefix of job handles; a colon and the job's number follow.",
        "The format that clients know; with several servers, it identifies the server of a job.",
        default_note="`H:` and the host's name",
    )
    exceptions: bool = setting(
        False,
        Switch(),
        "Send WORK_EXCEPTION to every client, not only to those that asked for it.",
        "A client that did not ask for it may not know the packet; it gets WORK_FAIL.",
    )
    sleep_ends_time_limits: bool = setting(
        False,
        Switch(),
        "A worker that sends PRE_SLEEP ends the time limits that it set with CAN_DO_TIMEOUT for the jobs it holds, as"
        " in gearmand. Otherwise a time limit applies until the job ends, and a worker that sleeps while it holds a job"
        " loses the job at its limit.",
        "A worker that runs several jobs on one connection sleeps while they run, and the limits are for jobs that"
        " hang. `switchgear gearmand` has gearmand's rule.",
    )
    shutdown: str = setting(
        "same-user",
        Choice("same-user", "loopback", "anywhere", "never"),
        "Who can stop the server with the admin command `shutdown`. same-user: processes on this machine that run as"
        " the server's own user or as root. loopback: every process on this machine. anywhere: every peer. never: no"
        " peer.",
        "Without an access file, peers have no identities. A process that may send the server a signal can stop it"
        " anyway; no other process should.",
    )


@dataclass(frozen=True)
class HttpConfig(Checked):
    """Settings of the HTTP protocol."""

    idle_seconds: float = setting(
        120,
        Seconds(0, 86_400),
        "The server closes an HTTP connection on which no request came for this long, or no more of the body of one. It"
        " never does while a request waits for its answer. 0: never.",
        "Longer than the 60 to 75 seconds for which proxies and clients keep their connections, and few connections are"
        " left behind by clients that forget them.",
        reloadable=True,
    )
    head_seconds: float = setting(
        20,
        Seconds(0, 3_600),
        "How long a peer may take to send the head of an HTTP request, from its first byte on. 0: any time.",
        "A head has some hundred bytes; a peer that sends them one by one uses up the connections of others.",
        reloadable=True,
    )
    redact: tuple[str, ...] = setting(
        (),
        RedactionRules(),
        "What the HTTP API, and so the dashboard, hides of payloads and results. `GLOB` hides those of all functions"
        " whose names match; `GLOB:FIELD` hides the values of this field in JSON, at any depth, and all that is not"
        " JSON. Identities with the role `admin` see everything. Workers get the payloads of their jobs, and"
        " submitters the results of theirs.",
        "Whoever may look at jobs may usually see what they carry.",
        reloadable=True,
    )


@dataclass(frozen=True)
class ZeromqConfig(Checked):
    """The protocols on ZeroMQ: WMP, PING/PONG and dwork."""

    curve_key_file: str = setting(
        "",
        FilePath(empty=True),
        "The server's key pair, a file that ends in .key_secret (`switchgear keys` makes one). With it, all ZeroMQ"
        " connections are encrypted, and only peers that know the server's public key can connect.",
        "Connections within one machine need no encryption.",
    )
    curve_clients_dir: str = setting(
        "",
        FilePath(empty=True),
        "The directory with the public keys (files that end in .key) of clients that may connect; empty: every client"
        " that knows the server's public key. The directory is read again at a reload.",
        "A list of clients is useful only if they have keys.",
    )
    messages_per_peer: int = setting(
        1000,
        WholeNumber(1, 1_000_000),
        "Messages that may wait for one peer that does not read. A further message counts as not delivered; a job in it"
        " goes to another worker.",
        "Enough for any pipelining, and a limit on the memory that a stuck peer can use.",
    )
    heartbeat_seconds: float = setting(
        0,
        Seconds(0, 6_000),
        "How often the server sends a heartbeat (ZMTP's PING) to a silent ZeroMQ peer. It closes the connection after"
        " three times as long without an answer. 0: never.",
        "TCP keepalive (`limits.keepalive_…`) detects machines that disappear, and costs nothing.",
    )
    handshake_seconds: float = setting(
        30,
        Seconds(1, 3_600),
        "How long the handshake of a new ZeroMQ connection may take.",
        "A connection that sends nothing is not a peer.",
    )


@dataclass(frozen=True)
class StorageConfig(Checked):
    """Settings of the job store."""

    sync: str = setting(
        "full",
        Choice("full", "normal"),
        "full: each commit waits for the disk, so an acknowledged job survives a power failure. normal: it survives a"
        " crash or kill of the server, but jobs acknowledged in the last moments before a power failure or a crash of"
        " the operating system can be lost.",
        "An acknowledgement is a promise. One sync covers all jobs that arrived during the previous one.",
        flag="--sync",
    )
    payload_memory_bytes: int = setting(
        256 * MIB,
        Size(0),
        "Bytes of payloads of waiting jobs that stay in memory. Other payloads are read from the store when needed.",
        "Ten million waiting jobs must not need the memory of their payloads.",
    )
    keep_finished_seconds: int = setting(
        86_400,
        Seconds(0, whole=True),
        "How long the history keeps a finished job with its result.",
        "Long enough to investigate in the morning what failed in the night.",
        reloadable=True,
    )
    keep_finished_count: int = setting(
        1_000_000,
        WholeNumber(0),
        "How many finished jobs the history keeps; the oldest are dropped first. `memory:` keeps at most 1,000 that"
        " are done (100,000 of those that were submitted with options, as the Python library does) and 10,000 that"
        " did not succeed.",
        "A busy server finishes millions per hour, and they must not fill the disk.",
        reloadable=True,
    )


@dataclass(frozen=True)
class JobLogConfig(Checked):
    """The job log: what ran, how long it took, and how it ended."""

    url: str = setting(
        "",
        JobLogUrl(),
        "Where the job log is written: sqlite:PATH, postgresql://USER@HOST/DATABASE, or off.",
        "Questions about past jobs come when it is too late to turn on a log.",
        flag="--joblog",
        default_note=f"`sqlite:` and `{JOB_LOG_NAME}` in the state directory; if the store is another file,"
        " `NAME-log.db` beside it; the store's own database if that is PostgreSQL; `off` if the store is `memory:`",
    )
    keep_seconds: int = setting(
        30 * 86_400,
        Seconds(60, whole=True),
        "How long an entry stays in the job log.",
        "A month, so that you can compare weeks.",
        reloadable=True,
    )
    keep_count: int = setting(
        5_000_000,
        WholeNumber(1),
        "How many entries stay in the job log; the oldest are dropped first.",
        "An entry takes some 250 bytes, and entries must not fill the disk.",
        reloadable=True,
    )


@dataclass(frozen=True)
class LogConfig(Checked):
    """Settings of the server's log."""

    level: str = setting(
        "info",
        Choice("debug", "info", "warning", "error", "critical"),
        "The lowest level of messages that are logged.",
        "info shows starts, stops, lost workers and refused peers, but nothing for each job.",
        reloadable=True,
        flag="--log-level",
    )
    file: str = setting(
        "",
        FilePath(empty=True),
        "The file to log to; empty: standard error. SIGHUP reopens it, for log rotation.",
        "Service managers and containers collect standard error.",
        reloadable=True,
        flag="--log-file",
    )
    format: str = setting(
        "text",
        Choice("text", "json"),
        "text for people, json (one object per line) for programs.",
        "People read it first.",
        flag="--log-format",
    )


@dataclass(frozen=True)
class ClusterConfig(Checked):
    """Several servers that share the jobs in one PostgreSQL database."""

    enabled: bool = setting(
        False,
        Switch(),
        "Whether this server is one of several on the same PostgreSQL; `cluster.mode` says how they share the jobs.",
        "A single server needs no others.",
    )
    mode: str = setting(
        "standby",
        Choice("standby", "owners"),
        "How the nodes share the work. With `standby`, one of them owns all jobs; the others pass connections on to it,"
        " and one of them takes over when it ends. With `owners`, each owns a part of the functions, and passes on what"
        " concerns the others; not everything is possible then.",
        "A standby can do everything that a single server can.",
    )
    link_port: int = setting(
        0,
        WholeNumber(0, 65_535),
        "The port at which other nodes connect to this one, in the mode `owners`; 0: any free port.",
        "Nodes find the port in the database.",
    )
    link_tls_cert: str = setting(
        "",
        FilePath(empty=True),
        "The certificate (PEM, with its chain) with which other nodes connect to this one by TLS, in the mode `owners`;"
        " nothing: what they send to this node and get from it is not encrypted. The file is read again on SIGHUP.",
        "A network that only the nodes use needs no encryption, and a certificate is made by whoever runs them.",
    )
    link_tls_key: str = setting(
        "",
        FilePath(empty=True),
        "The private key of that certificate.",
        "Certificate and key are often in one file.",
        default_note="the file of the certificate",
    )
    link_tls_ca: str = setting(
        "",
        FilePath(empty=True),
        "The authorities (PEM) that must have signed the certificates of all nodes. With it, this node refuses nodes"
        " that have no such certificate, and connections to and from it that are not encrypted.",
        "Nodes prove to each other that they know the secret in the database, and which certificate they have.",
    )
    name: str = setting(
        "",
        FreeText(100),
        "What this node is called in `switchgear nodes`.",
        "The name of the machine is what people know.",
        default_note="the name of the machine",
    )
    host: str = setting(
        "",
        FreeText(253),
        "The host at which other nodes reach the listeners of this one.",
        "Nodes on a network know each other by the address at which they listen.",
        default_note="the host of each listening URL; the name of the machine if that is every host",
    )
    lease_seconds: float = setting(
        3,
        Seconds(1, 3600),
        "How long the owner may be silent before another node takes over.",
        "Long enough for a pause of a busy machine or a restart of PostgreSQL, and clients can wait for so long.",
    )
    allow_async: bool = setting(
        False,
        Switch(),
        "Whether to start although PostgreSQL has no synchronous standby.",
        "A fail-over to an asynchronous standby loses jobs that were acknowledged.",
    )


@dataclass(frozen=True)
class AccessConfig(Checked):
    """Settings of access control."""

    file: str = setting(
        "",
        FilePath(empty=True),
        "The access file: identities with their roles, functions, and hashed tokens, certificates or CURVE keys;"
        " `switchgear access` writes it. It is read again on SIGHUP. Without it, every peer that can connect may do"
        " everything.",
        "A machine with one user needs no access control.",
        flag="--access-file",
    )


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
