"""PyPI's ``gear``, the client and worker library of OpenStack's Zuul."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.gear_peers import (
    admin_answer,
    gear_client,
    gear_worker,
    gear_working,
    new_job,
    wait_for_end,
)
from tests.support.peers import require_gear
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.support.wire import Wire

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:notifyAll:DeprecationWarning"),  # gear 0.16 still calls it so
]

PRECEDENCES = ("PRECEDENCE_LOW", "PRECEDENCE_NORMAL", "PRECEDENCE_HIGH")


def upper(job: Any) -> None:
    job.sendWorkComplete(job.arguments.upper())


def submit(client: Any, job: Any, *, background: bool = False, precedence: str = "PRECEDENCE_NORMAL") -> Any:
    client.submitJob(job, background=background, precedence=getattr(require_gear(), precedence))
    return job


@pytest.mark.parametrize("precedence", PRECEDENCES)
def test_a_foreground_job(server: Server, precedence: str) -> None:
    with gear_client(server) as client, gear_working(server, upper, "upper"):
        job = wait_for_end(submit(client, new_job("upper", b"hello\0there"), precedence=precedence))

    assert (job.data, job.failure, job.warning) == ([b"HELLO\0THERE"], False, False)


def test_background_jobs_run_by_priority(server: Server) -> None:
    with gear_client(server) as client, gear_worker(server, "f") as worker:
        for precedence in PRECEDENCES:
            submit(client, new_job("f", precedence.encode()), background=True, precedence=precedence)
        received = []
        for _ in PRECEDENCES:
            job = worker.getJob()
            received.append(job.arguments)
            job.sendWorkComplete(b"nobody waits")

    assert received == [b"PRECEDENCE_HIGH", b"PRECEDENCE_NORMAL", b"PRECEDENCE_LOW"]


def test_a_worker_reports_on_its_way(server: Server) -> None:
    with gear_client(server) as client, gear_worker(server, "f") as worker:
        job = submit(client, new_job("f", b"x", unique="key"))
        taken = worker.getJob()
        assert (taken.handle, taken.name, taken.arguments, taken.unique) == (job.handle, "f", b"x", b"key")

        taken.sendWorkStatus(1, 4)
        eventually(lambda: job.fraction_complete == 0.25, "the client hears of the progress")
        taken.sendWorkData(b"some")
        taken.sendWorkWarning(b"careful")
        taken.sendWorkData(b"more")
        taken.sendWorkComplete(b"last")
        wait_for_end(job)

    assert job.data == [b"some", b"careful", b"more", b"last"]
    assert (job.numerator, job.denominator) == (b"1", b"4")
    assert (job.warning, job.failure) == (True, False)


def test_a_job_fails(server: Server) -> None:
    with gear_client(server) as client, gear_working(server, lambda job: job.sendWorkFail(), "f"):
        job = wait_for_end(submit(client, new_job("f")))

    assert (job.failure, job.exception) == (True, None)


def test_an_exception_reaches_a_client_that_asked_for_it(server: Server) -> None:
    with gear_client(server) as client, gear_working(server, lambda job: job.sendWorkException(b"it broke"), "f"):
        assert client.setOption("exceptions")
        job = wait_for_end(submit(client, new_job("f")))

    assert (job.failure, job.exception) == (True, b"it broke")


def test_an_exception_is_a_failure_for_others(server: Server) -> None:
    with gear_client(server) as client, gear_working(server, lambda job: job.sendWorkException(b"it broke"), "f"):
        job = wait_for_end(submit(client, new_job("f")))

    assert (job.failure, job.exception) == (True, None)


def test_an_option_that_nobody_knows(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with gear_client(server) as client:
        assert not client.setOption("nonsense")

    assert "UNKNOWN_OPTION" in caplog.text


def test_a_lost_worker_s_job_goes_to_the_next(server: Server) -> None:
    with gear_client(server) as client:
        job = submit(client, new_job("f", b"payload", unique="key"))
        with gear_worker(server, "f", name="lost") as lost:
            lost.getJob().sendWorkStatus(1, 2)
            eventually(lambda: job.fraction_complete == 0.5, "the first worker has begun")
        with gear_worker(server, "f", name="next") as following:
            again = following.getJob()
            assert (again.handle, again.arguments, again.unique) == (job.handle, b"payload", b"key")
            again.sendWorkComplete(b"done")
            wait_for_end(job)

    assert (job.data, job.failure) == ([b"done"], False)


def test_status_of_a_background_job(server: Server) -> None:
    gear = require_gear()
    with gear_client(server) as client, gear_worker(server, "f") as worker:
        job = submit(client, new_job("f"), background=True)

        def state() -> tuple[bool | None, bool | None]:
            client.sendPacket(gear.Packet(gear.constants.REQ, gear.constants.GET_STATUS, job.handle), job.connection)
            return job.known, job.running

        eventually(lambda: state() == (True, False), "the job is known and waits")
        taken = worker.getJob()
        eventually(lambda: state() == (True, True), "the job runs")
        taken.sendWorkStatus(3, 4)
        eventually(lambda: state() == (True, True) and job.fraction_complete == 0.75, "the progress is known")
        taken.sendWorkComplete()
        eventually(lambda: state() == (False, False), "the job is forgotten")


def test_clients_with_one_unique_share_one_job(server: Server) -> None:
    with gear_client(server, "one") as one, gear_client(server, "two") as two, gear_worker(server, "f") as worker:
        first = submit(one, new_job("f", b"x", unique="key"))
        second = submit(two, new_job("f", b"x", unique="key"))
        assert first.handle == second.handle

        worker.getJob().sendWorkComplete(b"for both")
        assert wait_for_end(first).data == wait_for_end(second).data == [b"for both"]


def test_a_sleeping_worker_is_woken_again_and_again(server: Server) -> None:
    with gear_client(server) as client, gear_working(server, upper, "upper"):
        for number in range(20):
            job = wait_for_end(submit(client, new_job("upper", f"job {number}".encode())))
            assert job.data == [f"JOB {number}".encode()]


def test_many_jobs_at_once(server: Server) -> None:
    with gear_client(server) as client, gear_working(server, upper, "upper"), gear_working(server, upper, "upper"):
        jobs = [submit(client, new_job("upper", f"job {number}".encode())) for number in range(60)]
        results = [wait_for_end(job).data for job in jobs]

    assert results == [[f"JOB {number}".encode()] for number in range(60)]


def test_a_large_payload(server: Server) -> None:
    payload = bytes(range(256)) * 4000
    with gear_client(server) as client, gear_working(server, lambda job: job.sendWorkComplete(job.arguments), "copy"):
        job = wait_for_end(submit(client, new_job("copy", payload)))

    assert b"".join(job.data) == payload


def test_functions_come_and_go(server: Server) -> None:
    gear = require_gear()
    with gear_worker(server, "f", "g", name="hand") as worker, Wire(server.address) as admin:
        eventually(lambda: _workers_line(admin, b"hand").endswith(b" hand : g f\n"), "both functions are known")
        worker.unRegisterFunction("f")
        eventually(lambda: _workers_line(admin, b"hand").endswith(b" hand : g\n"), "one function is taken back")
        worker.setFunctions([gear.FunctionRecord(b"h", b"60000"), gear.FunctionRecord(b"i")])
        eventually(lambda: _workers_line(admin, b"hand").endswith(b" hand : i h\n"), "other functions are set")


def _workers_line(admin: Wire, client_id: bytes) -> bytes:
    return next((line for line in admin.ask("workers") if b" %s " % client_id in line), b"")


# --- gear's admin requests ------------------------------------------------------------------------------------


def test_admin_status_and_workers(server: Server) -> None:
    gear = require_gear()
    with gear_client(server) as client, gear_worker(server, "f", name="hand") as worker:
        eventually(lambda: admin_answer(client, gear.StatusAdminRequest()) == b"f\t0\t0\t1\n.\n", "the worker is known")
        submit(client, new_job("f"))
        submit(client, new_job("f"))
        worker.getJob()
        assert admin_answer(client, gear.StatusAdminRequest()) == b"f\t2\t1\t1\n.\n"
        assert b" 127.0.0.1 hand : f\n" in admin_answer(client, gear.WorkersAdminRequest())


def test_admin_listings_of_jobs(server: Server) -> None:
    gear = require_gear()
    with gear_client(server) as client:
        assert admin_answer(client, gear.ShowJobsAdminRequest()) == b".\n"
        job = submit(client, new_job("f", unique="key"))
        assert admin_answer(client, gear.ShowJobsAdminRequest()) == job.handle + b"\t0\t0\t0\n.\n"
        assert admin_answer(client, gear.ShowUniqueJobsAdminRequest()) == b"key\n.\n"


def test_admin_cancels_a_job(server: Server) -> None:
    gear = require_gear()
    with gear_client(server) as client:
        job = submit(client, new_job("f"))
        assert admin_answer(client, gear.CancelJobAdminRequest(b"nobody-knows-this")) == b"ERR UNKNOWN_JOB\r\n"
        assert admin_answer(client, gear.CancelJobAdminRequest(job.handle)) == b"OK\r\n"
        wait_for_end(job)

    assert job.failure


def test_admin_version(server: Server) -> None:
    with gear_client(server) as client:
        assert admin_answer(client, require_gear().VersionAdminRequest()).startswith(b"OK ")
