"""`Output`: collects the output to a peer, and holds it until a commit is done.

An `Output` collects what it wants to send in `out`.  The hub sends all of it once per turn of the event loop.

Holding. No peer may be told of something that a crash could undo. So the engine notes which peers a durable change
concerns (`Peer.unstored_batch`, `Peer.job_promised`), and the hub holds their output until the batch with that change
is stored. No handler has to request that. Only before an answer about something that was read elsewhere, and may not be
stored yet, a handler calls `await_commit`.

If a commit fails, submissions that no worker has are withdrawn, and the answers that promised them are replaced by
refusals. `promised_jobs` maps answers to their submissions.
"""

from __future__ import annotations

from typing import Any

from mypy_extensions import mypyc_attr

from switchgear.errors import Refused
from switchgear.model import Job, Peer
from switchgear.protocols.context import Context
from switchgear.protocols.transport import PeerTransport

__all__ = ["Output"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Output(Peer):
    """The output buffer of one transport: holding, flow control and long answers."""

    is_multiplexed: bool = False  # output that waits for a commit does not delay the rest

    def __init__(self, context: Context, transport: PeerTransport) -> None:
        super().__init__()
        self.context = context
        self.engine = context.engine
        self.transport = transport
        self.out: list[Any] = []  # bytes, messages or actions, depending on the transport
        self.promised_jobs: list[tuple[int, Job]] = []  # index of the answer in `out`, job
        self.held: list[Any] | None = None  # waits for the commit in progress
        self.held_jobs: list[tuple[int, Job]] = []
        self.unsaid: list[Any] = []  # waits until it is certain that this server still owns its jobs
        self.about_server = 0  # if this is the length of `out`, all of that is about this server, not about jobs
        self.waiting = False  # whether it waits for the next commit
        self.marked = False  # whether it has output to send at the end of the turn
        self.closing = False  # close when everything is sent

    @property
    def unsent_bytes(self) -> int:
        """How many bytes of output wait for the store."""
        return sum(map(len, self.out)) + sum(map(len, self.held or ())) + sum(map(len, self.unsaid))

    def mark(self) -> None:
        """Have `out` sent at the end of the turn."""
        if not self.marked:
            self.marked = True
            self.context.marked.append(self)

    def send(self, packet: Any) -> None:
        """Send this at the end of the turn, or when the changes that concern the peer are stored."""
        self.out.append(packet)
        if not self.marked:
            self.marked = True
            self.context.marked.append(self)

    def sent(self) -> None:
        """Called when the output was written."""
        if self.closing:
            self.transport.close()

    # --- holding: the engine's side is in `Peer` ---

    def await_commit(self) -> None:
        """Hold the next output: it tells of something that was read elsewhere, and may not be stored yet."""
        if self.engine.is_durable:
            self.unstored_batch = self.engine.batch

    @property
    def awaits_commit(self) -> bool:
        """Whether output has to wait for a commit now."""
        return (
            bool(self.promised_jobs)
            or self.unstored_batch > self.engine.stored_batch
            or self.waiting
            or self.held is not None
            or bool(self.unsaid)
        )

    # --- holding: called by the hub ---

    def must_wait(self, batch: int) -> bool:
        """Whether there is output that has to wait for a batch later than this one."""
        return self.unstored_batch > batch or bool(self.promised_jobs)

    def hold(self) -> None:
        """Hold the output: a commit begins that has all changes which concern the peer so far."""
        self.held, self.out = self.out, []
        self.held_jobs, self.promised_jobs = self.promised_jobs, []
        self.waiting = False

    def release(self) -> list[Any]:
        """Release the held output: the commit is done."""
        held, self.held = self.held or [], None
        self.held_jobs = []
        return held

    def unhold(self) -> None:
        """Let the held output wait again, ahead of newer output: the commit failed."""
        held = self.held or []
        self.promised_jobs = self.held_jobs + [(index + len(held), job) for index, job in self.promised_jobs]
        self.out = held + self.out
        self.release()

    def follows_promise(self, job: Job) -> bool:
        """Whether this peer is subscribed to a job only because the job was promised to it.

        If the promise is broken, there is nothing to tell.
        """
        return False

    def refusal_instead_of(self, answer: Any, refused: Refused) -> Any:
        """The output in place of an answer that promised a withdrawn job."""
        return answer

    def answer_with_id(self, answer: Any, job_id: int) -> Any:
        """The output in place of an answer that promised a job, if another node has joined it to the job with this
        id."""
        return answer

    def correct_held(self, refused: dict[int, Refused], joined: dict[int, int]) -> None:
        """Correct held answers to submissions that another node has refused, or joined to another job; they are
        removed."""
        held = self.held or []
        for index, job in self.held_jobs:
            refusal = refused.pop(job.id, None)
            joined_id = joined.pop(job.id, 0)
            if index >= len(held):
                continue
            if refusal is not None:
                held[index] = self.refusal_instead_of(held[index], refusal)
            elif joined_id:
                held[index] = self.answer_with_id(held[index], joined_id)

    def report_was_lost(self, places: list[int]) -> None:
        """Drop the held answers at these places, which would acknowledge reports that the owner of the jobs may not
        have. Without them the answers that follow would be wrong, so the connection is closed, as if the owner were
        this server."""
        self.held = []
        self.out = []
        self.promised_jobs = []
        self.transport.close()

    def refuse_withdrawn(self, refused: Refused) -> None:
        """Replace the promises of withdrawn jobs by refusals."""
        still_promised = []
        out = self.out
        for index, job in self.promised_jobs:
            if not job.withdrawn:
                still_promised.append((index, job))
            elif index < len(out):
                out[index] = self.refusal_instead_of(out[index], refused)
        self.promised_jobs = still_promised
