"""gearmand's protocol module `http`: the same requests to gearmand and to `switchgear gearmand`, and the same answers.

gearmand is the control. Answers in which it has a fault (it writes over its own head, cuts the handle, closes without
an answer) are asserted for `switchgear gearmand` alone.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.servers import HOST, Server, free_port, running_gearmand, running_switchgear_as_gearmand
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind, Packet, Wire

pytestmark = pytest.mark.interop


@dataclass
class HttpServer:
    """A server with both ports."""

    server: Server
    port: int
    is_control: bool

    def worker(self, *functions: bytes) -> Wire:
        wire = Wire(self.server.address)
        for function in functions:
            wire.send(Kind.CAN_DO, function)
        wire.receive_until_fence()
        return wire


@dataclass
class HttpReply:
    """One answer, and whether the server closed the connection after it."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_closed: bool


class Submission:
    """One request on a connection of its own."""

    def __init__(self, server: HttpServer, method: str, target: str, body: bytes = b"", **headers: str) -> None:
        self.server = server
        self.connection = http.client.HTTPConnection(HOST, server.port, timeout=DEADLINE_SECONDS)
        words = {f"X-Gearman-{name.capitalize()}": value for name, value in headers.items()}
        self.connection.request(method, target, body if method in ("POST", "PUT") else None, words)

    def reply(self) -> HttpReply:
        plain = self.connection.sock
        assert isinstance(plain, socket.socket)
        response = self.connection.getresponse()
        body = response.read()
        reply = HttpReply(response.status, dict(response.getheaders()), body, response.will_close)
        self.connection.close()
        return reply


@pytest.fixture(scope="module", params=["gearmand", "switchgear gearmand"])
def server(request: pytest.FixtureRequest) -> Iterator[HttpServer]:
    is_control = request.param == "gearmand"
    running = running_gearmand if is_control else running_switchgear_as_gearmand
    port = free_port()
    with running("--protocol=http", f"--http-port={port}") as started:
        eventually(lambda: is_listening(port), "the HTTP port is open")
        yield HttpServer(started, port, is_control)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def grab(worker: Wire) -> list[bytes]:
    """Handle, function, unique key and payload of the next job, when there is one."""
    while True:
        worker.send(Kind.GRAB_JOB_UNIQ)
        [answer] = worker.receive_until_fence()
        assert isinstance(answer, Packet)
        if answer.type == Kind.JOB_ASSIGN_UNIQ:
            return answer.body.split(b"\0", 3)
        worker.send(Kind.PRE_SLEEP)
        assert worker.receive_packet().type == Kind.NOOP


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
def test_a_job_and_its_result(server: HttpServer, method: str) -> None:
    with server.worker(b"up") as worker:
        submission = Submission(server, method, "/up", b"hello")
        handle, function, unique, payload = grab(worker)
        worker.send(Kind.WORK_COMPLETE, handle, payload.upper() + b"!")
        reply = submission.reply()
    assert (function, unique) == (b"up", b"-")
    assert payload == (b"" if method == "GET" else b"hello")
    assert (reply.status, reply.body, reply.is_closed) == (200, payload.upper() + b"!", True)
    assert reply.headers["X-Gearman-Job-Handle"] == handle.decode()
    assert reply.headers["X-Gearman-Command"] == "WORK_COMPLETE"


def test_a_head_request_runs_the_job_too(server: HttpServer) -> None:
    with server.worker(b"up") as worker:
        submission = Submission(server, "HEAD", "/up")
        handle = grab(worker)[0]
        worker.send(Kind.WORK_COMPLETE, handle, b"result")
        reply = submission.reply()
    assert (reply.status, reply.headers["Content-Length"], reply.headers["X-Gearman-Job-Handle"]) == (
        200,
        "6",
        handle.decode(),
    )


def test_a_background_job(server: HttpServer) -> None:
    with server.worker(b"later") as worker:
        reply = Submission(server, "POST", "/later", b"x", background="true").reply()
        assert (reply.status, reply.body, reply.headers["X-Gearman-Command"]) == (200, b"", "JOB_CREATED")
        handle = grab(worker)[0]
        worker.send(Kind.WORK_COMPLETE, handle, b"")
        worker.receive_until_fence()
    assert reply.headers["X-Gearman-Job-Handle"] == handle.decode()


