"""Watching a real server over HTTP: curl, raw sockets, viewers that do not read, and a server that stops."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.http_client import HttpClient
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system


@pytest.fixture
def harness() -> Iterator[tuple[Server, str]]:
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url) as server:
        yield server, url


@pytest.fixture
def client(harness: tuple[Server, str]) -> Iterator[HttpClient]:
    with closing(HttpClient(harness[1])) as client:
        yield client


def curl(*words: str) -> str:
    done = subprocess.run(["curl", "-sS", "-m", "30", *words], capture_output=True, text=True, check=True)
    return done.stdout


def connected(url: str) -> socket.socket:
    return socket.create_connection((HOST, int(url.rpartition(":")[2])), DEADLINE_SECONDS)


def test_curl_sees_the_overview(harness: tuple[Server, str], client: HttpClient) -> None:
    client.call("POST", "/v1/functions/f/jobs", b"x")
    overview = json.loads(curl(f"{harness[1]}/v1/overview"))
    assert overview["jobs"]["ready"] == 1
    assert overview["connections"]["by_protocol"]["http"] >= 1
    assert overview["store"]["error"] == ""


def test_events_arrive_while_jobs_come_and_go(client: HttpClient) -> None:
    events = client.events("/v1/events?topics=functions,overview")
    kinds = {next(events)[0], next(events)[0]}
    assert kinds == {"functions", "overview"}
    handle = client.call("POST", "/v1/functions/f/jobs", b"x").json["handle"]
    for name, event in events:
        if name == "functions":
            assert event["kind"] == "delta"
            assert event["data"]["rows"][0][:3] == ["f", 1, 1]
            break
    assert client.call("DELETE", f"/v1/jobs/{handle}").status == 200
    for name, event in events:
        if name == "functions":
            assert event["data"]["rows"][0][:3] == ["f", 0, 0]
            break
    events.close()  # type: ignore[attr-defined]


def test_curl_comes_back_with_its_last_id(harness: tuple[Server, str], client: HttpClient) -> None:
    watching = subprocess.Popen(
        ["curl", "-sSN", f"{harness[1]}/v1/events?topics=functions"], stdout=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    seen = next(line for line in watching.stdout if line.startswith("id: "))[4:].strip()
    watching.kill()
    watching.communicate()
    client.call("POST", "/v1/functions/f/jobs", b"x")
    watching = subprocess.Popen(
        ["curl", "-sSN", "-H", f"Last-Event-ID: {seen}", f"{harness[1]}/v1/events?topics=functions"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    data = json.loads(next(line for line in watching.stdout if line.startswith("data: "))[6:])
    watching.kill()
    watching.communicate()
    assert data["kind"] == "delta"
    assert data["data"]["rows"][0][:2] == ["f", 1]


def test_viewers_do_not_keep_the_server_from_stopping(harness: tuple[Server, str], client: HttpClient) -> None:
    server, url = harness
    with connected(url) as reading, connected(url) as silent:
        for peer in (reading, silent):
            peer.sendall(b"GET /v1/events?topics=overview,workers HTTP/1.1\r\nHost: localhost\r\n\r\n")
        data = b""
        while b"\nid: " not in data:
            data += reading.recv(65_536)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        while reading.recv(65_536):
            pass
        assert server.process.wait(DEADLINE_SECONDS) == 0
        assert time.monotonic() - started < 10


def test_a_viewer_that_does_not_read_is_not_told_more_and_more(harness: tuple[Server, str], client: HttpClient) -> None:
    """Very many functions make long events; the viewer keeps its connection as long as others would."""
    url = harness[1]
    lines = b"".join(b'{"function": "function-number-%d"}\n' % number for number in range(5_000))
    assert client.call("POST", "/v1/jobs/batch", lines).status == 200
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(DEADLINE_SECONDS)
        peer.connect((HOST, int(url.rpartition(":")[2])))
        peer.sendall(b"GET /v1/events?topics=functions HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(6):
            assert client.call("POST", "/v1/jobs/batch", lines).status == 200
            held = client.call("GET", "/v1/server").json["memory"]["output"]
            assert held < 3_000_000
        data = b""
        while b"reset" not in data and data.count(b"event: functions") < 2:
            data += peer.recv(1_000_000)
        assert b'"kind":"snapshot"' in data


def test_viewers_that_vanish_are_forgotten(harness: tuple[Server, str], client: HttpClient) -> None:
    for _ in range(100):  # more than a listener has streams
        with connected(harness[1]) as peer:
            peer.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    eventually(lambda: client.call("GET", "/v1/overview").json["connections"]["total"] <= 3, "the connections are gone")
    assert next(client.events("/v1/events"))[0] == "overview"


def test_a_real_server_answers_everything_that_can_be_watched(harness: tuple[Server, str], client: HttpClient) -> None:
    url = harness[1]
    for number in range(3):
        client.call("POST", "/v1/functions/f/jobs", b"x")
        taken = client.call("POST", "/v1/functions/f/take").headers
        attempt = {"Switchgear-Attempt": taken["Switchgear-Attempt"]}
        error = json.dumps({"error": f"no file {number}"}).encode()
        assert client.call("POST", f"/v1/jobs/{taken['Switchgear-Job']}/fail", error, attempt).status == 204
    (group,) = json.loads(curl(f"{url}/v1/errors"))["groups"]
    assert (group["error"], group["count"]) == ("no file #", 3)
    (flow,) = json.loads(curl(f"{url}/v1/flows"))["flows"]
    assert (flow["submitter"], flow["worker"], flow["failed"]) == ("http", "http", 3)
    storage = json.loads(curl(f"{url}/v1/storage"))
    assert storage["error"] == ""
    assert storage["waiting_changes"] >= 0
    connections = json.loads(curl(f"{url}/v1/connections?limit=1"))
    assert connections["count"] >= 1
    assert json.loads(curl(f"{url}/v1/graph?function=f"))["jobs"] == 0
    assert json.loads(curl(f"{url}/v1/at?t={time.time() - 5}"))["running_from"] in ("joblog", "none")
    assert json.loads(curl(f"{url}/v1/runs?since=1&until={time.time()}"))["columns"][0] == "worker"
    assert json.loads(curl(f"{url}/v1/nodes")) == []
    stream = json.loads(curl(f"{url}/v1/stream"))
    client.call("POST", "/v1/functions/f/jobs", b"x")
    taken = client.call("POST", "/v1/functions/f/take").headers
    attempt = {"Switchgear-Attempt": taken["Switchgear-Attempt"]}
    assert client.call("PUT", f"/v1/jobs/{taken['Switchgear-Job']}/result", b"", attempt).status == 204
    (row,) = json.loads(curl(f"{url}/v1/stream?cursor={stream['next']}"))["rows"]
    assert row[2:3] + row[5:] == [taken["Switchgear-Job"], "done"]


def test_series_begin_by_themselves(client: HttpClient) -> None:
    eventually(lambda: client.call("GET", "/v1/series").json["begins_at"] is not None, "the first sample")


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/v1/at", "invalid_parameter"),
        ("/v1/at?t=x", "invalid_parameter"),
        ("/v1/runs?since=5", "invalid_parameter"),
        ("/v1/runs?since=5&until=5", "invalid_parameter"),
        ("/v1/at?t=9999999999", "invalid_parameter"),
        ("/v1/series?step=7", "invalid_parameter"),
        ("/v1/series?metrics=x", "invalid_parameter"),
        ("/v1/series?function=nobody", "not_found"),
        ("/v1/graph", "invalid_parameter"),
        ("/v1/graph?handle=H:x:1", "not_found"),
        ("/v1/stream?limit=-1", "invalid_parameter"),
        ("/v1/errors?since=-1", "invalid_parameter"),
        ("/v1/connections?limit=0x", "invalid_parameter"),
        ("/v1/overview?x=1", "invalid_parameter"),
    ],
)
def test_wrong_parameters_are_problems(client: HttpClient, target: str, code: str) -> None:
    answer = client.call("GET", target)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["code"] == code
    for error in answer.json.get("errors", ()):
        assert error["parameter"] in ("t", "step", "metrics", "limit", "since", "until", "x")
