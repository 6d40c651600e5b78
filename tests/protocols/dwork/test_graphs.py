"""Any graph, any workers, any crashes: every task is completed once, after all that it waits for.

The server is held against a reference after every step.  Answers are held back until the store has what they tell, and
a crash takes everything back to what was kept.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.dwork import session
from switchgear.protocols.dwork.messages import Query, QueryType
from tests.protocols.dwork.harness import (
    OK,
    DworkHarness,
    complete,
    create,
    fail,
    leave,
    names,
    steal,
    transfer,
)
from tests.protocols.dwork.reference import Graph

LEASE_SECONDS = 10
WAIT_MS = 5000

NAMES = st.sampled_from([f"t{number}" for number in range(12)])
WORKERS = st.sampled_from(["u", "v", "w"])
LINES = st.tuples(NAMES, st.lists(NAMES, max_size=3))
BATCHES = st.lists(LINES, min_size=1, max_size=6)


def as_text(lines: list[tuple[str, list[str]]]) -> list[str]:
    return [f"{name} after {' '.join(after)}" if after else name for name, after in lines]


class GraphMachine(RuleBasedStateMachine):
    """A server, the reference, and what the reference was when the server last kept everything."""

    def __init__(self) -> None:
        super().__init__()
        self.world = DworkHarness(keeps=True, lease_seconds=LEASE_SECONDS, settings=EngineSettings(attempts=0))
        self.graph = Graph()
        self.kept = Graph()
        self.waiters: list[tuple[str, bytes]] = []  # workers whose steals wait, and the peers they come from
        self.peers = 0
        self.owed: dict[bytes, Query] = {}  # answers that wait for the store

    # --- asking ---

    def send(self, query: Query) -> bytes:
        self.peers += 1
        peer = b"peer %d" % self.peers
        self.world.send(query, peer)
        return peer

    def expect(self, query: Query, answer: Query) -> None:
        """The answer, now or when the store has what it tells."""
        peer = self.send(query)
        heard = self.world.heard(peer)
        if heard:
            assert heard == [answer]
        else:
            self.owed[peer] = answer
        self.hand_out()

    def expect_error(self, query: Query) -> None:
        [answer] = self.world.heard(self.send(query))
        assert answer.type == QueryType.ERROR

    def expect_not_found(self, query: Query, missing: list[str]) -> None:
        peer = self.send(query)
        heard = self.world.heard(peer) or self.hear_after_keeping(peer)
        assert heard[0].type == QueryType.NOT_FOUND
        assert names(heard[0]) == missing
        self.hand_out()

    def hear_after_keeping(self, peer: bytes) -> list[Query]:
        self.keep()
        return self.world.heard(peer)

    def hand_out(self) -> None:
        """Steals that wait have got what has become ready, and those of one worker in their order."""
        still_waiting: list[tuple[str, bytes]] = []
        for worker, peer in self.waiters:
            heard = self.world.heard(peer)
            if heard:
                assert worker not in [other for other, _ in still_waiting]
                self.take(worker, heard[0], 1)
            else:
                still_waiting.append((worker, peer))
        self.waiters = still_waiting

    def take(self, worker: str, answer: Query, wanted: int) -> None:
        got = names(answer)
        assert len(got) == min(wanted, len(self.graph.ready()))
        for name in got:
            assert self.graph.is_ready(name), f"{name} was handed out too early, or twice"
            self.graph.tasks[name].holder = worker

    def idle_answer(self) -> Query:
        return Query(QueryType.EXIT if self.graph.is_over() else QueryType.NOT_FOUND)

    # --- what may happen ---

    @rule(lines=BATCHES, is_repeated=st.booleans())
    def create(self, lines: list[tuple[str, list[str]]], is_repeated: bool) -> None:
        changed = self.graph.create(lines)
        if changed is None:
            self.expect_error(create(*as_text(lines)))
            return
        self.graph = changed
        self.expect(create(*as_text(lines)), OK)
        if is_repeated:  # because the answer was lost
            self.create_again(lines)

    def create_again(self, lines: list[tuple[str, list[str]]]) -> None:
        query = create(*as_text(lines), retry_us=1)
        changed = self.graph.create(lines)
        if changed is None:  # a worker has one of the tasks by now
            self.expect_error(query)
        else:
            self.graph = changed
            self.expect(query, OK)

    @rule(worker=WORKERS, n=st.integers(1, 4))
    def steal(self, worker: str, n: int) -> None:
        ready = self.graph.ready()
        [answer] = self.world.heard(self.send(steal(worker, n)))
        if ready:
            self.take(worker, answer, n)
        else:
            assert answer == self.idle_answer()

    @rule(worker=WORKERS)
    def steal_and_wait(self, worker: str) -> None:
        ready = self.graph.ready()
        peer = self.send(steal(worker, wait_ms=WAIT_MS))
        if ready:
            self.take(worker, self.world.heard(peer)[0], 1)
        else:
            assert self.world.heard(peer) == []
            self.waiters.append((worker, peer))

    @rule(worker=WORKERS, data=st.data())
    def complete_own(self, worker: str, data: st.DataObject) -> None:
        held = self.graph.held_by(worker)
        if held:
            done = data.draw(st.lists(st.sampled_from(held), min_size=1, unique=True))
            assert all(self.graph.complete(name) for name in done)
            self.expect(complete(worker, *done), OK)

    @rule(worker=WORKERS, done=st.lists(NAMES, min_size=1, max_size=4))
    def complete_anything(self, worker: str, done: list[str]) -> None:
        """A worker that was taken for lost reports, or one that is mistaken."""
        missing = []
        for name in done:
            if not self.graph.complete(name):
                missing.append(name)
            elif self.waiters:
                return self.complete_one_by_one(worker, done, name)
        if missing:
            return self.expect_not_found(complete(worker, *done), missing)
        return self.expect(complete(worker, *done), OK)

    def complete_one_by_one(self, worker: str, done: list[str], name: str) -> None:
        """While others wait, what one task lets go is handed out before the next is looked at; so only the first."""
        before = done[: done.index(name)]
        if before:
            self.expect_not_found(complete(worker, *before, name), before)
        else:
            self.expect(complete(worker, name), OK)

    @rule(worker=WORKERS, name=NAMES)
    def fail(self, worker: str, name: str) -> None:
        if self.graph.fail(worker, name):
            self.expect(fail(worker, name, "so it is"), OK)
        else:
            self.expect_not_found(fail(worker, name, "so it is"), [name])

    @rule(worker=WORKERS, data=st.data())
    def transfer(self, worker: str, data: st.DataObject) -> None:
        held = self.graph.held_by(worker)
        if not held:
            return
        chosen = data.draw(st.lists(st.sampled_from(held), min_size=1, unique=True))
        lines = [(name, data.draw(st.lists(NAMES, max_size=2))) for name in chosen]
        changed = self.graph.transfer(worker, lines)
        if changed is None:
            self.expect_error(transfer(worker, *as_text(lines)))
        else:
            self.graph = changed
            self.expect(transfer(worker, *as_text(lines)), OK)

    @rule(worker=WORKERS)
    def leave(self, worker: str) -> None:
        own = [peer for who, peer in self.waiters if who == worker]
        self.waiters = [(who, peer) for who, peer in self.waiters if who != worker]
        self.graph.let_go(worker)
        peer = self.send(leave(worker))
        heard = self.world.heard(peer)
        assert heard in ([], [OK], [Query(QueryType.NOT_FOUND)])  # OK at once if it gives nothing back
        if not heard:
            self.owed[peer] = OK
        for waiting in own:
            assert self.world.heard(waiting)[0].type in (QueryType.NOT_FOUND, QueryType.EXIT)
        self.hand_out()

    @rule()
    def all_fall_silent(self) -> None:
        """Steals that wait are answered, and then the tasks that somebody has go back."""
        self.world.harness.pass_time(WAIT_MS / 1000 + 0.1)
        for _, peer in self.waiters:
            assert self.world.heard(peer) == [self.idle_answer()]
        self.waiters = []
        self.world.harness.pass_time(LEASE_SECONDS)
        self.graph.let_go()

    @rule()
    def keep(self) -> None:
        self.world.keep()
        self.kept = self.graph.copy()
        for peer, answer in self.owed.items():
            assert self.world.heard(peer) == [answer]
        self.owed = {}

    @rule()
    def crash(self) -> None:
        self.world.restart()
        self.graph = self.kept.copy()
        self.graph.let_go()
        self.kept = self.graph.copy()
        self.waiters = []
        self.owed = {}

    # --- what always holds ---

    @invariant()
    def counts_agree(self) -> None:
        assert self.world.status() == (len(self.graph.tasks), len(self.graph.ready()))

    @precondition(lambda self: self.waiters)
    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        assert not self.graph.ready()

    def teardown(self) -> None:
        """What can be done gets done, each task once, and nothing is left but what waits for failed ones."""
        self.crash()
        completed: list[str] = []
        expected = set(self.graph.tasks)
        while not self.graph.is_over():
            self.steal("last", 3)
            done = self.graph.held_by("last")
            assert all(self.graph.complete(name) for name in done)
            assert self.world.ask(complete("last", *done)) == OK
            completed += done
        assert len(completed) == len(set(completed))
        assert set(completed) == expected - set(self.graph.tasks)
        assert self.world.ask(steal("last")) == Query(QueryType.EXIT)


TestGraphs = GraphMachine.TestCase
TestGraphs.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class LongGraphMachine(GraphMachine):
    """The same where every request is worked off in steps, and every graph is a long one."""

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(session, "LONG_REQUEST_BYTES", 5)
        super().__init__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.patch.undo()


TestLongGraphs = LongGraphMachine.TestCase
TestLongGraphs.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
