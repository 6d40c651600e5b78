"""`switchgear server`."""

from __future__ import annotations

import pytest

from tests.cli.commands import call, call_json
from tests.support.servers import running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire, request

pytestmark = pytest.mark.system


def test_it_says_what_peers_make_the_server_hold() -> None:
    with running_switchgear() as server, Wire(server.address) as peer:
        packet = request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x" * 100_000)
        peer.send_bytes(packet[:50_000])

        def unfinished() -> int:
            return int(call_json(server, "server")["memory"]["input"])

        assert eventually(unfinished, "the beginning of the packet is counted") == 50_000
        answer = call_json(server, "server")
        listener = next(listener for listener in answer["listeners"] if "gearman:" in listener["url"])
        assert listener["input"] == 50_000
        assert listener["largest"]["input"] == 50_000
        shown = call(server, "server").stdout
        assert "48.8 KiB  packets that are not complete" in shown
        assert "serving" in shown
        peer.send_bytes(packet[50_000:])
        eventually(lambda: unfinished() == 0, "the packet is complete")


def test_the_limit_is_that_of_the_setting() -> None:
    with running_switchgear("--set", "limits.memory_bytes=256MiB") as server:
        assert call_json(server, "server")["memory"]["limit"] == 256 * 2**20
        assert "of 256 MiB" in call(server, "server").stdout


def test_without_a_setting_it_is_half_of_the_memory_there_is() -> None:
    with running_switchgear() as server:
        assert call_json(server, "server")["memory"]["limit"] > 2**20
