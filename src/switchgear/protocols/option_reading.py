"""Converts the job options of a submission, from JSON or a query string, to `SubmitOptions` of the engine.

The table of job options (`switchgear.job_options`) says what each value may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import OptionError
from switchgear.job_options import JOB_OPTION_NAMED, JOB_OPTIONS, JobOption
from switchgear.model import NORMAL
from switchgear.protocols.pending_read import Step

__all__ = ["OPTION_OF_FIELD", "ReadOptions", "read_options"]

# The handles of more predecessors are read in steps, this many in each.
HANDLES_PER_STEP: Final = 1_000

# The options by their names and by their old names.
OPTION_OF_FIELD: Final[Mapping[str, JobOption]] = {
    name: option for option in JOB_OPTIONS for name in (option.name, *option.old_names)
}
PRIORITY: Final = JOB_OPTION_NAMED["priority"]
AFTER: Final = JOB_OPTION_NAMED["after"]
ON_FAILURE: Final = JOB_OPTION_NAMED["on_failure"]
DEFAULT_EDGE_POLICY: Final[str] = ON_FAILURE.json_default
ABOUT_UNIQUE_KEYS: Final = frozenset(name for name in OPTION_OF_FIELD if name.startswith("unique_"))


class ReadOptions:
    """The options of a submission: its priority, and the others."""

    def __init__(
        self, priority: int, options: SubmitOptions, may_be_shared: bool, edges: Iterator[Step] | None
    ) -> None:
        self.priority = priority
        self.options = options
        self.may_be_shared = may_be_shared  # they may stand for any number of jobs, none of them is a job's own
        self.edges = edges  # reads very many predecessors in steps, into `options`; raises OptionError


def read_options(
    given: Mapping[str, Any],
    *,
    has_unique: bool,
    name_bytes: int,
    predecessor: Callable[[str], int],
    most_predecessors: int = AFTER.most,
) -> ReadOptions:
    """Read options that have the right types; raises OptionError.

    `wait` and `watch` are not among them: what they mean depends on the protocol.  `predecessor` finds the id of a job
    by its handle, or returns 0.
    """
    if not has_unique and not ABOUT_UNIQUE_KEYS.isdisjoint(given):
        name = next(name for name in given if name in ABOUT_UNIQUE_KEYS)
        raise OptionError(name, "needs a unique key, as do all of unique_scope, unique_policy and unique_for")
    wanted = SubmitOptions()
    handles: list[str] = given.get("after", [])
    if len(handles) > most_predecessors:
        raise OptionError("after", f"has at most {most_predecessors} handles", is_too_large=True)
    edges = read_edges(handles, given.get("on_failure", DEFAULT_EDGE_POLICY), predecessor, wanted)
    is_wide = len(handles) > HANDLES_PER_STEP
    if not is_wide:
        for _ in edges:
            pass
    priority = NORMAL
    may_be_shared = not handles
    for name, value in given.items():
        option = OPTION_OF_FIELD[name]
        if option is AFTER or option is ON_FAILURE:
            continue
        if name != option.name and option.name in given:
            raise OptionError(option.name, f"is given twice, once under its old name {name}")
        read = option.read(value, name_bytes=name_bytes, called=name)
        if option is PRIORITY:
            priority = read
        else:
            setattr(wanted, option.field, read)
            may_be_shared = may_be_shared and option.is_shared
    return ReadOptions(priority, wanted, may_be_shared, edges if is_wide else None)


def read_edges(
    handles: list[str], words: str | list[str], predecessor: Callable[[str], int], wanted: SubmitOptions
) -> Iterator[Step]:
    """Set the predecessors, and for each the policy that says what happens if it fails; raises OptionError."""
    is_common = isinstance(words, str)
    if not is_common and len(words) != len(handles):
        text = f"is one word, or one for each handle of after: {len(handles)}, not {len(words)}"
        raise OptionError("on_failure", text)
    policy = ON_FAILURE.index_of(words) if isinstance(words, str) else 0
    edges: dict[int, int] = {}
    for place, handle in enumerate(handles):
        if not is_common:
            policy = ON_FAILURE.index_of(words[place])
        job_id = predecessor(handle)
        if not job_id:
            raise OptionError("after", f"names {handle}, which was never a job of this server")
        if edges.setdefault(job_id, policy) != policy:
            raise OptionError("after", f"has {handle} twice, with different words of on_failure")
        if place % HANDLES_PER_STEP == HANDLES_PER_STEP - 1:
            yield False
    wanted.predecessors = tuple(edges)
    wanted.edges = bytes(edges.values()) if any(edges.values()) else b""
