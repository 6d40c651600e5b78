"""`ToldFacts`: facts that the simulated server reported to peers; every restore must contain them.

Each action is the command of a peer, the engine's speaker. What the peer hears of it is a fact: a job has at least this
revision, a function or a schedule has this value or a later one. As in the hub, a fact is told when everything that
concerns its peer is stored (`Peer.unstored_batch`). A crash may come at any moment; after it, the store must have every
fact that was told.

So a hold that the engine forgets lets a fact out too early, and a crash before the commit shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear.model import FINAL_STATES, Function, Job, Peer, Schedule
from switchgear.policy import Policy
from switchgear.testing.invariants import broken

if TYPE_CHECKING:
    from switchgear.testing.simulation.simulated_cluster import SimulatedCluster
    from switchgear.testing.simulation.store import SimulatedStore

__all__ = ["ToldFacts"]


@dataclass(slots=True)
class Fact:
    """A fact that the server reports to a peer."""

    peer: Peer
    job: Job | None
    subject: Any  # the id of a job, or ("function", name) or ("schedule", name)
    version: int  # the revision of a job, or the number of the value
    text: str


class FunctionValue(NamedTuple):
    """The settings of a function, as the store has them."""

    paused: bool
    limits: list[int]
    policy: Policy


class ToldFacts:
    """Facts that were told, and facts that wait for a commit."""

    def __init__(self, usual_limit: int) -> None:
        self._usual = FunctionValue(False, [usual_limit] * 3, Policy())  # of a function that the store does not have
        self.operator = Peer()  # who speaks in actions that no client or worker does
        self.told: dict[Any, tuple[int, str]] = {}  # by subject, the last version that a peer was told
        self._new: list[Fact] = []
        self._waiting: list[tuple[int, Fact]] = []  # with the batch that has to be stored
        self._values: dict[Any, list[Any]] = {}  # of functions and schedules, since the last start

    # --- what peers hear of ---

    def job(
        self, peer: Peer | None, job: Job, what: str, world: SimulatedCluster, *, only_exists: bool = False
    ) -> None:
        """The peer (None: the speaker) hears what became of a durable job, or only that there is one."""
        # A foreground job that others wait for is stored when it ends; until then nothing was promised of it.
        is_first_stored_now = job.revision == 0 and job.state in FINAL_STATES
        if job.delivery and not job.withdrawn and not is_first_stored_now:
            version = 1 if only_exists else job.revision + (job in world.engine.changed)
            self._new.append(Fact(peer or self.operator, job, job.id, version, f"{what} {job}"))

    def function(self, function: Function, what: str) -> None:
        """The operator hears that a function has its present settings."""
        policy = function.limiter.policy if function.limiter is not None else Policy()
        value = FunctionValue(function.paused, list(function.limits), policy)
        self._value(("function", function.name), value, f"{what} {function}")

    def schedule(self, schedule: Schedule, what: str) -> None:
        """The operator hears that a schedule is as it is now, or that it was removed."""
        self._value(("schedule", schedule.name), schedule_value(schedule), f"{what} {schedule}")

    def _value(self, subject: Any, value: Any, text: str) -> None:
        values = self._values.setdefault(subject, [])
        if not values or values[-1] != value:
            values.append(value)
        self._new.append(Fact(self.operator, None, subject, len(values) - 1, text))

    def step_ends(self, stored_batch: int) -> None:
        """Tell the facts of a step, or let them wait, as the hub does with output."""
        new, self._new = self._new, []
        for fact in new:
            if fact.peer.unstored_batch > stored_batch:
                self._waiting.append((fact.peer.unstored_batch, fact))
            else:
                self._tell(fact)

    def commit_is_done(self, stored_batch: int) -> None:
        """Tell the facts that waited for this batch; withdrawn jobs were refused instead."""
        waiting, self._waiting = self._waiting, []
        for batch, fact in waiting:
            if batch > stored_batch:
                self._waiting.append((batch, fact))
            else:
                self._tell(fact)

    def _tell(self, fact: Fact) -> None:
        if fact.job is not None and fact.job.withdrawn:
            return
        version, _ = self.told.get(fact.subject, (-1, ""))
        if fact.version > version:
            self.told[fact.subject] = fact.version, f"{fact.peer}: {fact.text}"

    def forget(self, job_ids: list[int]) -> None:
        """These jobs were deleted from the history."""
        for job_id in job_ids:
            self.told.pop(job_id, None)

    def forget_function(self, function: Function) -> None:
        """The function was dropped, with its settings."""
        subject = ("function", function.name)
        self.told.pop(subject, None)
        self._values.pop(subject, None)
        self._new = [fact for fact in self._new if fact.subject != subject]
        self._waiting = [(batch, fact) for batch, fact in self._waiting if fact.subject != subject]

    # --- crashes ---

    def crashed(self, store: SimulatedStore) -> None:
        """Check that the store has everything that was told; the server starts with what it has."""
        self._new.clear()
        self._waiting.clear()
        for subject, (version, text) in self.told.items():
            if isinstance(subject, int):
                row = store.committed.get(subject)
                if row is None or row.fields["revision"] < version:
                    kept = "nothing" if row is None else f"revision {row.fields['revision']}"
                    broken(f"a peer was told of revision {version} of job {subject} ({text}); the store has {kept}")
            else:
                value = self._stored_value(subject, store)
                if value not in self._values[subject][version:]:
                    broken(f"a peer was told of {self._values[subject][version]} ({text}); the store has {value}")
        self.operator = Peer()
        told = [subject for subject in self.told if not isinstance(subject, int)]
        self._values = {subject: [self._stored_value(subject, store)] for subject in told}
        for subject in told:
            self.told[subject] = 0, self.told[subject][1]

    def _stored_value(self, subject: Any, store: SimulatedStore) -> Any:
        """The value of a function or a schedule in the store."""
        kind, name = subject
        if kind == "function":
            return FunctionValue(*store.functions[name]) if name in store.functions else self._usual
        schedule = store.schedules.get(name)
        return None if schedule is None else schedule_value(schedule)


def schedule_value(schedule: Schedule) -> tuple[str, bytes, bool] | None:
    return None if schedule.removed else (schedule.timetable.spec, schedule.payload, schedule.paused)
