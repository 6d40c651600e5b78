"""`NodeRequests`: asks other nodes to carry out verbs, one of them or all at the same time.

A node that does not answer is not waited for: its functions have another owner after a lease, if it is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from switchgear.errors import Refused
from switchgear.json_bytes import bytes_of, told
from switchgear.net.operations.verb_steps import Steps
from switchgear.net.owners.answer_merging import NodePart
from switchgear.net.owners.link_session import MOVED, FunctionMoved
from switchgear.net.owners.verb_parts import VerbParts
from switchgear.partitions import PARTITIONS
from switchgear.protocols.pending_read import PendingRead, awaited
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_STORAGE
from switchgear.verbs.answers import Incomplete
from switchgear.verbs.operator_verb import OperatorVerb

if TYPE_CHECKING:
    from switchgear.net.owners.member import OtherNode, OwnersMember

__all__ = ["CHANGE_SECONDS", "LIST_SECONDS", "FunctionDivided", "NodeRequests", "NodeSilent", "value_of"]

# How long another node may take for its part of a list, and for a change.
LIST_SECONDS: Final = 3.0
CHANGE_SECONDS: Final = 10.0
# How long one may take of which nothing was heard since the last question that it did not answer in time: lists, and
# pages that follow them, would otherwise stand still for `LIST_SECONDS` each time, until the node is replaced.
SILENT_SECONDS: Final = 0.2
# While a function has no owner, this often is looked for one, for so many leases.
LOOK_SECONDS: Final = 0.1
PATIENCE_LEASES: Final = 2
ALL_PARTITIONS: Final = (1 << PARTITIONS) - 1
CONTENTS: Final = ("payload", "result")  # of a job; they may be long


class NodeRequests:
    """Asks the other nodes, and this one for its own part."""

    def __init__(self, member: OwnersMember, parts: VerbParts) -> None:
        self._member = member
        self._parts = parts

    # --- the node that has what a verb concerns ---

    def at_owner(self, row: OperatorVerb, given: dict[str, Any], function: bytes) -> Steps:
        """The answer of the owner of a function; raises Refused, with the name of the node, if it does not answer."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + PATIENCE_LEASES * self._member.lease_seconds
        name = function.decode("utf-8", "backslashreplace")
        while True:
            owner = self._member.owner_of(function)
            try:
                if owner is None:
                    return (yield from self._parts.carry_out(row.name, given))
                if owner.link is not None:
                    return (yield from self.at_node(owner, row, given, f", which owns the function {name},"))
            except FunctionMoved:  # to another node, or its jobs are still being restored
                if row.name != "place" and not self._member.relay.divided.shards.has_queue(function):
                    raise FunctionDivided(REFUSED_CONFLICT, f"{name} was divided into shards or united") from None
            if loop.time() >= end_s:
                if owner is None:
                    raise Refused(REFUSED_STORAGE, f"no node owns the function {name} at this moment; try again")
                text = f"the node {owner.name}, which owns the function {name}, cannot be reached from this one"
                raise Refused(REFUSED_STORAGE, text)
            yield from awaited(pause(LOOK_SECONDS))

    def at_node(self, node: OtherNode, row: OperatorVerb, given: dict[str, Any], who: str = "") -> Steps:
        """The answer of this node; raises what it has raised, FunctionMoved, or Refused if it does not answer."""
        reply = yield from awaited(self.ask(node, row.name, given, CHANGE_SECONDS if row.changes else LIST_SECONDS))
        if reply is None:
            if not row.changes and node.link is not None and node.link.is_closed:
                raise FunctionMoved  # it is gone, and another node will have its functions
            text = f"the node {node.name}{who} has not answered"
            if row.changes:
                text += "; whether it has done that is not known"
            raise Refused(REFUSED_STORAGE, text)
        answer = value_of(reply)
        if row.name == "job":
            for name in CONTENTS:
                if name in answer:
                    answer[name] = told(bytes_of(answer[name], name))
        return answer

    # --- at all nodes ---

    def ask(self, node: OtherNode, verb: str, given: Mapping[str, Any], seconds: float) -> PendingRead:
        """Ask another node for its part; the result is a `VerbAnswer`, or None if there is none in time."""
        link = node.link
        if link is None:
            return finished_read()
        read = link.ask(verb, msgspec.json.encode(given))
        if link.is_silent and seconds <= LIST_SECONDS:
            seconds = SILENT_SECONDS
        heard = link.messages_received

        def give_up() -> None:
            link.is_silent = link.messages_received == heard
            read.finish(None)

        timer = asyncio.get_running_loop().call_later(seconds, give_up)
        read.on_abandoned = timer.cancel
        return read

    def everywhere(
        self,
        verb: str,
        given: Mapping[str, Any],
        missing: list[Incomplete],
        by_node: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        seconds: float = LIST_SECONDS,
    ) -> Steps:
        """The parts of all nodes that have something to say, this one's first; raises LookupError if there is none.

        `by_node` has the arguments of nodes for which they differ.
        """
        own = self._member.name
        special = by_node or {}
        others = self._member.other_nodes()
        reads = [(node.name, self.ask(node, verb, special.get(node.name, given), seconds)) for node in others]
        parts: list[NodePart] = []
        covered = self._member.relay.ready_mask()
        unknown: LookupError | None = None
        try:
            value = yield from self._parts.carry_out(verb, dict(special.get(own, given)))
            parts.append(NodePart(own, value))
        except LookupError as error:
            unknown = error
        except FunctionMoved:
            pass
        covered &= self._member.relay.ready_mask()
        unreachable: list[str] = []
        for name, read in reads:
            reply = yield from awaited(read)
            covered |= 0 if reply is None else reply.ready
            try:
                parts.append(NodePart(name, value_of(reply)))
            except LookupError as error:
                unknown = unknown or error
            except FunctionMoved:
                pass
            except (NodeSilent, Refused, ValueError):
                unreachable.append(name)
        self.note(covered, unreachable, missing)
        if not parts:
            raise self._nothing(unknown, unreachable)
        return parts

    def note(self, covered: int, unreachable: list[str], missing: list[Incomplete]) -> None:
        """Note in `missing` which nodes did not answer, and how many partitions have no owner."""
        lost = ALL_PARTITIONS & ~covered & ~self._member.partitions_of(unreachable)
        if unreachable or lost:
            missing.append({"unreachable": unreachable, "partitions_without_owner": lost.bit_count()})

    def _nothing(self, unknown: LookupError | None, unreachable: list[str]) -> Exception:
        """The exception for a request to which no node had an answer."""
        text = str(unknown.args[0]) if unknown is not None and unknown.args else "no node has it"
        if unreachable:
            return Refused(REFUSED_STORAGE, f"{text}; {no_answer_from(unreachable)}")
        return LookupError(text)


class FunctionDivided(Refused):
    """A function that a verb concerns was divided into shards, or was one and is none any more."""


class NodeSilent(Exception):
    """A node has not answered in time, or its link was lost."""


def value_of(reply: Any) -> Any:
    """The value of a node's answer; raises what the node has raised, or NodeSilent."""
    if reply is None:
        raise NodeSilent
    if reply.kind == MOVED:
        raise FunctionMoved
    value = msgspec.json.decode(reply.value)
    if reply.kind == "ok":
        return value
    if reply.kind == "lookup":
        raise LookupError(value)
    if reply.kind == "value":
        raise ValueError(value)
    raise Refused(reply.kind, value)


def no_answer_from(names: Sequence[str]) -> str:
    """A text about nodes that do not answer."""
    return f"no answer from the node{'s' if len(names) > 1 else ''} {', '.join(names)}"


def finished_read() -> PendingRead:
    """A read that has ended with nothing."""
    read = PendingRead()
    read.finish(None)
    return read


def pause(seconds: float) -> PendingRead:
    """A read that ends after a time."""
    read = PendingRead()
    timer = asyncio.get_running_loop().call_later(seconds, read.finish, None)
    read.on_abandoned = timer.cancel
    return read
