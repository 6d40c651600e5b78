"""HTTP with a real server: curl and Python's own client, crashes, drains, slow and hostile peers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from switchgear.client import Client, Worker, WorkerJob
from tests.support.http_client import HttpClient
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def harness() -> Iterator[tuple[Server, str]]:
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url) as server:
        yield server, url


@pytest.fixture
def client(harness: tuple[Server, str]) -> Iterator[HttpClient]:
    with closing(HttpClient(harness[1])) as client:
        yield client


@pytest.fixture(autouse=True)
def closing_clients() -> Iterator[None]:
    yield
    while _clients:
        _clients.pop().close()


_clients: list[HttpClient] = []


def closed_at_end(client: HttpClient) -> HttpClient:
    _clients.append(client)
    return client


def connected(url: str) -> socket.socket:
    return socket.create_connection((HOST, int(url.rpartition(":")[2])), DEADLINE_SECONDS)


def received(peer: socket.socket) -> bytes:
    """Everything until the server hangs up."""
    data = b""
    while piece := peer.recv(65_536):
        data += piece
    return data


def curl(*words: str) -> str:
    done = subprocess.run(["curl", "-sS", "-m", "30", *words], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_port_is_among_the_defaults() -> None:
    from switchgear.config import Config

    assert "http://127.0.0.1:4740" in [str(url) for url in Config().listen]


def test_curl_submits_and_looks(harness: tuple[Server, str], tmp_path: Path) -> None:
    url = harness[1]
    file = tmp_path / "payload"
    file.write_bytes(b"\0\xff" * 1000)
    created = json.loads(curl(f"{url}/v1/functions/curled/jobs?priority=high", "--data-binary", f"@{file}"))
    assert created["joined"] is False
    assert json.loads(curl(f"{url}/v1/jobs/{created['handle']}"))["priority"] == "high"
    curl(f"{url}/v1/jobs/{created['handle']}/payload", "-o", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == file.read_bytes()
    big = json.loads(curl(f"{url}/v1/jobs", "-d", '{"function": "curled", "payload": "x"}'))
    assert big["id"] > created["id"]
    assert curl("-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: evil.example", f"{url}/v1/jobs") == "421"
    assert curl("-o", "/dev/null", "-w", "%{http_code}", "--http2", f"{url}/livez") == "200"


def test_a_large_payload_goes_in_and_out(harness: tuple[Server, str], client: HttpClient) -> None:
    payload = os.urandom(1024) * 20_000
    handle = client.call("POST", "/v1/functions/large/jobs", payload).json["handle"]
    taken = client.call("POST", "/v1/functions/large/take")
    assert taken.body == payload
    attempt = {"Switchgear-Attempt": taken.headers["Switchgear-Attempt"]}
    assert client.call("PUT", f"/v1/jobs/{handle}/result", payload[::-1], attempt).status == 204
    assert client.call("GET", f"/v1/jobs/{handle}/result").body == payload[::-1]


def test_a_body_in_chunks(client: HttpClient, harness: tuple[Server, str], tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"abc" * 100_000)
    url = harness[1]
    answer = curl("-X", "POST", "-T", str(file), "-H", "Transfer-Encoding: chunked", f"{url}/v1/functions/chunked/jobs")
    handle = json.loads(answer)["handle"]
    assert client.call("GET", f"/v1/jobs/{handle}/payload").body == file.read_bytes()


def test_a_gearman_worker_does_a_job_of_a_client_that_waits(harness: tuple[Server, str], client: HttpClient) -> None:
    import asyncio

    async def live() -> bytes:
        async def work(job: WorkerJob) -> bytes:
            return job.payload.upper()

        worker = Worker(f"gearman://{HOST}:{harness[0].port}", {"shout": work})
        running = asyncio.create_task(worker.run())
        answer = await asyncio.to_thread(client.call, "POST", "/v1/functions/shout/jobs", b"hi", {"Prefer": "wait=10"})
        worker.stop()
        await running
        return answer.body

    assert asyncio.run(live()) == b"HI"


def test_a_worker_by_http_does_a_job_of_gearman(harness: tuple[Server, str], client: HttpClient) -> None:
    with Client(f"gearman://{HOST}:{harness[0].port}") as gearman:
        job = gearman.submit("mixed", b"payload")
        taken = client.call("POST", "/v1/functions/mixed/take?wait=10")
        attempt = {"Switchgear-Attempt": taken.headers["Switchgear-Attempt"]}
        assert client.call("PUT", f"/v1/jobs/{taken.headers['Switchgear-Job']}/result", b"done", attempt).status == 204
        assert job.wait(DEADLINE_SECONDS) == b"done"


# --- crashes and ends ---


def test_after_201_the_job_survives_kill_minus_nine(tmp_path: Path) -> None:
    url = f"http://{HOST}:{free_port()}"
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear("--listen", url, store=store) as server:
        client = closed_at_end(HttpClient(url))
        handles = [client.call("POST", "/v1/functions/f/jobs", b"%d" % number).json["handle"] for number in range(20)]
        lines = b'{"function": "f"}\n' * 30
        body = client.call("POST", "/v1/jobs/batch", lines).body
        handles += [json.loads(line)["handle"] for line in body.splitlines()]
        server.process.kill()
        server.process.wait()
    with running_switchgear("--listen", url, store=store):
        client = closed_at_end(HttpClient(url))
        for handle in handles:
            assert client.call("GET", f"/v1/jobs/{handle}").json["state"] == "ready"


def test_payloads_that_only_the_store_has_are_searched(tmp_path: Path) -> None:
    url = f"http://{HOST}:{free_port()}"
    few_bytes = ("--set", "storage.payload_memory_bytes=1000")
    with running_switchgear("--listen", url, *few_bytes, store=f"sqlite:{tmp_path / 'jobs.db'}"):
        client = closed_at_end(HttpClient(url))
        lines = [{"function": "f", "payload": f"order {number} " + "x" * 500, "key": "k"} for number in range(100)]
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        assert client.call("POST", "/v1/jobs/batch", body).status == 200
        taken = client.call("POST", "/v1/functions/f/take")
        assert taken.body.startswith(b"order 0 ")

        def found(query: str) -> list[tuple[int, str]]:
            page = client.call("GET", f"/v1/jobs?{query}").json
            assert page["complete"]
            return [(job["id"], job["state"]) for job in page["jobs"]]

        assert found("q=order%2055%20") == [(56, "ready")]
        assert found("q=order%200%20") == [(1, "running")]
        assert found("q=order%200%20&state=running,ready") == [(1, "running")]
        assert found("q=order%200%20&state=ready") == []
        assert found("q=order%209&key=k&limit=20")[-2:] == [(91, "ready"), (10, "ready")]
        assert found("q=order&key=other") == []


def test_the_work_of_a_worker_is_not_lost_with_the_server(tmp_path: Path) -> None:
    url = f"http://{HOST}:{free_port()}"
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear("--listen", url, store=store) as server:
        client = closed_at_end(HttpClient(url))
        client.call("POST", "/v1/functions/f/jobs", b"x")
        taken = client.call("POST", "/v1/functions/f/take")
        server.process.kill()
        server.process.wait()
    with running_switchgear("--listen", url, store=store):
        client = closed_at_end(HttpClient(url))
        job = f"/v1/jobs/{taken.headers['Switchgear-Job']}"
        attempt = {"Switchgear-Attempt": taken.headers["Switchgear-Attempt"]}
        assert client.call("PUT", f"{job}/result", b"done", attempt).status == 204
        assert client.call("GET", f"{job}/result").body == b"done"


def test_an_idempotency_key_survives_a_restart(tmp_path: Path) -> None:
    url = f"http://{HOST}:{free_port()}"
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    key = {"Idempotency-Key": "k"}
    for expected in (201, 200):
        with running_switchgear("--listen", url, store=store):
            client = closed_at_end(HttpClient(url))
            assert client.call("POST", "/v1/functions/f/jobs", b"x", key).status == expected
            assert client.call("POST", "/v1/functions/f/jobs", b"y", key).status == 422
            if expected == 201:
                taken = client.call("POST", "/v1/functions/f/take")
                attempt = {"Switchgear-Attempt": taken.headers["Switchgear-Attempt"]}
                client.call("PUT", f"/v1/jobs/{taken.headers['Switchgear-Job']}/result", b"", attempt)


def test_a_server_that_drains_lets_workers_report_on_new_connections() -> None:
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url, "--drain-timeout", "20s") as server:
        client = closed_at_end(HttpClient(url))
        client.call("POST", "/v1/functions/f/jobs", b"x")
        taken = client.call("POST", "/v1/functions/f/take")
        server.process.send_signal(signal.SIGTERM)

        def is_draining() -> bool:
            with closing(HttpClient(url)) as other:
                return other.call("GET", "/readyz").status == 503

        eventually(is_draining, "the server is not ready any more")
        with closing(HttpClient(url)) as other:
            assert other.call("GET", "/livez").status == 200
            attempt = {"Switchgear-Attempt": taken.headers["Switchgear-Attempt"]}
            answer = other.call("PUT", f"/v1/jobs/{taken.headers['Switchgear-Job']}/result", b"", attempt)
            assert answer.status == 204
        assert server.wait_stopped() == 0


def test_whoever_waits_is_answered_before_the_server_stops(tmp_path: Path) -> None:
    url = f"http://{HOST}:{free_port()}"
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear("--listen", url, "--drain-timeout", "20s", store=store) as server:
        client = closed_at_end(HttpClient(url))
        client.call("POST", "/v1/functions/f/jobs", b"x")
        client.call("POST", "/v1/functions/idle/jobs", b"x")
        taken = client.call("POST", "/v1/functions/f/take")
        waiting = {
            "worker": b"POST /v1/functions/g/take?wait=60",
            "running": b"GET /v1/jobs/1?wait=60",
            "queued": b"GET /v1/jobs/2?wait=60",
            "result": b"GET /v1/jobs/2/result?wait=60",
            "several": b"POST /v1/jobs/wait?wait=60",
            "events": b"GET /v1/jobs/2/events",
            "feed": b"GET /v1/events?topics=overview,job:2",
        }
        body = {"several": b'{"jobs": [{"handle": "2", "seen": [0, 0, ""]}]}'}
        peers = {}
        for name, line in waiting.items():
            peers[name] = connected(url)
            data = body.get(name, b"")
            head = b"%b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (line, len(data))
            peers[name].sendall(head + data)
        eventually(lambda: len(client.call("GET", "/v1/workers").json) == 2, "the worker waits")
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: client.call("GET", "/readyz").status == 503, "the server drains")
        attempt = {"Switchgear-Attempt": taken.headers["Switchgear-Attempt"]}
        assert client.call("PUT", "/v1/jobs/1/result", b"done", attempt).status == 204
        told = {}
        for name, peer in peers.items():
            with peer:
                told[name] = received(peer)
        assert server.wait_stopped() == 0
    statuses = {name: answer.partition(b"\r\n")[0].decode() for name, answer in told.items()}
    unfinished = told.pop("result")
    assert statuses.pop("worker") == "HTTP/1.1 204 No Content"
    assert b'"job_unfinished"' in unfinished
    assert statuses.pop("result") == "HTTP/1.1 409 Conflict"
    assert set(statuses.values()) == {"HTTP/1.1 200 OK"}
    assert b'"state":"done"' in told["running"]
    assert b'"state":"ready"' in told["queued"]
    assert told["events"].endswith(b"\r\n0\r\n\r\n")
    assert told["feed"].endswith(b"\r\n0\r\n\r\n")


def test_a_request_that_waits_does_not_keep_the_server_from_stopping() -> None:
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url) as server, connected(url) as peer:
        peer.sendall(b"POST /v1/functions/f/take?wait=600 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with closing(HttpClient(url)) as client:
            eventually(lambda: client.call("GET", "/v1/workers").json, "the worker waits")
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_stopped() == 0


# --- hostile peers ---


def test_a_head_that_comes_byte_by_byte(harness: tuple[Server, str]) -> None:
    with connected(harness[1]) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
            peer.sendall(bytes([byte]))
        assert received(peer).endswith(b'{"live":true}')


@pytest.fixture(scope="module")
def impatient() -> Iterator[str]:
    """A server that waits a second for what peers have to send."""
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url, "--set", "http.head_seconds=1", "--set", "http.idle_seconds=1"):
        yield url


def test_an_idle_connection_is_closed(impatient: str) -> None:
    with connected(impatient) as never_used, connected(impatient) as used:
        used.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert received(used).startswith(b"HTTP/1.1 200 ")
        assert received(never_used) == b""


@pytest.mark.parametrize(
    "start",
    [
        b"GET /livez HTTP/1.1\r\nHost: local",
        b"POST /v1/functions/f/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhell",
        b"POST /v1/functions/f/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhell",
    ],
)
def test_a_request_that_does_not_go_on_is_refused(impatient: str, start: bytes) -> None:
    with connected(impatient) as peer:
        peer.sendall(start)
        answer = received(peer)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"request_timeout" in answer


@pytest.mark.parametrize("start", [b"", b"POST /f HTTP/1.1\r\nHost: local"])
def test_gearmands_interface_does_not_wait_for_ever_either(start: bytes) -> None:
    url = f"http://{HOST}:{free_port()}"
    settings = ("--set", "http.head_seconds=1", "--set", "http.idle_seconds=1")
    with running_switchgear("--listen", f"{url}?api=gearmand", *settings), connected(url) as peer:
        peer.sendall(start)
        assert received(peer) == b""


def test_a_head_that_comes_byte_by_byte_is_refused_in_time(impatient: str) -> None:
    head = b"GET /livez HTTP/1.1\r\nX: " + b"x" * 10_000
    with connected(impatient) as peer:
        peer.settimeout(0.05)
        for place in range(len(head)):  # a byte every twentieth of a second, until there is an answer
            peer.sendall(head[place : place + 1])
            try:
                answer = peer.recv(65_536)
                break
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_request_that_waits_is_not_idle(impatient: str) -> None:
    client = closed_at_end(HttpClient(impatient))
    begun = time.monotonic()
    assert client.call("POST", "/v1/functions/nobody/take?wait=4").status == 204
    assert time.monotonic() - begun > 3.5


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\nHost: localhost\n\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 20_000, b"431"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"gibberish\r\n\r\n", b"400"),
    ],
)
def test_a_stream_that_is_no_http_is_answered_and_closed(
    harness: tuple[Server, str], data: bytes, status: bytes
) -> None:
    with connected(harness[1]) as peer:
        peer.sendall(data)
        if status != b"400" or b"\r\n\r\n" not in data or b"Host" in data or data.startswith(b"gib"):
            answer = received(peer)
        else:
            answer = peer.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 " + status), answer


def test_other_protocols_are_told_so(harness: tuple[Server, str]) -> None:
    with connected(harness[1]) as peer:
        peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert received(peer).startswith(b"\x15\x03")
    with connected(harness[1]) as peer:
        peer.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert received(peer).startswith(b"-ERR this port speaks HTTP")


def test_ten_thousand_pipelined_requests(harness: tuple[Server, str]) -> None:
    count = 10_000
    with connected(harness[1]) as peer:
        one = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        sender = threading.Thread(target=peer.sendall, args=(one * count,))
        sender.start()
        found = 0
        data = b""
        while found < count:
            piece = peer.recv(1 << 20)
            assert piece, "the server has hung up"
            data = data[-20:] + piece
            found += data.count(b'{"live":true}')
            data = data[data.rfind(b'{"live":true}') + 13 :] if b'{"live":true}' in data else data
        sender.join()


def test_a_peer_that_does_not_read_is_hung_up_on_and_others_are_served() -> None:
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url, "--set", "limits.slow_reader_seconds=1") as server:
        client = closed_at_end(HttpClient(url))
        handle = client.call("POST", "/v1/functions/f/jobs", b"x" * 10_000_000).json["handle"]
        with connected(url) as peer:
            request = f"GET /v1/jobs/{handle}/payload HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            peer.sendall(request * 50)
            started = time.monotonic()
            eventually(
                lambda: "does not read" in server.output() or "slow" in server.output(), "the server gives up", 30
            )
            assert client.call("GET", "/livez").status == 200
            assert time.monotonic() - started < 30


def is_served(peer: socket.socket) -> bool:
    try:
        peer.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return bool(peer.recv(1000))
    except OSError:
        return False


def test_connections_are_limited() -> None:
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url, "--set", "limits.connections=5"):
        peers = [connected(url) for _ in range(8)]
        assert 1 <= sum(map(is_served, peers)) <= 5
        for peer in peers:
            peer.close()


# --- what others make of the description ---

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def test_schemathesis_finds_nothing_wrong(harness: tuple[Server, str], client: HttpClient, tmp_path: Path) -> None:
    document = client.call("GET", "/openapi.json").json
    for operations in document["paths"].values():  # it finds jobs that do not end, and would wait for them
        for operation in operations.values():
            operation["parameters"] = [
                each for each in operation["parameters"] if each["name"] not in ("wait", "Prefer")
            ]
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    program = Path(sys.executable).parent / "schemathesis"
    done = subprocess.run(
        [
            str(program), "run", "openapi.json", "--url", harness[1], "--checks", ",".join(CHECKS),
            "--phases", "coverage,fuzzing", "--max-examples", "3", "--seed", "1", "--no-color",
            "--request-timeout", "20", "--exclude-path-regex", "(/events|/batch)$",
        ],
        capture_output=True, text=True, timeout=110, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
