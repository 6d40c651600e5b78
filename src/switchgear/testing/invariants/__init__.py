"""`check_engine`: checks the invariants of an engine, which hold between any two calls.

The engine keeps the same facts in several tables, so that each lookup is fast. Here every fact is computed again the
slow way and compared, one module for each part of the engine. `check_engine` checks one moment; the simulation checks
what spans several (logs that only grow, promises).

Work in slices. While some of it is pending, tables may differ by what is not done yet, and by nothing else. Each check
asks for the kind of work (`SlicedKind`) and for its subject, and says what it allows meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from switchgear.engine.engine import Engine
from switchgear.model import Job
from switchgear.testing.invariants.broken_invariant import BrokenInvariant, broken
from switchgear.testing.invariants.deadlines import check_deadlines
from switchgear.testing.invariants.dependencies import check_dependencies
from switchgear.testing.invariants.memory import check_memory
from switchgear.testing.invariants.packed_queues import check_packed_queues
from switchgear.testing.invariants.ready_queues import check_queues
from switchgear.testing.invariants.subscriptions import check_subscribers
from switchgear.testing.invariants.tables import check_tables
from switchgear.testing.invariants.workers import check_workers, is_being_offered, is_being_read

__all__ = ["BrokenInvariant", "broken", "check_engine", "is_being_offered", "is_being_read"]


def check_engine(engine: Engine, unstored: Iterable[Job] | None = None) -> None:
    """Raise BrokenInvariant if two tables of the engine contradict each other.

    `unstored` has all finished jobs whose contents may not be dropped yet; without it, their memory is not known, and
    the memory account is not compared exactly.
    """
    for function in engine.functions.values():
        check_queues(function, engine)
    check_tables(engine)
    check_packed_queues(engine)
    check_workers(engine)
    check_dependencies(engine)
    check_deadlines(engine)
    check_subscribers(engine)
    check_memory(engine, unstored)
