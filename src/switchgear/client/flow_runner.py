"""Runs flows: generators that yield steps, are sent the result of each, and return a result.

Clients are written as flows once, and the steps are taken in two ways: by blocking, or with asyncio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

__all__ = ["perform", "perform_async"]

S = TypeVar("S")  # a step
A = TypeVar("A")  # the result of a step
R = TypeVar("R")


def perform(flow: Generator[S, A, R], take: Callable[[S], A]) -> R:
    """Run a flow; returns its result or raises its exception.  Exceptions of `take` are thrown into the flow."""
    try:
        step = next(flow)
        while True:
            try:
                answer = take(step)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result


async def perform_async(flow: Generator[S, A, R], take: Callable[[S], Awaitable[A]]) -> R:
    """Run a flow with asyncio."""
    try:
        step = next(flow)
        while True:
            try:
                answer = await take(step)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result
