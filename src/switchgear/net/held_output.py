"""`HeldOutput`: sends the output of sessions when a turn ends, or after the commit that it depends on.

The engine notes for each peer the last batch of changes that concerns it. The output of a peer that a change concerns
waits for the next commit (`waiting`). When that commit begins, the output is held until its end; later output of the
peer comes after that. If the commit fails, the held output waits again, ahead of later output.
"""

from __future__ import annotations

import logging

from switchgear.engine.engine import Engine
from switchgear.errors import Refused
from switchgear.model import Peer
from switchgear.protocols.output import Output

__all__ = ["HeldOutput", "send_output"]

log = logging.getLogger("switchgear")


class HeldOutput:
    """The output that waits for a commit."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: list[Output] = []  # for the next commit
        self._held: list[Output] = []  # for the commit in progress
        self._batch = 0  # the last one that is stored, or in the commit in progress

    def send(self, outputs: list[Output]) -> None:
        """At the end of a turn: send output that may be sent now, and let the rest wait."""
        for output in outputs:
            output.marked = False
            if output.must_wait(self._batch):
                if not output.waiting:
                    output.waiting = True
                    self.waiting.append(output)
                if output.is_multiplexed:
                    send_output(output)
            elif output.is_multiplexed:
                send_output(output)
            elif output.held is None and not output.waiting:
                if output.unstored_batch > self.engine.stored_batch:  # in the commit in progress
                    output.hold()
                    self._held.append(output)
                else:
                    send_output(output)

    def commit_begins(self) -> None:
        """Hold the waiting output: a commit begins that has all changes so far."""
        self._batch = self.engine.close_batch()
        self._held, self.waiting = self.waiting, []
        for output in self._held:
            output.hold()

    def commit_is_done(self) -> None:
        """Send the output that was held for the commit."""
        self.engine.batch_is_stored(self._batch)
        held, self._held = self._held, []
        for output in held:
            ready = output.release()
            if output.waiting:
                output.transport.write(ready)
            else:
                output.out = ready + output.out
                send_output(output)

    def commit_failed(self) -> None:
        """Let the held output wait for another commit."""
        self._batch = self.engine.stored_batch
        held, self._held = self._held, []
        self.waiting = held + [output for output in self.waiting if output.held is None]
        for output in held:
            output.unhold()
            output.waiting = True

    def followers(self) -> dict[int, set[Peer]]:
        """By job, the waiting peers that are subscribed to it only because it was promised to them."""
        followers: dict[int, set[Peer]] = {}
        for output in self.waiting:
            for _, job in output.promised_jobs:
                if output.follows_promise(job):
                    followers.setdefault(job.id, set()).add(output)
        return followers

    def refuse_withdrawn(self, refused: Refused) -> None:
        """Replace the promises of withdrawn jobs by refusals, and send output that waits for nothing else."""
        waiting, self.waiting = self.waiting, []
        for output in waiting:
            output.refuse_withdrawn(refused)
            if output.must_wait(self._batch):
                self.waiting.append(output)
            else:
                output.waiting = False
                output.out = output.release() + output.out
                send_output(output)


def send_output(output: Output) -> None:
    """Write the output of a session, all at once."""
    out = output.out
    if out:
        output.out = []
        try:
            output.transport.write(out)
        except Exception:
            log.exception("internal error while sending to %s:%s", output.transport.host, output.transport.port)
            output.closing = True  # the others still get theirs
    output.sent()
