"""The figures of a real server, as promtool and a real Prometheus read them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote_from_bytes

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

from switchgear.net.monitoring.metrics_text import label_text
from tests.support.http_client import HttpClient
from tests.support.prometheus import promtool, running_prometheus
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

OPEN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
HOSTILE = [b'a"b', b"back\\slash", b"new\nline", b"\xff\xfe", b"\xf0\x9f\x90\x8e", b"\x1b[31mred", b'x"} 1\nforged 1']


@pytest.fixture
def harness() -> Iterator[tuple[Server, str]]:
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url) as server:
        yield server, url


@pytest.fixture
def client(harness: tuple[Server, str]) -> Iterator[HttpClient]:
    with closing(HttpClient(harness[1])) as client:
        yield client


def submit(client: HttpClient, function: bytes) -> None:
    answer = client.call("POST", f"/v1/functions/{quote_from_bytes(function, safe='')}/jobs", b"payload")
    assert answer.status == 201, answer.body


def test_the_format_is_the_one_that_the_client_prefers(client: HttpClient) -> None:
    plain = client.call("GET", "/metrics")
    assert plain.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert list(parse_text(plain.body.decode()))
    opened = client.call("GET", "/metrics", headers={"Accept": OPEN})
    assert opened.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert list(parse_open(opened.body.decode()))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.2,text/plain;q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ('application/openmetrics-text; version="1.0.0"; q=0.75', True),
        ("application/openmetrics-text;version=99.0.0,text/plain;q=0.1", False),
        ("application/openmetrics-text;q=nonsense", False),
        (";;;=,,=;q=,", False),
        (OPEN, True),
    ],
)
def test_any_accept_is_understood(client: HttpClient, accept: str, is_open: bool) -> None:
    answer = client.call("GET", "/metrics", headers={"Accept": accept})
    assert answer.status == 200
    assert answer.body.endswith(b"# EOF\n") == is_open


def test_head_has_no_body_and_the_connection_goes_on(client: HttpClient) -> None:
    assert client.call("HEAD", "/metrics").body == b""
    assert client.call("GET", "/livez").json == {"live": True}


def test_a_client_of_version_1_0_gets_all_until_the_end_of_the_connection(harness: tuple[Server, str]) -> None:
    port = int(harness[1].rpartition(":")[2])
    with socket.create_connection((HOST, port), DEADLINE_SECONDS) as peer:
        peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        data = b""
        while piece := peer.recv(65_536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert list(parse_text(body.decode()))


def test_promtool_has_nothing_to_complain_about(client: HttpClient) -> None:
    for name in HOSTILE:
        submit(client, name)
    text = client.call("GET", "/metrics").body.decode()
    assert promtool("check", "metrics", text=text) == ""
    assert "\nforged" not in text


def test_requests_are_counted_by_route_and_status(client: HttpClient) -> None:
    submit(client, b"f")
    client.call("GET", "/v1/jobs/H:nowhere:77")
    client.call("GET", "/nowhere/at/all")
    text = client.call("GET", "/metrics").body.decode()
    route = "switchgear_http_requests_total{route="
    assert f'{route}"POST /v1/functions/{{function}}/jobs",status="201"}} 1\n' in text
    assert f'{route}"GET /v1/jobs/{{handle}}",status="404"}} 1\n' in text
    assert f'{route}"other",status="404"}} 1\n' in text


def test_prometheus_reads_the_server(harness: tuple[Server, str], client: HttpClient) -> None:
    url = harness[1]
    for name in HOSTILE:
        submit(client, name)

    submit(client, b"resize")
    taken = client.call("POST", "/v1/functions/resize/take")
    headers = {"Switchgear-Attempt": taken.headers["Switchgear-Attempt"]}
    done = client.call("PUT", f"/v1/jobs/{taken.headers['Switchgear-Job']}/result", b"done", headers)
    assert done.status == 204
    with running_prometheus(url.removeprefix("http://")) as prometheus:
        eventually(lambda: prometheus.query("switchgear_storage_up == 1"), "Prometheus has read the server")
        assert prometheus.query("up") == [({"__name__": "up", "instance": url[7:], "job": "switchgear"}, 1.0)]
        ((labels, value),) = prometheus.query('switchgear_jobs_done_total{function="resize"}')
        assert (labels["function"], value) == ("resize", 1)
        ((_, seconds),) = prometheus.query('switchgear_job_run_seconds_sum{function="resize"}')
        assert seconds > 0
        shown = {labels["function"] for labels, _ in prometheus.query("switchgear_jobs_submitted_total == 1")}
        assert shown == {label_text(name) for name in HOSTILE} | {"resize"}
        kinds = prometheus.ask("/api/v1/targets/metadata", metric="switchgear_job_run_seconds")
        assert [kind["type"] for kind in kinds] == ["histogram"]
        kinds = prometheus.ask("/api/v1/targets/metadata", metric="switchgear_events")
        kinds += prometheus.ask("/api/v1/targets/metadata", metric="switchgear_events_total")
        assert [kind["type"] for kind in kinds] == ["counter"]


def test_scrapes_of_peers_that_read_nothing_hold_little(harness: tuple[Server, str], client: HttpClient) -> None:
    """Thirty scrapes of a megabyte each would be thirty megabytes."""
    lines = b"".join(b'{"function":"function-%d","payload":""}\n' % number for number in range(600))
    assert client.call("POST", "/v1/jobs/batch", lines).status == 200
    body = client.call("GET", "/metrics").body
    assert len(body) > 1_000_000
    port = int(harness[1].rpartition(":")[2])
    peers = []
    try:
        for _ in range(30):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect((HOST, port))
            peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
            peers.append(peer)
        for _ in range(3):
            memory = client.call("GET", "/v1/server").json["memory"]
            assert len(client.call("GET", "/metrics").body) > 1_000_000
            assert memory["output"] < 30 * 200_000, memory
    finally:
        for peer in peers:
            peer.close()
