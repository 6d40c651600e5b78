"""The draft at a real server: beside the modern protocol, through crashes, and with strangers."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from switchgear.client import Client, DraftClient, WorkerJob
from switchgear.client.draft import DraftTask, JobType
from tests.client.background import working as working_modern
from tests.client.draft_faces import KINDS, Kind, url_of, working
from tests.support.draft_wire import (
    ASK,
    HANDLE,
    MAGIC,
    NOOP,
    SLEEP,
    THROW_AWAY,
    WAIT,
    DraftWire,
    ErrorCode,
    Packet,
    complete,
    create,
    numbers,
    packet,
    status,
)
from tests.support.draft_wire import Kind as Draft
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Wire
from tests.system.talk import control, events, run_all, wait_for_line

pytestmark = pytest.mark.system


def connect_worker(server: Server, *names: bytes) -> DraftWire:
    wire = DraftWire(server.address)
    wire.send(packet(Draft.worker_connect, b"\0".join(names or (b"f",))))
    return wire


def store_in(folder: Path) -> str:
    return f"sqlite:{folder / 'jobs.db'}"


# --- one port ---


def test_three_protocols_share_a_port() -> None:
    with running_switchgear() as server, connect_worker(server, b"f", b"g") as worker, Wire(server.address) as modern:
        assert worker.ask(ASK) == NOOP
        worker.send(SLEEP)
        (line,) = [line for line in modern.ask("workers") if b" g" in line]
        assert line.endswith(b"127.0.0.1 - : g f\n")
        eventually(lambda: control(modern, "workers")[0]["asleep"], "the worker sleeps")
        (shown,) = control(modern, "workers")
        assert (shown["protocol"], shown["functions"]) == ("gearman-draft", ["f", "g"])


def test_the_first_bytes_may_come_one_by_one() -> None:
    with running_switchgear() as server, DraftWire(server.address) as peer:
        for byte in ASK:
            peer.send(bytes([byte]))
        assert peer.receive() == NOOP


def test_a_connection_that_stops_after_the_first_bytes_is_harmless() -> None:
    with running_switchgear() as server:
        for count in range(1, 9):
            with DraftWire(server.address) as peer:
                peer.send(ASK[:count])
        with DraftWire(server.address) as peer:
            assert peer.ask(ASK) == NOOP


# --- both protocols in one run ---


@pytest.mark.parametrize("kind", KINDS)
def test_a_modern_client_and_a_worker_of_the_draft(kind: Kind) -> None:
    def handler(task: DraftTask) -> tuple[int, bytes]:
        task.progress(1, 2, 3)
        return (0, task.args[::-1]) if task.args else (9, b"nothing to do")

    with (
        running_switchgear() as server,
        working(kind, [server], {"f": handler}),
        Client(url_of(server)) as client,
    ):
        submission = client.submit("f", b"abc")
        updates = [(update.kind, update.numerator, update.data) for update in submission.updates(DEADLINE_SECONDS)]
        assert updates == [("status", 1, b""), ("complete", 0, b"cba")]
        (failure,) = [update for update in client.submit("f").updates(DEADLINE_SECONDS) if update.kind != "status"]
        assert (failure.kind, failure.data) == ("exception", b"nothing to do")


def test_an_application_of_the_draft_and_a_modern_worker() -> None:
    async def handler(job: WorkerJob) -> bytes:
        job.progress(1, 2)
        job.data(b"one ")
        return b"two"

    with (
        running_switchgear() as server,
        working_modern(url_of(server), {"f": handler}),
        DraftClient(url_of(server)) as client,
    ):
        record = client.submit("f", job_type=JobType.SYNC_WAIT)
        assert list(client.statuses(record, DEADLINE_SECONDS)) == [(1, 2, None)]
        assert record.outcome == (0, b"one two")
        record = client.submit("f")
        assert client.wait(record, DEADLINE_SECONDS, poll_seconds=0.01) == (0, b"one two")


# --- crashes ---


def test_jobs_handles_and_results_survive_a_crash(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with running_switchgear(store=store) as server, DraftWire(server.address) as app, connect_worker(server) as worker:
        done, running, waiting = (app.handle_of(create(b"f", b"%d" % n)) for n in (1, 2, 3))
        assert app.ask(create(b"f", b"4", THROW_AWAY)) == Packet(Draft.job_create_res)
        assert app.ask(create(b"f", b"5", WAIT)) == Packet(Draft.job_create_res)
        assert worker.ask(ASK).body == b"f\0001"
        worker.send(complete(0, b"result"))
        assert worker.ask(ASK).body == b"f\0002"  # so the result is kept
        server.kill()
    with running_switchgear(store=store) as server, DraftWire(server.address) as app:
        assert app.completion(done)[1:] == (0, b"result")
        assert app.completion(running) == app.completion(waiting) == (0, 0, b"")
        with connect_worker(server) as worker:
            for _ in range(3):  # the waited-for job is gone with its application
                payload = worker.ask(ASK).body.partition(b"\0")[2]
                worker.send(complete(int(payload), b"second life"))
            assert worker.ask(ASK) == NOOP
        assert app.completion(running)[1:] == (2, b"second life")
        assert app.completion(waiting)[1:] == (3, b"second life")
        server.kill()
    with running_switchgear(store=store) as server, DraftWire(server.address) as app:
        results = [app.completion(handle)[1:] for handle in (done, running, waiting)]
        assert results == [(0, b"result"), (2, b"second life"), (3, b"second life")]


def test_retries_go_on_after_a_crash(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    flags = ("--set", "engine.attempts=3")
    with running_switchgear(*flags, store=store) as server:
        with DraftWire(server.address) as app:
            handle = app.handle_of(create(b"f", b"x"))
        with connect_worker(server) as worker:  # leaves with its task
            assert worker.ask(ASK).body == b"f\0x"
        with connect_worker(server) as worker:
            eventually(lambda: worker.ask(ASK) == Packet(Draft.job_assign_res, b"f\0x"), "the job is back")
            wait_for_line(server, "requeued: worker lost")
            with DraftWire(server.address) as app:  # its job is kept after that of the attempt
                app.handle_of(create(b"other"))
            server.kill()
    with running_switchgear(*flags, store=store) as server, DraftWire(server.address) as app:
        assert app.completion(handle) == (0, 0, b"")
        with connect_worker(server) as worker:  # the last attempt
            assert worker.ask(ASK).body == b"f\0x"
            server.kill()
    with running_switchgear(*flags, store=store) as server, DraftWire(server.address) as app:
        assert app.completion(handle)[1:] == (255, b"server stopped in attempt 3, the last one")


def test_a_job_is_not_answered_for_before_it_is_kept(tmp_path: Path) -> None:
    """The power goes in the moment of the answer, and every answered job is there afterwards."""
    store = store_in(tmp_path)
    answered: list[Packet | None] = []
    with running_switchgear(store=store) as server, DraftWire(server.address) as app:
        app.send(*(create(b"f", b"%d" % n, random.choice((HANDLE, THROW_AWAY))) for n in range(500)))
        while len(answered) < 100:
            answered.append(app.receive())
        server.kill()
        while (late := app.receive()) is not None:
            answered.append(late)
    with running_switchgear(store=store) as server:
        assert run_all(server, [b"f"])[: len(answered)] == [b"%d" % n for n in range(len(answered))]


# --- strangers ---


def test_strangers_get_their_answer_and_nobody_else_notices() -> None:
    chance = random.Random(2005)
    with running_switchgear() as server, DraftWire(server.address) as app, connect_worker(server) as worker:
        handle = app.handle_of(create(b"f", b"x"))
        assert worker.ask(ASK).kind == Draft.job_assign_res
        for _ in range(20):
            with DraftWire(server.address) as stranger:
                stranger.send(MAGIC + bytes([chance.randrange(15)]) + numbers(0), chance.randbytes(60) + b"xxxx")
                heard = []
                while (answer := stranger.receive()) is not None:
                    heard.append(answer)
                assert all(answer.kind in set(Draft) for answer in heard)
        worker.send(status(1, 2, 3), complete(0, b"done"))
        eventually(lambda: app.completion(handle)[0], "the job is complete")
        assert events(server)["bad_input"] >= 20
        assert "internal_error" not in events(server)


def test_a_packet_that_is_too_large_is_refused_before_it_comes() -> None:
    with running_switchgear("--set", "limits.packet_bytes=1000") as server, DraftWire(server.address) as stranger:
        stranger.send(MAGIC + bytes([Draft.job_create_req]) + numbers(1001))
        answer = stranger.receive()
        assert answer is not None
        assert answer.body == bytes([ErrorCode.too_large]) + b"packet of 1001 bytes, at most 1000 are taken"
        assert stranger.receive() is None


def test_limits_are_reloaded(tmp_path: Path) -> None:
    config = tmp_path / "switchgear.toml"
    config.write_text("[limits]\nname_bytes = 10\n")
    with running_switchgear("--config", str(config)) as server, DraftWire(server.address) as app:
        assert app.ask(create(b"n" * 11)).kind == Draft.error
        config.write_text("[limits]\nname_bytes = 11\n")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: app.ask(create(b"n" * 11)).kind == Draft.job_create_res, "the limit is reloaded")


def test_a_graceful_stop_waits_for_the_task() -> None:
    with running_switchgear() as server, DraftWire(server.address) as app, connect_worker(server) as worker:
        assert app.ask(create(b"f", b"x", WAIT)) == Packet(Draft.job_create_res)
        assert worker.ask(ASK).kind == Draft.job_assign_res
        with Wire(server.address) as admin:
            admin.ask("shutdown graceful")
        eventually(lambda: app.ask(create(b"f")).body[:1] == bytes([ErrorCode.refused]), "it takes no more")
        worker.send(complete(0, b"done"))
        answers = []
        while (answer := app.receive()) is not None:
            answers.append(answer)
        assert answers[-1] == Packet(Draft.job_complete_res, numbers(1) + b"\0done")
        assert server.wait_stopped() == 0
