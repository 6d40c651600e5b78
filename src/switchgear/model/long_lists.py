"""`promote_new_objects`: excludes new objects from garbage collection before they become very large.

A list is visited with all its items by each collection while it is young, and it stays young until collections have
visited it twice.  They run when very many objects were made.  Where a slice of work fills a list and makes no objects,
none runs until the list has hundreds of thousands of items, of which none is in the processor's cache; then one took
a quarter of a second.
"""

from __future__ import annotations

from gc import collect
from typing import Final

__all__ = ["LONG", "promote_new_objects"]

# A list that may get longer than this is promoted while it is empty.  With less, a visit takes a fraction of a
# millisecond, as the promotion does.
LONG: Final = 10_000


def promote_new_objects() -> None:
    """Collect the young objects, which are few in a server; those that stay are old and not visited any more."""
    collect(1)
