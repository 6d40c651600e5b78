"""Finds the URL of a server's dashboard among its listening addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from switchgear.errors import ConfigError

__all__ = ["NO_DASHBOARD", "dashboard_url"]

NO_DASHBOARD: Final = (
    "the server has no dashboard: it needs a listener such as http://127.0.0.1:4740, without the option dashboard=no"
)
# Addresses that mean every interface; a browser on this machine uses loopback.
EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def dashboard_url(listeners: Iterable[str], host: str = "") -> str:
    """The URL of the dashboard, at the first listener that has one; raises ConfigError if there is none.

    `host` is how this process reaches the server, in place of an address that means every interface.
    """
    for url in listeners:
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        if parts.scheme != "http" or options.get("dashboard") == ["no"]:
            continue
        scheme = "https" if [text.lower() for text in options.get("tls", [])] == ["yes"] else "http"
        name = parts.hostname or ""
        if name in EVERYWHERE:
            name = host or EVERYWHERE[name]
        shown = f"[{name}]" if ":" in name else name
        return f"{scheme}://{shown}:{parts.port}/"
    raise ConfigError(NO_DASHBOARD)
