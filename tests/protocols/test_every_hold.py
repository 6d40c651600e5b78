"""Every place of the engine that makes a peer wait for a commit: if it is forgotten, some scenario notices.

The places are read from the engine's sources, so a new one needs a scenario, or a reason why nobody could hear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from switchgear.config import ListenUrl
from switchgear.engine.engine import EngineSettings
from switchgear.net.bridge.bridge import Bridge
from switchgear.net.bridge.inbound import Served
from switchgear.net.bridge.keys import Keys
from switchgear.net.bridge.settings import BridgeSettings
from switchgear.net.hub import Hub
from switchgear.protocols.dwork import session as dwork_session
from switchgear.protocols.dwork.messages import Query
from switchgear.protocols.gearman.messages import Packet
from tests.protocols.dwork.harness import DworkHarness, complete, create, steal
from tests.protocols.gearman.harness import Harness
from tests.protocols.gearman_draft.harness import MixedHarness
from tests.protocols.gearmonkey.harness import TRIO
from tests.protocols.hold_mutants import ONLY_PLAIN_SOURCES, HoldSite, hold_sites, without
from tests.protocols.test_holds import SCENARIOS as OF_GEARMAN
from tests.protocols.test_holds import control, harness_with_job, say
from tests.protocols.test_holds_of_protocols import SCENARIOS as OF_OTHERS
from tests.protocols.test_holds_of_protocols import Scene, dwork, dwork_scene, monkey
from tests.support import draft_wire
from tests.support.wire import Kind, request

pytestmark = ONLY_PLAIN_SOURCES

SCHEDULE = control(b"schedule", b'{"name": "n", "function": "f", "every_seconds": 60}')


def told(*packets: bytes, before: tuple[bytes, ...] = ()) -> Scene:
    """An operator says this, after others have said something else that the store has."""
    harness = harness_with_job()
    harness.talker("before").send(*before)
    harness.keep()
    say(harness, "operator", *packets)
    return harness.talker("operator").take_bytes, harness.keep


def told_again(*packets: bytes, before: tuple[bytes, ...] = ()) -> Scene:
    """An operator asks for what another has just asked for, which is not stored yet."""
    harness = harness_with_job()
    harness.talker("before").send(*before)
    harness.keep()
    harness.talker("first").send(*packets)
    say(harness, "operator", *packets)
    return harness.talker("operator").take_bytes, harness.keep


def function(verb: bytes) -> bytes:
    return control(verb, b'{"function": "f"}')


def schedule(verb: bytes) -> bytes:
    return control(verb, b'{"name": "n"}')


def submit(options: bytes, unique: bytes = b"", name: bytes = b"f") -> bytes:
    return request(Packet.SUBMIT_JOB_OPTIONS, name, unique, options, b"x")


def an_ended_job_that_holds_its_key() -> Scene:
    harness = harness_with_job()
    harness.talker("first").send(b"cancel job H:t:1\n", submit(b'{"unique_for": 60}', b"held"))
    harness.keep()
    harness.talker("worker").send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))
    harness.keep()
    # In one turn: this store takes the contents of jobs that ended when they are staged, as no durable one does.
    harness.talker("second")
    harness.talker("worker").session.receive(request(Kind.WORK_COMPLETE, b"H:t:2", b"done"))
    harness.talker("second").send(submit(b'{"unique_for": 60}', b"held"))
    return harness.talker("second").take_bytes, harness.keep


def a_job_in_place_of_an_ended_one() -> Scene:
    """The one that held the key is changed; the new one is a foreground job, which promises nothing by itself."""
    harness = harness_with_job()
    harness.talker("first").send(b"cancel job H:t:1\n", submit(b'{"unique_for": 60}', b"held"))
    harness.keep()
    harness.talker("worker").send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))
    harness.keep()
    harness.talker("worker").send(request(Kind.WORK_COMPLETE, b"H:t:2", b"done"))
    harness.keep()
    harness.talker("second").send(submit(b'{"unique_policy": "replace", "wait": true}', b"held"))
    return harness.talker("second").take_bytes, harness.keep


def a_pushed_start() -> Scene:
    harness = harness_with_job(attempts=1)
    harness.talker("client").send(request(Kind.SUBMIT_JOB_BG, b"g", b"", b"x"))
    harness.keep()  # together with its submission, the start would not have to be stored first
    harness.talker("worker").send(request(Kind.CAN_DO, b"g"), request(Packet.CREDIT, b"1", b"0"))
    return harness.talker("worker").take_bytes, harness.keep


def long_request(world: DworkHarness, query: Query, peer: bytes = b"peer") -> Scene:
    """This counts as long, and is worked off in steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dwork_session, "LONG_REQUEST_BYTES", 10)
        world.send(query, peer)
    return dwork_scene(world, peer)