def test_keys_and_priorities(server: HttpServer) -> None:
    for word, unique in (("low", "a"), ("", "b"), ("high", "c")):
        Submission(server, "POST", "/order", b"x", background="true", unique=unique, priority=word).reply()
    again = Submission(server, "POST", "/order", b"y", background="true", unique="a").reply()
    with server.worker(b"order") as worker:
        jobs = [grab(worker) for _ in range(3)]
        for job in jobs:
            worker.send(Kind.WORK_COMPLETE, job[0], b"")
        worker.receive_until_fence()
    assert [job[2] for job in jobs] == [b"c", b"b", b"a"]
    assert again.headers["X-Gearman-Job-Handle"] == jobs[2][0].decode()


def test_a_failed_job(server: HttpServer) -> None:
    with server.worker(b"fail") as worker:
        submission = Submission(server, "POST", "/fail", b"x")
        handle = grab(worker)[0]
        worker.send(Kind.WORK_FAIL, handle)
        reply = submission.reply()
    assert (reply.status, reply.body, reply.headers["X-Gearman-Command"]) == (200, b"", "WORK_FAIL")
    told = reply.headers["X-Gearman-Job-Handle"]
    assert handle.decode().startswith(told)  # gearmand leaves out the last digit
    assert server.is_control or told == handle.decode()


@pytest.mark.parametrize("target", ["///name", "/a%20b", "/a?b=c"])
def test_the_name_is_the_target_without_its_slashes(server: HttpServer, target: str) -> None:
    name = target.lstrip("/").encode()
    Submission(server, "POST", target, b"x", background="true").reply()
    with server.worker(name) as worker:
        handle, function, _, _ = grab(worker)
        worker.send(Kind.WORK_COMPLETE, handle, b"")
        worker.receive_until_fence()
    assert function == name


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_request_without_a_function(server: HttpServer, method: str) -> None:
    assert Submission(server, method, "/", b"x").reply().status == 404


def test_a_key_that_is_too_long(server: HttpServer) -> None:
    reply = Submission(server, "POST", "/up", b"x", background="true", unique="u" * 70).reply()
    assert reply.headers["X-Gearman-Command"] == "ERROR"
    assert "ARGUMENT_TOO_LARGE" in (reply.headers["X-Gearman-Job-Handle"] if server.is_control else reply.body.decode())


def test_parts_of_a_result_and_warnings(server: HttpServer) -> None:
    if server.is_control:
        pytest.skip("gearmand 1.1.20 writes the parts over the head of its answer, and answers with the warning")
    with server.worker(b"parts") as worker:
        submission = Submission(server, "POST", "/parts", b"x")
        handle = grab(worker)[0]
        worker.send(Kind.WORK_DATA, handle, b"one, ")
        worker.send(Kind.WORK_WARNING, handle, b"careful")
        worker.send(Kind.WORK_COMPLETE, handle, b"two")
        assert submission.reply().body == b"one, two"


def test_a_job_whose_client_has_left(server: HttpServer) -> None:
    if server.is_control:
        pytest.skip("gearmand throws the job away when it reaches the head of the queue; until then it is counted")
    submission = Submission(server, "POST", "/left", b"x")
    with Wire(server.server.address) as operator:
        eventually(lambda: queued(operator, b"left") == b"1", "the job is queued")
        submission.connection.close()
        eventually(lambda: queued(operator, b"left") in (b"0", b""), "the job is dropped")


def queued(operator: Wire, function: bytes) -> bytes:
    """How many jobs `status` shows for a function."""
    return next((line.split(b"\t")[1] for line in operator.ask("status") if line.startswith(function + b"\t")), b"")


def test_an_announced_body_and_a_chunked_one(server: HttpServer) -> None:
    if server.is_control:
        pytest.skip("gearmand knows neither")
    with server.worker(b"up") as worker:
        for data in (
            b"POST /up HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
            b"POST /up HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ):
            with socket.create_connection((HOST, server.port), timeout=DEADLINE_SECONDS) as client:
                client.sendall(data)
                handle, _, _, payload = grab(worker)
                assert payload == b"hi"
                worker.send(Kind.WORK_COMPLETE, handle, b"ok")
                answer = b"".join(iter(lambda client=client: client.recv(4096), b""))  # type: ignore[misc]
            assert answer.endswith(b"\r\n\r\nok")
