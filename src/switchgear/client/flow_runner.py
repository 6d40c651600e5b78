"""Going through with a flow: a generator that yields steps, is sent what came of each, and returns a result.

What a client does is written as flows once, and there are two ways to take a step: by blocking, or with asyncio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

__all__ = ["perform", "perform_async"]

S = TypeVar("S")  # a step
A = TypeVar("A")  # what comes of it
R = TypeVar("R")


def perform(flow: Generator[S, A, R], take: Callable[[S], A]) -> R:
    """Returns or raises what the flow does.  What `take` raises, the flow is told, and may live with."""
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
    """The same with asyncio."""
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
