"""The settings of protocols: `gearman.*`, `http.*`, `zeromq.*`."""

from __future__ import annotations

from dataclasses import dataclass

from switchgear.config.setting import Checked, setting
from switchgear.config.setting_types import (
    Choice,
    FilePath,
    FreeText,
    RedactionRules,
    Seconds,
    Switch,
    WholeNumber,
)

__all__ = ["GearmanConfig", "HttpConfig", "ZeromqConfig"]


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
