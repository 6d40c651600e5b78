"""`VerbParts`: carries out this node's part of a verb, requested by a peer of this node or by another node.

It is what a single server does, except where that would concern functions of other nodes: then FunctionMoved is raised,
or the part has only what this node owns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from switchgear.errors import Refused, StorageError
from switchgear.json_bytes import bytes_of, plain
from switchgear.model import FINAL_STATES, Function, JobState
from switchgear.net.operations.dispatcher import Operations
from switchgear.net.operations.verb_steps import ITEMS_PER_STEP, Steps, in_steps
from switchgear.net.owners.cluster_context import ClusterContext
from switchgear.net.owners.function_places import MOST_PLACED
from switchgear.net.owners.link_session import FunctionMoved
from switchgear.net.owners.live_row_merging import LIVE_VERBS
from switchgear.net.owners.relay import Relay
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.pending_read import awaited
from switchgear.refusals import REFUSED_LIMIT, REFUSED_STORAGE
from switchgear.verbs.answers import PlaceAnswer
from switchgear.verbs.operator_verb import OperatorVerb, Reach, checked
from switchgear.verbs.table import VERBS

__all__ = ["GIVE_SCHEDULE", "HOLDERS_OF_KEY", "ROOM_FOR", "SPAWN_FOREIGN", "TEXT_VERBS", "VerbParts"]

STATE_NAMES: Final = {state: state.name.lower() for state in JobState}
# The verbs that only the text protocol has, and that change a function. Their arguments are checked there.
GIVE_SCHEDULE: Final = "give_schedule"  # what nodes ask each other, and no peer can ask
LIVE: Final = frozenset(LIVE_VERBS.values())
SPAWN_FOREIGN: Final = "spawn_foreign"  # only nodes ask for it, and for the next two
ROOM_FOR: Final = "room_for"
HOLDERS_OF_KEY: Final = "holders_of_key"
TEXT_VERBS: Final = frozenset({"queue_limits", "create_function", "drop_function"})


class VerbParts:
    """Carries out the part that one node has in each verb."""

    def __init__(self, operations: Operations, context: ClusterContext, relay: Callable[[], Relay]) -> None:
        self._operations = operations
        self._context = context
        self._engine = context.engine
        self._relay = relay
        self._special: dict[str, Callable[..., Steps]] = {
            "functions": self._functions,
            "explain": self._explain,
            "schedule": self._schedule,
            "place": self._place,
            "states": self._states,
            "live_functions": self._live_functions,
            "live_workers": self._live_workers,
            "control_workers": self._control_workers,
            "bulk_actions": self._bulk_actions,
            "abort_bulk": self._abort_bulk,
            "queue_limits": self._queue_limits,
            "create_function": self._create_function,
            "drop_function": self._drop_function,
            SPAWN_FOREIGN: self._spawn_foreign,
            ROOM_FOR: self._room_for,
            HOLDERS_OF_KEY: self._holders_of_key,
        }

    def carry_out(self, verb: str, given: dict[str, Any]) -> Steps:
        """The answer of this node; raises FunctionMoved, LookupError, ValueError or Refused."""
        if verb == GIVE_SCHEDULE:
            return (yield from self._give_schedule(given))
        if verb in LIVE or verb in (SPAWN_FOREIGN, ROOM_FOR, HOLDERS_OF_KEY):
            return (yield from self.carry_out_here(verb, given))
        row = VERBS.get(verb)
        if row is None or row.reach is Reach.HERE:
            raise ValueError(f"{verb[:100]}: no other node is asked for that")
        if row.reach in (Reach.FUNCTION, Reach.JOBS, Reach.SCHEDULE) and given.get("function") is not None:
            self._refuse_moved(bytes_of(given["function"], "function"), row)
        elif row.reach is Reach.SCHEDULE:
            function = yield from self._context.find_schedule_function(bytes_of(given["name"], "name"))
            if function is not None:
                self._refuse_moved(function)
                if bytes_of(given["name"], "name") not in self._engine.schedules:
                    yield from self._context.take_schedules()
        if row.reach in (Reach.JOB, Reach.JOBS) and given.get("handle") is not None:
            yield from self._refuse_moved_job(checked(row, given)["handle"], changes=row.changes)
        return (yield from self.carry_out_here(verb, given))

    def carry_out_here(self, verb: str, given: dict[str, Any]) -> Steps:
        """The same, wherever the function is: a job of the history is the same for all nodes."""
        special = self._special.get(verb)
        try:
            if special is not None:
                return (yield from special(dict(given)))
            row = VERBS[verb]
            return (yield from self._operations.answered_here(row, checked(row, given)))
        except StorageError as error:
            raise Refused(REFUSED_STORAGE, str(error)) from error

    def _refuse_moved(self, function: bytes, row: OperatorVerb | None = None) -> None:
        relay = self._relay()
        is_here = relay.is_ours(function)
        if row is not None and row.name == "place" and relay.divided.shards.names(function):
            is_here = relay.partition_of(function) in relay.ready  # where it is divided and united
        if not is_here:
            raise FunctionMoved

    def _refuse_moved_job(self, handle: str, *, changes: bool) -> Steps:
        job_id = self._context.job_id(handle) or number_in_handle(handle.encode(), b"")
        hub = self._context.hub
        job = yield from hub.find_job(job_id)
        if job is None:
            return
        is_final = job.state in FINAL_STATES
        if changes or not is_final:
            self._refuse_moved(job.function.name)
        if not is_final and not self._engine.has_job(job_id) and hub.find_unkept_end(job_id) is None:
            # Another node has stored it in a graph, and this one has not looked into its inbox yet.
            self._relay().look_soon()
            raise FunctionMoved

    # --- what differs from a single server ---

    def _functions(self, given: dict[str, Any]) -> Steps:
        """The functions of this node, and how many workers it has for those of others."""
        rows = yield from self._operations.answered_here(VERBS["functions"], {})
        for row in rows:
            row |= self._placed(bytes_of(row["name"], "name"))
        for some in (yield from in_steps(self._worker_rows, self._context.foreign_functions())):
            rows += some
        return rows

    def _worker_rows(self, function: Function) -> list[dict[str, Any]]:
        """How many workers this node has for a function of another node, or for each of its shards that are others'."""
        relay = self._relay()
        names = [name for name in relay.divided.shards.names(function.name) if not relay.is_ours(name)]
        count = self._context.worker_count(function)
        return [{"name": plain(name), "workers": count} for name in names or [function.name]]

    def _placed(self, function: bytes) -> dict[str, Any]:
        relay = self._relay()
        placed: dict[str, Any] = {"partition": relay.partition_of(function), "placed": function in relay.overrides}
        base = relay.told_name(function)
        if base != function:
            placed["shard_of"] = plain(base)
        return placed

    def _explain(self, given: dict[str, Any]) -> Steps:
        row = VERBS["explain"]
        answer = yield from self._operations.answered_here(row, checked(row, given))
        function = bytes_of(answer["function"], "function")
        if self._relay().is_ours(function):
            answer |= {"node": self._context.node_name, **self._placed(function)}
        return answer

    def _schedule(self, given: dict[str, Any]) -> Steps:
        """Add or change a schedule. Another node may have changed it before, so that it is this node's now."""
        row = VERBS["schedule"]
        if bytes_of(given["name"], "name") not in self._engine.schedules:
            yield from self._context.take_schedules()
        return (yield from self._operations.answered_here(row, checked(row, given)))

    def _give_schedule(self, given: dict[str, Any]) -> Steps:
        """Change a schedule of this node so that its function, and so the schedule, is another node's. The row of the
        schedule changes in one step, so whoever dies, some node has it."""
        wanted = self._operations.schedules.wanted(**checked(VERBS["schedule"], given))
        function = yield from self._context.find_schedule_function(wanted.name)
        if function in (None, wanted.function_name):
            return False
        assert function is not None
        self._refuse_moved(function)
        known = self._engine.schedules.get(wanted.name)
        if known is None:
            yield from self._context.take_schedules()
            known = self._engine.schedules.get(wanted.name)
        if known is None or self._relay().is_ours(wanted.function_name):
            raise FunctionMoved
        self._engine.give_schedule(known, wanted)
        return True

    def _place(self, given: dict[str, Any]) -> Steps:
        """Put a function of this node into a partition, and say where it is."""
        values = checked(VERBS["place"], given)
        name, relay = values["function"].encode(), self._relay()
        if not name:
            raise ValueError("function is missing: expected a text that is not empty")
        ways = [way for way in ("beside", "partition", "by_name", "shards") if values[way] not in (None, False)]
        if len(ways) > 1:
            raise ValueError(f"{ways[0]} and {ways[1]} contradict each other")
        if values["shards"] is not None:
            dividing = self._context.divide(name, values["shards"])
            if not (yield from awaited(self._context.hub.reads.start(dividing))):
                raise FunctionMoved
        elif ways:
            target: int | None = None
            if values["beside"] is not None:
                target = relay.partition_of(values["beside"].encode())
            elif values["partition"] is not None:
                target = values["partition"]
            if name not in relay.overrides and len(relay.overrides) >= MOST_PLACED:
                raise Refused(REFUSED_LIMIT, f"{MOST_PLACED:,} functions are placed already")
            placing = self._context.place(name, target)
            if not (yield from awaited(self._context.hub.reads.start(placing))):
                raise FunctionMoved
        answer: PlaceAnswer = {
            "function": values["function"],
            "partition": relay.partition_of(name),
            "node": self._context.owner_name(name),
            "placed": name in relay.overrides,
        }
        names = relay.divided.shards.names(name)
        if names:
            answer["shards"] = [plain(each) for each in names]
        return answer

    def _live_functions(self, given: dict[str, Any]) -> Steps:
        """The rows of a live table, and how many workers this node has for functions of others."""
        rows = yield from self._live_rows("functions")
        foreign = yield from in_steps(self._worker_rows, self._context.foreign_functions())
        return {"rows": rows, "workers": [[row["name"], row["workers"]] for some in foreign for row in some]}

    def _live_workers(self, given: dict[str, Any]) -> Steps:
        return (yield from self._live_rows("workers"))

    def _live_rows(self, topic: str) -> Steps:
        found: list[Any] = []
        yield from self._operations.live_rows.in_steps(topic, found)
        return [list(row) for _, row in found[0]]

    def _states(self, given: dict[str, Any]) -> Steps:
        """The states of this node's jobs, and of jobs whose end is being stored. The node that asks reads the store."""
        handles = checked(VERBS["states"], given)["handles"]
        found = yield from in_steps(self._state, handles, 10 * ITEMS_PER_STEP)
        return {"states": [state for state, _ in found], "functions": [function for _, function in found]}

    def _state(self, handle: str) -> tuple[str, Any]:
        """The state of a job, and its function: a peer that asks may be restricted to others."""
        job_id = self._context.job_id(handle)
        job = self._engine.look_at(job_id) or self._context.hub.find_unkept_end(job_id)
        if job is None or not self._context.has_own(job):
            return "unknown", ""
        return STATE_NAMES[job.state], plain(job.function.told_name)

    def _control_workers(self, given: dict[str, Any]) -> Steps:
        control = self._operations.worker_control
        control.requests = max(control.requests, given.pop("number", 0) - 1)
        row = VERBS["control_workers"]
        return (yield from self._operations.answered_here(row, checked(row, given)))

    def _bulk_actions(self, given: dict[str, Any]) -> Steps:
        yield from ()
        return [progress for number in self._numbers(given) for progress in self._operations.bulk.bulk_actions(number)]

    def _abort_bulk(self, given: dict[str, Any]) -> Steps:
        yield from ()
        aborted = [self._operations.bulk.abort_bulk(number) for number in self._numbers(given) if number is not None]
        return aborted[0]  # a node has one part of an action

    def _numbers(self, given: dict[str, Any]) -> list[str | None]:
        """The parts of a bulk action that this node has; raises LookupError if there is none."""
        number = given.get("id")
        if number is None:
            return [None]
        known = [each for each in str(number).split("+") if each in self._operations.bulk.by_id]
        if not known:
            raise LookupError("there is no such bulk action, or it ended long ago")
        return list(known)

    def _spawn_foreign(self, given: dict[str, Any]) -> Steps:
        """Let the jobs of this node that wait for a job of another node wait for more; returns how many they are."""
        job_id, job_ids = int(given["id"]), tuple(map(int, given["jobs"]))
        if self._engine.foreign_predecessors.is_own(job_id):
            return 0  # its owner has done that
        count = 0
        for is_last in self._engine.let_waiting_wait(job_id, job_ids):
            count += is_last
            if not is_last or count % ITEMS_PER_STEP == 0:
                yield False
        yield from ()
        return count

    def _room_for(self, given: dict[str, Any]) -> Steps:
        """Whether functions of this node may have so many more jobs; raises Refused."""
        yield from ()
        wanted = [(bytes_of(name, "function"), int(priority), int(count)) for name, priority, count in given["wanted"]]
        self._engine.refuse_if_full([each for each in wanted if self._relay().is_ours(each[0])])
        return True

    def _holders_of_key(self, given: dict[str, Any]) -> Steps:
        """The unfinished jobs of this node with a unique key, in every function; see `KeyHolder`."""
        unique = bytes_of(given["unique"], "unique")
        functions = list(self._engine.functions.values())
        found = yield from in_steps(partial(self._holder_of_key, unique), functions, 10 * ITEMS_PER_STEP)
        return [row for row in found if row is not None]

    def _holder_of_key(self, unique: bytes, function: Function) -> list[Any] | None:
        job = self._engine.look_at_holder(function, unique)
        if job is None or job.state in FINAL_STATES or not self._context.has_own(job):
            return None
        return [
            plain(function.told_name),
            job.state is JobState.RUNNING,
            job.numerator,
            job.denominator,
            len(job.subscribers or ()),
        ]

    # --- verbs of the text protocol ---

    def _queue_limits(self, given: dict[str, Any]) -> Steps:
        yield from ()
        function = self._engine.function_named(bytes_of(given["function"], "function"))
        self._engine.set_limits(function, *given["limits"])
        return True

    def _create_function(self, given: dict[str, Any]) -> Steps:
        yield from ()
        self._engine.function_named(bytes_of(given["function"], "function"))
        return True

    def _drop_function(self, given: dict[str, Any]) -> Steps:
        """Whether the function could be dropped; raises LookupError if there is none."""
        yield from ()
        function = self._engine.functions.get(bytes_of(given["function"], "function"))
        if function is None:
            raise LookupError("function not found")
        return self._engine.drop_function(function)
