"""Names of protocols for the error messages to peers that use the wrong protocol at a listener."""

from __future__ import annotations

from typing import Final

__all__ = [
    "AMQP",
    "DRAFT",
    "GEARMAN",
    "HTTP",
    "MEMCACHED",
    "POSTGRESQL",
    "REDIS",
    "SMTP",
    "SSH",
    "SSL2",
    "TLS",
    "ZMTP",
]

HTTP: Final = "HTTP"
TLS: Final = "TLS"
SSL2: Final = "SSL 2"
SSH: Final = "SSH"
SMTP: Final = "SMTP"
REDIS: Final = "Redis"
MEMCACHED: Final = "memcached"
GEARMAN: Final = "Gearman"
DRAFT: Final = "the Gearman draft of 2005"
ZMTP: Final = "ZeroMQ"
AMQP: Final = "AMQP"
POSTGRESQL: Final = "PostgreSQL"
