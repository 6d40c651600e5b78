"""The audit log of a real server: operators' actions of every protocol, and refusals, with who, what and from where."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

from switchgear.client import Client
from switchgear.joblog.audit import AuditQuery
from switchgear.joblog.job_log import JobLog
from tests.support.http_client import HttpClient
from tests.support.servers import HOST, free_port, running_switchgear
from tests.support.waiting import eventually


def test_actions_are_in_the_audit_log(tmp_path: Path) -> None:
    port = free_port()
    url = f"sqlite:{tmp_path / 'log.db'}"
    listener = ["--listen", f"http://{HOST}:{port}"]
    with running_switchgear("--joblog", url, *listener, store=f"sqlite:{tmp_path / 'jobs.db'}") as server:
        with Client(f"gearman://{HOST}:{server.port}") as client:
            handle = client.submit("mail", b"secret", background=True).handle
            client.control("pause", function="mail")
            client.control("functions")
            client.control("limit", function="mail")
            client.control("declare", owner="shop", schedules=[], functions=[], remove=True)  # removes nothing
        with socket.create_connection(server.address) as text:
            text.sendall(b"maxqueue mail 7\n")
            assert text.recv(100) == b"OK\r\n"
        http = HttpClient(f"http://{HOST}:{port}")
        assert http.call("DELETE", f"/v1/jobs/{handle}").status == 200
        answer = http.call("GET", "/v1/audit?limit=2")
        assert answer.status == 200
        page = answer.json
        assert [entry["verb"] for entry in page["entries"]] == ["cancel", "maxqueue"]
        assert page["entries"][0]["identity"] == "anonymous"
        assert page["entries"][0]["protocol"] == "http"
        assert page["entries"][0]["address"].startswith("127.0.0.1:")
        assert handle in page["entries"][0]["target"]
        rest = http.call("GET", f"/v1/audit?cursor={page['next']}").json
        assert [(entry["verb"], entry["target"]) for entry in rest["entries"]] == [("pause", "function=mail")]
        assert rest["next"] is None
        http.close()
        command = [sys.executable, "-m", "switchgear", "log", "--audit", "--json", "--url", url]
        shown = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        assert [entry["verb"] for entry in shown["entries"]] == ["cancel", "maxqueue", "pause"]
        assert "secret" not in json.dumps(shown)


def test_what_changes_no_job_is_in_it_too(tmp_path: Path) -> None:
    port = free_port()
    more = ["--listen", f"http://{HOST}:{port}", "--joblog", f"sqlite:{tmp_path / 'log.db'}"]
    with running_switchgear(*more, store=f"sqlite:{tmp_path / 'jobs.db'}"):
        http = HttpClient(f"http://{HOST}:{port}")
        http.call("POST", "/v1/workers/control", b'{"action": "ping"}')
        http.call("POST", "/v1/workers/control", b'{"action": "drain", "workers": "web1"}')
        for function in ("mail", "mail", "report"):
            assert http.call("POST", f"/v1/functions/{function}/jobs", b"").status == 201
        action = http.call("POST", "/v1/bulk", b'{"action": "cancel", "filter": {"function": "mail"}}').json
        assert http.call("DELETE", f"/v1/bulk/{action['id']}").status == 200
        entries = http.call("GET", "/v1/audit").json["entries"]
        http.close()
    assert [entry["verb"] for entry in entries] == ["abort_bulk", "bulk", "control_workers"]
    assert [entries[place]["target"] for place in (0, 2)] == [f"id={action['id']}", "action=drain, workers=web1"]


def test_refusals_are_in_it_but_not_all_of_a_flood(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text("[anonymous]\nroles = ['read']\n")
    access.chmod(0o600)
    url = f"sqlite:{tmp_path / 'log.db'}"
    port = free_port()
    more = ["--listen", f"gearman://{HOST}:{port}", "--access-file", str(access), "--joblog", url]
    with running_switchgear(*more, store=f"sqlite:{tmp_path / 'jobs.db'}", options="?access=open") as server:
        with socket.create_connection((HOST, port)) as text:
            text.sendall(b"maxqueue mail 7\n" * 200)
            received = b""
            while received.count(b"\r\n") < 200:
                received += text.recv(65536)
        assert received.startswith(b"ERR AUTHENTICATION_REQUIRED queue_limits+needs+the+role+operate")
        with JobLog.open(url, create=False) as log:
            entries = eventually(lambda: log.find_audit(AuditQuery()), "the refusals are written")
            assert {entry.outcome for entry in entries} == {"refused"}
            assert len(entries) < 50
            assert "queue_limits needs the role operate" in entries[0].target
        assert "maxqueue" not in [entry.verb for entry in entries]
        assert server.is_running()
