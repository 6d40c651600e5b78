"""Debian's ``gearman`` as client and worker, and ``gearadmin``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.interop.gearman_tools import (
    gearadmin,
    gearman,
    gearman_beside,
    gearman_worker,
)
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire

pytestmark = pytest.mark.interop

UPPER_CASE = ("tr", "a-z", "A-Z")


def appending_to(file: Path) -> tuple[str, ...]:
    """A worker's command that writes each job's payload as a line."""
    return ("sh", "-c", f"cat >> {shlex.quote(str(file))}; echo >> {shlex.quote(str(file))}")


# --- client and worker ----------------------------------------------------------------------------------------


def test_a_job_from_arguments(server: Server) -> None:
    with gearman_worker(server, "upper", *UPPER_CASE):
        done = gearman(server, "-f", "upper", "hello")

    assert (done.returncode, done.stdout) == (0, b"HELLO")


def test_each_argument_is_a_job(server: Server) -> None:
    with gearman_worker(server, "upper", *UPPER_CASE):
        done = gearman(server, "-f", "upper", "-P", "hello", "world")

    assert done.stdout == b"upper: HELLOupper: WORLD"


@pytest.mark.parametrize("priority", [(), ("-I",), ("-L",)], ids=["normal", "high", "low"])
def test_a_job_from_standard_input_at_every_priority(server: Server, priority: tuple[str, ...]) -> None:
    with gearman_worker(server, "upper", *UPPER_CASE):
        done = gearman(server, "-f", "upper", *priority, stdin=b"from stdin\n")

    assert (done.returncode, done.stdout) == (0, b"FROM STDIN\n")


def test_a_job_per_line(server: Server) -> None:
    with gearman_worker(server, "upper", *UPPER_CASE):
        kept = gearman(server, "-f", "upper", "-n", stdin=b"one\ntwo\n")
        stripped = gearman(server, "-f", "upper", "-N", stdin=b"one\ntwo\n")

    assert kept.stdout == b"ONE\nTWO\n"
    assert stripped.stdout == b"ONETWO"


def test_a_job_without_payload(server: Server) -> None:
    with gearman_worker(server, "count", "wc", "-c"):
        done = gearman(server, "-f", "count", "-s")

    assert (done.returncode, done.stdout.strip()) == (0, b"0")


def test_bytes_of_all_kinds_there_and_back(server: Server) -> None:
    """No more than a pipe holds: the command reads from its child only after it has written everything."""
    payload = bytes(range(256)) * 200
    with gearman_worker(server, "copy", "cat"):
        done = gearman(server, "-f", "copy", stdin=payload)

    assert done.stdout == payload


def test_half_a_megabyte_there_and_half_a_megabyte_back(server: Server) -> None:
    """The command itself gets slow with the square of the size."""
    size = 500_000
    with gearman_worker(server, "count", "wc", "-c"):
        assert gearman(server, "-f", "count", stdin=bytes(size)).stdout.strip() == b"%d" % size
    with gearman_worker(server, "make", "head", "-c", str(size), "/dev/zero"):
        assert gearman(server, "-f", "make", "-s").stdout == bytes(size)


def test_two_functions_at_once(server: Server) -> None:
    with gearman_worker(server, "upper", *UPPER_CASE), gearman_worker(server, "copy", "cat"):
        done = gearman(server, "-f", "upper", "-f", "copy", "hello")

    assert done.stdout in (b"HELLOhello", b"helloHELLO")


def test_a_worker_that_sends_its_data_by_lines(server: Server) -> None:
    """The command sends each line as WORK_DATA and the last ones again as the result: its own affair."""
    with gearman_worker(server, "lines", "cat", options=("-n",)):
        with_newlines = gearman(server, "-f", "lines", stdin=b"one\ntwo\n")
    with gearman_worker(server, "lines", "cat", options=("-N",)):
        without = gearman(server, "-f", "lines", stdin=b"one\ntwo\n")

    assert with_newlines.stdout == b"one\none\ntwo\n"
    assert without.stdout == b"oneone\ntwo"


def test_a_command_that_fails_fails_the_job(server: Server) -> None:
    with gearman_worker(server, "fails", "false"):
        done = gearman(server, "-f", "fails", "x")

    assert done.returncode == 1
    assert b"Job failed" in done.stdout + done.stderr


def test_a_client_that_gives_up_leaves_no_work(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Wire(server.address) as admin:
        done = gearman(server, "-f", "log", "-t", "50", "given up")
        assert b"GEARMAN_TIMEOUT" in done.stderr
        eventually(lambda: len(admin.ask("workers")) == 2, "the server notices that the client left")

        with gearman_worker(server, "log", *appending_to(log)):
            assert gearman(server, "-f", "log", "wanted").returncode == 0

    assert log.read_text() == "wanted\n"


def test_a_background_job_waits_for_its_worker(server: Server, tmp_path: Path) -> None:
    created = gearman(server, "-f", "log", "-b", "-v", "in the background")
    assert re.search(rb"Task created: H:\S+:\d+", created.stdout + created.stderr)
    assert gearadmin(server, "--status") == b"log\t1\t0\t0\n.\n"

    with gearman_worker(server, "log", *appending_to(tmp_path / "log"), options=("-c", "1")) as worker:
        worker.result()

    assert (tmp_path / "log").read_text() == "in the background\n"


def test_priorities_decide_the_order(server: Server, tmp_path: Path) -> None:
    for options, payload in (("-L", "low"), ("-v", "normal"), ("-I", "high")):
        gearman(server, "-f", "log", "-b", options, payload)
    assert gearadmin(server, "--priority-status") == b"log\t1\t1\t1\t0\n.\n"

    with gearman_worker(server, "log", *appending_to(tmp_path / "log"), options=("-c", "3")) as worker:
        worker.result()

    assert (tmp_path / "log").read_text() == "high\nnormal\nlow\n"


def test_clients_with_one_unique_key_share_one_job(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        Wire(server.address) as admin,
        gearman_beside(server, "-f", "share", "-u", "key", "payload") as one,
        gearman_beside(server, "-f", "share", "-u", "key", "payload") as two,
    ):
        admin_says_two_wait = b"key\x001\x000\x000\x000\x002"
        eventually(lambda: _unique_status(admin, b"key") == admin_says_two_wait, "both clients wait")
        assert gearadmin(server, "--show-unique-jobs") == b"key\n.\n"
        command = ("sh", "-c", f"echo ran >> {shlex.quote(str(log))}; echo result")
        with gearman_worker(server, "share", *command):
            assert one.result() == b"result\n"
            assert two.result() == b"result\n"

    assert log.read_text() == "ran\n"


def _unique_status(admin: Wire, unique: bytes) -> bytes:
    admin.send(Kind.GET_STATUS_UNIQUE, unique)
    return admin.receive_packet().body


def test_a_killed_worker_s_job_goes_to_the_next(server: Server, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with gearman_beside(server, "-f", "slow", "payload") as client:
        with gearman_worker(server, "slow", "sh", "-c", f"touch {shlex.quote(str(started))}; sleep 1000") as lost:
            eventually(started.exists, "the first worker has begun")
            lost.kill()
        with gearman_worker(server, "slow", "cat"):
            assert client.result() == b"payload"


def test_a_sleeping_worker_is_woken_again_and_again(server: Server) -> None:
    with gearman_worker(server, "copy", "cat"):
        for number in range(20):
            assert gearman(server, "-f", "copy", f"job {number}").stdout == f"job {number}".encode()


def test_three_workers_share_thirty_jobs(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = appending_to(log)
    lines = [f"job {number}" for number in range(30)]
    with (
        gearman_worker(server, "log", *command),
        gearman_worker(server, "log", *command),
        gearman_worker(server, "log", *command),
    ):
        done = gearman(server, "-f", "log", "-N", stdin="".join(f"{line}\n" for line in lines).encode())

    assert done.returncode == 0
    assert sorted(log.read_text().split("\n")[:-1]) == sorted(lines)


# --- gearadmin ------------------------------------------------------------------------------------------------


def test_gearadmin_asks_who_the_server_is(server: Server) -> None:
    assert gearadmin(server, "--getpid") == b"%d\n" % server.pid
    assert re.fullmatch(rb"\S*\d+(\.\d+)+\S*\n", gearadmin(server, "--server-version"))
    assert gearadmin(server, "--server-verbose").strip() in (b"FATAL", b"ERROR", b"WARNING", b"NOTICE", b"INFO")


def test_gearadmin_of_an_idle_server(server: Server) -> None:
    for listing in ("--status", "--priority-status", "--show-jobs", "--show-unique-jobs"):
        assert gearadmin(server, listing) == b".\n"


def test_gearadmin_lists_jobs_and_workers(server: Server) -> None:
    gearman(server, "-f", "f", "-b", "-u", "first", "x")
    gearman(server, "-f", "f", "-b", "-I", "-u", "second", "x")
    gearman(server, "-f", "g", "-b", "-L", "-u", "third", "x")

    assert _listing(server, "--status") == {b"f\t2\t0\t0", b"g\t1\t0\t0"}
    assert _listing(server, "--priority-status") == {b"f\t1\t1\t0\t0", b"g\t0\t0\t1\t0"}
    assert _listing(server, "--show-unique-jobs") == {b"first", b"second", b"third"}
    jobs = _listing(server, "--show-jobs")
    assert len(jobs) == 3
    assert all(re.fullmatch(rb"H:\S+:\d+\t0\t0\t[01]", job) for job in jobs)

    with gearman_worker(server, "idle", "cat"):
        workers = _listing(server, "--workers")
    assert any(re.fullmatch(rb"\d+ 127\.0\.0\.1 \S+ : idle", worker) for worker in workers), workers


def test_gearadmin_cancels_a_job(server: Server) -> None:
    assert gearadmin(server, "--cancel-job", "nobody-knows-this") == b"Error: UNKNOWN_JOB\r\n"

    with gearman_beside(server, "-f", "f", "payload") as client:
        handle = eventually(lambda: _only_handle(server), "the job is listed")
        assert gearadmin(server, "--cancel-job", handle) == b"OK\n"
        client.process.wait(10)
        assert client.process.returncode == 1, "the client was told that its job failed"


def _only_handle(server: Server) -> str:
    return gearadmin(server, "--show-jobs").partition(b"\t")[0].decode() if _listing(server, "--show-jobs") else ""


def test_gearadmin_creates_and_drops_functions(server: Server) -> None:
    assert gearadmin(server, "--create-function", "resize") == b"OK\n"
    assert gearadmin(server, "--status") == b"resize\t0\t0\t0\n.\n"
    assert gearadmin(server, "--drop-function", "resize") == b"OK\n"
    assert gearadmin(server, "--status") == b".\n"
    assert gearadmin(server, "--drop-function", "resize") == b"Error: function not found\r\n"

    with gearman_worker(server, "busy", "cat"):
        refused = gearadmin(server, "--drop-function", "busy")
    assert refused == b"Error: there are still connected workers or executing clients\r\n"


def _listing(server: Server, option: str) -> set[bytes]:
    *lines, end = gearadmin(server, option).splitlines()
    assert end == b"."
    return set(lines)


# --- only ours ------------------------------------------------------------------------------------------------


def test_a_background_job_survives_a_power_cut(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear(store=store) as first:
        assert gearman(first, "-f", "log", "-b", "-u", "key", "payload").returncode == 0
        first.kill()

    with running_switchgear(store=store) as second:
        assert gearadmin(second, "--show-unique-jobs") == b"key\n.\n"
        with gearman_worker(second, "log", *appending_to(tmp_path / "log"), options=("-c", "1")) as worker:
            worker.result()
        assert gearadmin(second, "--show-jobs") == b".\n"

    assert (tmp_path / "log").read_text() == "payload\n"
