"""Commands with the address of the HTTP interface."""

from __future__ import annotations

import json

import pytest

from tests.cli.commands import Process, call
from tests.client.http.stage import running_http_server

pytestmark = pytest.mark.system


def test_commands() -> None:
    with running_http_server() as server:
        url = server.url
        handle = call(url, "submit", "--background", "reverse", "abc").stdout.split()[0]
        for words in (["functions"], ["jobs"], ["server"], ["explain", handle], ["workers"]):
            done = call(url, *words)
            assert done.exit_code == 0, done.output
        shown = json.loads(call(url, "top", "--once", "--json").stdout)
        assert [function["name"] for function in shown["functions"]] == ["reverse"]
        worker = Process(url, "worker", "reverse", "--exec", "rev")
        try:
            done = call(url, "submit", "--json", "reverse", "xyz")
            assert json.loads(done.stdout)["result"].strip() == "zyx"
        finally:
            worker.close()
        assert call(url, "cancel", "H:nowhere:9").exit_code == 1
