"""The settings `limits.*`: what peers may make the server hold."""

from __future__ import annotations

from dataclasses import dataclass

from switchgear.config.setting import Checked, setting
from switchgear.config.setting_types import (
    Seconds,
    Size,
    WholeNumber,
)
from switchgear.units import GIB, KIB, MIB

__all__ = ["LimitsConfig"]


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
