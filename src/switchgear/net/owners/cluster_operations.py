"""`ClusterOperations`: passes each operator verb on to the nodes that it concerns, and merges their answers.

Each row of the table of verbs says where its verb is carried out (`Reach`). The node that is asked checks arguments and
permissions, and writes the audit log; other nodes trust it. It passes the verb on over its links (`Ask`), and each node
carries out its part (`VerbParts`). The answers of several nodes become one (`merging`), with a note about the nodes
that did not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from switchgear.errors import CycleRefused, Refused
from switchgear.json_bytes import bytes_of, plain
from switchgear.model import FINAL_STATES, Job, JobState
from switchgear.net.hub import Hub
from switchgear.net.operations.bulk import MOST_BULK_JOBS
from switchgear.net.operations.dispatcher import COLLECTING, Operations
from switchgear.net.operations.overview import alarm
from switchgear.net.operations.verb_slots import VerbSlots
from switchgear.net.operations.verb_steps import Steps
from switchgear.net.owners.answer_merging import MERGES, NodePart
from switchgear.net.owners.cluster_context import ClusterContext
from switchgear.net.owners.cluster_cycles import ClusterCycles
from switchgear.net.owners.divided_verbs import DividedVerbs
from switchgear.net.owners.live_row_merging import LIVE_VERBS, MERGE_ROWS
from switchgear.net.owners.node_requests import (
    CHANGE_SECONDS,
    LIST_SECONDS,
    FunctionDivided,
    NodeRequests,
    NodeSilent,
    value_of,
)
from switchgear.net.owners.verb_parts import (
    GIVE_SCHEDULE,
    HOLDERS_OF_KEY,
    ROOM_FOR,
    SPAWN_FOREIGN,
    TEXT_VERBS,
    VerbParts,
)
from switchgear.protocols.context import KeyHolder
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.pending_read import Reading, Step, awaited
from switchgear.protocols.session import Session
from switchgear.refusals import REFUSED_COUNT, REFUSED_STORAGE
from switchgear.verbs.answers import Incomplete
from switchgear.verbs.completeness import told_missing
from switchgear.verbs.operator_verb import OperatorVerb, Reach
from switchgear.verbs.table import VERBS

if TYPE_CHECKING:
    from switchgear.net.owners.member import OtherNode, OwnersMember

__all__ = ["ClusterOperations"]

HANDLES_PER_STEP: Final = 250
# So long the submitter of a graph waits for the nodes that own jobs of it.
ROOM_SECONDS: Final = 1.0
GIVING: Final = replace(VERBS["schedule"], name=GIVE_SCHEDULE)


class ClusterOperations(Operations):
    """The verbs of one of several nodes that own functions."""

    def __init__(self, hub: Hub, handle_prefix: str, member: OwnersMember) -> None:
        context = ClusterContext(hub, handle_prefix, member)
        super().__init__(hub, handle_prefix, context)
        self._hub = hub
        self._member = member
        # Not those of requests to this node: nodes that ask each other would wait for each other's slots.
        self._part_slots = VerbSlots(COLLECTING)
        self._parts = VerbParts(self, context, lambda: member.relay)
        self._requests = NodeRequests(member, self._parts)
        self._divided = DividedVerbs(member, self._requests)
        self._cycles = ClusterCycles(hub, lambda: member.job_heads)

    def part_in_steps(self, verb: str, given: dict[str, Any], answers: list[Any]) -> Iterator[Step]:
        """Carry out this node's part of a verb for another node."""
        answers.append((yield from self._part_slots.holding(verb, self._parts.carry_out(verb, given))))

    def in_steps(self, verb: str, arguments: dict[str, Any], answers: list[Any]) -> Iterator[Step]:
        if verb in TEXT_VERBS:  # the text protocol has checked permissions, and writes the audit log
            name = bytes_of(arguments["function"], verb)
            names = self._member.relay.divided.shards.names(name)
            if names:
                self._divided.refuse(verb, name.decode("utf-8", "backslashreplace"), names)
            answers.append(
                (yield from self._requests.at_owner(VERBS[verb], arguments, bytes_of(arguments["function"], verb)))
            )
        else:
            yield from super().in_steps(verb, arguments, answers)

    def answered(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], missing: list[Incomplete]
    ) -> Steps:
        try:
            return (yield from self._answered(row, given, values, missing))
        except FunctionDivided:  # while this node did not know yet
            return (yield from self._answered(row, given, values, missing))

    def _answered(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], missing: list[Incomplete]
    ) -> Steps:
        reach = row.reach
        if reach is Reach.HERE:
            return (yield from self.answered_here(row, values))
        shards = self._divided.names(values.get("function"))
        if row.name == "place" and (shards or values["shards"] is not None):
            return (yield from self._divided.place(row, given, values))
        if shards:
            return (yield from self._divided.answered(row, given, values, shards))
        if reach is Reach.FUNCTION:
            return (yield from self._requests.at_owner(row, given, values["function"].encode()))
        if reach is Reach.SCHEDULE:
            return (yield from self._at_schedule(row, given, values))
        if row.name in ("wait_for", "spawn"):
            return (yield from self._add_edges(row, given, values, missing))
        if row.name == "explain" and values.get("handle") is not None:
            return (yield from self._explain_job(row, given, values["handle"], missing))
        if reach is Reach.JOB or (reach is Reach.JOBS and values["handle"] is not None):
            return (yield from self._at_job(row, given, values["handle"], missing))
        if reach is Reach.JOBS and values["function"] is not None:
            return (yield from self._requests.at_owner(row, given, values["function"].encode()))
        if row.name == "cancel":
            return (yield from self._cancel(row, given, values, missing))
        if row.name == "bulk":
            return (yield from self._bulk(row, given, values, missing))
        if row.name == "graph":
            return (yield from self.answered_here(row, values))  # by name, and jobs of several nodes have no names
        if row.name == "control_workers":
            return (yield from self._control_workers(row, given, values, missing))
        parts = yield from self._everywhere(row, given, missing)
        if row.name == "states":
            return (yield from self._states(parts, values))
        answer = MERGES[row.name](parts, values)
        if row.name == "overview":
            answer["alarms"] += [alarm("incomplete", f"not shown: {told_missing(each)}") for each in missing]
        return answer

    def watch_in_steps(self, topic: str, rows: list[Any]) -> Iterator[Step]:
        parts = yield from self._requests.everywhere(LIVE_VERBS[topic], {}, [])
        rows.append(MERGE_ROWS[topic](parts))

    def live_job(self, job: Job) -> Reading[Job]:
        """A job that was read from the store, in the state and with the progress that its owner says."""
        if job.state in FINAL_STATES:
            return job
        asked = {"handle": self.context.handle(job.id), "contents": False}
        try:
            row = yield from self._requests.at_owner(VERBS["job"], asked, self._member.relay.function_at_owner(job))
        except LookupError:
            row = None
        if row is None or row["finished_at"] is not None:
            return (yield from self._hub.find_job(job.id)) or job
        job.state = JobState[row["state"].upper()]
        job.numerator, job.denominator = row["numerator"], row["denominator"]
        return job

    def find_key(self, unique: bytes) -> Reading[list[KeyHolder]]:
        """The unfinished jobs of all nodes with this unique key."""
        missing: list[Incomplete] = []
        parts = yield from self._requests.everywhere(HOLDERS_OF_KEY, {"unique": plain(unique)}, missing)
        holders = [
            KeyHolder(bytes_of(name, "function"), running, numerator, denominator, subscribers)
            for part in parts
            for name, running, numerator, denominator, subscribers in part.value
        ]
        if missing and not holders:
            text = f"no job with this unique key was found, and this is missing: {told_missing(missing[0])}"
            raise Refused(REFUSED_STORAGE, text)
        return holders

    # --- at the node that has what a verb concerns ---

    def _at_schedule(self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any]) -> Steps:
        """The answer of the owner of the schedule's function. If a schedule of that name belongs to another node, that
        node changes it and stores it, and the owner of its new function takes it from there."""
        name = values["name"]
        function = yield from self.context.find_schedule_function(name.encode())
        if row.name != "schedule":
            if function is None:
                raise LookupError(f"there is no schedule {name!r}")
            return (yield from self._requests.at_owner(row, given, function))
        wanted = values["function"].encode()
        if function is not None and function != wanted and not self._have_same_owner(function, wanted):
            self.schedules.wanted(**values)  # raises an error before anything is changed
            yield from self._requests.at_owner(GIVING, given, function)
            # If that was this node, it must be stored before the other one looks for it.
            yield from awaited(self._hub.reads.start(self._member.store_batch(self._hub.engine.batch)))
        return (yield from self._requests.at_owner(row, given, wanted))

    def _have_same_owner(self, one: bytes, other: bytes) -> bool:
        first, second = self._member.owner_of(one), self._member.owner_of(other)
        return (first and first.name) == (second and second.name)

    def _at_job(self, row: OperatorVerb, given: dict[str, Any], handle: str, missing: list[Incomplete]) -> Steps:
        """The answer of the owner of a job. The store says of which function it is; a foreground job, which is not
        there, is asked for at all nodes."""
        job_id = self.context.job_id(handle) or number_in_handle(handle.encode(), b"")
        job = yield from self._hub.find_job(job_id)
        if job is None:
            parts = yield from self._everywhere(row, given, missing)
            return parts[0].value
        if job.state in FINAL_STATES and not row.changes and not self._hub.engine.has_job(job_id):
            return (yield from self._parts.carry_out_here(row.name, given))
        function = self._divided.function_of(job, handle)
        return (yield from self._requests.at_owner(row, given, function))

    def _everywhere(
        self,
        row: OperatorVerb,
        given: Mapping[str, Any],
        missing: list[Incomplete],
        by_node: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Steps:
        seconds = CHANGE_SECONDS if row.changes else LIST_SECONDS
        return (yield from self._requests.everywhere(row.name, given, missing, by_node, seconds=seconds))

    def _states(self, parts: Sequence[NodePart], values: dict[str, Any]) -> Steps:
        """The state of each job as its owner says. Jobs that no node has at this moment are in the state that the store
        says. Foreground jobs are not in the store, where permissions were looked up, so that is done here."""
        speaker = self._hub.engine.speaker
        covers = speaker.permissions.covers if isinstance(speaker, Session) else covers_all
        states = ["unknown"] * len(values["handles"])
        for part in parts:
            for place, state in enumerate(part.value["states"]):
                if state != "unknown" and covers(bytes_of(part.value["functions"][place], "function")):
                    states[place] = state
        handles = [handle for handle, state in zip(values["handles"], states, strict=True) if state == "unknown"]
        stored = yield from self.handlers["states"](handles=handles)
        found = iter(stored["states"])
        states = [next(found) if state == "unknown" else state for state in states]
        counts: dict[str, int] = {}
        for state in states:
            counts[state] = counts.get(state, 0) + 1
        return {"states": states, "counts": counts}

    def _control_workers(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], missing: list[Incomplete]
    ) -> Steps:
        """All nodes tell their workers the same number, which is larger than those of earlier requests. An id is that
        of a worker of this node, or of the node that it is followed by: `17@cleo`."""
        number = max(self._hub.clock.now_us(), self.worker_control.requests + 1)
        worker_id, _, name = values["workers"].partition("@")
        if worker_id.isdecimal():
            asked = {**given, "workers": worker_id, "number": number}
            if name in ("", self._member.name):
                part = NodePart(self._member.name, (yield from self._parts.carry_out(row.name, asked)))
                return MERGES[row.name]([part], values)
            for node in self._member.other_nodes():
                if node.name == name:
                    part = NodePart(name, (yield from self._requests.at_node(node, row, asked)))
                    return MERGES[row.name]([part], values)
        parts = yield from self._everywhere(row, {**given, "number": number}, missing)
        return MERGES[row.name](parts, values)

    # --- more predecessors ---

    def _add_edges(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], missing: list[Incomplete]
    ) -> Steps:
        """Refuse what would close a cycle. Another node may do its part of one in the same moment, so this is looked at
        again when the edges are stored: one of the two finds the cycle then, and cancels a job of it."""
        job_id = self._number(values["handle"])
        others = tuple(self._number(handle) for handle in values["after" if row.name == "wait_for" else "jobs"])
        yield from self._refuse_cycle(row, job_id, others)
        add = self._spawn if row.name == "spawn" else self._wait_for
        answer = yield from add(row, given, values, missing)
        try:
            yield from self._refuse_cycle(row, job_id, others)
        except CycleRefused as cycle:
            victim = cycle.path[0]
            row = VERBS["cancel"]
            yield from self._at_job(row, {"handle": victim}, victim, missing)
            raise Refused(cycle.reason, f"{cycle}; {victim} was cancelled") from None
        return answer

    def _number(self, handle: str) -> int:
        return self.context.job_id(handle) or number_in_handle(handle.encode(), b"")

    def _refuse_cycle(self, row: OperatorVerb, job_id: int, others: tuple[int, ...]) -> Steps:
        search = self._cycles.path_to if row.name == "wait_for" else self._cycles.path_to_successor
        found = yield from search(job_id, others)
        if found:
            ids = [found[-1], *found]
            raise CycleRefused([self.context.handle(each) for each in ids])

    def _wait_for(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], missing: list[Incomplete]
    ) -> Steps:
        return (yield from self._at_job(row, given, values["handle"], missing))

    def _explain_job(self, row: OperatorVerb, given: dict[str, Any], handle: str, missing: list[Incomplete]) -> Steps:
        """Why a job waits; that it waits for itself is said first."""
        answer = yield from self._at_job(row, given, handle, missing)
        reasons = answer.get("reasons", [])
        if any(reason["word"] == "waiting_for" and reason["data"]["state"] == "unfinished" for reason in reasons):
            job_id = self._number(handle)
            job = yield from self._hub.find_job(job_id)
            found = [] if job is None else (yield from self._cycles.path_to(job_id, job.predecessors))
            if found:
                handles = [self.context.handle(each) for each in (job_id, *found)]
                text = "waits for itself, and so for ever: " + " -> ".join(handles) + "; cancel one of them"
                reasons.insert(0, {"word": "cycle", "text": text, "data": {"handles": handles}})
        return answer

    def _spawn(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], missing: list[Incomplete]
    ) -> Steps:
        """Jobs of all nodes may wait for the job. It runs until this is answered, so none of them starts too early."""
        answer = yield from self._at_job(row, given, values["handle"], missing)
        job_ids = [self.context.job_id(handle) for handle in (values["handle"], *values["jobs"])]
        asked = {"id": job_ids[0], "jobs": job_ids[1:]}
        for node in self._member.other_nodes():
            answer["successors"] += yield from self._spawn_at(node, asked)
        owner = self._hub.engine.foreign_predecessors.is_own(job_ids[0])
        if not owner:
            answer["successors"] += yield from self._parts.carry_out(SPAWN_FOREIGN, asked)
        return answer

    def _spawn_at(self, node: OtherNode, asked: dict[str, Any]) -> Steps:
        reply = yield from awaited(self._requests.ask(node, SPAWN_FOREIGN, asked, CHANGE_SECONDS))
        try:
            return value_of(reply)
        except NodeSilent:
            text = f"the node {node.name} has not answered; whether its jobs wait for the new ones is not known"
            raise Refused(REFUSED_STORAGE, text) from None

    # --- limits of unfinished jobs ---

    def ask_room(self, wanted: Sequence[tuple[bytes, int, int]], on_answer: Callable[[Refused | None], object]) -> None:
        """Ask owners whether their functions may have so many more jobs; see `FunctionPlacement.ask_room`."""
        self._hub.soon(lambda: self._hub.work_off(self._room_for(wanted, on_answer)))

    def _room_for(
        self, wanted: Sequence[tuple[bytes, int, int]], on_answer: Callable[[Refused | None], object]
    ) -> Iterator[Step]:
        by_node: dict[OtherNode, list[Any]] = {}
        for name, priority, count in wanted:
            owner = self._member.owner_of(name)
            if owner is not None:
                by_node.setdefault(owner, []).append([plain(name), priority, count])
        reads = [self._requests.ask(node, ROOM_FOR, {"wanted": each}, ROOM_SECONDS) for node, each in by_node.items()]
        refused: Refused | None = None
        for read in reads:
            reply = yield from awaited(read)
            try:
                value_of(reply)
            except Refused as error:
                refused = error
            except (NodeSilent, LookupError, ValueError):
                pass  # the graph can be stored without that node, and its limits are not known
        on_answer(refused)

    # --- changes of many jobs ---

    def _cancel(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], missing: list[Incomplete]
    ) -> Steps:
        """One node after another, so that no more jobs are cancelled than were asked for."""
        left: int = values["limit"]
        covered = self._member.relay.ready_mask()
        part = yield from self._parts.carry_out(row.name, given)
        parts = [NodePart(self._member.name, part)]
        left -= min(left, part["count"])
        covered &= self._member.relay.ready_mask()
        unreachable: list[str] = []
        is_left_out = False
        for node in self._member.other_nodes():
            if not left:
                is_left_out = True
                continue
            reply = yield from awaited(self._requests.ask(node, row.name, {**given, "limit": left}, CHANGE_SECONDS))
            try:
                part = value_of(reply)
            except (NodeSilent, Refused, ValueError, LookupError):
                unreachable.append(node.name)
                continue
            covered |= reply.ready
            parts.append(NodePart(node.name, part))
            left -= min(left, part["count"])
        if not is_left_out:
            self._requests.note(covered, unreachable, missing)
        answer = MERGES[row.name](parts, values)
        answer["more"] = answer["more"] or is_left_out
        return answer

    def _bulk(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], missing: list[Incomplete]
    ) -> Steps:
        """Count first what matches at each node, then let each change its own."""
        base = {name: value for name, value in given.items() if name != "expect"}
        by_node: dict[str, dict[str, Any]] = {}
        if values["handles"] is not None:
            groups = yield from self._by_owner(values["handles"])
            names = [self._member.name, *(node.name for node in self._member.other_nodes())]
            by_node = {name: {**base, "handles": groups.get(name, [])} for name in names}
        counted = {name: {**arguments, "dry_run": True} for name, arguments in by_node.items()}
        found: list[NodePart] = yield from self._everywhere(row, {**base, "dry_run": True}, missing, counted)
        total = sum(part.value["matched"] for part in found)
        most = MOST_BULK_JOBS if values["limit"] is None else values["limit"]
        if values["expect"] is not None and values["expect"] != min(total, most):
            raise Refused(REFUSED_COUNT, f"{min(total, most)} jobs match, and {values['expect']} were expected")
        if values["dry_run"]:
            answer = MERGES[row.name](found, values)
            answer["matched"] = min(total, most)
            return answer
        left = most
        for part in found:
            share = min(left, part.value["matched"])
            left -= share
            if not share:
                by_node[part.node] = {**by_node.get(part.node, base), "dry_run": True}
            elif values["handles"] is None:
                by_node[part.node] = {**base, "limit": share}
        if not total:
            by_node.pop(self._member.name, None)  # an action without jobs is one, too
        missing.clear()  # the second answers are those that count
        parts = yield from self._everywhere(row, base, missing, by_node)
        shown = [part for part in parts if part.value["id"]] or parts[:1]
        return MERGES[row.name](shown, values)

    def _by_owner(self, handles: Sequence[str]) -> Steps:
        """Handles by the name of the node that owns their jobs; those of unknown jobs are this node's."""
        groups: dict[str, list[str]] = {}
        for start in range(0, len(handles), HANDLES_PER_STEP):
            some = handles[start : start + HANDLES_PER_STEP]
            ids = {handle: self.context.job_id(handle) or number_in_handle(handle.encode(), b"") for handle in some}
            found = yield from self._hub.find_jobs(list(ids.values()))
            for handle, job_id in ids.items():
                job = found.get(job_id)
                owner = self._member.owner_of(self._member.relay.function_at_owner(job)) if job is not None else None
                groups.setdefault(self._member.name if owner is None else owner.name, []).append(handle)
            yield False
        return groups


def covers_all(function: bytes) -> bool:
    """Whether a part of the server itself may know of a job of this function."""
    return True
