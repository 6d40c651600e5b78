"""Connection parameters of PostgreSQL databases, from URLs.

Needs psycopg 3: `pip install 'switchgear[postgres]'`. It is imported when a URL names a PostgreSQL database.
"""

from __future__ import annotations

from typing import Any, Final

from switchgear.errors import ConfigError
from switchgear.text import without_secrets

__all__ = ["connection_parameters", "is_postgresql"]

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
