"""Tunes Python's garbage collector so that no collection visits every queued job."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_off", "settle_garbage"]


def settle_garbage() -> None:
    """What exists now lives as long as the server: never look at it again.  Jobs make no cycles, so collecting is
    only for what connections leave behind; a collection of everything would stop the server for as long as it takes to
    visit every queued job."""
    gc.collect()
    gc.freeze()
    # A look at 5,000 new objects takes a millisecond, and no one need wait longer than for a few of these.  What
    # survives is looked at once more, together with what survived two other looks, and then never again.
    gc.set_threshold(5_000, 2, 1_000_000)


@contextmanager
def collector_off() -> Iterator[None]:
    """No collection meanwhile: a million new objects, all of them to stay, would be looked through again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
