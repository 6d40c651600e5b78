"""The graph that is being described in the present context: calls of tasks are added to it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from switchgear.app.graph_context import Graph

__all__ = ["OPEN_GRAPH"]

OPEN_GRAPH: Final[ContextVar[Graph | None]] = ContextVar("switchgear_open_graph", default=None)
