"""`DividedVerbs`: verbs that name a function which is divided into shards, and dividing and uniting functions.

A verb that can be carried out at each shard is; one that needs a single owner is refused, and says which names it can
be given instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from switchgear.errors import Refused
from switchgear.json_bytes import bytes_of, plain
from switchgear.model import Job
from switchgear.net.operations.verb_steps import Steps
from switchgear.net.owners.answer_merging import MERGES, NodePart
from switchgear.net.owners.node_requests import NodeRequests
from switchgear.partitions import Shards, shard_name
from switchgear.refusals import REFUSED_CONFLICT
from switchgear.text import counted
from switchgear.verbs.answers import Incomplete
from switchgear.verbs.operator_verb import OperatorVerb
from switchgear.verbs.table import VERBS

if TYPE_CHECKING:
    from switchgear.net.owners.member import OwnersMember

__all__ = ["DividedVerbs"]

AT_EACH_SHARD: Final = ("pause", "resume")
# Why a verb cannot be carried out at all shards together.
REASONS: Final = {
    "limit": "limits over several owners would not be exact",
    "queue_limits": "limits over several owners would not be exact",
    "schedule": "a schedule needs one owner",
}


class DividedVerbs:
    """Carries out verbs at the shards of a function."""

    def __init__(self, member: OwnersMember, requests: NodeRequests) -> None:
        self._member = member
        self._requests = requests

    def names(self, function: object) -> list[bytes]:
        """The shards of a function that a verb names; empty if it is not divided."""
        return self._shards.names(function.encode()) if isinstance(function, str) else []

    def refuse(self, verb: str, function: str, names: Sequence[bytes]) -> NoReturn:
        """Raise Refused: this verb is for one function."""
        first, last = (name.decode("utf-8", "backslashreplace") for name in (names[0], names[-1]))
        reason = f" ({REASONS[verb]})" if verb in REASONS else ""
        text = f"{function} is divided into the shards {first} to {last}; {verb} needs one of these names{reason}"
        raise Refused(REFUSED_CONFLICT, text)

    def function_of(self, job: Job, handle: str) -> bytes:
        """The function of a job at its owner; raises Refused if no node can change the job, because its function was
        divided or united since."""
        name = self._member.relay.function_at_owner(job)
        if not self._shards.has_queue(name):
            function = name.decode("utf-8", "backslashreplace")
            text = f"{handle} is a job of {function}, which was divided into shards or united since"
            raise Refused(REFUSED_CONFLICT, text)
        return name

    def answered(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], names: Sequence[bytes]
    ) -> Steps:
        """The answer to a verb that names a divided function."""
        function = values["function"]
        if row.name in AT_EACH_SHARD:
            for name in names:
                answer = yield from self._at(name, row, given)
            return {**answer, "function": function}
        if row.name in ("jobs", "retry"):
            parts = []
            for name in names:
                parts.append(NodePart("", (yield from self._at(name, row, given))))
            return MERGES[row.name](parts, values)
        if row.name == "cancel":
            return (yield from self._cancel(row, given, values, names))
        self.refuse(row.name, function, names)

    def _at(self, name: bytes, row: OperatorVerb, given: dict[str, Any], **changes: Any) -> Steps:
        return (yield from self._requests.at_owner(row, {**given, "function": plain(name), **changes}, name))

    def _cancel(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], names: Sequence[bytes]
    ) -> Steps:
        """One shard after another, so that no more jobs are cancelled than were asked for."""
        left: int = values["limit"]
        parts: list[NodePart] = []
        for name in names:
            if left:
                part = yield from self._at(name, row, given, limit=left)
                left -= min(left, part["count"])
                parts.append(NodePart("", part))
        answer = MERGES[row.name](parts, values)
        answer["more"] = answer["more"] or len(parts) < len(names)
        return answer

    # --- dividing ---

    def place(self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any]) -> Steps:
        """Divide a function, unite it, or say where it is."""
        function, count = values["function"], values["shards"]
        name = function.encode()
        names = self._shards.names(name)
        others = [way for way in ("beside", "partition", "by_name") if values[way] not in (None, False)]
        if others and count is not None:
            raise ValueError(f"{others[0]} and shards contradict each other")
        if others:
            self.refuse(row.name, function, names)
        if not function:
            raise ValueError("function is missing: expected a text that is not empty")
        if count is None or (count == 1 and not names):
            return (yield from self._requests.at_owner(row, {"function": function}, name))
        if count == 1:
            return (yield from self._unite(row, function, names))
        if names and len(names) != count:
            raise Refused(
                REFUSED_CONFLICT, f"{function} has {len(names)} shards: unite them first (shards = 1), then divide it"
            )
        if not names:
            self._refuse_names(function, count)
            yield from self._requests.at_owner(row, {"function": function, "shards": count}, name)
        yield from self._spread(row, name, count)
        return (yield from self._requests.at_owner(row, {"function": function}, name))

    def _refuse_names(self, function: str, count: int) -> None:
        """Raise Refused if a shard would be divided itself."""
        name = function.encode()
        counts = self._shards.counts
        if self._shards.base_of(name) != name:
            raise Refused(REFUSED_CONFLICT, f"{function} is a shard itself")
        for each in (shard_name(name, number) for number in range(1, count + 1)):
            if each in counts:
                raise Refused(REFUSED_CONFLICT, f"{each.decode('utf-8', 'backslashreplace')} was divided itself")

    def _spread(self, row: OperatorVerb, name: bytes, count: int) -> Steps:
        """Place the shards at different nodes, as far as there are nodes."""
        for number, partition in enumerate(self._member.spread(name, count), 1):
            shard = shard_name(name, number)
            yield from self._requests.at_owner(row, {"function": plain(shard), "partition": partition}, shard)

    def _unite(self, row: OperatorVerb, function: str, names: Sequence[bytes]) -> Steps:
        """All shards come to one node, which sees that they have no jobs, and stores that there are no shards."""
        name = function.encode()
        left = yield from self._jobs_of(names)
        if left:
            text = f"the shards of {function} have {counted(left, 'unfinished job')}: wait until they have none"
            raise Refused(REFUSED_CONFLICT, text)
        partition = self._member.relay.partition_of(name)
        try:
            for shard in names:
                yield from self._requests.at_owner(row, {"function": plain(shard), "partition": partition}, shard)
            return (yield from self._requests.at_owner(row, {"function": function, "shards": 1}, name))
        except Refused:  # it has got jobs meanwhile
            if self._shards.names(name):
                yield from self._spread(row, name, len(names))
            raise

    def _jobs_of(self, names: Sequence[bytes]) -> Steps:
        """How many unfinished jobs these functions have."""
        missing: list[Incomplete] = []
        parts = yield from self._requests.everywhere(VERBS["functions"].name, {}, missing)
        wanted = set(names)
        return sum(
            row["total"]
            for part in parts
            for row in part.value
            if "total" in row and bytes_of(row["name"], "name") in wanted
        )

    @property
    def _shards(self) -> Shards:
        return self._member.relay.divided.shards
