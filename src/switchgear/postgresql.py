"""Connection parameters of PostgreSQL databases, from URLs.

Needs psycopg 3: `pip install 'switchgear[postgres]'`. It is imported when a URL names a PostgreSQL database.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from switchgear.errors import ConfigError, StorageError
from switchgear.text import in_one_line, without_secrets

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

__all__ = ["connect", "connection_parameters", "is_postgresql"]

# A database that does not answer must be detected, even behind a firewall that drops packets. Options in the URL take
# precedence.
CONNECTION_DEFAULTS: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "switchgear",
}


def is_postgresql(url: str) -> bool:
    """Whether the URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def connection_parameters(url: str, purpose: str) -> dict[str, Any]:
    """The parameters of libpq that the URL gives, and defaults for others; raises ConfigError.

    `purpose` says in errors what the database is for.
    """
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise ConfigError(f"PostgreSQL needs another package: pip install 'switchgear[postgres]' ({error})") from None
    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ConfigError(f"{purpose} {without_secrets(url)!r}: {without_secrets(str(error), url)}") from None
    return {**CONNECTION_DEFAULTS, **given}


def connect(parameters: Mapping[str, Any]) -> PGconn:
    """A connection of libpq, in a thread that may block; raises StorageError.

    libpq's own blocking call would keep the interpreter lock while it waits. So this waits itself, tries one address
    after the other, and looks up names itself.
    """
    errors: list[str] = []
    for attempt in _attempts(parameters, errors):
        try:
            return _connect_to(attempt)
        except StorageError as error:
            errors.append(str(error))
    raise StorageError("; ".join(dict.fromkeys(errors)) or "no address was given")


def _attempts(parameters: Mapping[str, Any], errors: list[str]) -> list[dict[str, Any]]:
    """The parameters for each address of each host."""
    hosts = str(parameters.get("host") or "").split(",")
    addresses = str(parameters.get("hostaddr") or "").split(",")
    ports = str(parameters.get("port") or "").split(",")
    attempts: list[dict[str, Any]] = []
    for place in range(max(len(hosts), len(addresses))):
        host = hosts[place] if place < len(hosts) else ""
        port = ports[place] if len(ports) > 1 and place < len(ports) else ports[0]
        attempt = {**parameters, "host": host, "port": port}
        given = addresses[place] if place < len(addresses) else ""
        found = [given]
        if host and not given and not host.startswith(("/", "@")):
            try:
                infos = socket.getaddrinfo(host, int(port or 5432), type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(str(info[4][0]) for info in infos))
            except (OSError, ValueError) as error:
                errors.append(f"{host}: {error}")
                continue
        attempts += [{**attempt, "hostaddr": address} for address in found]
    return [{name: value for name, value in attempt.items() if value != ""} for attempt in attempts]


def _connect_to(parameters: Mapping[str, Any]) -> PGconn:
    from psycopg import Error, conninfo, pq

    timeout_s = 5.0
    with suppress(ValueError):
        timeout_s = float(parameters.get("connect_timeout", timeout_s)) or math.inf
    deadline_s = time.monotonic() + timeout_s
    pgconn = pq.PGconn.connect_start(conninfo.make_conninfo(**parameters).encode())
    try:
        if pgconn.status == pq.ConnStatus.BAD:
            raise StorageError(in_one_line(pgconn.get_error_message()))
        wanted: int = pq.PollingStatus.WRITING
        while wanted != pq.PollingStatus.OK:
            poll = select.poll()
            poll.register(pgconn.socket, select.POLLIN if wanted == pq.PollingStatus.READING else select.POLLOUT)
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not poll.poll(min(left_s, 3600) * 1000):
                where = parameters.get("hostaddr") or parameters.get("host") or "the server"
                raise StorageError(f"{where} did not answer for {timeout_s:g} s")
            wanted = pgconn.connect_poll()
            if wanted == pq.PollingStatus.FAILED:
                raise StorageError(in_one_line(pgconn.get_error_message()))
    except Error as error:
        pgconn.finish()
        raise StorageError(in_one_line(str(error))) from error
    except BaseException:
        pgconn.finish()
        raise
    return pgconn
