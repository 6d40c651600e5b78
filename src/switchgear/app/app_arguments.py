"""Checks the arguments of `App`, and finds those that are not given."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

from switchgear.app.declarations import UNDECLARED_WAYS, Undeclared
from switchgear.errors import ConfigError

if TYPE_CHECKING:
    from switchgear.app.payloads.codec import PayloadCodec

__all__ = [
    "URL_VARIABLE",
    "checked_codec",
    "checked_exceptions",
    "checked_run_here",
    "checked_undeclared",
    "usual_urls",
]

URL_VARIABLE: Final = "SWITCHGEAR_URL"
DEFAULT_URL: Final = "embedded:.switchgear"


def usual_urls() -> list[str]:
    """Where an app is that is given no URL: the environment says it, or it is in a directory."""
    return os.environ.get(URL_VARIABLE, "").replace(",", " ").split() or [DEFAULT_URL]


def checked_run_here(run_here: bool | Literal["all"]) -> bool | Literal["all"]:
    if run_here not in (True, False, "all"):
        raise ConfigError(f'run_here is True, False or "all", not {run_here!r}')
    return run_here


def checked_undeclared(undeclared: Undeclared | None, name: str | None) -> Undeclared:
    """What becomes of declarations that are gone from the code; an app that was given a name owns its own."""
    if undeclared is not None and undeclared not in UNDECLARED_WAYS:
        raise ConfigError(f"undeclared is one of {', '.join(UNDECLARED_WAYS)}, not {undeclared!r}")
    return undeclared or ("remove" if name else "report")


def checked_codec(codec: PayloadCodec | None) -> PayloadCodec | None:
    if codec is not None:
        from switchgear.app.payloads.codec import PayloadCodec

        if not isinstance(codec, PayloadCodec):
            raise ConfigError(f"payloads is a PayloadCodec, not {codec!r}")
    return codec


def checked_exceptions(given: Iterable[type[Exception]] | None) -> tuple[type[Exception], ...] | None:
    """The classes of exceptions that results may raise; None for all as `TaskFailed`."""
    if given is None:
        return None
    kinds = tuple(given)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ConfigError(f"exceptions are classes of exceptions, not {kind!r}")
    return kinds
