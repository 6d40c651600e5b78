"""Whatever peers send, the manager goes on, and its tables agree with each other."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.model import Job
from switchgear.protocols.multipart import Message
from switchgear.protocols.wmp.codec import DONE, FRAMES, GIVE, READY, STATUS, STATUSES, VERSION
from tests.protocols.wmp.harness import MANAGER, WmpHarness

NAMES = ["w1", "w2", "d1/w1", "d1/w2", "d2/d1/w1"]
ROLES = ["echo", "shout"]


def check(harness: WmpHarness) -> None:
    """The engine's own invariants are checked at the end of every turn; these are the manager's."""
    manager = harness.manager
    paths = manager.paths
    assert len(paths.by_path) <= harness.setup.paths
    assert {way.worker for way in paths.by_path.values()} == set(harness.engine.workers.values())
    assert paths.kept_bytes == sum(way.kept_bytes for way in paths.by_path.values())
    idle = {way for ways in paths.idle.values() for way in ways}
    assert idle == {way for way in paths.by_path.values() if not way.held}
    first = paths.first_to_go()
    assert (first is None) == (not idle)
    assert first is None or len(paths.idle[first.path[0]]) == max(map(len, paths.idle.values()))
    for path, way in paths.by_path.items():
        assert way.path == path
        held = {job_id for job_id, job in way.worker.running.items() if job.worker is way.worker}
        assert set(way.held) == held
    busy = {way for ways in paths.busy.values() for way in ways}
    assert busy == {way for way in paths.by_path.values() if way.held}


# --- frames ---

frame = st.binary(max_size=30) | st.sampled_from([b"", VERSION, *FRAMES, msgspec.msgpack.encode({})])
key = st.sampled_from(["to", "path", "roles", "job", "lease", "status", "code", "error", "manager", "numerator", "x"])
scalar = (
    st.none() | st.booleans() | st.integers(-1, 2**64 - 1) | st.floats() | st.text(max_size=9) | st.binary(max_size=9)
)
known = st.sampled_from([MANAGER, b"w1", b"1.1", "echo", "done", "failed", "returned", [MANAGER], ["echo"], [b"w1"]])
value = known | scalar | st.lists(scalar, max_size=3) | st.dictionaries(st.text(max_size=3), scalar, max_size=2)
headers = st.dictionaries(key, value, max_size=5).map(msgspec.msgpack.encode)
framed = st.tuples(st.just(b""), st.just(VERSION), st.sampled_from(sorted(FRAMES)), headers).map(list)
message = (
    st.lists(frame, min_size=1, max_size=7)
    | framed
    | st.tuples(framed, st.binary(max_size=5)).map(lambda both: [*both[0], both[1]])
)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from([b"w1", b"d1", b"\x00abcd"]), message), max_size=12))
def test_frames_of_all_kinds(messages: list[tuple[bytes, Message]]) -> None:
    harness = WmpHarness(paths=3)
    job = harness.submit("echo", b"hi")
    holder = harness.worker("holder")
    reference = holder.take()
    harness.router.send_in_one_turn(*([peer, *frames] for peer, frames in messages))
    check(harness)
    holder.say(DONE, b"HI", job=reference)
    assert job.result == b"HI"


# --- lives ---

steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(ROLES)),
        st.tuples(
            st.just("ready"), st.sampled_from(NAMES), st.lists(st.sampled_from(ROLES), min_size=1), st.integers(0, 3)
        ),
        st.tuples(st.just("give"), st.sampled_from(NAMES), st.lists(st.sampled_from(ROLES))),
        st.tuples(st.just("done"), st.sampled_from(NAMES), st.integers(0, 30), st.sampled_from(STATUSES)),
        st.tuples(st.just("status"), st.sampled_from(NAMES), st.integers(0, 30)),
        st.tuples(st.just("gone"), st.sampled_from(["w1", "d1"])),
        st.tuples(st.just("back"), st.sampled_from(["w1", "d1"])),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("pass"), st.integers(1, 4)),
    ),
    max_size=60,
)


class Life:
    """Random steps, with references that were given to somebody."""

    def __init__(self) -> None:
        self.harness = WmpHarness(timeout=5, paths=3)
        self.jobs: list[Job] = []
        self.references: list[bytes] = [b"1.1"]

    def submit(self, role: str) -> None:
        self.jobs.append(self.harness.submit(role, b"payload"))

    def ready(self, name: str, roles: list[str], lease: int) -> None:
        promise: dict[str, Any] = {"lease": lease} if lease else {}
        self.harness.worker(name).say(READY, roles=roles, **promise)

    def give(self, name: str, roles: list[str]) -> None:
        asked_for: dict[str, Any] = {"roles": roles} if roles else {}
        self.harness.worker(name).say(GIVE, **asked_for)

    def done(self, name: str, number: int, status: str) -> None:
        reference = self.references[-1 - number % len(self.references)]
        self.harness.worker(name).say(DONE, b"result", job=reference, status=status)

    def status(self, name: str, number: int) -> None:
        reference = self.references[-1 - number % len(self.references)]
        self.harness.worker(name).say(STATUS, job=reference, numerator=1, denominator=number)

    def gone(self, name: str) -> None:
        self.harness.router.socket.gone.add(name.encode())

    def back(self, name: str) -> None:
        self.harness.router.socket.gone.discard(name.encode())

    def cancel(self, number: int) -> None:
        if self.jobs:
            self.harness.cancel(self.jobs[number % len(self.jobs)])

    def listen(self) -> None:
        for name in NAMES:
            worker = self.harness.worker(name)
            while (heard := worker.hear()) is not None:
                if "job" in heard[1]:
                    self.references.append(heard[1]["job"])


@settings(max_examples=200)
@given(steps)
def test_lives_of_all_kinds(steps: list[tuple[Any, ...]]) -> None:
    life = Life()
    for name, *arguments in steps:
        if name == "pass":
            life.harness.pass_time(*arguments)
        else:
            getattr(life, name)(*arguments)
        life.listen()
        check(life.harness)
    for job in life.jobs:
        assert job.state.name in ("READY", "RUNNING", "DONE", "FAILED", "CANCELLED")
        assert job.result in (b"", b"result")


@settings(max_examples=50)
@given(steps)
def test_after_any_life_jobs_are_still_done(steps: list[tuple[Any, ...]]) -> None:
    """Whatever has happened, a worker that behaves gets every job that is left."""
    life = Life()
    for name, *arguments in steps:
        if name == "pass":
            life.harness.pass_time(*arguments)
        else:
            getattr(life, name)(*arguments)
        life.listen()
    life.harness.pass_time(10)  # whoever has something has lost it
    good = life.harness.worker("good")
    for _ in life.jobs:
        good.say(READY, roles=ROLES)
        good.say(GIVE)
        while (heard := good.hear()) is not None:
            if "role" in heard[1]:
                good.say(DONE, b"result", job=heard[1]["job"])
        check(life.harness)
    assert all(job.state.name in ("DONE", "FAILED", "CANCELLED") for job in life.jobs)
