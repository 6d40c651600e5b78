"""`HeldOutput`: sends the output of sessions when a turn ends, or after the commit that it depends on.

The engine notes for each peer the last batch of changes that concerns it. The output of a peer that a change concerns
waits for the next commit (`waiting`). When that commit begins, the output is held until its end; later output of the
peer comes after that. If the commit fails, the held output waits again, ahead of later output.

Silence. While another server may own the jobs (`be_silent`), output is held back at the last moment, when all of that
is decided and only the writing is left. So it is written later in the same order (`speak`), or never (`end`). Health
checks are answered all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from switchgear.engine.engine import Engine
from switchgear.errors import Refused
from switchgear.model import Job, Peer
from switchgear.protocols.output import Output

__all__ = ["HeldOutput", "send_output"]

log = logging.getLogger("switchgear")


class OwnersAnswers(Protocol):
    """What other nodes, which own functions, have answered to submissions that were passed on to them."""

    refused: dict[int, Refused]  # by id of the submission; removed when the submitter is told
    joined: dict[int, int]  # likewise, the id of the job that it has joined

    def must_wait(self, promised: Sequence[tuple[int, Job]]) -> bool:
        """Whether another node has not answered yet about one of these jobs."""

    def lost_reports(self, promised: Sequence[tuple[int, Job]]) -> list[int]:
        """The places of answers that would say that a report is stored, which the other node has not said."""


class HeldOutput:
    """The output that waits for a commit."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.owners: OwnersAnswers | None = None  # None: there are no other nodes
        self._unanswered: list[Output] = []  # the commit is done, and what is held waits for other nodes
        self._behind: list[Output] = []  # of these, those with output that has to wait for another commit after that
        self.waiting: list[Output] = []  # for the next commit
        self._held: list[Output] = []  # for the commit in progress
        self._batch = 0  # the last one that is stored, or in the commit in progress
        self.is_silent = False
        self._has_ended = False
        # What would have been sent to, in order, and whether that was all there was to send.
        self._silent: dict[Output, bool] = {}

    # --- silence ---

    def be_silent(self) -> None:
        """Write nothing to peers until `speak`."""
        self.is_silent = True

    def speak(self) -> None:
        """This server owns the jobs: write what was held back."""
        if self._has_ended:
            return
        self.is_silent = False
        silent, self._silent = self._silent, {}
        for output, is_all in silent.items():
            unsaid, output.unsaid = output.unsaid, []
            write(output, unsaid)
            if is_all:
                output.sent()

    def end(self) -> None:
        """Another server owns the jobs: write nothing any more."""
        self.is_silent = self._has_ended = True
        silent, self._silent = self._silent, {}
        for output in silent:
            output.unsaid = []

    def forget(self, output: Output) -> None:
        """The peer has left."""
        if self._silent:
            self._silent.pop(output, None)

    def _send(self, output: Output) -> None:
        """Write all output of a session."""
        if self.is_silent and not self._is_about_server(output):
            self._hold_back(output, output.out, is_all=True)
            output.out = []
            output.about_server = 0
        else:
            send_output(output)

    def _write(self, output: Output, packets: list[Any]) -> None:
        """Write this of a session; more is to come."""
        if self.is_silent:
            self._hold_back(output, packets, is_all=False)
        else:
            write(output, packets)

    def _hold_back(self, output: Output, packets: list[Any], *, is_all: bool) -> None:
        if not self._has_ended:
            output.unsaid += packets
            self._silent[output] = is_all

    def _is_about_server(self, output: Output) -> bool:
        """Whether there is output that may be sent in any case, and no other output before it."""
        is_first = output not in self._silent and not self._has_ended
        return is_first and 0 < output.about_server == len(output.out)

    # --- commits ---

    def send(self, outputs: list[Output]) -> None:
        """At the end of a turn: send output that may be sent now, and let the rest wait."""
        for output in outputs:
            output.marked = False
            if output.must_wait(self._batch):
                if not output.waiting:
                    output.waiting = True
                    self.waiting.append(output)
                if output.is_multiplexed:
                    self._send(output)
            elif output.is_multiplexed:
                self._send(output)
            elif output.held is None and not output.waiting:
                if output.unstored_batch > self.engine.stored_batch:  # in the commit in progress
                    output.hold()
                    self._held.append(output)
                else:
                    self._send(output)

    def commit_begins(self) -> None:
        """Hold the waiting output: a commit begins that has all changes so far."""
        self._batch = self.engine.close_batch()
        self._held, self.waiting = self.waiting, []
        if self._unanswered:
            self._behind += [output for output in self._held if output.held is not None]
            self._held = [output for output in self._held if output.held is None]
        for output in self._held:
            output.hold()

    def commit_is_done(self) -> None:
        """Send the output that was held for the commit."""
        self.engine.batch_is_stored(self._batch)
        held, self._held = self._held, []
        if self.owners is not None:
            held = self._without_unanswered(held, self.owners)
        for output in held:
            self._release(output)

    def _release(self, output: Output) -> None:
        """Send what was held. What came later is sent with it, unless it has to wait, or `send` has not decided yet
        whether it has to, because it came in this turn."""
        ready = output.release()
        if output.waiting or output.marked:
            self._write(output, ready)
        else:
            output.out = ready + output.out
            self._send(output)

    def _without_unanswered(self, held: list[Output], owners: OwnersAnswers) -> list[Output]:
        """The outputs that wait for no other node, with what the others have answered; the rest stays held."""
        ready: list[Output] = []
        for output in held:
            if owners.must_wait(output.held_jobs):
                self._unanswered.append(output)
            else:
                if owners.refused or owners.joined:
                    output.correct_held(owners.refused, owners.joined)
                lost = owners.lost_reports(output.held_jobs)
                if lost:
                    output.report_was_lost(lost)
                ready.append(output)
        return ready

    def owners_answered(self) -> None:
        """Send output that waited for other nodes, as far as they have answered.

        An answer that promised a refused job becomes a refusal, and one that promised a job which has joined another
        names that one.
        """
        if not self._unanswered or self.owners is None:
            return
        unanswered, self._unanswered = self._unanswered, []
        for output in self._without_unanswered(unanswered, self.owners):
            if output in self._behind:
                self._behind.remove(output)
                self.waiting.append(output)
            if output.waiting or output.marked or output.unstored_batch <= self.engine.stored_batch:
                self._release(output)
            else:  # what came later has to wait for the commit in progress
                self._write(output, output.release())
                output.hold()
                self._held.append(output)

    def commit_failed(self) -> None:
        """Let the held output wait for another commit."""
        self._batch = self.engine.stored_batch
        held, self._held = self._held, []
        unanswered = self._unanswered
        later = [output for output in self.waiting if output.held is None or output in unanswered]
        self.waiting = held + later + self._behind
        self._behind = []
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
            elif output.held is not None:
                output.waiting = False  # what is held waits for another node
            else:
                output.waiting = False
                output.out = output.release() + output.out
                self._send(output)


def send_output(output: Output) -> None:
    """Write the output of a session, all at once."""
    out = output.out
    if out:
        output.out = []
        output.about_server = 0
        write(output, out)
    output.sent()


def write(output: Output, packets: list[Any]) -> None:
    try:
        output.transport.write(packets)
    except Exception:
        log.exception("internal error while sending to %s:%s", output.transport.host, output.transport.port)
        output.closing = True  # the others still get theirs
