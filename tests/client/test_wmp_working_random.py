"""A WMP worker among managers that say anything in any order: no slot is lost, and no job is answered for twice."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.client.wmp import WmpTiming
from switchgear.errors import PeerError
from tests.client.wmp_play import Play

PACE = WmpTiming(lease_seconds=2.0, lock_seconds=3.0, retry_first_seconds=1.0, retry_most_seconds=4.0)
SLOTS = 4
ROLES = {"f": 1, "g": 2, "h": 3}

managers = st.sampled_from(["m0", "m1"])
numbers = st.integers(1, 6).map(str)
happenings = st.one_of(
    st.tuples(managers, st.just("says WAKE")),
    st.tuples(managers, st.sampled_from(list(ROLES)).map("says WAKE {}".format)),
    st.tuples(
        managers, st.tuples(numbers, st.sampled_from(list(ROLES))).map(lambda job: f"says TAKE {job[0]} {job[1]}")
    ),
    st.tuples(managers, st.just("says NO")),
    st.tuples(managers, st.just("connects")),
    st.tuples(managers, numbers.map("says CANCEL {}".format)),
    st.tuples(st.just("job"), st.sampled_from(["returns", "fails x", "progresses 1/2"])),
    st.tuples(st.sampled_from(["0.3", "1", "5"]), st.just("s pass")),
)


class Witness:
    """Watches a worker."""

    def __init__(self) -> None:
        self.it = Play(managers=2, slots=SLOTS, roles=ROLES, timing=PACE)
        self.it.do("start")
        self.running: list[str] = []

    def let(self, who: str, what: str) -> None:
        if who == "job":
            if not self.running:
                return
            who = self.running[0]
            if not what.startswith("progresses"):
                self.running.pop(0)
        elif what.startswith("says TAKE") and what.split()[2] in self.running:
            return  # which of the two speaks would be hard to tell here
        did = self.it.do(f"{who} {what}")
        starts = [line.split()[0] for line in did if line.endswith("starts")]
        self.running += starts
        ends = [line for line in did if " DONE " in line]
        if what.startswith("says TAKE"):
            assert len(starts) + len(ends) == 1, did  # done, or given back
        elif what.startswith(("returns", "fails")):
            assert len(ends) == 1, did
            assert not starts, did
        else:
            assert not starts, did
            assert not ends, did
        assert max(Counter(line for line in did if "READY" in line).values(), default=0) <= (5 if "pass" in what else 1)
        self.check()

    def check(self) -> None:
        working = self.it.working
        locked = sum(lock.units for lock in working._locks)
        used = sum(run.units for run in working._runs.values())
        assert working.free == SLOTS - locked - used >= 0
        assert len(working._runs) == len(self.running)
        moment = working.next_deadline()
        assert moment is None or moment > self.it.now


@settings(max_examples=300, deadline=None)
@given(st.lists(happenings, max_size=40))
def test_slots_add_up_and_each_job_is_answered_for_once(story: list[tuple[str, str]]) -> None:
    witness = Witness()
    for who, what in story:
        witness.let(who, what)
    while witness.running:
        witness.let("job", "returns")
    witness.it.pass_time(10)
    assert witness.it.working.free == SLOTS


commands = st.sampled_from([b"READY", b"WAKE", b"GIVE", b"TAKE", b"NO", b"DONE", b"STATUS", b"CANCEL"])
values = (
    st.none() | st.integers(-1, 2**64 - 1) | st.floats() | st.binary() | st.text() | st.lists(st.binary(), max_size=3)
)
headers = st.dictionaries(st.sampled_from(["to", "path", "job", "role", "manager", "lease", "x"]), values)
nearly_right = st.tuples(commands, headers, st.lists(st.binary(), max_size=1)).map(
    lambda parts: [b"", b"WMP1", parts[0], msgspec.msgpack.encode(parts[1]), *parts[2]]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.binary(), max_size=6) | nearly_right, max_size=10))
def test_whatever_arrives_slots_add_up(arrivals: list[list[bytes]]) -> None:
    it = Play(managers=1, slots=SLOTS, roles=ROLES, timing=PACE)
    it.do("start")
    for frames in arrivals:
        with suppress(PeerError):
            it.hear(0, frames)
    locked = sum(lock.units for lock in it.working._locks)
    used = sum(run.units for run in it.working._runs.values())
    assert it.working.free == SLOTS - locked - used >= 0
