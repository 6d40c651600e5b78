"""What conversations do not show: stores, restarts, floods, and other people's jobs."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.errors import Refused
from switchgear.model import NORMAL, READY, RUNNING, Delivery, Job, Peer
from switchgear.protocols.wmp.codec import CANCEL, DONE, GIVE, NO, STATUS, TAKE, VERSION, WAKE
from switchgear.protocols.wmp.codec import READY as READY_COMMAND
from switchgear.protocols.wmp.manager import ManagerSession, WmpSetup
from switchgear.testing.simulation.store import Row
from tests.protocols.wmp.harness import MANAGER, WmpHarness, WmpWorker


class Submitter(Peer):
    """Somebody who waits for a job."""

    def __init__(self) -> None:
        super().__init__()
        self.news: list[Any] = []

    def job_finished(self, job: Job) -> None:
        self.news.append((job.state.name, job.result))

    def job_progress(self, job: Job) -> None:
        self.news.append((job.numerator, job.denominator, job.time_left_s))


def test_whoever_waits_for_a_job_hears_how_it_goes() -> None:
    harness = WmpHarness()
    submitter = Submitter()
    harness.engine.submit(b"echo", b"", b"hi", NORMAL, Delivery.WAIT, submitter)
    worker = harness.worker("w1")
    reference = worker.take()
    worker.say(STATUS, job=reference, numerator=1, denominator=2, time_left=9)
    worker.say(STATUS, job=reference)  # only a sign of life
    worker.say(DONE, b"HI", job=reference)
    assert submitter.news == [(1, 2, 9), ("DONE", b"HI")]


def test_names_of_roles_are_bytes_in_any_alphabet_or_none() -> None:
    harness = WmpHarness()
    worker = harness.worker("w1")
    worker.say(READY_COMMAND, roles=[b"\xff\x00", "ü"])
    harness.engine.submit(b"\xff\x00", b"", b"", NORMAL, Delivery.THROW_AWAY)
    harness.turn()
    assert worker.hear_command() == WAKE
    worker.say(GIVE)
    heard = worker.hear()
    assert heard is not None
    assert heard[1]["role"] == b"\xff\x00"


@pytest.mark.parametrize(
    ("identity", "name"),
    [(b"\x00\x80\x00\x41\xa7", b"00800041a7"), (b"a\nb", b"610a62"), (b"worker 1", b"worker 1")],
)
def test_an_identity_that_cannot_be_shown_is_shown_in_hex(identity: bytes, name: bytes) -> None:
    harness = WmpHarness()
    harness.router.send(identity, b"", VERSION, READY_COMMAND, b"\x81\xa5roles\x91\xa1f")
    (worker,) = harness.engine.workers.values()
    assert worker.name == name


@pytest.mark.parametrize("identity", [b"", b"x" * 256])
def test_a_manager_has_an_identity(identity: bytes) -> None:
    harness = WmpHarness()
    with pytest.raises(ValueError, match="identity"):
        harness.listener(lambda context, transport: ManagerSession(context, transport, WmpSetup(identity)))


def test_the_submitter_s_own_time_limit_is_not_put_off_by_status() -> None:
    harness = WmpHarness()
    job = harness.submit("echo", delivery=Delivery.HANDLE)
    job.timeout_us = 3_000_000
    job.has_details = True
    worker = harness.worker("w1")
    reference = worker.take(lease=2)
    harness.pass_time(2)
    worker.say(STATUS, job=reference)
    harness.pass_time(1)
    assert worker.hear_command() == CANCEL
    assert job.state is READY


def test_nothing_is_handed_out_of_a_paused_function_or_a_server_that_stops() -> None:
    harness = WmpHarness()
    harness.submit("echo")
    function = harness.engine.functions[b"echo"]
    harness.engine.pause(function)
    worker = harness.worker("w1")
    worker.say(READY_COMMAND, roles=["echo"])
    assert worker.hear() is None
    harness.engine.resume(function)
    harness.turn()
    assert worker.hear_command() == WAKE
    harness.engine.drain()
    worker.say(GIVE)
    assert worker.hear_command() == NO


# --- a store ---


def test_the_last_attempt_is_remembered_before_the_job_is_sent() -> None:
    harness = WmpHarness(keeps=True, settings=EngineSettings(attempts=1))
    job = harness.submit("echo", b"hi", Delivery.HANDLE)
    harness.keep()
    worker = harness.worker("w1")
    worker.say(READY_COMMAND, roles=["echo"])
    assert worker.hear_command() == WAKE
    worker.say(GIVE)
    assert worker.hear() is None
    other = harness.worker("w2")
    other.say(GIVE)
    assert other.hear_command() == NO  # nobody else waits for that
    harness.keep()
    assert worker.hear_command() == TAKE
    assert job.state is RUNNING


def waits_for_last_attempt(harness: WmpHarness, name: str) -> tuple[WmpWorker, Job]:
    """A worker that will be sent a job as soon as it is kept that this is the last attempt."""
    job = harness.submit("echo", b"hi", Delivery.HANDLE)
    harness.keep()
    worker = harness.worker(name)
    worker.say(GIVE, roles=["echo"])
    assert worker.hear() is None
    return worker, job


@pytest.mark.parametrize("name", ["w1", "d1/w1"])
def test_a_job_that_is_cancelled_before_it_was_sent_is_not_sent(name: str) -> None:
    harness = WmpHarness(keeps=True, settings=EngineSettings(attempts=1, jobs_per_worker=1))
    worker, job = waits_for_last_attempt(harness, name)
    harness.cancel(job)
    assert worker.hear() is None
    harness.keep()
    assert worker.hear() == (NO, {}, None)
    assert worker.hear() is None
    assert harness.manager.paths.idle  # it holds nothing
    worker, _ = waits_for_last_attempt(harness, name)
    harness.keep()
    assert worker.hear_command() == TAKE  # nor does the other one take its place


def test_nor_while_it_is_being_written_down() -> None:
    harness = WmpHarness(keeps=True, settings=EngineSettings(attempts=1))
    worker, job = waits_for_last_attempt(harness, "w1")
    harness.manager.hold()
    harness.cancel(job)
    harness.manager.unhold()
    harness.keep()
    assert worker.hear_command() == NO
    assert worker.hear() is None


def test_other_jobs_that_wait_for_the_store_are_sent() -> None:
    harness = WmpHarness(keeps=True, settings=EngineSettings(attempts=1))
    jobs = [harness.submit("echo", b"%d" % number, Delivery.HANDLE) for number in range(3)]
    harness.keep()
    worker = harness.worker("w1")
    for _ in jobs:
        worker.say(GIVE, roles=["echo"])
    harness.cancel(jobs[1])
    harness.keep()
    assert [worker.hear_command() for _ in jobs] == [TAKE, NO, TAKE]
    assert [job.state for job in (jobs[0], jobs[2])] == [RUNNING, RUNNING]


def test_a_job_whose_payload_is_lost_fails_and_its_worker_is_told_no() -> None:
    harness = WmpHarness(keeps=True)
    job = harness.submit("echo", b"hi", Delivery.HANDLE)
    job.payload = None
    worker = harness.worker("w1")
    worker.say(GIVE, roles=["echo"])
    assert worker.hear_command() == NO
    assert job.state.name == "FAILED"
    assert harness.manager.paths.idle  # it holds nothing


def test_a_job_whose_payload_cannot_be_read_now_is_not_spent() -> None:
    harness = WmpHarness(keeps=True)
    job = harness.submit("echo", b"hi", Delivery.HANDLE)
    job.payload = None
    harness.read_error = Refused("storage", "the disk does not answer")
    worker = harness.worker("w1")
    worker.say(GIVE, roles=["echo"])
    assert worker.hear_command() == NO
    assert (job.state, job.attempts) == (READY, 0)


def test_a_reference_from_before_a_restart_means_nothing_after_it() -> None:
    """A server without a store numbers its jobs from 1 again, and the worker may have one of the same number."""
    before = WmpHarness()
    before.submit("echo", b"old")
    old = before.worker("w1").take()
    after = WmpHarness()
    after.pass_time(0.1)
    job = after.submit("echo", b"new")
    worker = after.worker("w1")
    new = worker.take()
    assert old.partition(b".")[0] == new.partition(b".")[0]
    worker.say(DONE, b"result of the old one", job=old)
    assert after.take_bad_input() == ["NOT_YOUR_JOB"]
    assert job.state is RUNNING


def test_after_a_crash_the_result_of_a_job_from_before_it_is_taken() -> None:
    before = WmpHarness(keeps=True)
    before.submit("echo", b"hi", Delivery.HANDLE)
    before.keep()
    worker = before.worker("w1")
    worker.say(GIVE, roles=["echo"])
    before.keep()
    heard = worker.hear()
    assert heard is not None
    after = WmpHarness(keeps=True)
    after.pass_time(1)
    (lost,) = before.engine.jobs.values()
    job = Row(lost).to_job(after.engine.function_named(b"echo"))
    after.engine.restore([job], {}, before.engine.next_job_id)
    after.submitted.append(job)
    other = after.worker("w1")
    other.say(DONE, b"done before", job=heard[1]["job"][:-1] + b"2")
    assert after.take_bad_input() == ["NOT_YOUR_JOB"]
    other.say(DONE, b"done before", job=heard[1]["job"])
    assert after.take_bad_input() == []
    assert (job.state.name, job.result) == ("DONE", b"done before")


# --- workers that are gone ---


def test_an_idle_worker_is_gone_with_its_connection() -> None:
    harness = WmpHarness()
    harness.worker("w1").say(READY_COMMAND, roles=["echo"])
    assert len(harness.engine.functions[b"echo"].workers) == 1
    harness.manager.peer_gone(b"w1")
    assert not harness.engine.functions[b"echo"].workers
    assert not harness.engine.workers


def test_a_worker_with_a_job_is_no_worker_any_more_and_keeps_its_job_for_the_lease() -> None:
    harness = WmpHarness(timeout=10)
    job = harness.submit("echo")
    worker = harness.worker("w1")
    reference = worker.take()
    harness.manager.peer_gone(b"w1")
    assert not harness.engine.functions[b"echo"].workers
    assert job.state is RUNNING
    worker.say(DONE, b"on another connection", job=reference)
    assert (job.state.name, job.result) == ("DONE", b"on another connection")


def test_when_its_lease_is_over_nothing_is_left_of_it() -> None:
    harness = WmpHarness(timeout=10)
    job = harness.submit("echo")
    harness.worker("w1").take()
    harness.manager.peer_gone(b"w1")
    harness.pass_time(10)
    harness.turn()
    assert job.state.name == "READY"
    assert not harness.engine.workers
    assert not harness.manager.paths.by_path


def test_if_it_comes_back_it_is_a_worker_again() -> None:
    harness = WmpHarness(timeout=10)
    harness.submit("echo")
    worker = harness.worker("w1")
    reference = worker.take()
    harness.manager.peer_gone(b"w1")
    worker.say(READY_COMMAND, roles=["echo"])
    assert len(harness.engine.functions[b"echo"].workers) == 1
    worker.say(DONE, job=reference)
    assert len(harness.engine.functions[b"echo"].workers) == 1


def test_the_job_of_a_worker_that_cannot_come_back_goes_to_another_at_once() -> None:
    harness = WmpHarness()
    job = harness.submit("echo")
    worker = WmpWorker(harness, b"\0given")
    worker.take()
    harness.manager.peer_gone(b"\0given")
    assert job.state.name == "READY"
    assert not harness.engine.workers


def test_behind_a_device_an_idle_worker_that_says_nothing_for_minutes_is_dropped() -> None:
    harness = WmpHarness()
    silent, talking, direct = (harness.worker(name) for name in ("d1/w1", "d1/w2", "w3"))
    for worker in (silent, talking, direct):
        worker.say(READY_COMMAND, roles=["echo"])
    harness.pass_time(299)
    talking.say(READY_COMMAND, roles=["echo"])
    harness.pass_time(1)
    assert {way.path for way in harness.manager.paths.by_path.values()} == {(b"d1", b"w2"), (b"w3",)}
    assert len(harness.engine.functions[b"echo"].workers) == 2


def test_behind_a_device_a_worker_with_a_job_is_not_dropped_for_its_silence() -> None:
    harness = WmpHarness(timeout=0)
    job = harness.submit("echo")
    worker = harness.worker("d1/w1")
    reference = worker.take()
    harness.pass_time(3600)
    assert job.state is RUNNING
    worker.say(DONE, job=reference)
    harness.pass_time(299)
    assert harness.engine.workers
    harness.pass_time(1)
    assert not harness.engine.workers


def test_references_are_never_used_twice_even_when_the_clock_goes_back() -> None:
    harness = WmpHarness(settings=EngineSettings(attempts=0))
    harness.submit("echo")
    worker = harness.worker("w1")
    references = []
    for _ in range(20):
        references.append(worker.take())
        worker.say(DONE, job=references[-1], status="returned")
        harness.engine.clock_moved(-1_000_000)
    assert len(set(references)) == 20


# --- bounds ---


def test_made_up_paths_take_a_bounded_number_of_places() -> None:
    harness = WmpHarness(paths=50)
    harness.submit("work")
    busy = harness.worker("busy")
    reference = busy.take("work")
    for number in range(500):
        harness.router.session.receive_message(harness.worker(f"liar/{number}").message(READY_COMMAND, roles=["echo"]))
    harness.turn()
    assert len(harness.manager.paths.by_path) == len(harness.engine.workers) == 50
    assert len(harness.engine.functions[b"echo"].sleepers) == 49
    busy.say(DONE, job=reference)
    assert harness.take_bad_input() == []


def test_made_up_paths_push_out_only_those_of_the_same_neighbour() -> None:
    harness = WmpHarness(paths=50)
    honest = [harness.worker(f"w{number}") for number in range(10)]
    honest += [harness.worker(f"device/w{number}") for number in range(10)]
    for worker in honest:
        worker.say(READY_COMMAND, roles=["work"])
    for number in range(200):
        harness.worker(f"liar/{number}").say(READY_COMMAND, roles=["echo"])
    assert len(harness.manager.paths.by_path) == 50
    assert all(worker.path in harness.manager.paths.by_path for worker in honest)
    assert (b"liar", b"199") in harness.manager.paths.by_path
    assert (b"liar", b"169") not in harness.manager.paths.by_path


def test_one_device_may_have_all_the_room_that_others_do_not_need() -> None:
    harness = WmpHarness(paths=10)
    for number in range(20):
        harness.worker(f"device/{number}").say(READY_COMMAND, roles=["echo"])
    assert [path[1] for path in harness.manager.paths.by_path] == [b"%d" % number for number in range(10, 20)]
    harness.worker("w1").say(READY_COMMAND, roles=["echo"])
    assert [path[-1] for path in harness.manager.paths.by_path] == [b"%d" % number for number in range(11, 20)] + [
        b"w1"
    ]


def test_a_neighbour_counts_with_the_paths_that_hold_no_job() -> None:
    harness = WmpHarness(paths=7)
    for number in range(4):
        harness.submit("work")
        harness.worker(f"device/{number}").take("work")
    for name in ("w1", "liar/1", "liar/2", "w2"):
        harness.worker(name).say(READY_COMMAND, roles=["echo"])
    assert list(harness.manager.paths.by_path)[-3:] == [(b"w1",), (b"liar", b"2"), (b"w2",)]


def test_made_up_headers_take_a_bounded_number_of_bytes() -> None:
    harness = WmpHarness()
    harness.manager.paths.most_bytes = 30_000
    for number in range(50):
        harness.worker(f"w{number % 20}").say(READY_COMMAND, roles=["echo"], talk="x" * (number * 50))
        ways = harness.manager.paths.by_path.values()
        said = sum(len(way.said) for way in ways)
        assert said < sum(way.kept_bytes for way in ways) == harness.manager.paths.kept_bytes <= 30_000
    harness.worker("w9").say(READY_COMMAND, roles=["echo"], talk="x" * 30_000)
    assert harness.take_bad_input() == ["FULL"]
    assert len(harness.manager.paths.by_path) == 1  # that one, as it was before
    harness.worker("w9").say(GIVE, roles=["echo", *(f"a{number}" for number in range(100))])
    assert harness.take_bad_input() == ["FULL"]
    harness.worker("w8").say(READY_COMMAND, roles=["echo"], talk="x" * 14_000)
    harness.worker("w8").say(READY_COMMAND, roles=["echo"])
    assert harness.manager.paths.kept_bytes < 2_000


@pytest.mark.parametrize(
    "talk",
    [[[]] * 60_000, [{}] * 60_000, [{"": 0}] * 20_000, [1.5] * 7_000, ["ab"] * 20_000, "\U0001f600" + "x" * 60_000],
    ids=["arrays", "maps", "small maps", "numbers", "words", "wide text"],
)
def test_headers_count_as_what_they_take_in_memory(talk: Any) -> None:
    harness = WmpHarness()
    worker = harness.worker("w1")
    message = worker.message(READY_COMMAND, roles=["echo"], talk=talk)
    tracemalloc.start()
    try:
        harness.router.send(*message)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert harness.manager.paths.kept_bytes > 0.9 * (taken - 20_000)


def test_so_do_the_roles_that_a_worker_restricts_itself_to() -> None:
    harness = WmpHarness()
    worker = harness.worker("w1")
    worker.say(READY_COMMAND, roles=["echo"])
    before = harness.manager.paths.kept_bytes
    roles = [f"a{number}" for number in range(500)]
    worker.say(GIVE, roles=roles)
    after = harness.manager.paths.kept_bytes
    assert after - before > 500 * 300
    worker.say(READY_COMMAND)  # it still can do these
    assert harness.manager.paths.kept_bytes > 500 * 300
    worker.say(READY_COMMAND, roles=["echo"])
    assert harness.manager.paths.kept_bytes == before


def test_of_the_jobs_that_workers_lost_the_last_are_remembered() -> None:
    harness = WmpHarness(timeout=10)
    harness.engine.lost_starts.most = 2
    jobs = [harness.submit("echo") for _ in range(3)]
    worker = harness.worker("w1")
    references = [worker.take() for _ in jobs]
    harness.pass_time(10)
    assert [worker.hear_command() for _ in jobs] == [CANCEL] * 3
    for reference in references:
        worker.say(DONE, b"late", job=reference)
    assert [job.state.name for job in jobs] == ["READY", "DONE", "DONE"]
    assert harness.take_bad_input() == ["NOT_YOUR_JOB"]
    assert not len(harness.engine.lost_starts)


def test_a_thousand_roles_may_change_while_the_worker_is_remembered() -> None:
    harness = WmpHarness()
    worker = harness.worker("w1")
    worker.say(READY_COMMAND, roles=[f"a{number}" for number in range(1000)])
    worker.say(READY_COMMAND, roles=[f"a{number}" for number in range(500, 1500)])
    harness.submit("a1499")
    assert worker.hear_command() == WAKE
    harness.submit("a499")
    worker.say(GIVE)
    heard = worker.hear()
    assert heard is not None
    assert heard[1]["role"] == "a1499"
    worker.say(GIVE)
    assert worker.hear_command() == NO


@pytest.mark.parametrize("promise", [{}, {"lease": 5}])
def test_a_worker_keeps_the_job_of_a_role_that_it_gives_up_for_as_long_as_it_speaks_of_it(promise: Any) -> None:
    """A worker that has room left for small jobs only says so, and goes on with the big one."""
    harness = WmpHarness(timeout=0)
    job = harness.submit("big")
    worker = harness.worker("w1")
    reference = worker.take("big", "small", lease=5)
    worker.say(READY_COMMAND, roles=["small"], **promise)
    for _ in range(10):
        harness.pass_time(4)
        worker.say(STATUS, job=reference)
    worker.say(DONE, b"x", job=reference)
    assert (job.result, job.attempts) == (b"x", 1)


def test_a_worker_that_can_do_nothing_there_is_room_for_is_not_taken() -> None:
    harness = WmpHarness(settings=EngineSettings(functions=1))
    harness.submit("echo")
    harness.worker("w1").say(READY_COMMAND, roles=["shout", "sing"])
    assert harness.take_bad_input() == ["REFUSED"]
    assert not harness.engine.workers


def test_a_cancelled_job_takes_its_place_at_the_worker_until_the_worker_has_stopped() -> None:
    harness = WmpHarness(settings=EngineSettings(jobs_per_worker=1))
    job, _ = harness.submit("echo"), harness.submit("echo")
    worker = harness.worker("w1")
    reference = worker.take()
    harness.cancel(job)
    assert worker.hear_command() == CANCEL
    worker.say(GIVE)
    assert worker.hear_command() == NO
    worker.say(DONE, job=reference, status="cancelled")
    worker.say(GIVE)
    assert worker.hear_command() == TAKE


def test_what_is_sent_names_the_manager_as_origin() -> None:
    harness = WmpHarness()
    harness.submit("echo", b"hi")
    harness.router.send(*harness.worker("d1/w1").message(GIVE, roles=["echo"]))
    ((peer, delimiter, version, command, headers, payload),) = harness.router.heard_by_all()
    assert [peer, delimiter, version, command, payload] == [b"d1", b"", VERSION, TAKE, b"hi"]
    assert b"\xa2to\x91\xc4\x02w1" in headers
    assert b"\xa4path\x91\xc4\x09" + MANAGER in headers
