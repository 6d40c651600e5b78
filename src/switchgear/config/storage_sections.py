"""The settings of what is stored, and of servers that share it: `storage.*`, `joblog.*`, `cluster.*`."""

from __future__ import annotations

from dataclasses import dataclass

from switchgear.config.setting import Checked, setting
from switchgear.config.setting_types import (
    Choice,
    FilePath,
    FreeText,
    JobLogUrl,
    Seconds,
    Size,
    Switch,
    WholeNumber,
)
from switchgear.units import MIB

__all__ = ["ClusterConfig", "JobLogConfig", "StorageConfig"]

JOB_LOG_NAME = "joblog.db"


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
