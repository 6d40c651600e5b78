"""Tags: short words for capabilities that workers have and jobs require, such as `gpu`.

People write them with commas (`gpu,large`), JSON as such a text or as a list.  As a set they are a worker's `tags`.
`switchgear.resources` reads what a job requires: tags and amounts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = [
    "MOST_TAGS",
    "MOST_TAG_BYTES",
    "canonical_tags",
    "checked_tag",
    "shown_tags",
    "split_at_commas",
    "tag_set",
]

MOST_TAGS: Final = 16
MOST_TAG_BYTES: Final = 64

_UNFIT: Final = re.compile(r"[\s,=\x00-\x1f\x7f]")


def canonical_tags(given: str | Iterable[str]) -> bytes:
    """The tags sorted, each once, with commas between them; raises ValueError.

    >>> canonical_tags("large, gpu,gpu"), canonical_tags(["gpu"]), canonical_tags("")
    (b'gpu,large', b'gpu', b'')
    """
    if isinstance(given, str):
        given = split_at_commas(given)
    tags = sorted({checked_tag(tag) for tag in given})
    if len(tags) > MOST_TAGS:
        raise ValueError(f"there are at most {MOST_TAGS} tags, not {len(tags)}")
    return b",".join(tags)


def tag_set(given: str | Iterable[str]) -> frozenset[bytes]:
    """The tags of a worker as a set; raises ValueError.

    >>> tag_set("")
    frozenset()
    """
    tags = canonical_tags(given)
    return frozenset(tags.split(b",")) if tags else frozenset()


def shown_tags(tags: bytes | frozenset[bytes]) -> list[str]:
    """The tags for JSON.

    >>> shown_tags(b"gpu,large"), shown_tags(frozenset({b"gpu"})), shown_tags(b"")
    (['gpu', 'large'], ['gpu'], [])
    """
    if isinstance(tags, bytes):
        tags = frozenset(tags.split(b",")) if tags else frozenset()
    return [tag.decode("utf-8", "replace") for tag in sorted(tags)]


def split_at_commas(text: str) -> list[str]:
    """The parts of a text that are not empty."""
    return [part for part in (piece.strip() for piece in text.split(",")) if part]


def checked_tag(tag: str) -> bytes:
    """A tag, or the name of a resource, as the server has it; raises ValueError."""
    if not isinstance(tag, str):
        raise ValueError(f"a tag is a text, not {tag!r}")
    data = tag.encode("utf-8", "surrogateescape")
    if not 0 < len(data) <= MOST_TAG_BYTES or _UNFIT.search(tag):
        raise ValueError(f"a tag has 1 to {MOST_TAG_BYTES} bytes, and no spaces, commas or equals signs: {tag!r}")
    return data
