"""Types of tasks with one, two or three parameters, by which type checkers check the iterables given to `Task.map`.

Further parameters are not compared, because they may have defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, Protocol, TypeVar

__all__ = ["TakesOne", "TakesThree", "TakesTwo"]

A_contra = TypeVar("A_contra", contravariant=True)
B_contra = TypeVar("B_contra", contravariant=True)
C_contra = TypeVar("C_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class TakesOne(Protocol[A_contra, R_co]):
    """A task that can be called with one argument."""

    @property
    def typed_function(self) -> Callable[Concatenate[A_contra, ...], R_co]:
        """The function; see `Task.typed_function`."""


class TakesTwo(Protocol[A_contra, B_contra, R_co]):
    """A task that can be called with two arguments."""

    @property
    def typed_function(self) -> Callable[Concatenate[A_contra, B_contra, ...], R_co]:
        """The function; see `Task.typed_function`."""


class TakesThree(Protocol[A_contra, B_contra, C_contra, R_co]):
    """A task that can be called with three arguments."""

    @property
    def typed_function(self) -> Callable[Concatenate[A_contra, B_contra, C_contra, ...], R_co]:
        """The function; see `Task.typed_function`."""
