"""Rows of arguments, made of one iterable for each parameter."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sized
from operator import length_hint
from typing import Any

__all__ = ["argument_rows"]


def argument_rows(name: str, iterables: tuple[Iterable[Any], ...]) -> Iterable[tuple[Any, ...]]:
    """The rows of items of these iterables, for the task of this name.

    Raises TypeError for what is not iterable, and ValueError if one has more items than another: at once if that can be
    known, and not only when the first result is asked for.
    """
    if not iterables:
        raise TypeError(f"{name}: an iterable of arguments is needed")
    for iterable in iterables:
        if not isinstance(iterable, Iterable):
            raise TypeError(f"{name}: {iterable!r} is not iterable")
    if len(iterables) == 1:
        return ((item,) for item in iterables[0])
    lengths = [len(iterable) for iterable in iterables if isinstance(iterable, Sized)]
    if len(set(lengths)) > 1:
        raise ValueError(f"{name}: the iterables have different lengths: {', '.join(map(str, lengths))}")
    limited = [iterable for iterable in iterables if not _is_endless(iterable)]
    if not limited or len(limited) == len(iterables):
        return zip(*iterables, strict=bool(limited))
    return _beside_endless(iterables, zip(*limited, strict=True))


def _is_endless(iterable: Iterable[Any]) -> bool:
    """Whether an iterable is known to be endless, so that it may be paired with others of any length."""
    if isinstance(iterable, itertools.repeat):
        return length_hint(iterable, -1) < 0
    return isinstance(iterable, itertools.count | itertools.cycle)


def _beside_endless(
    iterables: tuple[Iterable[Any], ...], limited: Iterator[tuple[Any, ...]]
) -> Iterator[tuple[Any, ...]]:
    endless = [iter(iterable) if _is_endless(iterable) else None for iterable in iterables]
    for row in limited:
        items = iter(row)
        yield tuple([next(items if others is None else others) for others in endless])