def a_long_graph() -> Scene:
    return long_request(dwork(), create("a", "b", "c after a b"))


def a_task_that_is_there() -> Scene:
    """Its creator was promised it, and the second creator too."""
    world = dwork()
    world.send(create("a"), b"first")
    world.send(create("a", "b after a"), b"second")
    return dwork_scene(world, b"second")


def an_expiry_of_an_ended_job() -> Scene:
    harness = monkey()
    harness.tell("worker", ("BRPOP", *TRIO, 1))
    harness.tell("worker", ("HMSET", "job:f:1", "status", "success", "output", "y"))
    heard = harness.tell("asking", ("EXPIRE", "job:f:1", 90_000))
    return lambda: heard + harness.heard("asking"), harness.keep


def what_is_published_after_a_report() -> Scene:
    harness = monkey()
    harness.tell("subscriber", ("SUBSCRIBE", "mine"))
    harness.tell("worker", ("BRPOP", *TRIO, 1))
    harness.tell("worker", ("HMSET", "job:f:1", "status", "success", "output", "y"), ("PUBLISH", "mine", "done"))
    return lambda: harness.heard("subscriber"), harness.keep


def very_many_that_are_not_tasks() -> Scene:
    """They may have ended a moment ago."""
    return long_request(dwork("a"), complete("w", "b", "c"))


def a_long_request_that_is_repeated() -> Scene:
    """All of its tasks are done, which is not stored yet."""
    world = dwork("a", "b")
    world.ask(steal("w", 2))
    world.send(complete("w", "a", "b"), b"worker")
    return long_request(world, create("a", "b", retry_us=1_000_000), b"again")


def an_end_that_is_asked_for_in_the_draft() -> Scene:
    harness = MixedHarness(keeps=True, settings=EngineSettings(attempts=0))
    harness.talker("app").send(draft_wire.create(b"f"))
    harness.commits_at_once = False
    worker, asking = harness.talker("worker"), harness.talker("asking")
    worker.send(draft_wire.packet(draft_wire.Kind.worker_connect, b"f"))
    worker.send(draft_wire.packet(draft_wire.Kind.job_assign_req))
    asking.send(draft_wire.packet(draft_wire.Kind.job_complete_req, b"H:t:1"))
    harness.keep()
    asking.take_bytes()
    worker.session.receive(draft_wire.complete(0, b"done"))  # in one turn, as above
    asking.send(draft_wire.packet(draft_wire.Kind.job_complete_req, b"H:t:1"))
    return asking.take_bytes, harness.keep


def a_result_that_the_bridge_has_found() -> Scene:
    """The job of another run has just ended here, which is not stored yet; its result goes to Redis."""
    harness = harness_with_job()
    harness.talker("worker").send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))
    harness.keep()
    job = harness.engine.job(1)
    assert job is not None
    bridge = asyncio.run(bridge_in(harness))
    harness.talker("worker").session.receive(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))  # in one turn, as above
    bridge.inbound.write_found(Served(Keys(b"f")), b"1", job)
    harness.end_turn()
    return lambda: [pending.command for pending in bridge.shared.commands.take(10)], harness.keep


async def bridge_in(harness: Harness) -> Bridge:
    """A bridge that is not connected; of the hub it needs what every session needs."""
    url = ListenUrl.parse("redis://127.0.0.1:1")
    bridge = Bridge(url, cast("Hub", harness), BridgeSettings.read(url), b"H:t:", 1000, set())
    harness.engine.withdraw_credit(bridge.outbound.worker)
    return bridge


