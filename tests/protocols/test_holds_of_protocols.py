"""What peers of the other protocols hear of a durable change waits for its commit; mutants that drop holds are caught.

`tests/protocols/test_holds.py` has the scenarios of Gearman, in which every kind of hold occurs.  Here are those kinds
that a protocol has words for.  The bridge writes through the same `Output` and `HeldOutput` as every session.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.model import Delivery
from switchgear.protocols.wmp.codec import GIVE
from tests.protocols.dwork.harness import DworkHarness, create, fail, leave, steal, transfer
from tests.protocols.dwork.harness import complete as dwork_complete
from tests.protocols.gearman_draft.harness import MixedHarness
from tests.protocols.gearmonkey.harness import TRIO, MonkeyHarness
from tests.protocols.hold_mutants import MUTANTS, ONLY_PLAIN_SOURCES, mutated
from tests.protocols.pingpong.harness import READY, Broker
from tests.protocols.wmp.harness import WmpHarness
from tests.support import draft_wire
from tests.support.draft_wire import HANDLE, WAIT

pytestmark = ONLY_PLAIN_SOURCES

Scene = tuple[Callable[[], object], Callable[[], object]]
"""What the peer concerned has heard so far, and a commit."""

SUBMISSION = "a submission, or joining one"
REPORT = "a report that ends a job, or a cancel"
GIVEN_BACK = "a job that is given back"
START = "a start that counts"
END = "the end of a job, told to subscribers"
READ = "an end that was read elsewhere"
RETRY = "a job that is run again"
WAITS = "a job that waits for more"


# --- the draft ---

ASK = draft_wire.packet(draft_wire.Kind.job_assign_req)


def draft(attempts: int = 0) -> MixedHarness:
    harness = MixedHarness(keeps=True, settings=EngineSettings(attempts=attempts))
    harness.talker("app").send(draft_wire.create(b"f", b"", HANDLE, b"key"))
    harness.commits_at_once = False
    harness.talker("app").take_bytes()
    return harness


def draft_worker(harness: MixedHarness) -> Callable[[], bytes]:
    worker = harness.talker("worker")
    worker.send(draft_wire.packet(draft_wire.Kind.worker_connect, b"f"))
    worker.take_bytes()
    worker.send(ASK)
    return worker.take_bytes


def draft_submit() -> Scene:
    harness = draft()
    harness.talker("app").send(draft_wire.create(b"f"))
    return harness.talker("app").take_bytes, harness.keep


def draft_start() -> Scene:
    harness = draft(attempts=1)
    return draft_worker(harness), harness.keep


def draft_report(code: int = 0) -> Scene:
    harness = draft()
    hears = draft_worker(harness)
    harness.keep()
    hears()
    harness.talker("worker").send(draft_wire.complete(code, b"done"), ASK)
    return hears, harness.keep


def draft_end() -> Scene:
    harness = draft()
    waiting = harness.talker("waiting")
    waiting.send(draft_wire.create(b"f", b"", WAIT, b"key"))
    draft_worker(harness)
    harness.keep()
    waiting.take_bytes()
    harness.talker("worker").send(draft_wire.complete(0, b"done"))
    return waiting.take_bytes, harness.keep


# --- dwork ---


def dwork(*lines: str, attempts: int = 0) -> DworkHarness:
    world = DworkHarness(keeps=True, settings=EngineSettings(attempts=attempts))
    if lines:
        world.ask(create(*lines))
    return world


def dwork_scene(world: DworkHarness, peer: bytes = b"peer") -> Scene:
    return lambda: world.listener.heard(peer), world.keep


def dwork_create() -> Scene:
    world = dwork()
    world.send(create("a", "b after a"))
    return dwork_scene(world)


def dwork_join() -> Scene:
    world = dwork()
    world.send(create("a"), b"first")
    world.send(create("a"), b"second")
    return dwork_scene(world, b"second")


def dwork_start() -> Scene:
    world = dwork("a", attempts=1)
    world.send(steal("w"))
    return dwork_scene(world)


def dwork_told(query: object, *lines: str) -> Scene:
    """A worker that has stolen all tasks says this."""
    world = dwork(*(lines or ("a",)))
    world.ask(steal("w", 2))
    world.send(query)  # type: ignore[arg-type]
    return dwork_scene(world)


def dwork_asked() -> Scene:
    world = dwork("a")
    world.ask(steal("w"))
    world.send(dwork_complete("w", "a"), b"first")
    world.send(dwork_complete("other", "a"), b"second")
    return dwork_scene(world, b"second")


def dwork_retry() -> Scene:
    world = dwork("a")
    world.ask(steal("w"))
    world.ask(fail("w", "a", "broken"))
    world.send(create("a"))
    return dwork_scene(world)


# --- GearMonkey ---


def monkey(attempts: int = 0) -> MonkeyHarness:
    """A harness with job 1, which the store has."""
    harness = MonkeyHarness(keeps=True, settings=EngineSettings(attempts=attempts))
    draft_of(harness, 1)
    harness.tell("client", ("LPUSH", "queue:f:normal", 1))
    harness.keep()
    harness.heard("client")
    return harness


def draft_of(harness: MonkeyHarness, number: int) -> None:
    harness.tell("client", ("INCR", "uid:f"), ("HMSET", f"job:f:{number}", "status", "idle", "input", "x"))


def monkey_push() -> Scene:
    harness = monkey()
    draft_of(harness, 2)
    heard = harness.tell("client", ("LPUSH", "queue:f:normal", 2))
    return lambda: heard + harness.heard("client"), harness.keep


def monkey_start() -> Scene:
    harness = monkey(attempts=2)
    harness.talker("worker")
    heard = harness.tell("worker", ("BRPOP", *TRIO, 1))
    return lambda: heard + harness.heard("worker"), harness.keep


def monkey_report(status: str = "success") -> Scene:
    harness = monkey()
    harness.tell("worker", ("BRPOP", *TRIO, 1))
    harness.heard("worker")
    heard = harness.tell("worker", ("HMSET", "job:f:1", "status", status, "output", "y"))
    return lambda: heard + harness.heard("worker"), harness.keep


def monkey_lock() -> Scene:
    harness = monkey()
    assert harness.tell("waiting", ("BRPOP", "lock:f:1", 0)) == []
    harness.tell("worker", ("BRPOP", *TRIO, 1))
    harness.tell("worker", ("HMSET", "job:f:1", "status", "success", "output", "y"))
    return lambda: harness.heard("waiting"), harness.keep


def monkey_asked() -> Scene:
    harness = monkey()
    harness.tell("worker", ("BRPOP", *TRIO, 1))
    harness.tell("worker", ("HMSET", "job:f:1", "status", "success", "output", "y"))
    heard = harness.tell("asking", ("TTL", "lock:f:1"))
    return lambda: heard + harness.heard("asking"), harness.keep


# --- WMP and PING/PONG ---


def wmp_start() -> Scene:
    harness = WmpHarness(keeps=True, settings=EngineSettings(attempts=1))
    harness.submit("echo", b"hi", Delivery.HANDLE)
    harness.keep()
    worker = harness.worker("w1")
    worker.say(GIVE, roles=["echo"])
    return worker.hear, harness.keep


def pingpong_start() -> Scene:
    broker = Broker(keeps=True, settings=EngineSettings(attempts=1))
    broker.submit(b"job")
    broker.harness.keep()
    broker.worker_says(b"w", READY)
    return lambda: broker.heard_by_worker(b"w"), broker.harness.keep


SCENARIOS: dict[tuple[str, str], Callable[[], Scene]] = {
    ("draft", "submit"): draft_submit,
    ("draft", "start"): draft_start,
    ("draft", "complete"): draft_report,
    ("draft", "fail"): lambda: draft_report(9),
    ("draft", "end"): draft_end,
    ("dwork", "create"): dwork_create,
    ("dwork", "join"): dwork_join,
    ("dwork", "start"): dwork_start,
    ("dwork", "complete"): lambda: dwork_told(dwork_complete("w", "a")),
    ("dwork", "fail"): lambda: dwork_told(fail("w", "a", "broken")),
    ("dwork", "complete unowned"): lambda: dwork_told(dwork_complete("other", "a")),
    ("dwork", "transfer"): lambda: dwork_told(transfer("w", "a after b"), "a", "b"),
    ("dwork", "exit"): lambda: dwork_told(leave("w")),
    ("dwork", "asked for"): dwork_asked,
    ("dwork", "retry"): dwork_retry,
    ("GearMonkey", "push"): monkey_push,
    ("GearMonkey", "start"): monkey_start,
    ("GearMonkey", "success"): monkey_report,
    ("GearMonkey", "error"): lambda: monkey_report("error"),
    ("GearMonkey", "lock"): monkey_lock,
    ("GearMonkey", "asked for"): monkey_asked,
    ("WMP", "start"): wmp_start,
    ("PING/PONG", "start"): pingpong_start,
}

# What the scenarios of each protocol notice if it is forgotten.
NOTICED = {
    "draft": {SUBMISSION, REPORT, START, END},
    "dwork": {SUBMISSION, REPORT, START, GIVEN_BACK, READ, RETRY, WAITS},
    "GearMonkey": {SUBMISSION, REPORT, START, END, READ},
    "WMP": {START},
    "PING/PONG": {START},
}


@pytest.mark.parametrize("name", SCENARIOS, ids=" ".join)
def test_a_peer_hears_of_a_change_when_it_is_stored(name: tuple[str, str]) -> None:
    hears, keep = SCENARIOS[name]()
    assert not hears()
    keep()
    assert hears()


@pytest.mark.parametrize("protocol", NOTICED)
def test_a_server_that_forgets_one_kind_of_hold_is_found_out(protocol: str) -> None:
    noticed: set[str] = set()
    for kind in MUTANTS:
        for name, scene in SCENARIOS.items():
            if name[0] == protocol:
                with mutated(kind):
                    hears, _ = scene()
                    if hears():
                        noticed.add(kind)
    assert noticed == NOTICED[protocol]


@pytest.mark.parametrize("name", SCENARIOS, ids=" ".join)
def test_each_scenario_would_notice_something(name: tuple[str, str]) -> None:
    noticed = False
    for kind in MUTANTS:
        with mutated(kind):
            hears, _ = SCENARIOS[name]()
            noticed = noticed or bool(hears())
    assert noticed
