"""What the answer to a verb lacks if servers that share the functions did not all answer: its headers and its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from switchgear.verbs.answers import Incomplete

__all__ = ["UNREACHABLE_HEADER", "WITHOUT_OWNER_HEADER", "incomplete_of_headers", "told_incomplete", "told_missing"]

UNREACHABLE_HEADER: Final = "Switchgear-Unreachable"
WITHOUT_OWNER_HEADER: Final = "Switchgear-Partitions-Without-Owner"


def incomplete_of_headers(headers: Mapping[str, str]) -> Incomplete | None:
    """What the headers of an answer say, with names in lower case; None if the answer is complete."""
    names = headers.get(UNREACHABLE_HEADER.lower(), "")
    lost = headers.get(WITHOUT_OWNER_HEADER.lower(), "")
    if not names and not lost:
        return None
    return {
        "unreachable": [unquote(name.strip()) for name in names.split(",") if name.strip()],
        "partitions_without_owner": int(lost) if lost.isdecimal() else 0,
    }


def told_incomplete(verb: str, incomplete: Mapping[str, Any]) -> str:
    """A text that says what is missing in the answer to a verb."""
    return f"the answer to {verb} lacks {told_missing(incomplete)}"


def told_missing(incomplete: Mapping[str, Any]) -> str:
    """A text that names what is missing."""
    texts: list[str] = []
    names = incomplete.get("unreachable") or []
    if names:
        texts.append(f"what the node{'s' if len(names) > 1 else ''} {', '.join(names)} should have answered")
    lost = incomplete.get("partitions_without_owner") or 0
    if lost:
        texts.append(f"{lost} of 64 partitions of functions, which no node owns at this moment")
    return " and ".join(texts)