MORE: dict[str, Callable[[], Scene]] = {
    "resume": lambda: told(function(b"resume"), before=(function(b"pause"),)),
    "resume again": lambda: told_again(function(b"resume"), before=(function(b"pause"),)),
    "limit": lambda: told(control(b"limit", b'{"function": "f", "concurrency": 1}')),
    "limit again": lambda: told_again(control(b"limit", b'{"function": "f", "concurrency": 1}')),
    "drop": lambda: told(b"drop function g\n", before=(b"create function g\n",)),
    "schedule": lambda: told(SCHEDULE),
    "schedule again": lambda: told_again(SCHEDULE),
    "other schedule": lambda: told(SCHEDULE.replace(b'"f"', b'"g"'), before=(SCHEDULE,)),
    "unschedule": lambda: told(schedule(b"unschedule"), before=(SCHEDULE,)),
    "pause schedule": lambda: told(schedule(b"pause_schedule"), before=(SCHEDULE,)),
    "pause schedule again": lambda: told_again(schedule(b"pause_schedule"), before=(SCHEDULE,)),
    "resume schedule": lambda: told(schedule(b"resume_schedule"), before=(SCHEDULE, schedule(b"pause_schedule"))),
    "resume schedule again": lambda: told_again(
        schedule(b"resume_schedule"), before=(SCHEDULE, schedule(b"pause_schedule"))
    ),
    "join an ended job": an_ended_job_that_holds_its_key,
    "replace an ended job": a_job_in_place_of_an_ended_one,
    "push": a_pushed_start,
    "long graph": a_long_graph,
    "existing task": a_task_that_is_there,
    "expiry": an_expiry_of_an_ended_job,
    "publish": what_is_published_after_a_report,
    "very many": very_many_that_are_not_tasks,
    "long request": a_long_request_that_is_repeated,
    "asked for in the draft": an_end_that_is_asked_for_in_the_draft,
    "found by the bridge": a_result_that_the_bridge_has_found,
}

# What follows by itself, or from a command whose own change holds the same peer.
NOBODY_COULD_HEAR: dict[str, str] = {
    "listing.on_lookup await_commit": "what is read from a store that is behind shows what it has",
    "hashes.write_ended await_commit": "needs a store that is behind: tests/protocols/gearmonkey/test_keeping.py",
    "verb_answers.verb_answer await_commit": "needs a bulk action under way: tests/protocols/http/test_bulk.py",
    "submit_and_control.operation await_commit": "the same: tests/protocols/gearman/test_bulk.py",
    "submissions.reserve_ids concern_speaker": "needs more ids than are reserved: tests/net/test_hub_life.py",
    "submissions._enter_new concern_speaker": "needs more ids than are reserved: tests/net/test_hub_life.py",
    "engine.promise_report promise": "needs two nodes: tests/system/test_owners_reports.py",
    "foreign_predecessors.must_be_kept concern_speaker": "needs two nodes: tests/system/test_owners_edges_kills.py",
    "graph_submission._store_for_owners concern_speaker": "needs two nodes: tests/system/test_owners_edges.py",
    "schedules.give concern_speaker": "needs two nodes: tests/system/test_owners_schedules.py",
    "dependencies.propagate_failure concern_speaker": "a report has ended a durable job, which holds",
    "schedules._hold_up concern_speaker": "ticks come by themselves",
    "schedules._meet_ticks concern_speaker": "ticks come by themselves",
    "schedules._set_right concern_speaker": "the clock is set by nobody who listens",
    "schedules.take_back_tick concern_speaker": "the store has failed, and the submission is refused",
    "transitions.make_ready concern_speaker": "its time has come, or a report has ended a durable job, which holds",
    "transitions.unblock concern_speaker": "a report has ended a durable job, which holds",
}


def scenes() -> dict[str, Callable[[], Scene]]:
    def of_gearman(name: str) -> Callable[[], Scene]:
        def scene() -> Scene:
            harness, who = OF_GEARMAN[name]()
            return harness.talker(who).take_bytes, harness.keep

        return scene

    return (
        {f"gearman {name}": of_gearman(name) for name in OF_GEARMAN}
        | {" ".join(name): scene for name, scene in OF_OTHERS.items()}
        | {f"also {name}": scene for name, scene in MORE.items()}
    )


@pytest.mark.parametrize("name", MORE)
def test_a_peer_hears_of_a_change_when_it_is_stored(name: str) -> None:
    hears, keep = MORE[name]()
    assert not hears()
    keep()
    assert hears()


@pytest.mark.parametrize("site", hold_sites(), ids=str)
def test_a_server_that_forgets_a_single_hold_is_found_out(site: HoldSite) -> None:
    with without(site):
        noticed = next((name for name, scene in scenes().items() if scene()[0]()), "")
    assert bool(noticed) != (str(site) in NOBODY_COULD_HEAR), f"{site} is noticed by {noticed or 'nobody'}"
