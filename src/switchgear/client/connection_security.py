"""`ConnectionSecurity`: the token of a client, and how it verifies servers; for clients of every protocol over TCP.

Without other settings these come from the environment: SWITCHGEAR_TOKEN or SWITCHGEAR_TOKEN_FILE, SWITCHGEAR_TLS_CA,
SWITCHGEAR_TLS_CERT and SWITCHGEAR_TLS_KEY.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from switchgear.errors import ConfigError

if TYPE_CHECKING:
    import ssl

__all__ = ["NO_SECURITY", "SECRET_VARIABLES", "TOKEN_FILE_VARIABLE", "TOKEN_VARIABLE", "ConnectionSecurity"]

TOKEN_VARIABLE: Final = "SWITCHGEAR_TOKEN"
TOKEN_FILE_VARIABLE: Final = "SWITCHGEAR_TOKEN_FILE"
CA_VARIABLE: Final = "SWITCHGEAR_TLS_CA"
CERT_VARIABLE: Final = "SWITCHGEAR_TLS_CERT"
KEY_VARIABLE: Final = "SWITCHGEAR_TLS_KEY"

# What commands that a worker runs must not inherit.
SECRET_VARIABLES: Final = frozenset({TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, KEY_VARIABLE})


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """A client's token, and the files for TLS; see the module."""

    token: str = field(default="", repr=False)
    ca_file: str = ""  # the authorities of servers; empty: those of the system
    cert_file: str = ""  # the client certificate
    key_file: str = ""  # its private key; empty: it is in the same file
    ca_setting: str = CA_VARIABLE  # where `ca_file` was set, for errors
    cert_setting: str = CERT_VARIABLE

    @classmethod
    def from_environment(cls) -> Self:
        """The settings in environment variables; raises ConfigError if the token file cannot be read."""
        environ = os.environ
        token = environ.get(TOKEN_VARIABLE, "").strip()
        token_file = environ.get(TOKEN_FILE_VARIABLE, "")
        if token_file and not token:
            from switchgear.access.tokens import read_token_file

            token = read_token_file(token_file)
        return cls(token, environ.get(CA_VARIABLE, ""), environ.get(CERT_VARIABLE, ""), environ.get(KEY_VARIABLE, ""))

    def with_token(self, token: str | None) -> ConnectionSecurity:
        """The same with another token; `None` keeps the token. Raises ConfigError."""
        if token is None:
            return self
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError("a token is one word of visible ASCII characters")
        return replace(self, token=token)

    def tls_context(self) -> ssl.SSLContext:
        """The settings as Python's TLS takes them; raises ConfigError."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            raise ConfigError(f"{self.ca_setting}: {self.ca_file}: {_reason(error)}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert_file:
            try:
                context.load_cert_chain(self.cert_file, self.key_file or None, password=_no_password)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{self.cert_setting}: {self.cert_file}: {_reason(error)}") from None
        return context


NO_SECURITY: Final = ConnectionSecurity()


def _no_password() -> str:
    raise ValueError("the private key is encrypted by a password; give one that is not")


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else getattr(error, "strerror", None) or str(error)
