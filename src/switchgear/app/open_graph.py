"""`OPEN_GRAPH`: a context variable, the graph of the enclosing `with` block, to which calls of tasks are added."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from switchgear.app.graph_context import Graph

__all__ = ["OPEN_GRAPH"]

OPEN_GRAPH: Final[ContextVar[Graph | None]] = ContextVar("switchgear_open_graph", default=None)
