"""`NotSupported`: raised for what a compatibility layer cannot do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from switchgear.errors import SwitchgearError

__all__ = ["NotSupported", "refuse_unknown"]


class NotSupported(SwitchgearError):
    """The compatibility layer cannot do this; the message says what to use instead."""


def refuse_unknown(what: str, given: Iterable[str], hints: Mapping[str, Any]) -> None:
    """Raise NotSupported for the first of these options, with its hint if there is one."""
    for name in given:
        hint = hints.get(name)
        raise NotSupported(f"{what}: {name} is not supported" + (f": {hint}" if hint else ""))
