"""`ForeignEdges`: finds out the states of jobs of other nodes that jobs of this node wait for.

An edge is stored with the job that waits, so it is there after every restart and adoption: the engine then names each
predecessor that it does not know (`await_job`). The database says of which function such a job is, and so who owns it.
That node is asked to tell of its end, and after its answer the database is read once more, so that no end in between is
missed. What a job has become is always read in the database, never in a message. When the owner changes, or cannot be
reached, all of this begins anew.

A job that is not in the database is a foreground job, or one that was done so long ago that it was deleted. All nodes
are asked: the one that has it stores it from then on. If none has it, and all partitions have answered, it is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from switchgear.engine.job_commands import CANCELLED_WITH_SUCCESSORS
from switchgear.errors import StorageError
from switchgear.model import DONE, FINAL_STATES, Job
from switchgear.net.hub import Hub
from switchgear.net.owners.messages import (
    AboutAwaited,
    Await,
    Awaited,
    AwaitedEnded,
    AwaitNoMore,
)
from switchgear.partitions import PARTITIONS

if TYPE_CHECKING:
    from switchgear.net.owners.link_session import LinkSession
    from switchgear.net.owners.member import OtherNode
    from switchgear.net.owners.relay import Relay, RelayLink

__all__ = ["ForeignEdges", "JobHeads"]

log = logging.getLogger("switchgear")

# So many jobs are read at a time.
READ_AT_ONCE: Final = 500
# So many steps of a cancellation are done in one turn.
CANCELLED_PER_TURN: Final = 200
# How soon a job is looked at again that is on its way from one node to another, or whose end is being stored. Each
# further look without news comes after twice the time, because all jobs that wait for a function that moves are looked
# at again and again, and the connection that they are read on is the one by which their next owner restores them.
PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0
# How often the state of a job is read whose owner cannot be reached.
UNREACHABLE_SECONDS: Final = 1.0
# How soon nodes are asked again about a job.
REPEAT_SECONDS: Final = 0.5
# How often entries are looked for that no job waits for any more.
SWEEP_SECONDS: Final = 1.0
ALL_PARTITIONS: Final = (1 << PARTITIONS) - 1


class JobHeads(Protocol):
    """Reads jobs without their payloads, whichever node owns them."""

    async def read_heads(self, job_ids: Sequence[int]) -> list[Job]: ...


class Predecessor:
    """A job that jobs of this node wait for and that this node does not have."""

    __slots__ = (
        "absent",
        "asked_s",
        "changes",
        "due_s",
        "function",
        "is_confirmed",
        "link",
        "pause_s",
        "was_unfinished",
    )

    def __init__(self) -> None:
        self.function: bytes | None = None  # None: not known yet
        self.link: RelayLink | None = None  # to the node that was asked to tell of it
        self.was_unfinished = False  # when it was looked at last
        self.is_confirmed = False  # the node has answered that it will
        self.changes = 0  # how many messages about it came
        self.asked_s = 0.0  # when all nodes were asked
        self.absent: dict[RelayLink, int] | None = None  # the nodes that do not have it, with their partitions
        self.pause_s = PAUSE_SECONDS  # until it is looked at again, if there is no news
        self.due_s = 0.0  # when it will be looked at again; 0: not by a timer


class ForeignEdges:
    """What jobs of this node wait for at other nodes, and which jobs of this node others wait for."""

    def __init__(self, hub: Hub, store: JobHeads, relay: Relay, other_nodes: Callable[[], list[OtherNode]]) -> None:
        self.sessions: dict[LinkSession, None] = {}  # the other nodes at this one
        self._hub = hub
        self._engine = hub.engine
        self._foreign = hub.engine.foreign_predecessors
        self._store = store
        self._relay = relay
        self._other_nodes = other_nodes
        self._entries: dict[int, Predecessor] = {}
        self._pending: dict[int, None] = {}  # to be looked at
        self._is_pending = asyncio.Event()
        self._links: Mapping[int, RelayLink] = {}
        self._ready: frozenset[int] = frozenset()
        self._asked_for: dict[RelayLink, list[int]] = {}  # what the nodes are going to be asked
        self._task: asyncio.Task[None] | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to ask for the states of predecessors."""
        self._task = asyncio.create_task(self._run())
        self._sweep()

    def close(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def __len__(self) -> int:
        return len(self._entries)

    # --- for the engine, which must not be called back ---

    def await_job(self, job_id: int) -> None:
        """Find out how this job is."""
        if job_id not in self._entries:
            self._entries[job_id] = Predecessor()
            self._look_at_again((job_id,))

    def job_retried(self, job_id: int) -> None:
        """A job of this node runs again: tell the nodes whose jobs wait for it."""
        for session in self.sessions:
            if job_id in session.awaited:
                self._hub.soon(lambda session=session: session.awaited_retried(job_id))  # type: ignore[misc]

    def owner_of(self, job_id: int) -> str:
        """The name of the node that has a predecessor; empty if that is not known."""
        entry = self._entries.get(job_id)
        if entry is None or entry.link is None:
            return ""
        return next((node.name for node in self._other_nodes() if node.link is entry.link), "")

    # --- links ---

    def use_links(self, links: Mapping[int, RelayLink]) -> None:
        """Ask again about jobs whose owner is another one now."""
        ready = frozenset(self._relay.ready)
        if links == self._links and ready == self._ready:
            return
        self._links, self._ready = dict(links), ready
        again: list[int] = []
        for job_id, entry in self._entries.items():
            if entry.function is None:
                entry.absent = None
                again.append(job_id)
                continue
            partition = self._relay.partition_of(entry.function)
            if entry.link is not None and links.get(partition) is not entry.link:
                entry.link, entry.is_confirmed = None, False
                entry.changes += 1
                self._foreign.is_unfinished(job_id)
            if entry.link is None:
                entry.pause_s = PAUSE_SECONDS
                again.append(job_id)
        self._look_at_again(again)

    def functions_moved(self) -> None:
        """Functions have other owners than before, although the links are the same."""
        self._links = {}

    def functions_came(self) -> None:
        """This node has restored the jobs of functions."""
        functions = ((job_id, entry.function) for job_id, entry in self._entries.items())
        is_ours = self._relay.is_ours
        self._look_at_again([job_id for job_id, function in functions if function is None or is_ours(function)])

    def received(self, link: RelayLink, message: AboutAwaited) -> None:
        """Handle a message of another node."""
        if isinstance(message, Awaited):
            self._asked(link, message)
            return
        entry = self._entries.get(message.id)
        if entry is None or entry.link is not link:
            return
        entry.changes += 1
        entry.pause_s = PAUSE_SECONDS
        if not isinstance(message, AwaitedEnded):
            self._foreign.is_unfinished(message.id)
        self._look_at_again((message.id,))

    def _asked(self, link: RelayLink, message: Awaited) -> None:
        later: list[int] = []
        for job_id in message.found:
            entry = self._entries.get(job_id)
            if entry is None:
                link.send(AwaitNoMore([job_id]))
            elif entry.link is link or entry.function is None:
                entry.link, entry.is_confirmed, entry.absent = link, True, None
                self._look_at_again((job_id,))
        for job_id in message.missing:
            entry = self._entries.get(job_id)
            if entry is None:
                continue
            if entry.absent is not None:
                entry.absent[link] = message.ready
                if self._is_nowhere(entry):
                    self._look_at_again((job_id,))
            elif entry.link is link:
                entry.link, entry.is_confirmed = None, False
                entry.changes += 1
                self._foreign.is_unfinished(job_id)
                later.append(job_id)
        self._look_later(later)

    def _is_nowhere(self, entry: Predecessor) -> bool:
        """Whether all nodes have answered that they do not have the job."""
        if entry.absent is None:
            return False
        covered = self._relay.ready_mask()
        for node in self._other_nodes():
            if node.link is None or node.link not in entry.absent:
                return False
            covered |= entry.absent[node.link]
        return covered == ALL_PARTITIONS

    # --- looking ---

    def _look_at_again(self, job_ids: Iterable[int]) -> None:
        self._pending.update(dict.fromkeys(job_ids))
        if self._pending:
            self._is_pending.set()

    def _look_later(self, job_ids: Iterable[int], seconds: float | None = None) -> None:
        """Look at these jobs again after this time. Without a time, after a pause that grows until there is news.

        There is one timer for a job at most: its look and the answer of its owner may both want one.
        """
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        due: dict[float, list[int]] = {}
        for job_id in job_ids:
            entry = self._entries.get(job_id)
            if entry is None:
                continue
            due_s = now_s + (entry.pause_s if seconds is None else seconds)
            if now_s < entry.due_s <= due_s:
                continue
            if seconds is None:
                entry.pause_s = min(2 * entry.pause_s, LONGEST_PAUSE_SECONDS)
            entry.due_s = due_s
            due.setdefault(due_s, []).append(job_id)
        for due_s, some in due.items():
            loop.call_at(due_s, self._look_when_due, some, due_s)

    def _look_when_due(self, job_ids: Sequence[int], due_s: float) -> None:
        due: list[int] = []
        for job_id in job_ids:
            entry = self._entries.get(job_id)
            if entry is not None and entry.due_s == due_s:
                entry.due_s = 0.0
                due.append(job_id)
        self._look_at_again(due)

    def _ask(self, link: RelayLink, job_id: int) -> None:
        """Ask a node for a job, together with all that it is asked for in this look."""
        self._asked_for.setdefault(link, []).append(job_id)

    def _send_questions(self) -> None:
        asked_for, self._asked_for = self._asked_for, {}
        for link, job_ids in asked_for.items():
            link.send(Await(job_ids))

    def _sweep(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        self._look_at_again([job_id for job_id in self._entries if not self._foreign.is_awaited(job_id)])

    async def _run(self) -> None:
        while True:
            await self._is_pending.wait()
            job_ids = list(self._pending)[:READ_AT_ONCE]
            for job_id in job_ids:
                del self._pending[job_id]
            if not self._pending:
                self._is_pending.clear()
            try:
                await self._look_at(job_ids)
            except StorageError:  # the store says so itself
                self._look_later(job_ids, PAUSE_SECONDS)
                await asyncio.sleep(PAUSE_SECONDS)
            except Exception:
                log.exception("internal error while looking for jobs that others wait for")
                self._look_later(job_ids, PAUSE_SECONDS)
                await asyncio.sleep(PAUSE_SECONDS)

    async def read_heads(self, job_ids: Sequence[int]) -> dict[int, Job]:
        """These jobs as they are stored, without their payloads."""
        return {job.id: job for job in await self._store.read_heads(job_ids)}

    async def _look_at(self, job_ids: list[int]) -> None:
        """Read how these jobs are, and do what follows from that."""
        self._hub.begin_turn()
        wanted: dict[int, int] = {}
        later: list[int] = []
        for job_id in job_ids:
            entry = self._entries.get(job_id)
            if entry is None:
                continue
            if self._foreign.is_own(job_id):
                self._foreign.has_come(job_id)
                self._drop(job_id, entry)
            elif not self._foreign.is_awaited(job_id):
                self._foreign.forget(job_id)
                self._drop(job_id, entry)
            elif self._hub.find_unkept_end(job_id) is not None:
                later.append(job_id)  # its end is being stored
            else:
                wanted[job_id] = entry.changes
        if wanted:
            found = await self.read_heads(list(wanted))
            self._hub.begin_turn()
            for job_id, changes in wanted.items():
                entry = self._entries.get(job_id)
                if entry is None:
                    continue
                if entry.changes != changes or self._foreign.is_own(job_id):
                    self._look_at_again((job_id,))
                    continue
                head = found.get(job_id)
                if head is not None and head.error == CANCELLED_WITH_SUCCESSORS:
                    await self._cancel_waiting(entry, head)
                if not self._is_settled(job_id, entry, head):
                    later.append(job_id)
            self._send_questions()
        self._look_later(later)

    async def _cancel_waiting(self, entry: Predecessor, head: Job) -> None:
        """A job of another node was cancelled together with all that wait for it, which some jobs of this node did."""
        if self._relay.is_ours(head.function.name):
            return
        engine = self._engine
        steps = 0
        for waiting in self._foreign.waiting_for(head.id):
            # Jobs that came later only wait for a cancelled job.
            if not entry.was_unfinished and waiting.created_us > head.finished_us:
                continue
            for _ in engine.cancel_in_steps(waiting, cascade=True):
                steps += 1
                if steps % CANCELLED_PER_TURN == 0:
                    await asyncio.sleep(0)
                    self._hub.begin_turn()

    def _is_settled(self, job_id: int, entry: Predecessor, head: Job | None) -> bool:
        """Do what follows from the stored state of a job; False if it has to be looked at again."""
        if head is None:
            return self._ask_all(job_id, entry)
        entry.function = head.function.name
        if head.state is DONE:
            self._foreign.is_done(job_id)
            self._drop(job_id, entry)
            return True
        has_failed = head.state in FINAL_STATES
        if self._relay.is_ours(entry.function):
            if not has_failed or self._hub.find_unkept_end(job_id) is not None:
                return False  # it has just ended, or is being restored
            self._foreign.has_failed(head)
            self._entries.pop(job_id, None)  # from now on it is as any job of this node
            return True
        partition = self._relay.partition_of(entry.function)
        if partition in self._relay.ready:
            return False  # this node lets go of the function, or is going to restore it
        link = self._relay.links.get(partition)
        if link is None:
            self._look_later((job_id,), UNREACHABLE_SECONDS)
            return True
        if entry.link is link and entry.is_confirmed:
            entry.was_unfinished = not has_failed
            if has_failed:
                self._foreign.has_failed(head)
            return True
        now_s = asyncio.get_running_loop().time()
        if entry.link is not link or now_s > entry.asked_s + REPEAT_SECONDS:
            entry.link, entry.is_confirmed, entry.absent = link, False, None
            entry.asked_s = now_s
            self._ask(link, job_id)
        return False  # the owner may have to restore it, or to take it from its inbox, before it answers

    def _ask_all(self, job_id: int, entry: Predecessor) -> bool:
        """Ask all nodes for a job that is not stored; False if that must be repeated."""
        if self._is_nowhere(entry):
            if self._relay.is_unanswered(job_id):
                entry.absent = None
                return False
            self._foreign.is_done(job_id)
            self._drop(job_id, entry)
            return True
        if entry.is_confirmed:
            return False  # the node that has it is storing it
        now_s = asyncio.get_running_loop().time()
        if entry.absent is not None and now_s < entry.asked_s + REPEAT_SECONDS:
            return False  # not all have answered yet
        entry.absent, entry.asked_s = {}, now_s
        entry.function = None
        nodes = self._other_nodes()
        for node in nodes:
            if node.link is not None:
                self._ask(node.link, job_id)
        if not nodes and self._is_nowhere(entry):
            self._look_at_again((job_id,))
            return True
        return False

    def _drop(self, job_id: int, entry: Predecessor) -> None:
        self._entries.pop(job_id, None)
        if entry.link is not None:
            entry.link.send(AwaitNoMore([job_id]))
