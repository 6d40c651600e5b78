"""The trace of a job goes from every submitter that can say it, through the store, to every worker that has room."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from switchgear import App
from switchgear.client import Client
from switchgear.client.dwork import DworkClient, NewTask
from switchgear.client.wmp import WmpJob, WmpWorker
from tests.cli.commands import call, call_json
from tests.client.background import url_of
from tests.support.http_client import HttpClient
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind, Packet, Wire

pytestmark = pytest.mark.system

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"


CREDIT = 1007


def packet(wire: Wire) -> Packet:
    received = wire.receive()
    assert isinstance(received, Packet)
    return received


def traces_of(server: Server) -> list[str]:
    return [job["trace"] for job in reversed(call_json(server, "jobs")["jobs"])]


def test_over_http(tmp_path: Path) -> None:
    url = f"http://{HOST}:{free_port()}"
    store = f"sqlite:{tmp_path}/jobs.db"
    with running_switchgear("--listen", url, store=store) as server, closing(HttpClient(url)) as client:
        header = {"traceparent": TRACE}
        assert client.call("POST", "/v1/functions/f/jobs", b"a", header).status == 201
        assert client.call("POST", f"/v1/functions/f/jobs?trace={OTHER}", b"b", header).status == 201
        assert client.call("POST", "/v1/jobs", b'{"function": "f", "payload": "c"}', header).status == 201
        assert client.call("POST", "/v1/functions/f/jobs", b"d", {"traceparent": "nonsense"}).status == 201
        lines = b'{"function": "f"}\n{"function": "f", "trace": "%s"}\n' % OTHER.encode()
        assert client.call("POST", "/v1/jobs/batch", lines, header).status == 200
        assert client.call("POST", "/v1/jobs/batch?atomic=1", lines, header).status == 200
        expected = [TRACE, OTHER, TRACE, "", TRACE, OTHER, TRACE, OTHER]
        assert traces_of(server) == expected
        refused = client.call("POST", "/v1/jobs", json.dumps({"function": "f", "trace": "nonsense"}).encode())
        assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/trace")
        server.kill()
    with running_switchgear("--listen", url, store=store) as server, closing(HttpClient(url)) as client:
        assert traces_of(server) == expected
        taken = client.call("POST", "/v1/functions/f/take")
        assert taken.headers["traceparent"] == TRACE
        worker = client.call("POST", "/v1/workers", b'{"functions": ["f"]}').json["id"]
        polled: list[str] = []
        while len(polled) < 3:  # payloads may have to be read first
            answer = client.call("POST", f"/v1/workers/{worker}/poll?max=1&wait=10")
            polled += [job["trace"] for job in answer.json["jobs"]]
        assert polled == expected[1:4]
        assert "traceparent" not in client.call("POST", "/v1/functions/none/jobs", b"").headers
        assert TRACE in call(server, "job", taken.headers["Switchgear-Job"]).output


def test_over_gearman_to_a_worker_of_the_library_and_a_stock_one() -> None:
    with running_switchgear() as server, Client(url_of(server)) as client:
        submitted = call(server, "submit", "f", "x", "--background", "--trace", TRACE)
        assert submitted.exit_code == 0, submitted.output
        client.submit("f", b"", background=True, trace=OTHER)
        client.submit("f", b"", background=True)
        with App(url_of(server)) as app, Wire(server.address) as worker:
            assert app.job(submitted.output.strip()).status().details["trace"] == TRACE
            worker.send(Kind.OPTION_REQ, b"traces")
            worker.send(Kind.CAN_DO, b"f")
            worker.send(CREDIT, b"3\x000")
            bodies = [packet(worker).body for _ in range(4)]
            pushed = [body.split(b"\0") for body in bodies if body != b"traces"]
            assert [fields[7].decode() for fields in pushed] == [TRACE, OTHER, ""]
            for fields in pushed:
                worker.send(Kind.WORK_COMPLETE, fields[0] + b"\0")
        client.submit("f", b"payload", background=True, trace=TRACE)
        with Wire(server.address) as stock:
            stock.send(Kind.CAN_DO, b"f")
            stock.send(Kind.GRAB_JOB)
            assert packet(stock).body.endswith(b"f\0payload")
        with pytest.raises(Exception, match="trace is a traceparent"):
            client.submit("f", b"", background=True, trace="nonsense")


def test_over_wmp() -> None:
    url = f"wmp://{HOST}:{free_port()}"
    with running_switchgear("--listen", url) as server, Client(url_of(server)) as client:
        found: list[str] = []

        def note(job: WmpJob) -> bytes:
            found.append(job.trace)
            return b""

        client.submit("f", b"", background=True, trace=TRACE)
        client.submit("f", b"", background=True)
        with WmpWorker(url, {"f": note}):
            eventually(lambda: len(found) == 2, "both jobs have run")
        assert sorted(found) == ["", TRACE]


def test_over_dwork() -> None:
    url = f"dwork://{HOST}:{free_port()}"
    with running_switchgear("--listen", url) as server, DworkClient(url) as client:
        client.create([NewTask("a", trace=TRACE), NewTask("b"), NewTask("c", ("a",), trace=OTHER)])
        assert traces_of(server) == [TRACE, "", OTHER]
        stolen = {task.name: task.trace for task in client.steal(10, wait_seconds=DEADLINE_SECONDS)}
        assert stolen == {"a": TRACE, "b": ""}
        client.complete("a")
        assert [task.trace for task in client.steal(10, wait_seconds=DEADLINE_SECONDS)] == [OTHER]
        with pytest.raises(Exception, match="trace is no traceparent"):
            client.create([NewTask("d", trace="nonsense")])
